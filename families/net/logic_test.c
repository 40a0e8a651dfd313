/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Connections of a few processes count, and are looked at from time to time, by readers that are preempted in the midst of a look. A model keeps the expected amounts of each process, group, host and port. UDP sockets count on all CPUs at the
 * same time: see test_step().
 */
static void test_step(void);
#define TS_STEP() test_step()
#include "logic.h"
#include "observe/user_test.h"

#define FLOWS 24

struct flow_model {
	struct net_flow flow;
	struct net_counters now; /* the kernel's counters */
	struct net_counters looked; /* the counters at the last look */
};

static struct flow_model model[FLOWS] __attribute__((aligned(64)));
static u64 totals[NET_TABLES], refused[NET_TABLES];

static void open_flow(struct flow_model *m, u32 i)
{
	memset(m, 0, sizeof(*m));
	net_flow_init(&m->flow);
	m->flow.process = 1000 + i % 5;
	m->flow.owner.pid = i % 5 + 1;
	m->flow.owner.cgroup = 10 + i % 2;
	m->flow.to.host[15] = i % 4;
	m->flow.to.port = 80 + i % 3;
	m->flow.to.side = i % 2;
	m->flow.to.proto = NET_TCP;
	m->flow.begun = 1;
	m->now.opened = 1;
}

static void speak(struct flow_model *m)
{
	m->now.in += test_random(5);
	m->now.out += test_random(5);
	m->now.rx += test_random(3) ? 0 : test_random(3000);
	m->now.tx += test_random(3) ? 0 : test_random(3000);
	m->now.resent += test_once_in(9);
}

/* Add the growth of the last look to the expected totals. */
static void count(struct flow_model *m)
{
	totals[NET_PPS] += m->now.in - m->looked.in + m->now.out - m->looked.out;
	totals[NET_BPS] += m->now.rx - m->looked.rx + m->now.tx - m->looked.tx;
	totals[NET_BYTES] += m->now.rx - m->looked.rx + m->now.tx - m->looked.tx;
	totals[NET_RETRANS] += m->now.resent - m->looked.resent;
	totals[NET_OPENED] += m->now.opened - m->looked.opened;
	m->looked = m->now;
}

static void counts_of(struct records_counts *to, const struct net_counters *now)
{
	to->bytes[NET_RX] = now->rx;
	to->bytes[NET_TX] = now->tx;
	to->packets[NET_RX] = now->in;
	to->packets[NET_TX] = now->out;
	to->resent = now->resent;
}

/* The first half of net_look(), for a connection without records. */
static struct net_batches *begin_look(struct flow_model *m)
{
	struct net_batches *all = net_claim(host_on(batches, host_user_cpu));

	TEST_WANT(all, "there is a level for each");
	counts_of(&all->now, &m->now);
	all->ring.slide = 0;
	return all;
}

/* The second half. */
static void end_look(struct flow_model *m, struct net_batches *all)
{
	if (net_take(&m->flow, all)) {
		net_spread(all, &m->flow, 0, host_jiffies());
		net_spend(all, &m->flow);
	}
	ts_release(&all->claim);
}

/* `disturbed`: another look reads the counters first, is preempted, and continues after this one. */
static void look(struct flow_model *m, int disturbed)
{
	struct net_batches *late = disturbed ? begin_look(m) : NULL, *all;

	if (disturbed) {
		speak(m);
		if (test_once_in(2))
			host_user_cpu = test_random(HOST_USER_CPUS);
	}
	all = begin_look(m);
	end_look(m, all);
	if (late)
		end_look(m, late);
	count(m);
}

/* More peers than a socket has places, with two ports each. */
#define SOCKETS 4
#define PEERS (NET_PEERS + 3)
#define PORTS 2
#define USERS 2
#define EACH (SOCKETS * USERS * PEERS * PORTS)

struct udp_model {
	struct net_udp udp;
	u32 user;
	u32 closed;
	u32 is_kernels;
};

static struct udp_model udp_model[SOCKETS] __attribute__((aligned(64)));
/* Bytes that were added and not refused, by socket, user, peer and port. */
static u64 udp_bytes[EACH];

static u32 udp_at(u32 socket, u32 user, u32 peer, u32 port)
{
	return ((socket * USERS + user) * PEERS + peer) * PORTS + port;
}

