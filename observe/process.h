/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The identity of a process: shared by the families whose objects are processes, or have a process. */
#ifndef TOPSTAT_PROCESS_H
#define TOPSTAT_PROCESS_H

#include "topstat/platform.h"

#define PROCESS_COMM 16

/*
 * The control group that a process counts to. A process is in one group of v2, and in one group of each v1 hierarchy. It counts
 * to its group of v2. If that is the root, it counts to its group in the chosen v1 hierarchy, if there is one. So a host has rows
 * whichever kind of hierarchy tells its processes apart, also where v2 tells some of them apart and v1 others.
 *
 * An id is unique in one hierarchy: another hierarchy may use it, too. So a group is known by one number: its id, and
 * PROCESS_GROUP_V1 where the group is in v1. Objects are keyed by this number, and readers find the path by it.
 */
#define PROCESS_GROUP_V1 (1ULL << 63)
/* The kernel's id of the root of each hierarchy. */
#define PROCESS_GROUP_ROOT 1

/* The chosen v1 hierarchy. */
enum process_v1 {
	PROCESS_V1_NONE,
	PROCESS_V1_MEMORY,
	PROCESS_V1_CPU,
	PROCESS_V1_PIDS,
};

struct process_who {
	u64 cgroup; /* the number of the control group that it counts to */
	u32 pid; /* of the process; 0: not known (yet), or the kernel itself */
	u32 tid; /* of the thread, where the objects are threads; otherwise 0 */
	char comm[PROCESS_COMM]; /* of the process; of the thread, where the objects are threads */
};

/* Whether a process that is in this group of v2 counts to its group of v1. */
TS_INLINE int process_counts_in_v1(u64 v2, u32 v1_controller)
{
	return v2 == PROCESS_GROUP_ROOT && v1_controller != PROCESS_V1_NONE;
}

#endif /* TOPSTAT_PROCESS_H */
