/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Connections and UDP sockets receive and send at random moments, and close. Hooks make records, and readers on any CPU settle.
 * A model keeps the amounts of each socket by slide.
 */
#define TS_KEEPS
#include "observe/kernel.h"

struct ts_window;
static int inet_peek(struct ts_window *w, u64 obj, u32 at);
static u64 inet_most(u64 obj, u32 at);

#include "view.h"
#include "counted.h"
#include "listed.h"

static u64 next_id;

TS_INLINE void inet_begin(struct sock *sk, struct inet_object *o)
{
	inet_object_begin(o, o->sample, next_id += 1);
}

#include "record.h"
#include "settle.h"
#include "udp.h"
#include "observe/user_test.h"

#define FLOWS 24
/* More slides than a window has. */
#define SLIDES 32
#define CLOSED 16

TS_INLINE void obs_describe_kept(struct ts_kept *kept, u64 obj, struct ts_window *scratch)
{
	((struct inet_kept *)kept)->about.closed = 1;
}

/* The amounts of a table, by slide. */
struct test_slides {
	u64 slide[SLIDES];
	u64 amount[SLIDES];
};

/* A table of a connection. */
struct test_counted {
	struct test_slides slides;
	u64 open; /* the slide that the amounts of now count to: of the newest record */
	u64 pending; /* amounts that no record has begun yet */
	u64 untaken; /* by readers, and not pending */
};

struct test_flow {
	struct tcp_sock tp;
	struct inet_object *o; /* NULL: closed */
	u32 sample;
	u32 is_kernels;
	struct test_counted of[RECORDS_TABLES];
	u64 bytes; /* all payload, and what of it was taken */
	u64 taken_bytes;
};

static struct test_flow flows[FLOWS];
/* The amounts that are in totals. */
static struct test_slides totals[INET_SAMPLES][RECORDS_TABLES];
static u64 bytes[INET_SAMPLES];

static struct test_closed {
	u64 id;
	u32 sample;
	struct test_slides slides[RECORDS_TABLES];
} closed[CLOSED];
static u32 closed_count;

static u64 slide_now(u32 sample, u32 table)
{
	return host_jiffies() / settings.config[sample][table].slide;
}

static void slides_add(struct test_slides *s, u64 slide, u64 amount)
{
	u32 i = slide % SLIDES;

	if (s->slide[i] > slide)
		return;
	if (s->slide[i] != slide)
		s->amount[i] = 0;
	s->slide[i] = slide;
	s->amount[i] += amount;
}

/* The amounts of the slides from `age` on to the present one. */
static u64 slides_since(const struct test_slides *s, u64 now, u32 age)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < SLIDES; i++)
		if (s->slide[i] + age >= now)
			sum += s->amount[i];
	return sum;
}

