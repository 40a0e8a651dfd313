/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * More keys than there are places push amounts, and keys fall silent. The test keeps a window with the true value of each key.
 * The proof has to hold: no key is larger than its object's value by more than the refused amounts.
 */
#include "observe/host.h"

#define TABLES 2
#define KEYS 60

struct keyed_constants {
	struct ts_shape shape;
	u64 jiffy_ns;
};

TS_SETTINGS(keyed, 2);

struct test_key {
	u64 device;
	u64 process;
};

#include "observe/keyed_object.h"

struct test_object {
	struct keyed_object keyed;
	struct test_key key;
	struct ts_count count;
	struct ts_window window;
};

HOST_STATE(keyed, 2, 2);

/* Sample 0 has windows alone, sample 1 a count, too. */
TS_INLINE u32 obs_at(u32 number, u32 table)
{
	return table ? offsetof(struct test_object, count) : offsetof(struct test_object, window);
}

TS_INLINE u32 obs_type(u32 number, u32 table)
{
	return table ? TS_STATIC : TS_DYNAMIC;
}

#define KEYED_KEY struct test_key
#define KEYED_OBJECT struct test_object
#define KEYED_BUCKETS 4
#include "observe/keyed.h"
#include "observe/user_test.h"

static struct ts_window truth[2][KEYS];
static u64 ever[2][KEYS], totals[2][TABLES], held[2][KEYS];

static struct test_object *object_of(const struct test_key *key, u32 sample)
{
	u32 place = keyed_find(key, sample);

	return place ? &objects[place - 1] : NULL;
}

static struct test_key key_of(u32 i)
{
	return (struct test_key){ .device = i % 5, .process = i };
}

static void push(u32 sample, u32 i, u64 amount)
{
	struct test_key key = key_of(i);
	struct keyed k;
	u64 now;

	TEST_WANT(keyed_begin(&k, sample, &key), "a sample has no bank");
	keyed_add(&k, 0, i % 2, amount);
	keyed_add(&k, 1, i % 2, amount);
	keyed_end(&k);
	if (truth[sample][i].slide != k.obs.bank->tick[0].slide)
		ts_window_begin(&truth[sample][i], &k.obs.bank->tick[0]);
	ts_window_add(&truth[sample][i], &k.obs.bank->tick[0], i % 2, amount);
	ever[sample][i] += amount;
	totals[sample][0] += amount;
	totals[sample][1] += obs_is_on(sample, 1) ? amount : 0;
	now = keyed_counted(&k.obs, &objects[0], 0);
	TEST_WANT(!now, "a window is no count");
}

/* The bound of the unknown part of any key, within the period. */
static u64 refused_now(u32 sample)
{
	u64 sum = 0;
	u32 cpu;

	for (cpu = 0; cpu < HOST_USER_CPUS; cpu++)
		sum += test_most(sample, 0, &obs_table(host_bank(cpu, sample), 0)->refused);
	return sum;
}

static void compare(u32 sample)
{
	u64 alive = 0, unknown = refused_now(sample);
	u32 i, k, table;

	for (table = 0; table < TABLES; table++)
		TEST_WANT(test_total(sample, table) == totals[sample][table], "table %u: total %llu, not %llu", table,
			  (unsigned long long)test_total(sample, table), (unsigned long long)totals[sample][table]);
	for (i = 0; i < KEYS; i++) {
		struct test_key key = key_of(i);
		struct test_object *o = object_of(&key, sample);
		u64 value = o ? test_value(sample, 0, &o->window) : 0;
		u64 real = test_value(sample, 0, &truth[sample][i]), row = 0;
		u64 count = o ? o->count.sum[0] + o->count.sum[1] : 0;

		/* After refused pushes of a key, the two windows' oldest slides may fade differently. */
		TEST_WANT(real <= (o ? test_most(sample, 0, &o->window) : 0) + unknown, "key %u: %llu, not %llu, and %llu refused", i,
			  (unsigned long long)value, (unsigned long long)real, (unsigned long long)unknown);
		TEST_WANT(value <= test_most(sample, 0, &truth[sample][i]), "key %u: %llu, more than %llu", i, (unsigned long long)value,
			  (unsigned long long)real);
		if (obs_is_on(sample, 1)) {
			TEST_WANT(count <= ever[sample][i], "key %u: counted too much", i);
			TEST_WANT(ever[sample][i] <= count + test_refused(sample, 1), "key %u: counted too little", i);
		}
		TEST_WANT(!held[sample][i] || o, "key %u: ended while it was held", i);
		if (o && value > test_missed(sample, 0))
			TEST_WANT(test_row(sample, 0, o->keyed.object.id, &row) && row == value, "key %u: no row", i);
	}
	for (i = 0; i < KEYED_PLACES; i++) {
		if (!objects[i].keyed.object.id || objects[i].keyed.sample != sample)
			continue;
		alive += !objects[i].keyed.ended;
		for (k = 0; k < i; k++)
			TEST_WANT(!objects[k].keyed.object.id || !keyed_is_of(&objects[k], &objects[i].key, sample),
				  "places %u and %u have the same key", i, k);
	}
	TEST_WANT(census[sample].begun - census[sample].ended == alive, "objects are counted wrong");
}

TEST(keyed)
{
	u32 i, sample, now_ended, steps = 100 + test_random(400), hot = 1 + test_random(KEYS), counts = test_random(2);

	memset(objects, 0, sizeof(objects));
	memset(buckets, 0, sizeof(buckets));
	memset(truth, 0, sizeof(truth));
	memset(ever, 0, sizeof(ever));
	memset(totals, 0, sizeof(totals));
	memset(held, 0, sizeof(held));
	constants.jiffy_ns = HOST_USER_JIFFY_NS;
	for (sample = 0; sample < 2; sample++) {
		test_configure(sample, 0, TS_DYNAMIC, 200, 0);
		if (counts && sample)
			test_configure(sample, 1, TS_STATIC, 200, 0);
	}
	for (i = 0; i < steps; i++) {
		u32 n = test_random(hot);
		struct test_key key = key_of(n);
		struct test_object *o;

		sample = test_random(2);
		host_user_cpu = test_random(HOST_USER_CPUS);
		test_time_passes(test_random(1 << test_random(28)));
		if (test_once_in(20)) /* others are pushed from now on */
			hot = 1 + test_random(KEYS);
		push(sample, n, 1 + test_random(1 << test_random(16)));
		o = object_of(&key, sample);
		if (o && test_once_in(8)) {
			TEST_WANT(keyed_hold(o), "nobody ends it just now");
			held[sample][n]++;
		} else if (held[sample][n] && test_once_in(2)) {
			keyed_release(o);
			held[sample][n]--;
		}
		if (test_once_in(10)) { /* its owner ends, though pushes with the key may come after that */
			u64 ended = census[sample].ended;

			o = object_of(&key, sample);
			now_ended = o && !o->keyed.ended;
			keyed_close(&key, sample);
			keyed_close(&key, sample);
			TEST_WANT(census[sample].ended == ended + now_ended, "an end is counted once");
		}
		compare(sample);
	}
	/* All are silent: a new key finds a place, at most after a moment, unless all places are held. */
	memset(held, 0, sizeof(held));
	for (i = 0; i < KEYED_PLACES; i++)
		objects[i].keyed.held = 0;
	for (i = 0; i < 3 * KEYED_WAYS; i++) {
		struct test_key key = { .device = 99 };

		test_time_passes(500000000);
		if (keyed_get(&key, 0))
			return;
	}
	TEST_WANT(0, "all are silent, and there is no place");
}
