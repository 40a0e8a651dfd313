/* SPDX-License-Identifier: GPL-2.0-only */
/* Hooks for the end of a process and of a control group, for families whose objects are keyed by these (K8 of keyed.h). */
#ifndef TOPSTAT_OWNERS_BPF_H
#define TOPSTAT_OWNERS_BPF_H

#include "observe/gate.bpf.h"
#include "observe/group.h"
#include "observe/process_id.h"

/*
 * Calls `ended(sample, id)` with the sample of processes or the sample of groups. The leader of a process is freed when the
 * process has ended and was waited for; or when another thread of the process executes a program and takes over the leader's pid.
 * Hook::of_owners() of topstat-kernel attaches both.
 */
#define KEYED_OWNERS(family, ended, processes, groups)                                  \
	TS_GATE("tp_btf/sched_process_free", family##_process_free)                     \
	SEC("tp_btf/sched_process_free")                                                \
	int BPF_PROG(family##_process_free, struct task_struct *task)                   \
	{                                                                               \
		if (task->pid == task->tgid)                                            \
			ended(processes, process_id(task));                             \
		return 0;                                                               \
	}                                                                               \
	TS_GATE("tp_btf/cgroup_rmdir", family##_rmdir)                                  \
	SEC("tp_btf/cgroup_rmdir")                                                      \
	int BPF_PROG(family##_rmdir, struct cgroup *cgroup)                             \
	{                                                                               \
		u64 id = group_number(cgroup);                                          \
                                                                                        \
		if (id)                                                                 \
			ended(groups, id);                                              \
		return 0;                                                               \
	}

#endif /* TOPSTAT_OWNERS_BPF_H */
