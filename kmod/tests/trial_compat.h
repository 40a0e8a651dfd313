/* SPDX-License-Identifier: GPL-2.0-only */
/* Differences between kernels that the trial hides. */
#ifndef TOPSTAT_TRIAL_COMPAT_H
#define TOPSTAT_TRIAL_COMPAT_H

#include <linux/hrtimer.h>
#include <linux/random.h>
#include "topstat_probes.h"

/* get_random_u32() may take a lock, which the debug kernel forbids in hardirq; the test only needs a counter. */
static inline u32 get_random_u32_of_trial(void)
{
	static u64 state;
	u64 next = READ_ONCE(state) * 6364136223846793005ULL + 1442695040888963407ULL + raw_smp_processor_id();

	WRITE_ONCE(state, next);
	return next >> 32;
}

static inline void setup_timer_of_trial(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *))
{
#ifdef HAVE_HRTIMER_SETUP
	hrtimer_setup(timer, function, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	timer->function = function;
#endif
}

#endif /* TOPSTAT_TRIAL_COMPAT_H */
