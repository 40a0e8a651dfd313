// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observer of tasks: samples tasks and cgroups.
 *
 * It pushes when a task leaves a CPU, and when it ends: nanoseconds that it was on it (by the clock,
 * so that all add up to time times CPUs, with idle), that it had waited for it (by the kernel's
 * account), and one switch. Objects are made before a task first runs.
 */
#include "charge.bpf.h"
#include "observe/gate.bpf.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline void top_begin(struct task_struct *task)
{
	u64 delay = task->sched_info.run_delay;
	struct tasks_object *o = NULL;
	struct tasks_waited *w;

	if (constants.by_thread || task->pid == task->tgid)
		o = bpf_task_storage_get(&objects, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!o) { /* a thread; or without memory: its pushes are counted as lost */
		w = bpf_task_storage_get(&waited, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (w && !w->seen)
			w->seen = delay;
		return;
	}
	if (o->self)
		return;
	o->task = (u64)task;
	o->self = (u64)o;
	/* It may have been a thread that is no object. */
	w = bpf_task_storage_get(&waited, task, NULL, 0);
	if (w)
		delay = w->seen;
	o->waited_seen = delay;
	ts_wmb();
	ts_write(o->id, process_id(task));
	ts_add(&census.objects[TASKS_TASKS].begun, 1);
}

TS_GATE("tp_btf/sched_switch", top_switch)

SEC("tp_btf/sched_switch")
int BPF_PROG(top_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct tasks_runner *r = bpf_map_lookup_elem(&runners, &cpu);
	u64 clock = top_clock_switching(prev), now = bpf_jiffies64();

	if (!r)
		return 0;
	top_clock_settle(r, clock, now, next);
	top_charge(r, cpu, prev, clock, now, 1);
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

/* A thread that is not the leader has become it: what it executes runs in its name. */
TS_GATE("tp_btf/sched_process_exec", top_exec)

SEC("tp_btf/sched_process_exec")
int BPF_PROG(top_exec, struct task_struct *task)
{
	top_begin(task);
	return 0;
}

/* The task's object, if it has one, is no object any more. Told twice it does nothing the second time. */
static __always_inline void top_end(struct task_struct *task)
{
	struct tasks_object *o = bpf_task_storage_get(&objects, task, NULL, 0);
	u64 id;

	if (!o)
		return;
	id = o->id;
	if (!id || !ts_cas(&o->id, id, 0))
		return;
	ts_add(&census.objects[TASKS_TASKS].ended, 1);
	ranked_forget(TASKS_TASKS, o->self);
}

/* A process ends with the last of its threads: its object leaves all tables, its pushes stay in
 * the totals. A thread leaves its CPU a last time when it may have been reaped, and has no process
 * any more: what it has used until now is pushed now. */
TS_GATE("tp_btf/sched_process_exit", top_exit)

SEC("tp_btf/sched_process_exit")
int BPF_PROG(top_exit, struct task_struct *task)
{
	struct task_struct *leader = process_ended(task, constants.by_thread);

	top_charge_running(bpf_get_smp_processor_id());
	if (!leader)
		return 0;
	top_end(leader);
	return 0;
}

/*
 * The end of an object whose process ended unseen: the kernel does not run a program that is running on
 * the CPU already, and where programs at tracepoints can be preempted (Linux 7.3 does) that may be for long.
 * And that of a leader whose process goes on, for another of its threads has executed a program.
 */
TS_GATE("tp_btf/sched_process_free", top_free)

SEC("tp_btf/sched_process_free")
int BPF_PROG(top_free, struct task_struct *task)
{
	top_end(task);
	return 0;
}

#ifndef TOPSTAT_PLAIN

TS_GATE("tp_btf/cgroup_mkdir", top_mkdir)

SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(top_mkdir, struct cgroup *cgroup)
{
	u64 id = top_group_id(cgroup);

	if (id)
		top_group_begin(cgroup, id);
	return 0;
}

/* The cgroups that are there already. */
SEC("iter/cgroup")
int top_adopt_groups(struct bpf_iter__cgroup *ctx)
{
	struct cgroup *cgroup = ctx->cgroup;
	u64 id;

	if (!cgroup)
		return 0;
	id = top_group_id(cgroup);
	if (id)
		top_group_begin(cgroup, id);
	return 0;
}

#endif

TS_GATE("tp_btf/cgroup_rmdir", top_rmdir)

SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(top_rmdir, struct cgroup *cgroup)
{
	u64 id = top_group_id(cgroup);

	if (id)
		top_group_end(cgroup, id);
	return 0;
}

/* The tasks that are there already, and the cgroups that they are in. */
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
