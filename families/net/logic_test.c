/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Connections of a few processes count, and are looked at now and then: by hooks, and by readers that are kept from running meanwhile. What
 * each process, group, host and port should have is kept beside.
 */
#include "logic.h"
#include "observe/user_test.h"

#define FLOWS 24

struct flow_model {
	struct net_flow flow;
	struct net_counters now; /* the kernel's */
	struct net_counters looked; /* what they were when they were looked at last */
};

static struct flow_model model[FLOWS] __attribute__((aligned(64)));
static u64 totals[NET_TABLES];

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
	m->flow.to.is_port = 1;
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

/* What the last look has pushed. */
static void count(struct flow_model *m)
{
	totals[NET_PPS] += m->now.in - m->looked.in + m->now.out - m->looked.out;
	totals[NET_BPS] += m->now.rx - m->looked.rx + m->now.tx - m->looked.tx;
	totals[NET_BYTES] += m->now.rx - m->looked.rx + m->now.tx - m->looked.tx;
	totals[NET_RETRANS] += m->now.resent - m->looked.resent;
	totals[NET_OPENED] += m->now.opened - m->looked.opened;
	m->looked = m->now;
}

/* The first half of net_look(). */
static struct net_batches *begin_look(struct flow_model *m)
{
	struct net_batches *all = net_claim(host_on(batches, host_user_cpu));

	TEST_WANT(all, "there is a level for each");
	all->found.used = m->now;
	all->found.when = host_jiffies();
	return all;
}

/* `disturbed`: another one is kept from running when it has read the counters, and goes on only then. */
static void look(struct flow_model *m, int disturbed)
{
	struct net_batches *late = disturbed ? begin_look(m) : NULL, *all;

	if (disturbed) {
		speak(m);
		if (test_once_in(2))
			host_user_cpu = test_random(HOST_USER_CPUS);
	}
	all = begin_look(m);
	net_count(&m->flow, all);
	ts_release(&all->claim);
	if (late) {
		net_count(&m->flow, late);
		ts_release(&late->claim);
	}
	count(m);
}

static u64 key_bytes(u32 sample, const struct net_flow *f)
{
	struct net_key key, other;
	u64 bytes = 0;
	u32 i;

	net_key_of(&key, f, sample);
	for (i = 0; i < FLOWS; i++) {
		net_key_of(&other, &model[i].flow, sample);
		if (!memcmp(&key, &other, sizeof(key)))
			bytes += model[i].looked.rx + model[i].looked.tx;
	}
	return bytes;
}

/* What readers do. */
static void flush(void)
{
	u32 cpu;

	for (cpu = 0; net_flush_of(cpu); cpu++)
		;
	TEST_WANT(cpu == HOST_USER_CPUS, "%u CPUs", cpu);
}

static void compare(void)
{
	u32 sample, table, i, place;

	flush();

	for (sample = 0; sample < NET_SAMPLES; sample++) {
		for (table = 0; table < NET_TABLES; table++) {
			u64 total = test_total(net_bank(sample, table), table % TS_BANK_TABLES);

			TEST_WANT(total == totals[table], "sample %u, table %u: total %llu, not %llu", sample, table,
				  (unsigned long long)total, (unsigned long long)totals[table]);
			TEST_WANT(!test_refused(net_bank(sample, table), table % TS_BANK_TABLES), "there is a place");
		}
		for (i = 0; i < FLOWS; i++) {
			u64 bytes = key_bytes(sample, &model[i].flow);
			struct net_key key;
			u64 has;

			net_key_of(&key, &model[i].flow, sample);
			place = keyed_find(&key, sample);
			has = place ? objects[place - 1].bytes.sum[0] + objects[place - 1].bytes.sum[1] : 0;
			TEST_WANT(has == bytes, "sample %u: %llu bytes, not %llu", sample, (unsigned long long)has,
				  (unsigned long long)bytes);
		}
	}
}

/* A reader sees one part of a change before the other. */
static void goes_back(void)
{
	struct flow_model *m = &model[0];
	struct net_batches *all = begin_look(m);

	all->found.used.rx -= all->found.used.rx ? 1 : 0;
	net_count(&m->flow, all);
	ts_release(&all->claim);
	compare();
}

static void configure(void)
{
	u32 sample, table;

	for (sample = 0; sample < NET_SAMPLES; sample++)
		for (table = 0; table < NET_TABLES; table++)
			test_configure(net_bank(sample, table), table % TS_BANK_TABLES,
				       table == NET_BYTES ? TS_STATIC : TS_DYNAMIC, 1000, test_random(2) * 100);
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

TEST(net)
{
	memset(totals, 0, sizeof(totals));
	memset(objects, 0, sizeof(objects));
	memset(buckets, 0, sizeof(buckets));
	memset(batches, 0, sizeof(batches));
	constants.jiffy_ns = HOST_USER_JIFFY_NS;
	configure();
	run(50 + test_random(200));
}
