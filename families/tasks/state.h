/* SPDX-License-Identifier: GPL-2.0-only */
/* The state of the tables of tasks and cgroups: the observer writes it, and readers read it. */
#ifndef TOPSTAT_TASKS_STATE_H
#define TOPSTAT_TASKS_STATE_H

/* Tasks mostly stay on a CPU. */
#define ts_find_pushed ts_find_again

#include "observe/host.h"
#include "tasks.h"

HOST_STATE(tasks, TASKS_SAMPLES, TASKS_SAMPLES, .groups = TASKS_GROUPS);
HOST_STORAGE(objects, task, struct tasks_object);
/* For every thread without an object. */
HOST_STORAGE(waited, task, struct tasks_waited);
HOST_PER_CPU(runners, struct tasks_runner);

TS_INLINE u32 obs_at(u32 sample, u32 table)
{
	if (sample == TASKS_CGROUPS)
		return offsetof(struct tasks_group, window);
	if (table == TASKS_CPU_TOTAL)
		return offsetof(struct tasks_object, total);
	return offsetof(struct tasks_object, window) + table * sizeof(struct ts_window);
}

TS_INLINE u32 obs_type(u32 sample, u32 table)
{
	return sample != TASKS_CGROUPS && table == TASKS_CPU_TOTAL ? TS_STATIC : TS_DYNAMIC;
}

#include "observe/process_life.h"

#endif /* TOPSTAT_TASKS_STATE_H */
