/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sockets are made, accepted, used, used again and closed, with and without memory and a delay, on all CPUs. A model keeps the
 * expected amounts of each.
 */
#define TS_KEEPS
static void test_step(void);
#define TS_STEP() test_step()
#include "counted.h"
#include "observe/user_test.h"

#define SOCKETS 20

struct test_socket {
	u32 sample;
	u32 listens;
	u32 closed;
	u64 packets, bytes; /* pushed to its object */
	u64 cookie; /* 0: none yet */
};

static struct test_socket sockets[SOCKETS];
static u64 packets[INET_SAMPLES], bytes[INET_SAMPLES];
static u64 refused_packets[INET_SAMPLES], refused_bytes[INET_SAMPLES];
static u64 next_cookie, cookie_step;

/* The socket of which another CPU has a packet after `meanwhile_in` steps. */
static struct test_socket *meanwhile;
static u32 meanwhile_in;

/* The last closed connections, with their amounts. */
#define CLOSED 64

static struct test_closed {
	u64 id;
	u32 sample;
	struct ts_window window[INET_KEPT_TABLES];
} closed[CLOSED];
static u32 closed_count;

TS_INLINE void obs_describe_kept(struct ts_kept *kept, u64 obj, struct ts_window *scratch)
{
	((struct inet_kept *)kept)->about.owner.pid = ((struct inet_object *)obj)->pid;
	((struct inet_kept *)kept)->about.closed = 1;
}

/*
 * Each closed connection has a row until it has aged out, or is no larger than the largest one without a row. UDP sockets leave
 * no closed rows.
 */
static void compare_closed(void)
{
	u32 i, table, first = closed_count > CLOSED ? closed_count - CLOSED : 0;

	for (i = first; i < closed_count; i++) {
		const struct test_closed *c = &closed[i % CLOSED];

		for (table = 0; table < INET_KEPT_TABLES; table++) {
			u64 value = test_value(c->sample, table, &c->window[table]), row = 0;
			int has_row = test_row(c->sample, table, c->id, &row);

			TEST_WANT(!has_row || (c->sample < INET_KEPT_SAMPLES && row == value),
				  "closed %u, table %u: a row of %llu, not %llu", i, table, (unsigned long long)row,
				  (unsigned long long)value);
			if (c->sample < INET_KEPT_SAMPLES && value > test_missed_ended(c->sample, table))
				TEST_WANT(has_row, "closed %u, table %u: no row for %llu", i, table,
					  (unsigned long long)value);
		}
	}
}

static struct inet_object *object_of(struct test_socket *s)
{
	struct inet_object *o = host_of(objects, sk, s);

	return o && inet_object_is_own(o) && o->object.id ? o : NULL;
}

/* Count a datagram, as the hooks do (packet.bpf.h). */
static void packet(struct test_socket *s, u32 part)
{
	u32 n = 1 + test_random(20), b = test_once_in(3) ? 0 : test_random(1 << test_random(20));
	struct inet_object *o;

	host_user_no_memory = test_once_in(3);
	o = host_make(objects, sk, s);
	host_user_no_memory = 0;
	packets[s->sample] += n;
	bytes[s->sample] += b;
	if (!o) {
		inet_count_total(s->sample, part, n, b, 1);
		refused_packets[s->sample] += n;
		refused_bytes[s->sample] += b;
		return;
	}
	if (!inet_object_own(o, (u64)s, NULL)) {
		TEST_WANT(o->object.self == INET_INIT, "nobody else makes the object");
		inet_count_total(s->sample, part, n, b, 1);
		refused_packets[s->sample] += n;
		refused_bytes[s->sample] += b;
		return;
	}
	if (!inet_is_dead(o) && !o->object.id) {
		if (!s->cookie)
			s->cookie = next_cookie += cookie_step;
		inet_object_begin(o, s->sample, s->cookie);
	}
	if (inet_is_dead(o)) {
		inet_count_total(s->sample, part, n, b, 0);
		return;
	}
	inet_count(o, s->sample, part, n, b);
	s->packets += n;
	s->bytes += b;
}

static void test_step(void)
{
	struct test_socket *s = meanwhile;
	u32 cpu = host_user_cpu;

	if (!s || --meanwhile_in)
		return;
	meanwhile = NULL;
	host_user_cpu = (cpu + 1) % HOST_USER_CPUS;
	packet(s, test_random(2));
	host_user_cpu = cpu;
}

/* Two CPUs have packets of the socket at once. */
static void packets_at_once(struct test_socket *s)
{
	meanwhile = s;
	meanwhile_in = 1 + test_random(40);
	packet(s, test_random(2));
	meanwhile = NULL;
}

