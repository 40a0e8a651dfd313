// SPDX-License-Identifier: GPL-2.0-only
/*
 * Events of processes: forked, executed, ended. The CPU time of a process is known when its last thread has left its
 * CPU for good: until then the scheduler has not added up what the thread has used since its last tick, which is all of it
 * for most processes that live shortly. So its exit is taken down when the kernel tells of it, and told when it is off
 * its CPU.
 */
#include "observe/host.h"
#include "observe/process.bpf.h"
#include "observe/stream.bpf.h"
#include "families/processes/processes.h"

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

struct sched_entity___used {
	u64 sum_exec_runtime;
} CORE;

struct signal_struct___used {
	u64 utime;
	u64 stime;
	u64 sum_sched_runtime;
	unsigned long nvcsw;
	unsigned long nivcsw;
	unsigned long min_flt;
	unsigned long maj_flt;
	unsigned long maxrss;
	int group_exit_code;
	unsigned int flags;
} CORE;

struct task_struct___used {
	struct sched_entity___used se;
	struct signal_struct___used *signal;
	struct task_struct___used *group_leader;
	struct mm_struct *mm;
	const struct cred *cred;
	u64 utime;
	u64 stime;
	unsigned long nvcsw;
	unsigned long nivcsw;
	unsigned long min_flt;
	unsigned long maj_flt;
	int exit_code;
} CORE;

/* Of linux/sched/signal.h. */
#define SIGNAL_GROUP_EXIT 0x4

/* A process that ends, and the thread with which it does. */
struct process_ending {
	u64 thread;
	u64 started_ns; /* since boot */
	/* What all others of its threads have used. */
	u64 cpu_ns;
	u64 user_ns;
	u64 system_ns;
	struct processes_exit event;
};

/* By the address of its `struct signal_struct`, which all its threads share. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROCESSES_ENDING);
	__type(key, u64);
	__type(value, struct process_ending);
} ending SEC(".maps");

/* One for each CPU, to begin with. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct process_ending);
} blank SEC(".maps");

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

/* So much of `of` as `part` is of `whole`. */
static __always_inline u64 process_share(u64 of, u64 part, u64 whole)
{
	u64 bits = of | part | whole;
	/* Below 2^32 ns, 2^44 (5 hours) and above: the product stays below 2^64, and of the time 1/2^20 may be lost. */
	u32 less = bits >> 44 ? 24 : bits >> 32 ? 12 : 0;

	if (!(whole >> less))
		return 0;
	return ((of >> less) * (part >> less) / (whole >> less)) << less;
}

/* Times that ticks have measured divide what the scheduler has: as getrusage(2) tells them. */
static __always_inline void process_times(struct process_ending *p, struct task_struct___used *t)
{
	u64 user = p->user_ns + t->utime, system = p->system_ns + t->stime;
	struct processes_exit *e = &p->event;

	e->cpu_ns = p->cpu_ns + t->se.sum_exec_runtime;
	if (!system)
		e->system_ns = 0;
	else if (!user)
		e->system_ns = e->cpu_ns;
	else
		e->system_ns = process_share(e->cpu_ns, system, user + system);
	if (e->system_ns > e->cpu_ns)
		e->system_ns = e->cpu_ns;
	e->user_ns = e->cpu_ns - e->system_ns;
	e->lived_ns = bpf_ktime_get_boot_ns() - p->started_ns;
	/* What is counted when it leaves its CPU is of this thread alone. */
	e->voluntary += t->nvcsw;
	e->involuntary += t->nivcsw;
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

/* Attached before the next one, so that whatever that takes down is told. */
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

/* The last thread of a process ends. Others of its threads may be on their last way, too; they have been added up when they
 * were reaped, and the first one, which is reaped after all others, is where it was. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(processes_exit, struct task_struct *task)
{
	struct task_struct___used *t = (void *)task, *leader = t->group_leader;
	struct signal_struct___used *sig = t->signal;
	u64 key = host_address(sig), others;
	struct process_ending *p, *other;
	u32 zero = 0, status;

	if (task->signal->live.counter)
		return 0;
	p = bpf_map_lookup_elem(&blank, &zero);
	if (!p)
		return 0;
	others = task->pid != task->tgid;
	p->thread = host_address(task);
	p->cpu_ns = sig->sum_sched_runtime + (others ? leader->se.sum_exec_runtime : 0);
	p->user_ns = sig->utime + (others ? leader->utime : 0);
	p->system_ns = sig->stime + (others ? leader->stime : 0);
	process_describe(&p->event.who, task, 0, constants.v1_controller);
	p->event.parent = process_parent(task);
	status = sig->flags & SIGNAL_GROUP_EXIT ? sig->group_exit_code : leader->exit_code;
	p->event.code = status >> 8 & 0xff;
	p->event.signal = status & 0x7f;
	p->event.dumped = status >> 7 & 1;
	p->started_ns = BPF_CORE_READ(task, group_leader, start_boottime);
	p->event.minor_faults = sig->min_flt + t->min_flt + (others ? leader->min_flt : 0);
	p->event.major_faults = sig->maj_flt + t->maj_flt + (others ? leader->maj_flt : 0);
	p->event.voluntary = sig->nvcsw + (others ? leader->nvcsw : 0);
	p->event.involuntary = sig->nivcsw + (others ? leader->nivcsw : 0);
	p->event.peak_pages = sig->maxrss;
	other = bpf_map_lookup_elem(&ending, &key);
	/* Another thread has ended at the same time, and tells. */
	if (other && other->started_ns == p->started_ns && other->event.who.pid == p->event.who.pid)
		return 0;
	if (bpf_map_update_elem(&ending, &key, p, BPF_ANY)) {
		process_times(p, t);
		process_tell(p);
	}
	return 0;
}
