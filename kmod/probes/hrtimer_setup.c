// SPDX-License-Identifier: GPL-2.0-only
/* 908a1d775422 ("hrtimers: Introduce hrtimer_setup() to replace hrtimer_init()"), 6.13: for a module of the tests. */
#include <linux/hrtimer.h>

void topstat_probe(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *));
void topstat_probe(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *))
{
	hrtimer_setup(timer, function, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
}
