/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * UDP sockets are made, used and closed, with and without memory, and on all CPUs at the same time: while a CPU counts a
 * datagram or closes a socket, another one, or an interrupt, counts a datagram or closes it. A model keeps the expected sums.
 */
#define TS_KEEPS
static void test_step(void);
#define TS_STEP() test_step()
#include "observe/kernel.h"

struct ts_window;
static int inet_peek(struct ts_window *w, u64 obj, u32 at);
static u64 inet_most(u64 obj, u32 at);

#include "view.h"
#include "counted.h"
#include "listed.h"

TS_INLINE void inet_begin(struct sock *sk, struct inet_object *o)
{
}

#include "record.h"
#include "settle.h"
#include "udp.h"
#include "observe/user_test.h"

#define SOCKETS 20

struct test_socket {
	struct tcp_sock memory; /* larger than a UDP socket */
	u32 sample;
	u32 is_kernels;
	u32 closed;
	u64 cookie; /* 0: none yet */
};

static struct test_socket sockets[SOCKETS];
static u64 packets[INET_SAMPLES], bytes[INET_SAMPLES];
static u64 refused_packets[INET_SAMPLES], refused_bytes[INET_SAMPLES];
static u64 next_cookie, cookie_step;

/* The socket with which another CPU does something after `meanwhile_in` steps. */
static struct test_socket *meanwhile;
static u32 meanwhile_in;

TS_INLINE void obs_describe_kept(struct ts_kept *kept, u64 obj, struct ts_window *scratch)
{
}

static struct sock *sock_of(struct test_socket *s)
{
	return (struct sock *)&s->memory;
}

static struct inet_object *object_of(struct test_socket *s)
{
	struct inet_object *o = host_of(objects, sk, sock_of(s));

	return o && inet_object_is_own(o) && o->object.id ? o : NULL;
}

static void without_object(struct test_socket *s, u32 part, u32 n, u32 b, u32 refused)
{
	inet_count_total(s->sample, part, n, b, refused);
	if (refused) {
		refused_packets[s->sample] += n;
		refused_bytes[s->sample] += b;
	}
}

/* Count a datagram, as the hooks do (functions.bpf.h). */
static void packet(struct test_socket *s)
{
	u32 part = test_random(2), n = 1 + test_random(20), b = test_once_in(3) ? 0 : test_random(1 << test_random(20));
	struct inet_object *o;
	u64 id;

	host_user_no_memory = test_once_in(3);
	o = host_make(objects, sk, sock_of(s));
	host_user_no_memory = 0;
	packets[s->sample] += n;
	bytes[s->sample] += b;
	if (!o) {
		without_object(s, part, n, b, 1);
		return;
	}
	if (!inet_object_own(o, (u64)(unsigned long)s, NULL)) {
		TEST_WANT(o->object.self == INET_INIT, "nobody else makes the object");
		without_object(s, part, n, b, 1);
		return;
	}
	if (!inet_is_dead(o) && !o->object.id) {
		if (!s->cookie)
			s->cookie = next_cookie += cookie_step;
		id = s->is_kernels ? inet_kernels_id(s->cookie) : s->cookie;
		inet_object_begin(o, s->sample, id);
	}
	if (inet_is_dead(o))
		without_object(s, part, n, b, 0);
	else
		inet_udp_count(sock_of(s), o, part, n, b);
}

/* The last descriptor is closed (made.bpf.h). */
static void close_socket(struct test_socket *s)
{
	struct inet_object *o = host_of(objects, sk, sock_of(s));

	if (s->closed || s->is_kernels)
		return;
	s->closed = 1;
	if (!o)
		return;
	ts_write(o->life, o->life | 1);
	if (inet_object_is_own(o) && o->object.id)
		inet_finish(sock_of(s), NULL, o);
	inet_object_end(o);
	TEST_WANT(!o->object.id, "it has no id any more");
}

static void test_step(void)
{
	struct test_socket *s = meanwhile;
	u32 cpu = host_user_cpu;

	if (!s || --meanwhile_in)
		return;
	meanwhile = NULL;
	/* Or an interrupt of this CPU does it. */
	host_user_cpu = (cpu + test_random(HOST_USER_CPUS)) % HOST_USER_CPUS;
	if (test_once_in(8))
		close_socket(s);
	else
		packet(s);
	host_user_cpu = cpu;
}