static void udp_own(struct net_flow *f, u32 socket, u32 user)
{
	f->process = 1000 + (socket + user) % 3;
	f->owner.pid = (socket + user) % 3 + 1;
	f->owner.cgroup = 10 + user;
}

static void udp_peer(struct net_datagram *d, u32 peer, u32 port)
{
	d->host[0] = 0;
	d->host[1] = (u64)peer << 56; /* the last byte, as for flows */
	d->port = 80 + port;
}

/* A flow with the key fields of the index udp_at(). */
static void udp_flow(struct net_flow *f, u32 at)
{
	u32 socket = at / (USERS * PEERS * PORTS), serves = net_udp_serves(&udp_model[socket].udp);
	struct net_datagram d;

	memset(f, 0, sizeof(*f));
	udp_peer(&d, at / PORTS % PEERS, at % PORTS);
	udp_own(f, socket, at / (PEERS * PORTS) % USERS);
	memcpy(f->to.host, d.host, sizeof(f->to.host));
	f->to.port = serves ? 7 + socket : d.port;
	f->to.side = serves ? NET_SERVER : NET_CLIENT;
	f->to.netns = 4;
	f->to.proto = NET_UDP;
}

static u64 key_bytes(u32 sample, const struct net_flow *f)
{
	struct net_key key, other;
	struct net_flow udp;
	u64 bytes = 0;
	u32 i;

	net_key_of(&key, f, sample);
	for (i = 0; i < FLOWS; i++) {
		net_key_of(&other, &model[i].flow, sample);
		if (!memcmp(&key, &other, sizeof(key)))
			bytes += model[i].looked.rx + model[i].looked.tx;
	}
	for (i = 0; i < EACH; i++) {
		if (!udp_bytes[i])
			continue;
		udp_flow(&udp, i);
		net_key_of(&other, &udp, sample);
		if (!memcmp(&key, &other, sizeof(key)))
			bytes += udp_bytes[i];
	}
	return bytes;
}

/* Push all batches, as a reader does. */
static void flush(void)
{
	u32 cpu;

	for (cpu = 0; net_flush_of(cpu); cpu++)
		;
	TEST_WANT(cpu == HOST_USER_CPUS, "%u CPUs", cpu);
}

/* The flow's objects have the sum of all flows with an equal key. */
static void compare_objects(const struct net_flow *f)
{
	u32 sample, place;

	for (sample = 0; sample < NET_SAMPLES; sample++) {
		u64 bytes = key_bytes(sample, f), has;
		struct net_key key;

		net_key_of(&key, f, sample);
		place = keyed_find(&key, sample);
		has = place ? objects[place - 1].bytes.sum[0] + objects[place - 1].bytes.sum[1] : 0;
		TEST_WANT(has == bytes, "sample %u: %llu bytes, not %llu", sample, (unsigned long long)has,
			  (unsigned long long)bytes);
	}
}

static void compare_totals(void)
{
	u32 sample, table;

	flush();
	for (sample = 0; sample < NET_SAMPLES; sample++) {
		for (table = 0; table < NET_TABLES; table++) {
			u32 number = net_bank(sample, table), in_bank = table % TS_BANK_TABLES;
			u64 total = test_total(number, in_bank), lost = test_refused(number, in_bank);

			TEST_WANT(total == totals[table], "sample %u, table %u: total %llu, not %llu", sample, table,
				  (unsigned long long)total, (unsigned long long)totals[table]);
			TEST_WANT(lost == refused[table], "sample %u, table %u: %llu are refused, not %llu", sample, table,
				  (unsigned long long)lost, (unsigned long long)refused[table]);
		}
	}
}

static void compare(void)
{
	u32 i;

	compare_totals();
	for (i = 0; i < FLOWS; i++)
		compare_objects(&model[i].flow);
}

/* A reader sees one part of a change before the other. */
static void goes_back(void)
{
	struct flow_model *m = &model[0];
	struct net_batches *all = begin_look(m);

	all->now.bytes[NET_RX] -= all->now.bytes[NET_RX] ? 1 : 0;
	end_look(m, all);
	compare();
}

static void configure(u32 period_ms)
{
	u32 sample, table;

	for (sample = 0; sample < NET_SAMPLES; sample++)
		for (table = 0; table < NET_TABLES; table++)
			test_configure(net_bank(sample, table), table % TS_BANK_TABLES,
				       table == NET_BYTES ? TS_STATIC : TS_DYNAMIC, period_ms, test_random(2) * 100);
	lender.guest[0] = settings.config[net_bank(0, NET_PPS)][NET_PPS];
}

