/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Who a process is: shared by the families whose objects are processes, or have one. */
#ifndef TOPSTAT_PROCESS_H
#define TOPSTAT_PROCESS_H

#include "topstat/platform.h"

#define PROCESS_COMM 16

/* The v1 hierarchy that tells a process's cgroup where v2 is empty. */
enum process_v1 {
	PROCESS_V1_NONE,
	PROCESS_V1_MEMORY,
	PROCESS_V1_CPU,
	PROCESS_V1_PIDS,
};

struct process_who {
	u64 cgroup; /* id in the cgroup v2 hierarchy */
	u64 cgroup_v1; /* id in the v1 hierarchy of enum process_v1; 0: none */
	u32 pid; /* of the process; 0: not known (yet), or the kernel itself */
	u32 tid; /* of the thread, where the objects are threads; else 0 */
	char comm[PROCESS_COMM]; /* of the process, or where the objects are threads of the thread */
};

/* Tells the control group from all others of both versions: no id is as large as the bit that stands for v1. */
TS_INLINE u64 process_group_id(const struct process_who *who)
{
	return who->cgroup_v1 ? who->cgroup_v1 | 1ULL << 63 : who->cgroup;
}

#endif /* TOPSTAT_PROCESS_H */
