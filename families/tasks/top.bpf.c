// SPDX-License-Identifier: GPL-2.0-only
/* The observer of the samples tasks and cgroups. Objects are made before a task first runs. */
#include "logic.h"
#include "observe/gate.bpf.h"

char LICENSE[] SEC("license") = "GPL";

TS_GATE("tp_btf/sched_switch", top_switch)

SEC("tp_btf/sched_switch")
int BPF_PROG(top_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	top_switched(prev, next);
	return 0;
}

TS_GATE("tp_btf/task_newtask", top_new)

SEC("tp_btf/task_newtask")
int BPF_PROG(top_new, struct task_struct *task)
{
	top_begin(task);
	top_group_of(task);
	return 0;
}

/* A thread that executes a program has become the leader: the program runs in the leader's name. */
TS_GATE("tp_btf/sched_process_exec", top_exec)

SEC("tp_btf/sched_process_exec")
int BPF_PROG(top_exec, struct task_struct *task)
{
	top_begin(task);
	return 0;
}

TS_GATE("tp_btf/sched_process_exit", top_exit)

SEC("tp_btf/sched_process_exit")
int BPF_PROG(top_exit, struct task_struct *task)
{
	top_end(task);
	return 0;
}

/* The end of an object that top_exit() has missed: see process_freed(). */
TS_GATE("tp_btf/sched_process_free", top_free)

SEC("tp_btf/sched_process_free")
int BPF_PROG(top_free, struct task_struct *task)
{
	process_freed(task, TASKS_TASKS);
	return 0;
}

#ifndef TOPSTAT_PLAIN

TS_GATE("tp_btf/cgroup_mkdir", top_mkdir)

SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(top_mkdir, struct cgroup *cgroup)
{
	u64 id = group_number(cgroup);

	if (id)
		top_group_begin(cgroup, id);
	return 0;
}

/* Adopt the cgroups that already exist. */
SEC("iter/cgroup")
int top_adopt_groups(struct bpf_iter__cgroup *ctx)
{
	struct cgroup *cgroup = ctx->cgroup;
	u64 id;

	if (!cgroup)
		return 0;
	id = group_number(cgroup);
	if (id)
		top_group_begin(cgroup, id);
	return 0;
}

#endif

TS_GATE("tp_btf/cgroup_rmdir", top_rmdir)

SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(top_rmdir, struct cgroup *cgroup)
{
	u64 id = group_number(cgroup);

	if (id)
		top_group_end(cgroup, id);
	return 0;
}

/* Adopt the tasks that already exist, and their cgroups. */
SEC("iter/task")
int top_adopt(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (!task)
		return 0;
	top_begin(task);
	top_group_of(task);
	return 0;
}
