/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Parts that tests of logic share: random numbers, time, settings, and the results of a reader. Included after logic.h. */
#ifndef TOPSTAT_USER_TEST_H
#define TOPSTAT_USER_TEST_H

#include <setjmp.h>
#include <stdio.h>

static u64 test_random_state;
static jmp_buf test_failed;
static char *test_why;
static size_t test_why_bytes;

#define TEST_WANT(condition, ...)                                                                \
	do {                                                                                     \
		if (!(condition)) {                                                              \
			int n_ = snprintf(test_why, test_why_bytes, "line %d: ", __LINE__);      \
			snprintf(test_why + n_, test_why_bytes - n_, __VA_ARGS__);               \
			longjmp(test_failed, 1);                                                 \
		}                                                                                \
	} while (0)

/* A random number below n, by Knuth's generator (MMIX). */
TS_INLINE u32 test_random(u32 n)
{
	test_random_state = test_random_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (u32)(test_random_state >> 33) % n;
}

TS_INLINE int test_once_in(u32 n)
{
	return !test_random(n);
}

TS_INLINE void test_time_passes(u64 ns)
{
	host_user_ns += ns;
	ts_precise_now = host_user_ns;
}

TS_INLINE void test_configure(u32 number, u32 table, u32 type, u32 period_ms, u32 delay_ms)
{
	struct ts_config *c = &settings.config[number][table];

	memset(c, 0, sizeof(*c));
	c->enabled = 1;
	c->type = type;
	c->epoch = 1;
	c->period_ms = period_ms;
	c->precise = period_ms < 100;
	c->slide = period_ms * (c->precise ? 1000000ULL : 1) / TS_SLIDES;
	c->fraction = (1ULL << 56) / c->slide;
	c->delay_shift = c->precise ? 20 : 0;
	c->delay = delay_ms;
	c->quiet = delay_ms > 0;
	settings.all.generation++;
}

/* Not inlined: the caller has a setjmp(), which may change variables that live across it. */
static __attribute__((unused, noinline)) void test_begin(u64 seed, char *why, size_t bytes)
{
	u32 i, k;

	test_random_state = seed * 0x9E3779B97F4A7C15ULL + 1;
	test_why = why;
	test_why_bytes = bytes;
	host_user_cpu = 0;
	host_user_no_memory = 0;
	host_user_ns = ts_precise_now = 1000000000000ULL + test_random(1000000000);
	memset(&settings, 0, sizeof(settings));
	memset(census, 0, sizeof(census));
	memset(host_user_banks, 0, sizeof(host_user_banks));
	for (i = 0; i < HOST_USER_CPUS * HOST_BANKS; i++)
		for (k = 0; k < TS_BANK_TABLES; k++)
			ts_table_init(obs_table((void *)host_user_banks[i], k), HOST_USER_ENTRIES, i << 8 | k);
}

/* The sum of all pushes to a table, on all CPUs. */
TS_INLINE u64 test_total(u32 number, u32 table)
{
	u64 sum = 0;
	u32 cpu;

	for (cpu = 0; cpu < HOST_USER_CPUS; cpu++) {
		struct ts_table *t = obs_table(host_bank(cpu, number), table);

		sum += t->total.sum[0] + t->total.sum[1];
	}
	return sum;
}

/* The sum of all refused amounts, on all CPUs. */
TS_INLINE u64 test_refused(u32 number, u32 table)
{
	u64 sum = 0;
	u32 cpu;

	for (cpu = 0; cpu < HOST_USER_CPUS; cpu++)
		sum += obs_table(host_bank(cpu, number), table)->refused.sum[0];
	return sum;
}

/* The present value of a window. `most`: its oldest slide counts whole. */
TS_INLINE u64 test_evaluate(u32 number, u32 table, const struct ts_window *w, int most)
{
	const struct ts_config *c = &settings.config[number][table];
	struct ts_window copy = *w;
	struct ts_tick tick = {};
	struct ts_value v;

	ts_tick_now(&tick, c, host_jiffies(), 0);
	if (most)
		tick.fraction = 0;
	TEST_WANT(!ts_window_eval(&copy, &tick, &v), "a window can't be evaluated, and nobody writes");
	return v.value;
}

TS_INLINE u64 test_value(u32 number, u32 table, const struct ts_window *w)
{
	return test_evaluate(number, table, w, 0);
}

TS_INLINE u64 test_most(u32 number, u32 table, const struct ts_window *w)
{
	return test_evaluate(number, table, w, 1);
}

/* Whether a snapshot taken now has a row with this id, and the row's value. */
TS_INLINE int test_row(u32 number, u32 table, u64 id, u64 *value)
{
	const struct ts_config *c = &settings.config[number][table];
	struct ts_section s = {};
	u32 cpu, slot;
	int found = 0;

	for (cpu = 0; cpu < HOST_USER_CPUS; cpu++) {
		struct ts_table *t = obs_table(host_bank(cpu, number), table);

		ts_section_begin(&s, c, host_jiffies(), 0);
		ts_section_table(&s, t, c, 1);
		for (slot = 0; slot < HOST_USER_ENTRIES; slot++) {
			struct ts_row row = {};
			u64 obj = ts_section_row(&s, t, slot, obs_view(number, table), 1, &row);

			if (!obj || row.id != id)
				continue;
			*value = row.value;
			found = 1;
		}
	}
	return found;
}

/* The bound of the objects that were turned away (T5). */
TS_INLINE u64 test_missed(u32 number, u32 table)
{
	const struct ts_config *c = &settings.config[number][table];
	struct ts_section s = {};
	u64 missed = 0;
	u32 cpu;

	for (cpu = 0; cpu < HOST_USER_CPUS; cpu++) {
		ts_section_begin(&s, c, host_jiffies(), 0);
		ts_section_end(&s, obs_table(host_bank(cpu, number), table));
		missed = s.missed > missed ? s.missed : missed;
	}
	return missed;
}

/* The bound of the ended objects that were turned away (T8). */
TS_INLINE u64 test_missed_ended(u32 number, u32 table)
{
	struct ts_section s = {};
	u64 missed = 0;
	u32 cpu;

	for (cpu = 0; cpu < HOST_USER_CPUS; cpu++) {
		ts_section_end(&s, obs_table(host_bank(cpu, number), table));
		missed = s.missed_ended > missed ? s.missed_ended : missed;
	}
	return missed;
}

/* Out of line: a variable of the function that calls setjmp() may be lost when a test fails. */
#define TEST(name)                                               \
	TS_NOINLINE void name##_run(u64 seed);                   \
	int name##_test(u64 seed, char *why, size_t bytes);      \
	int name##_test(u64 seed, char *why, size_t bytes)       \
	{                                                        \
		test_begin(seed, why, bytes);                    \
		if (setjmp(test_failed))                         \
			return 1;                                \
		name##_run(seed);                                \
		return 0;                                        \
	}                                                        \
	static void name##_run(u64 seed)

#endif /* TOPSTAT_USER_TEST_H */
