/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Objects that are processes, or threads. They live in the task storage of the process's first
 * thread, its leader.
 */
#ifndef TOPSTAT_PROCESS_BPF_H
#define TOPSTAT_PROCESS_BPF_H

#include "observe/kernel.h"
#include "observe/process.h"

/* Unique as long as a pid is not used again within a microsecond. */
static __always_inline u64 process_id(struct task_struct *task)
{
	return task->start_boottime >> 10 << 22 | (task->pid & 0x3fffff);
}

/* Whose storage holds the object of a task. NULL: a thread that is reaped may have outlived its
 * leader. */
static __always_inline struct task_struct *process_of(struct task_struct *task, u32 by_thread)
{
	struct task_struct *leader = task;

	if (!by_thread) {
		leader = task->group_leader;
		if (leader != task && !task->sighand)
			return NULL;
	}
	return leader;
}

/* At sched_process_exit: whose object ends with the task. NULL: other threads go on. */
static __always_inline struct task_struct *process_ended(struct task_struct *task, u32 by_thread)
{
	if (by_thread)
		return task;
	return task->signal->live.counter ? NULL : task->group_leader;
}

static __always_inline u32 process_v1_index(u32 controller)
{
	switch (controller) {
	case PROCESS_V1_MEMORY:
		return bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
	case PROCESS_V1_CPU:
		return bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);
	default:
		return bpf_core_enum_value(enum cgroup_subsys_id, pids_cgrp_id);
	}
}

/* From the address of any of its threads, or by thread of that one, which may have ended meanwhile. */
static __always_inline void process_describe(struct process_who *who, struct task_struct *task, u32 by_thread,
					     u32 v1_controller)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	struct css_set *css = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *subsys = NULL;

	who->pid = BPF_CORE_READ(task, tgid);
	who->tid = by_thread ? BPF_CORE_READ(task, pid) : 0;
	if (by_thread)
		BPF_CORE_READ_INTO(&who->comm, task, comm);
	else
		BPF_CORE_READ_INTO(&who->comm, leader, comm);
	who->cgroup = BPF_CORE_READ(css, dfl_cgrp, kn, id);
	who->cgroup_v1 = 0;
	if (v1_controller) {
		u32 i = process_v1_index(v1_controller);

		bpf_probe_read_kernel(&subsys, sizeof(subsys), &css->subsys[i]);
		who->cgroup_v1 = BPF_CORE_READ(subsys, cgroup, kn, id);
	}
}

#endif /* TOPSTAT_PROCESS_BPF_H */