/* Slides that the test of slides remembers: more than a ring. */
#define SLIDES 64

/*
 * A connection makes a record at the first event of each slide, and is looked at now and then. Each look finds the growth in the slides
 * in which it was; growth that is older than the ring is in the last place.
 */
static void slides_are_apart(void)
{
	static struct net_batches all;
	static struct record_ring ring;
	static struct net_counters in[SLIDES]; /* not looked at yet, by slide */
	struct ts_config *c = &lender.guest[0];
	struct flow_model *m = &model[0];
	u64 tag = 7, present, slide, looked = 0;
	struct records_counts now;
	u32 i, age;

	open_flow(m, 0);
	m->now.opened = 0;
	m->flow.begun = 0;
	memset(&ring, 0, sizeof(ring));
	memset(in, 0, sizeof(in));
	for (i = 0; i < 500; i++) {
		struct net_counters was = m->now, *of;

		test_time_passes(test_random(test_once_in(20) ? 30 : 2) * test_random(c->slide) * (c->precise ? 1 : HOST_USER_JIFFY_NS));
		present = net_slide_of(c, host_jiffies());
		counts_of(&now, &m->now);
		records_add(&ring, c, tag, &now, c->precise ? ts_precise() : host_jiffies(), 0, 0);
		speak(m);
		for (; looked + SLIDES <= present; looked++)
			memset(&in[looked % SLIDES], 0, sizeof(in[0]));
		of = &in[present % SLIDES];
		of->in += m->now.in - was.in;
		of->tx += m->now.tx - was.tx;
		if (!test_once_in(4))
			continue;
		counts_of(&all.now, &m->now);
		all.ring = ring;
		if (!net_take(&m->flow, &all))
			continue;
		net_spread(&all, &m->flow, 0, host_jiffies());
		TEST_WANT(all.found.when == present, "the batch begins now");
		for (age = 0; age <= TS_SLIDES; age++) {
			u32 any = all.found.any >> age & 1;
			u64 packets = any ? all.found.used[age].in : 0, bytes = any ? all.found.used[age].tx : 0;

			slide = present - age;
			TEST_WANT(packets == in[slide % SLIDES].in && bytes == in[slide % SLIDES].tx,
				  "age %u: %llu packets and %llu bytes, not %llu and %llu", age, (unsigned long long)packets,
				  (unsigned long long)bytes, (unsigned long long)in[slide % SLIDES].in,
				  (unsigned long long)in[slide % SLIDES].tx);
		}
		memset(in, 0, sizeof(in));
	}
}

static __attribute__((noinline)) void run(u32 steps)
{
	u32 i;

	for (i = 0; i < FLOWS; i++)
		open_flow(&model[i], i);
	for (i = 0; i < steps; i++) {
		struct flow_model *m = &model[test_random(FLOWS)];

		host_user_cpu = test_random(HOST_USER_CPUS);
		test_time_passes(1 + test_random(1 << test_random(24)));
		speak(m);
		if (test_once_in(2))
			look(m, test_once_in(4));
		if (test_once_in(3))
			compare();
	}
	compare();
	for (i = 0; i < FLOWS; i++)
		look(&model[i], 0);
	goes_back();
}

#include "udp_test.h"

TEST(net)
{
	u32 is_long = test_once_in(2);

	memset(totals, 0, sizeof(totals));
	memset(refused, 0, sizeof(refused));
	memset(udp_model, 0, sizeof(udp_model));
	memset(udp_bytes, 0, sizeof(udp_bytes));
	memset(&active, 0, sizeof(active));
	meanwhile = -1;
	cell = 0;
	memset(objects, 0, sizeof(objects));
	memset(buckets, 0, sizeof(buckets));
	memset(batches, 0, sizeof(batches));
	constants.jiffy_ns = HOST_USER_JIFFY_NS;
	/* Amounts that a socket holds for longer than the period are in no dynamic table. */
	configure(is_long ? 60000 : 1000);
	slides_are_apart();
	run(50 + test_random(200));
	wait_for_places();
	cells_are_apart();
	run_udp(100 + test_random(300), is_long ? 60 : 2);
}
