/* SPDX-License-Identifier: GPL-2.0-only */
/* How readers find the process, or the thread, of an object. */
#ifndef TOPSTAT_PROCESS_BPF_H
#define TOPSTAT_PROCESS_BPF_H

#include "observe/kernel.h"
#include "observe/process.h"
#include "observe/process_id.h"

/* Describe a process by the address of any of its threads, or a thread by its own address. The task may have ended. */
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
	if (process_counts_in_v1(who->cgroup, v1_controller)) {
		u32 i = host_controller(v1_controller);

		bpf_probe_read_kernel(&subsys, sizeof(subsys), &css->subsys[i]);
		who->cgroup = BPF_CORE_READ(subsys, cgroup, kn, id) | PROCESS_GROUP_V1;
	}
}

/* `at`: the address at which the object keeps the address of its task. */
#define process_describe_object(who, at)                                                              \
	do {                                                                                          \
		u64 task_ = 0;                                                                        \
                                                                                                      \
		ts_peek(&task_, sizeof(task_), (at));                                                 \
		process_describe((who), (void *)task_, constants.by_thread, constants.v1_controller); \
	} while (0)

/* The iterator that orders all objects again, in a family whose objects are in the storage of tasks. */
#define PROCESS_REFILL(program)                                                  \
	SEC("iter/task") int program(struct bpf_iter__task *ctx)                 \
	{                                                                        \
		struct task_struct *task = ctx->task;                            \
		typeof(host_of(objects, task, task)) o;                          \
                                                                                 \
		o = task ? host_of(objects, task, task) : NULL;                  \
		if (o)                                                           \
			ranked_order_again(o->object.self, o->object.id);        \
		return 0;                                                        \
	}

#endif /* TOPSTAT_PROCESS_BPF_H */
