/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's sum of pressure (collect_percpu_times() of kernel/sched/psi.c), computed without a change of its state (PR3). Each
 * CPU has the time in each state since the last sum. The sum is the mean over CPUs, weighted by the time, in jiffies, in which
 * the CPU had any task of the group.
 */
#ifndef TOPSTAT_PRESSURE_LOGIC_H
#define TOPSTAT_PRESSURE_LOGIC_H

#include "pressure.h"

/* The kernel's number of states (enum psi_states) is at most this; the last one is "not idle". */
#define PRESSURE_STATES 8

/* One CPU's part of struct psi_group_cpu. */
struct pressure_cpu {
	unsigned int times[PRESSURE_STATES];
	unsigned int times_prev[PRESSURE_STATES]; /* at the last sum */
	unsigned int state_mask;
	unsigned int pad;
	unsigned long long state_start;
};

struct pressure_sum {
	unsigned long long weighted[PRESSURE_STATES];
	unsigned long long nonidle;
};

/*
 * The kernel may have summed up at a moment after `now`, which lies up to a tick in the past, or a second where a CPU has no
 * ticks. The amounts of that time are in its total.
 */
#define PRESSURE_BEHIND_NS (1U << 30)

/* The time in a state since the last sum. The kernel keeps the lower 32 bits of nanoseconds, and sums up every 2 s. */
static inline unsigned int pressure_recent(const struct pressure_cpu *c, unsigned int state, unsigned long long now)
{
	unsigned int time = c->times[state];

	/* A state that began after `now` is not yet one. */
	if (c->state_mask & (1U << state) && (long long)(now - c->state_start) > 0)
		time += (unsigned int)(now - c->state_start);
	time -= c->times_prev[state];
	return time <= ~0U - PRESSURE_BEHIND_NS ? time : 0;
}

/* Add one CPU; `nonidle`: the number of that state. */
static inline void pressure_add_cpu(struct pressure_sum *sum, const struct pressure_cpu *c, unsigned int nonidle,
				    unsigned long long now, unsigned long long jiffy_ns)
{
	unsigned long long weight;
	unsigned int state;

	if (nonidle >= PRESSURE_STATES || !jiffy_ns)
		return;
	weight = pressure_recent(c, nonidle, now) / jiffy_ns;
	sum->nonidle += weight;
	for (state = 0; state < PRESSURE_STATES - 1; state++)
		if (state < nonidle)
			sum->weighted[state] += pressure_recent(c, state, now) * weight;
}

/* What the sum adds to the total of a state. */
static inline unsigned long long pressure_since(const struct pressure_sum *sum, unsigned int state)
{
	return sum->weighted[state] / (sum->nonidle ? sum->nonidle : 1);
}

#endif /* TOPSTAT_PRESSURE_LOGIC_H */