static void end(struct test_socket *s, struct inet_object *o)
{
	struct test_closed *c;

	if (o->object.id) {
		c = &closed[closed_count++ % CLOSED];
		c->id = o->object.id;
		c->sample = s->sample;
		memcpy(c->window, o->window, sizeof(c->window));
	}
	inet_object_end(o);
	TEST_WANT(!o->object.id, "it has no id any more");
}

static void close_socket(struct test_socket *s)
{
	struct inet_object *o = host_of(objects, sk, s);

	if (o && inet_object_is_own(o)) {
		end(s, o);
		if (test_once_in(2))
			inet_object_end(o); /* a second call does nothing */
	}
	s->closed = 1;
}

/*
 * However the steps of several readers interleave, they take each counted amount once. A reader has three steps: it reads the
 * taken amounts, then the counters, then takes the difference.
 */
#define READERS 3
#define COUNTERS 5

struct test_reader {
	u32 step;
	struct records_counts was, now;
};

static void test_add(u64 *sums, const struct records_counts *more)
{
	u32 k;

	for (k = 0; k < TS_PARTS; k++) {
		sums[k] += more->packets[k];
		sums[2 + k] += more->bytes[k];
	}
	sums[4] += more->resent;
}

static void test_takes(void)
{
	static struct inet_object o;
	struct test_reader readers[READERS] = {};
	u64 counted[COUNTERS] = {}, taken[COUNTERS] = {};
	struct records_counts now, more;
	u32 i, k, first = test_random(1U << 31) * 2 + test_random(2); /* so that counters wrap, too */

	memset(&o, 0, sizeof(o));
	now = (struct records_counts){ .bytes = { first, (1ULL << 56) - first }, .packets = { first, first }, .resent = first };
	inet_taken_from(&o, &now);
	for (i = 0; i < 200; i++) {
		struct test_reader *r = &readers[test_random(READERS)];

		more = (struct records_counts){};
		for (k = 0; k < TS_PARTS; k++) {
			more.packets[k] = test_once_in(2) ? 0 : test_random(1 << test_random(20));
			more.bytes[k] = test_once_in(2) ? 0 : (u64)test_random(1 << test_random(20)) << test_random(12);
			now.packets[k] += more.packets[k];
			now.bytes[k] += more.bytes[k];
		}
		more.resent = test_once_in(2) ? 0 : test_random(1 << test_random(20));
		now.resent += more.resent;
		test_add(counted, &more);
		if (r->step == 0) {
			inet_taken(&r->was, &o);
		} else if (r->step == 1) {
			r->now = now;
		} else {
			inet_take(&o, &r->was, &r->now, &more, INET_ALL);
			test_add(taken, &more);
		}
		r->step = (r->step + 1) % 3;
		for (k = 0; k < COUNTERS; k++)
			TEST_WANT(taken[k] <= counted[k], "counter %u: more was taken than counted", k);
	}
	/* The last take, when the connection is closed, finds the rest. */
	inet_taken(&readers[0].was, &o);
	inet_take(&o, &readers[0].was, &now, &more, INET_ALL);
	test_add(taken, &more);
	for (k = 0; k < COUNTERS; k++)
		TEST_WANT(taken[k] == counted[k], "counter %u: %llu were taken of %llu", k, (unsigned long long)taken[k],
			  (unsigned long long)counted[k]);
}

/* The accepted socket gets a copy of the listener's storage. */
static void accept_socket(struct test_socket *listener, struct test_socket *s)
{
	memset(s, 0, sizeof(*s));
	s->sample = listener->sample;
	host_user_free(objects, s);
	host_user_clone(objects, listener, s);
}