/* Two CPUs do something with the socket at the same time. */
static void at_once(struct test_socket *s, void (*what)(struct test_socket *s))
{
	meanwhile = s;
	meanwhile_in = 1 + test_random(test_once_in(2) ? 40 : 400);
	what(s);
	meanwhile = NULL;
}

static void settle(void)
{
	u32 i;

	for (i = 0; i < SOCKETS; i++) {
		struct inet_object *o = object_of(&sockets[i]);

		if (o && !inet_is_dead(o) && ts_read(o->listed) & INET_ON_LIST)
			inet_settle_one(inet_settling(), sock_of(&sockets[i]), NULL, o);
	}
	inet_now(inet_settling());
	inet_flush(inet_settling());
}

/* Records are complete, and none is ahead of a later one. */
static void compare_ring(u32 i, struct inet_object *o)
{
	struct record_ring *g = &o->counted.ring;
	u64 number = g->slide & TS_SLIDE_NUMBER, later = o->counted.own.packets[0], bytes_later = o->counted.own.bytes[1];
	u32 marks = ts_done_marks(g->done) & TS_MARKS_ALL, age;
	struct record *r;

	if (!g->slide)
		return;
	TEST_WANT(ts_is_done(g->done, g->slide) && marks & 1, "socket %u: a record is half done", i);
	TEST_WANT(o->cell != INET_RECORDING, "socket %u: nobody makes records", i);
	for (age = 0; age < TS_MARKS; age++) {
		if (!(marks >> age & 1))
			continue;
		r = records_at(g, ts_mark_index(number % TS_MARKS, age));
		TEST_WANT(r->packets[0] <= later && r->bytes[1] >> 8 <= bytes_later, "socket %u: the record of slide -%u is ahead", i, age);
		later = r->packets[0];
		bytes_later = r->bytes[1] >> 8;
	}
}

/* IU3: a snapshot has a row of each socket of the kernel itself, or its value is within the bound of those turned away. */
static void compare_kernels(u32 i, struct inet_object *o)
{
	struct ts_window w;
	u64 value, row;
	u32 table;

	TEST_WANT(!(o->counted.own.bytes[0] - o->counted.taken[0]), "socket %u: amounts are left to readers", i);
	TEST_WANT(!(ts_read(o->listed) & INET_ON_LIST), "socket %u: it is listed", i);
	for (table = INET_PPS; table < INET_RETRANS; table++) {
		TEST_WANT(inet_peek(&w, (u64)(unsigned long)o, INET_RECORDS_AT(o->sample, table)) == TS_COPY_OK, "socket %u: no window", i);
		value = test_value(o->sample, table, &w);
		if (!test_row(o->sample, table, o->object.id, &row))
			TEST_WANT(value <= test_missed(o->sample, table), "socket %u, table %u: no row for %llu", i, table,
				  (unsigned long long)value);
	}
}

