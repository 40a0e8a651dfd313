// SPDX-License-Identifier: GPL-2.0-only
/*
 * Events of processes: forked, executed, ended. The CPU time of a process is complete when its last thread has left its CPU for
 * good. Until then the scheduler has not added the time that the thread has used since its last tick, which for most short-lived
 * processes is all of it. So an exit is recorded when the kernel announces it, and reported when the thread is off its CPU.
 */
#include "observe/host.h"
#include "observe/process.bpf.h"
#include "observe/stream.bpf.h"
#include "families/processes/ending.bpf.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct processes_constants constants SEC(".rodata.constants") = {};

struct kuid {
	u32 val;
} CORE;

struct cred {
	struct kuid uid;
} CORE;

struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
} CORE;

struct linux_binprm {
	const char *filename;
} CORE;

/* From linux/sched/signal.h. */
#define SIGNAL_GROUP_EXIT 0x4

static __always_inline u32 process_parent(struct task_struct *task)
{
	return BPF_CORE_READ(task, real_parent, tgid);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(processes_fork, struct task_struct *parent, struct task_struct *child)
{
	struct processes_fork *e;
	struct stream s;

	if (child->pid != child->tgid || !stream_begin(&s))
		return 0;
	e = stream_reserve(&s, sizeof(*e));
	if (!e)
		return 0;
	process_describe(&e->who, child, 0, constants.v1_controller);
	e->parent = process_parent(child);
	e->unused = 0;
	stream_submit(&s, &e->head, PROCESSES_FORK);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(processes_exec, struct task_struct *task, int old, struct linux_binprm *binary)
{
	struct task_struct___used *t = (void *)task;
	u64 begin = BPF_CORE_READ(t, mm, arg_start), end = BPF_CORE_READ(t, mm, arg_end);
	struct processes_exec *e;
	struct stream s;

	if (!stream_begin(&s))
		return 0;
	e = stream_take(&s, sizeof(*e), PROCESSES_ARGUMENT_BYTES, end > begin ? end - begin : 0, (const void *)begin);
	if (!e)
		return 0;
	process_describe(&e->who, task, 0, constants.v1_controller);
	e->parent = process_parent(task);
	e->user = BPF_CORE_READ(t, cred, uid.val);
	if (bpf_probe_read_kernel_str(e->file, sizeof(e->file), BPF_CORE_READ(binary, filename)) < 0)
		e->file[0] = 0;
	stream_submit(&s, &e->head, PROCESSES_EXEC);
	return 0;
}

static __always_inline void process_tell(struct process_ending *p)
{
	struct processes_exit *e;
	struct stream s;

	if (!stream_begin(&s))
		return;
	e = stream_reserve(&s, sizeof(*e));
	if (!e)
		return;
	__builtin_memcpy((void *)e + sizeof(e->head), (void *)&p->event + sizeof(e->head), sizeof(*e) - sizeof(e->head));
	stream_submit(&s, &e->head, PROCESSES_EXIT);
}

/* Attached before processes_exit(), so that every recorded exit is reported. */
SEC("tp_btf/sched_switch")
int BPF_PROG(processes_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct task_struct___used *t = (void *)prev;
	struct process_ending *p;
	u64 key;

	if (prev->__state != TASK_DEAD)
		return 0;
	key = host_address(t->signal);
	p = bpf_map_lookup_elem(&ending, &key);
	if (!p || p->thread != host_address(prev))
		return 0;
	process_times(p, t);
	process_tell(p);
	bpf_map_delete_elem(&ending, &key);
	return 0;
}

/* The exit of a thread. Records the process's end if none of its threads lives any more. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(processes_exit, struct task_struct *task)
{
	struct task_struct___used *t = (void *)task, *leader = t->group_leader;
	struct signal_struct___used *sig = t->signal;
	u64 key = host_address(sig);
	struct process_ending *p;
	u32 zero = 0, status;

	if (task->signal->live.counter)
		return 0;
	p = bpf_map_lookup_elem(&blank, &zero);
	if (!p)
		return 0;
	/* A thread is reaped within a few instructions, so a second try is seldom needed. */
	if (!process_others(p, t) && !process_others(p, t))
		process_others(p, t);
	p->thread = host_address(task);
	p->name = (struct process_name){ .started_ns = BPF_CORE_READ(task, group_leader, start_boottime), .pid = task->tgid };
	if (!process_claim(p))
		return 0;
	process_describe(&p->event.who, task, 0, constants.v1_controller);
	p->event.parent = process_parent(task);
	status = sig->flags & SIGNAL_GROUP_EXIT ? sig->group_exit_code : leader->exit_code;
	p->event.code = status >> 8 & 0xff;
	p->event.signal = status & 0x7f;
	p->event.dumped = status >> 7 & 1;
	p->event.minor_faults += t->min_flt;
	p->event.major_faults += t->maj_flt;
	p->event.peak_pages = sig->maxrss;
	if (bpf_map_update_elem(&ending, &key, p, BPF_ANY)) {
		process_times(p, t);
		process_tell(p);
	}
	return 0;
}