/* The period begins in a slide of which a part counts. `pending`: these amounts may count, too. */
static void compare_value(const char *what, u32 of, u32 sample, u32 table, const struct test_slides *s, u64 pending, u64 value)
{
	u64 now = slide_now(sample, table), least = slides_since(s, now, TS_SLIDES - 1);
	u64 most = slides_since(s, now, TS_SLIDES) + pending;

	TEST_WANT(value >= least && value <= most, "%s %u, table %u: %llu, and not %llu to %llu", what, of, table,
		  (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
}

/* UDP has no table of segments that are sent again. */
static u32 tables_of(u32 sample)
{
	return inet_is_tcp(sample) ? RECORDS_TABLES : INET_RETRANS;
}

static struct tcp_sock *tcp_of(struct test_flow *f)
{
	return inet_is_tcp(f->sample) ? &f->tp : NULL;
}

static struct sock *sock_of(struct test_flow *f)
{
	return (struct sock *)&f->tp;
}

/* An amount that TCP counts now. */
static void model_add(struct test_flow *f, u32 table, u64 amount)
{
	struct test_counted *c = &f->of[table];

	if (!(f->is_kernels || ts_read(f->o->listed) & INET_LISTED) || !c->open) {
		c->pending += amount;
		return;
	}
	slides_add(&c->slides, c->open, amount);
	c->untaken += amount;
}

/* A hook makes records: amounts that were counted before, and that no record has begun, belong to the present slide. */
static void model_record(struct test_flow *f)
{
	u32 table;

	for (table = 0; table < tables_of(f->sample); table++) {
		struct test_counted *c = &f->of[table];
		u64 now = slide_now(f->sample, table);

		c->open = now;
		slides_add(&c->slides, now, c->pending);
		c->untaken += c->pending;
		c->pending = 0;
	}
}

static void record(struct test_flow *f, u32 newest, u32 resent)
{
	inet_record(sock_of(f), &f->tp, f->o, newest, resent);
	model_record(f);
}

static void open_flow(struct test_flow *f)
{
	memset(f, 0, sizeof(*f));
	f->sample = test_random(INET_SAMPLES);
	sock_of(f)->__sk_common.skc_state = TCP_ESTABLISHED;
	f->o = host_make(objects, sk, sock_of(f));
	inet_object_init(f->o, (u64)(unsigned long)f, NULL);
	f->o->sample = f->sample;
	if (!inet_is_tcp(f->sample)) {
		next_id += 1;
		f->is_kernels = test_once_in(4);
		inet_object_begin(f->o, f->sample, f->is_kernels ? inet_kernels_id(next_id) : next_id);
		return;
	}
	/* Stamps of a socket that has not received anything yet. */
	f->tp.rcv_tstamp = f->tp.inet_conn.icsk_ack.lrcvtime = f->tp.lsndtime = host_jiffies() - 10000000;
	record(f, 0, 0);
}

static void receive(struct test_flow *f)
{
	u32 payload = test_once_in(3) ? 0 : test_random(1 << test_random(20)), table, sample = f->sample;

	f->tp.segs_in++;
	if (inet_is_due(&f->tp))
		record(f, 1, 0);
	for (table = 0; table < tables_of(sample); table++)
		TEST_WANT(f->of[table].open == slide_now(sample, table), "R1: table %u has no record in the slide of a segment", table);
	f->tp.bytes_received += payload;
	f->bytes += payload;
	f->tp.rcv_tstamp = host_jiffies();
	if (payload)
		f->tp.inet_conn.icsk_ack.lrcvtime = host_jiffies();
	model_add(f, INET_PPS, 1);
	model_add(f, INET_BPS, payload);
}

static void send(struct test_flow *f, u32 again)
{
	u32 payload = test_random(1 << test_random(20));

	f->tp.segs_out++;
	f->tp.total_retrans += again;
	if (again) {
		f->tp.bytes_sent += payload;
		f->bytes += payload;
		model_add(f, INET_BPS, payload);
		record(f, 0, 1);
	} else {
		f->tp.bytes_sent += payload;
		f->bytes += payload;
		model_add(f, INET_BPS, payload);
	}
	f->tp.lsndtime = host_jiffies();
	model_add(f, INET_PPS, 1);
	model_add(f, INET_RETRANS, again);
}

/* What was taken is in the totals. */
static void model_taken(struct test_flow *f)
{
	u32 table, i;

	for (table = 0; table < tables_of(f->sample); table++) {
		struct test_counted *c = &f->of[table];

		/* The amounts of each slide since the last time that they were taken: the newest ones. */
		for (i = 0; i < SLIDES && c->untaken; i++) {
			u64 slide = c->open - i, at = slide % SLIDES, most;

			if (slide > c->open || c->slides.slide[at] != slide)
				continue;
			most = c->slides.amount[at] < c->untaken ? c->slides.amount[at] : c->untaken;
			slides_add(&totals[f->sample][table], slide, most);
			c->untaken -= most;
		}
		c->untaken = 0;
	}
	bytes[f->sample] += f->bytes - f->of[INET_BPS].pending - f->taken_bytes;
	f->taken_bytes = f->bytes - f->of[INET_BPS].pending;
}

/* A datagram is received, or sent. */
static void datagram(struct test_flow *f)
{
	u32 packets = 1 + test_random(3), payload = test_once_in(4) ? 0 : test_random(1 << test_random(16)), table;

	if (f->o->cell != inet_cell(host_jiffies()) >> 32)
		model_record(f);
	inet_udp_count(sock_of(f), f->o, test_random(2), packets, payload);
	for (table = 0; table < tables_of(f->sample); table++)
		TEST_WANT(f->of[table].open == slide_now(f->sample, table), "R1: table %u has no record in the slide of a datagram", table);
	f->bytes += payload;
	model_add(f, INET_PPS, packets);
	model_add(f, INET_BPS, payload);
	if (f->is_kernels) {
		TEST_WANT(!(ts_read(f->o->listed) & INET_ON_LIST), "IU3: readers take the amounts of a socket of the kernel itself");
		model_taken(f);
	}
}

static void close_flow(struct test_flow *f)
{
	struct test_closed *c;
	u32 table;

	/* The last amounts count to the newest record, as all amounts before the next record do. */
	for (table = 0; table < tables_of(f->sample); table++) {
		struct test_counted *of = &f->of[table];

		slides_add(&of->slides, of->open, of->pending);
		of->untaken += of->pending;
		of->pending = 0;
	}
	ts_write(f->o->life, f->o->life | 1);
	sock_of(f)->__sk_common.skc_state = TCP_CLOSE;
	inet_finish(sock_of(f), tcp_of(f), f->o);
	model_taken(f);
	if (inet_is_tcp(f->sample)) {
		c = &closed[closed_count++ % CLOSED];
		c->id = f->o->object.id;
		c->sample = f->sample;
		for (table = 0; table < RECORDS_TABLES; table++)
			c->slides[table] = f->of[table].slides;
	}
	inet_object_end(f->o);
	host_user_free(rings, sock_of(f));
	host_user_free(objects, sock_of(f));
	f->o = NULL;
}

static void settle(void)
{
	struct inet_settling *s = inet_settling();
	u32 i;

	for (i = 0; i < FLOWS; i++) {
		struct test_flow *f = &flows[i];

		if (!f->o || !(ts_read(f->o->listed) & INET_ON_LIST))
			continue;
		inet_settle_one(s, sock_of(f), tcp_of(f), f->o);
		model_taken(f);
		if (test_once_in(20))
			test_time_passes(test_random(1 << 28));
	}
	inet_now(s);
	inet_flush(s);
}

static void compare_flow(u32 i)
{
	struct test_flow *f = &flows[i];
	u32 table;

	for (table = 0; table < tables_of(f->sample); table++) {
		struct test_slides *s = &f->of[table].slides;
		u64 row = 0, least = slides_since(s, slide_now(f->sample, table), TS_SLIDES - 1);

		if (test_row(f->sample, table, f->o->object.id, &row))
			compare_value("connection", i, f->sample, table, s, f->of[table].pending, row);
		else
			TEST_WANT(least <= test_missed(f->sample, table), "connection %u, table %u: no row for %llu", i, table,
				  (unsigned long long)least);
	}
	TEST_WANT(f->o->counted.bytes.sum[0] + f->o->counted.bytes.sum[1] == f->taken_bytes, "connection %u: %llu bytes, not %llu", i,
		  (unsigned long long)(f->o->counted.bytes.sum[0] + f->o->counted.bytes.sum[1]), (unsigned long long)f->taken_bytes);
}

static void compare_closed(void)
{
	u32 i, table, first = closed_count > CLOSED ? closed_count - CLOSED : 0;

	for (i = first; i < closed_count; i++) {
		struct test_closed *c = &closed[i % CLOSED];

		for (table = 0; table < RECORDS_TABLES; table++) {
			u64 row = 0, least = slides_since(&c->slides[table], slide_now(c->sample, table), TS_SLIDES - 1);

			if (test_row(c->sample, table, c->id, &row))
				compare_value("closed connection", i, c->sample, table, &c->slides[table], 0, row);
			else
				TEST_WANT(least <= test_missed_ended(c->sample, table), "closed %u, table %u: no row for %llu", i,
					  table, (unsigned long long)least);
		}
	}
}

static void compare_totals(void)
{
	u32 sample, table, cpu;

	for (sample = 0; sample < INET_SAMPLES; sample++) {
		for (table = 0; table < tables_of(sample); table++) {
			u64 value = 0;

			for (cpu = 0; cpu < HOST_USER_CPUS; cpu++)
				value += test_value(sample, table, &obs_table(host_bank(cpu, sample), table)->total);
			compare_value("total of sample", sample, sample, table, &totals[sample][table], 0, value);
		}
		TEST_WANT(test_total(sample, INET_BYTES) == bytes[sample], "sample %u: %llu bytes, not %llu", sample,
			  (unsigned long long)test_total(sample, INET_BYTES), (unsigned long long)bytes[sample]);
	}
}

static void compare(void)
{
	u32 i;

	for (i = 0; i < FLOWS; i++)
		if (flows[i].o)
			compare_flow(i);
	compare_closed();
	compare_totals();
}

TEST(inet_connections)
{
	static const u32 periods[] = { 100, 150, 1000, 1500, 7000 };
	u32 i, sample, table, steps = 100 + test_random(400), busy = 1 + test_random(FLOWS);

	next_id = 0;
	cell = cell_changed = apart = 0;
	memset(&objects, 0, sizeof(objects));
	memset(&rings, 0, sizeof(rings));
	memset(flows, 0, sizeof(flows));
	memset(totals, 0, sizeof(totals));
	memset(bytes, 0, sizeof(bytes));
	memset(kept, 0, sizeof(kept));
	memset(ended, 0, sizeof(ended));
	memset(shares, 0, sizeof(shares));
	memset(settling, 0, sizeof(settling));
	closed_count = 0;
	for (sample = 0; sample < INET_SAMPLES; sample++)
		for (table = 0; table < INET_TABLES; table++)
			if (table == INET_BYTES || table < tables_of(sample))
				test_configure(sample, table, obs_type(sample, table), periods[test_random(5)], 0);
	inet_next_cell(host_jiffies()); /* as other connections' segments do: it finds the rings that are needed */
	for (i = 0; i < steps; i++) {
		struct test_flow *f = &flows[test_random(test_once_in(4) ? FLOWS : busy)];

		host_user_cpu = test_random(HOST_USER_CPUS);
		test_time_passes(1 + test_random(1 << test_random(test_once_in(10) ? 32 : 26)));
		if (!f->o)
			open_flow(f);
		else if (!f->is_kernels && test_once_in(30)) /* IU3: no hook sees the end of the others */
			close_flow(f);
		else if (!inet_is_tcp(f->sample))
			datagram(f);
		else if (test_once_in(12))
			send(f, 1);
		else if (test_once_in(2))
			send(f, 0);
		else
			receive(f);
		if (!test_once_in(6))
			continue;
		host_user_cpu = test_random(HOST_USER_CPUS);
		settle();
		compare();
	}
}
