/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks of a group come and go on a few CPUs. The test keeps the kernel's state of the group's pressure, and has the kernel sum
 * it up now and then. Before, logic.h must compute the totals that the kernel has afterwards. On a single CPU, the totals must
 * also be the times that really passed.
 */
#include <stdio.h>
#include <string.h>
#include "logic.h"

typedef unsigned long long u64;
typedef unsigned int u32;

#define CPUS 4
#define NONIDLE 6 /* the number of the last state; a kernel that counts interrupts has one more before it */
#define JIFFY_NS 4000000ULL

static struct pressure_cpu cpus[CPUS];
static u64 totals[PRESSURE_STATES], passed[PRESSURE_STATES], now;
static u64 random_state;

static u32 any(u32 n)
{
	random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (u32)(random_state >> 33) % n;
}

/* record_times() and the end of psi_group_change() */
static void change(struct pressure_cpu *c, u32 mask, u32 nonidle)
{
	u32 state, delta = (u32)(now - c->state_start);

	c->state_start = now;
	for (state = 0; state <= nonidle; state++)
		if (c->state_mask & (1U << state)) {
			c->times[state] += delta;
			passed[state] += delta;
		}
	c->state_mask = mask;
}

/* collect_percpu_times(): the totals grow, and each CPU's times are remembered. */
static void collect(u32 count, u32 nonidle)
{
	u64 deltas[PRESSURE_STATES] = {}, all = 0, jiffies;
	u32 i, state, recent[PRESSURE_STATES];

	for (i = 0; i < count; i++) {
		for (state = 0; state <= nonidle; state++) {
			u32 time = cpus[i].times[state];

			if (cpus[i].state_mask & (1U << state))
				time += (u32)(now - cpus[i].state_start);
			recent[state] = time - cpus[i].times_prev[state];
			cpus[i].times_prev[state] = time;
		}
		jiffies = recent[nonidle] / JIFFY_NS;
		all += jiffies;
		for (state = 0; state < nonidle; state++)
			deltas[state] += recent[state] * jiffies;
	}
	for (state = 0; state < nonidle; state++)
		totals[state] += deltas[state] / (all ? all : 1);
}

int pressure_test(u64 seed, char *why, size_t bytes)
{
	u32 count = 1 + (u32)(seed % CPUS), nonidle = NONIDLE + (u32)(seed / CPUS % 2), step, i, state;
	struct pressure_cpu before[CPUS];
	u64 expected[PRESSURE_STATES];

	random_state = seed;
	memset(cpus, 0, sizeof(cpus));
	memset(totals, 0, sizeof(totals));
	memset(passed, 0, sizeof(passed));
	now = 1ULL << 40;
	for (i = 0; i < count; i++) {
		cpus[i].state_start = now;
		/* The times may overflow at any moment. */
		for (state = 0; state <= nonidle; state++)
			cpus[i].times[state] = cpus[i].times_prev[state] = ~0U - any(1U << 30);
	}
	for (step = 0; step < 200; step++) {
		struct pressure_sum sum = {};

		now += any(1U << any(28));
		for (i = 0; i < count; i++)
			if (!any(3)) {
				u32 mask = any(1U << nonidle);

				/* A stalled task is there, so the CPU is not idle for the group. */
				change(&cpus[i], mask || any(2) ? mask | 1U << nonidle : 0, nonidle);
			}
		memcpy(before, cpus, sizeof(cpus));
		for (i = 0; i < count; i++)
			pressure_add_cpu(&sum, &cpus[i], nonidle, now, JIFFY_NS);
		for (state = 0; state < nonidle; state++)
			expected[state] = totals[state] + pressure_since(&sum, state);
		if (memcmp(before, cpus, sizeof(cpus))) {
			snprintf(why, bytes, "the kernel's state has changed");
			return 1;
		}
		if (any(4))
			continue;
		collect(count, nonidle);
		for (state = 0; state < nonidle; state++) {
			if (expected[state] != totals[state]) {
				snprintf(why, bytes, "step %u, state %u: %llu, not %llu", step, state, expected[state],
					 totals[state]);
				return 1;
			}
		}
	}
	for (i = 0; i < count; i++)
		change(&cpus[i], 0, nonidle);
	/* The kernel drops what is shorter than a jiffy. */
	for (state = 0; count == 1 && state < nonidle; state++)
		if (totals[state] > passed[state]) {
			snprintf(why, bytes, "state %u: %llu of %llu ns", state, totals[state], passed[state]);
			return 1;
		}
	/* The kernel has summed up a moment after `now`: nothing is missing, and nothing is negative. */
	cpus[0].state_mask = 1U << nonidle | 1;
	cpus[0].times_prev[0] = cpus[0].times[0] + any(JIFFY_NS);
	cpus[0].state_start = now;
	if (pressure_recent(&cpus[0], 0, now) != 0) {
		snprintf(why, bytes, "time before the kernel's sum counts");
		return 1;
	}
	cpus[0].times_prev[0] = cpus[0].times[0];
	/* A state that begins after the moment of reading has not begun. */
	cpus[0].state_mask = 1;
	cpus[0].state_start = now + 1000;
	if (pressure_recent(&cpus[0], 0, now) != cpus[0].times[0] - cpus[0].times_prev[0]) {
		snprintf(why, bytes, "a state counts before it begins");
		return 1;
	}
	return 0;
}