static void compare(void)
{
	u64 alive = 0, counted = 0;
	u32 i, sample;

	for (i = 0; i < SOCKETS; i++) {
		struct test_socket *s = &sockets[i];
		struct inet_object *o = object_of(s);
		u64 sum, value, row = 0;

		if (!o)
			continue;
		alive++;
		sum = o->window[INET_PPS].sum[INET_RX] + o->window[INET_PPS].sum[INET_TX];
		TEST_WANT(sum == s->packets, "socket %u: %llu packets, not %llu", i, (unsigned long long)sum,
			  (unsigned long long)s->packets);
		sum = o->bytes.sum[INET_RX] + o->bytes.sum[INET_TX];
		TEST_WANT(sum == s->bytes, "socket %u: %llu bytes, not %llu", i, (unsigned long long)sum,
			  (unsigned long long)s->bytes);
		if (settings.config[s->sample][INET_PPS].delay)
			continue;
		value = test_value(s->sample, INET_PPS, &o->window[INET_PPS]);
		if (value > test_missed(s->sample, INET_PPS))
			TEST_WANT(test_row(s->sample, INET_PPS, o->object.id, &row) && row == value,
				  "socket %u: no row for %llu packets", i, (unsigned long long)value);
	}
	for (sample = 0; sample < INET_SAMPLES; sample++) {
		counted += census[sample].begun - census[sample].ended;
		TEST_WANT(test_total(sample, INET_PPS) == packets[sample], "sample %u: packets in total", sample);
		TEST_WANT(test_total(sample, INET_BPS) == bytes[sample], "sample %u: bytes in total", sample);
		TEST_WANT(test_total(sample, INET_BYTES) == bytes[sample], "sample %u: bytes ever", sample);
		TEST_WANT(test_refused(sample, INET_PPS) == refused_packets[sample], "sample %u: refused", sample);
		TEST_WANT(test_refused(sample, INET_BYTES) == refused_bytes[sample], "sample %u: refused bytes", sample);
	}
	compare_closed();
	TEST_WANT(counted == alive, "%llu objects, not %llu", (unsigned long long)counted, (unsigned long long)alive);
}

/* The socket is used for another connection, which begins at 0. */
static void use_again(struct test_socket *s)
{
	struct inet_object *o = host_of(objects, sk, s);

	if (o && inet_object_is_own(o)) {
		end(s, o);
		inet_object_reset(o);
	}
	s->closed = 0;
	s->packets = s->bytes = 0;
}

/* The id marks a kernel's own socket, and no other one, whichever way the kernel has counted the cookie. */
static void test_ids(void)
{
	u64 cookie = (1 + test_random(1U << 30)) * (test_once_in(2) ? 1 : -1), id = inet_kernels_id(cookie);

	TEST_WANT(inet_id_is_kernels(id) && !inet_id_is_kernels(cookie), "cookie %llx: whose it is",
		  (unsigned long long)cookie);
	TEST_WANT(inet_id_has(id, cookie) && inet_id_has(cookie, cookie), "cookie %llx: its ids",
		  (unsigned long long)cookie);
	id = inet_connection_id(cookie, test_random(256));
	TEST_WANT(inet_id_has(id, cookie) && !inet_id_is_kernels(id) && !inet_id_has(id, cookie + 1),
		  "cookie %llx: ids of its connections", (unsigned long long)cookie);
	TEST_WANT(!inet_id_has(id, cookie + 1) && !inet_id_has(cookie, cookie - 1), "cookie %llx: ids of others",
		  (unsigned long long)cookie);
}

TEST(inet)
{
	u32 i, sample, table, steps = 40 + test_random(300), delay = test_once_in(2) ? 0 : 1 + test_random(300);

	test_ids();
	test_takes();
	memset(sockets, 0, sizeof(sockets));
	memset(&objects, 0, sizeof(objects));
	memset(packets, 0, sizeof(packets));
	memset(bytes, 0, sizeof(bytes));
	memset(refused_packets, 0, sizeof(refused_packets));
	memset(refused_bytes, 0, sizeof(refused_bytes));
	/* Cookies are counted up; or down from 2^64, as the kernel does if an interrupt makes a socket while it counts. */
	cookie_step = test_once_in(2) ? 1 : -1;
	next_cookie = 0;
	memset(kept, 0, sizeof(kept));
	memset(ended, 0, sizeof(ended));
	closed_count = 0;
	for (sample = 0; sample < INET_SAMPLES; sample++)
		for (table = 0; table < INET_TABLES; table++)
			test_configure(sample, table, obs_type(sample, table), 200, delay);
	for (i = 0; i < SOCKETS; i++) {
		sockets[i].sample = test_random(INET_SAMPLES);
		sockets[i].listens = test_once_in(4);
	}
	for (i = 0; i < steps; i++) {
		struct test_socket *s = &sockets[test_random(SOCKETS)];
		struct test_socket *listener = &sockets[test_random(SOCKETS)];

		test_time_passes(test_random(1 << test_random(27)));
		host_user_cpu = test_random(HOST_USER_CPUS);
		if (test_once_in(10)) {
			if (s->closed)
				use_again(s);
			else
				close_socket(s);
		} else if (test_once_in(10) && listener->listens && s->closed && !object_of(s) && listener != s) {
			accept_socket(listener, s);
		} else if (test_once_in(3)) {
			packets_at_once(s);
		} else {
			packet(s, test_random(2));
		}
		compare();
	}
}