static void compare(void)
{
	u64 untaken[INET_SAMPLES] = {}, alive = 0, counted = 0;
	u32 i, sample;

	for (i = 0; i < SOCKETS; i++) {
		struct inet_object *o = object_of(&sockets[i]);

		if (!o)
			continue;
		alive += !sockets[i].is_kernels;
		compare_ring(i, o);
		/* What a datagram has added before the socket's record was made is taken after the next record. */
		untaken[sockets[i].sample] += o->counted.own.bytes[0] + o->counted.own.bytes[1] - o->counted.taken[0] - o->counted.taken[1];
		if (sockets[i].is_kernels)
			compare_kernels(i, o);
	}
	for (sample = INET_UDP_V4; sample < INET_SAMPLES; sample++) {
		counted += census[sample].begun - census[sample].ended;
		TEST_WANT(test_total(sample, INET_BYTES) + untaken[sample] == bytes[sample], "sample %u: %llu bytes and %llu, not %llu", sample,
			  (unsigned long long)test_total(sample, INET_BYTES), (unsigned long long)untaken[sample],
			  (unsigned long long)bytes[sample]);
		TEST_WANT(test_refused(sample, INET_PPS) == refused_packets[sample], "sample %u: refused", sample);
		TEST_WANT(test_refused(sample, INET_BYTES) == refused_bytes[sample], "sample %u: refused bytes", sample);
	}
	TEST_WANT(counted == alive, "%llu objects, not %llu", (unsigned long long)counted, (unsigned long long)alive);
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

/* An accepted socket gets a copy of its listener's storage; a socket that is used again gets another id. */
static void test_copies(void)
{
	struct test_socket *listener = &sockets[0], *accepted = &sockets[1];
	struct inet_object *o = host_make(objects, sk, sock_of(listener)), *copy;
	u64 id;

	inet_object_init(o, (u64)(unsigned long)listener, NULL);
	o->pid = 7;
	o->sure = 1;
	o->counted.taken[0] = 5;
	host_user_clone(objects, sock_of(listener), sock_of(accepted));
	copy = host_of(objects, sk, sock_of(accepted));
	TEST_WANT(!inet_object_is_own(copy) && inet_object_own(copy, (u64)(unsigned long)accepted, NULL), "the copy becomes an object");
	TEST_WANT(copy->pid == 7 && !copy->sure && !copy->counted.taken[0] && copy->sock == (u64)(unsigned long)accepted,
		  "the listener's user, and nothing else");
	inet_object_begin(copy, INET_TCP_V4, 1000);
	id = copy->object.id;
	inet_object_end(copy);
	TEST_WANT(!copy->object.id && inet_is_dead(copy), "it has ended");
	inet_object_reset(copy);
	inet_object_begin(copy, INET_TCP_V4, 1000);
	TEST_WANT(copy->object.id != id && inet_id_has(copy->object.id, 1000), "another connection has another id");
	inet_object_end(copy);
	host_user_free(objects, sock_of(listener));
	host_user_free(objects, sock_of(accepted));
	memset(census, 0, sizeof(census));
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
	u32 i, sample, table, steps = 40 + test_random(300);

	meanwhile = NULL;
	cell = cell_changed = apart = 0;
	memset(sockets, 0, sizeof(sockets));
	memset(&objects, 0, sizeof(objects));
	memset(&rings, 0, sizeof(rings));
	memset(packets, 0, sizeof(packets));
	memset(bytes, 0, sizeof(bytes));
	memset(refused_packets, 0, sizeof(refused_packets));
	memset(refused_bytes, 0, sizeof(refused_bytes));
	memset(shares, 0, sizeof(shares));
	memset(settling, 0, sizeof(settling));
	memset(kept, 0, sizeof(kept));
	memset(ended, 0, sizeof(ended));
	/* Cookies are counted up; or down from 2^64, as the kernel does if an interrupt makes a socket while it counts. */
	cookie_step = test_once_in(2) ? 1 : -1;
	next_cookie = 0;
	for (sample = 0; sample < INET_SAMPLES; sample++)
		for (table = 0; table < INET_TABLES; table++)
			if (inet_is_tcp(sample) || table != INET_RETRANS)
				test_configure(sample, table, obs_type(sample, table), 200, 0);
	test_ids();
	test_takes();
	test_copies();
	for (i = 0; i < SOCKETS; i++) {
		sockets[i].sample = INET_UDP_V4 + test_random(2);
		sockets[i].is_kernels = test_once_in(8);
	}
	for (i = 0; i < steps; i++) {
		struct test_socket *s = &sockets[test_random(SOCKETS)];

		test_time_passes(test_random(1 << test_random(27)));
		host_user_cpu = test_random(HOST_USER_CPUS);
		if (s->closed && !object_of(s) && test_once_in(3)) { /* its memory is another socket's */
			host_user_free(objects, sock_of(s));
			host_user_free(rings, sock_of(s));
			s->closed = 0;
			s->cookie = 0;
		} else if (test_once_in(12)) {
			at_once(s, close_socket);
		} else {
			at_once(s, packet);
		}
		if (test_once_in(5))
			settle();
		compare();
	}
}
