/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The id that distinguishes a process, or a thread, from all others. */
#ifndef TOPSTAT_PROCESS_ID_H
#define TOPSTAT_PROCESS_ID_H

#include "observe/host.h"

/* Unique as long as a pid is not used again within a microsecond. */
TS_INLINE u64 process_id_of(u64 start_boottime, u32 pid)
{
	return start_boottime >> 10 << 22 | (pid & 0x3fffff);
}

TS_INLINE u64 process_id(struct task_struct *task)
{
	return process_id_of(task->start_boottime, task->pid);
}

#endif /* TOPSTAT_PROCESS_ID_H */
