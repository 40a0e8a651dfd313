/* SPDX-License-Identifier: GPL-2.0-only */
/* Processes that end, with the times and counts of all their threads. */
#ifndef TOPSTAT_PROCESSES_ENDING_H
#define TOPSTAT_PROCESSES_ENDING_H

#include "observe/host.h"
#include "families/processes/processes.h"

struct sched_entity___used {
	u64 sum_exec_runtime;
} CORE;

struct list_head {
	struct list_head *next;
} CORE;

struct signal_struct___used {
	struct list_head thread_head;
	struct {
		struct {
			struct {
				unsigned int sequence;
			} seqcount;
		} seqcount;
	} stats_lock;
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
	struct list_head thread_node;
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

/* From asm-generic/errno-base.h. */
#define EEXIST_ 17

/* Identifies a process uniquely, among all past and future ones. */
struct process_name {
	u64 started_ns; /* since boot */
	u32 pid;
	u32 unused;
};

/* A process that ends, and its last thread. */
struct process_ending {
	u64 thread;
	struct process_name name;
	/* The time of all other threads. */
	u64 cpu_ns;
	u64 user_ns;
	u64 system_ns;
	struct processes_exit event;
};

/* By the address of the process's `struct signal_struct`, which all its threads share. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROCESSES_ENDING);
	__type(key, u64);
	__type(value, struct process_ending);
} ending SEC(".maps");

/* Ended processes with several threads: each of these threads may find no thread alive, and only the first reports the exit. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PROCESSES_ENDING);
	__type(key, struct process_name);
	__type(value, u32);
} told SEC(".maps");

/* A scratch entry for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct process_ending);
} blank SEC(".maps");

/* `of` × `part` / `whole`. */
static __always_inline u64 process_share(u64 of, u64 part, u64 whole)
{
	u64 bits = of | part | whole;
	/* Below 2^32 ns, 2^44 (5 hours) and above: the product stays below 2^64, and at most 1/2^20 of the time is lost. */
	u32 less = bits >> 44 ? 24 : bits >> 32 ? 12 : 0;

	if (!(whole >> less))
		return 0;
	return ((of >> less) * (part >> less) / (whole >> less)) << less;
}

/* Divides the scheduler's time in the ratio of the times by ticks, as getrusage(2) does. */
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
	e->lived_ns = bpf_ktime_get_boot_ns() - p->name.started_ns;
	/* Counts that are read when the thread leaves its CPU are this thread's only. */
	e->voluntary += t->nvcsw;
	e->involuntary += t->nivcsw;
}

/* Exiting threads that are read when the last one ends: a few for each CPU. */
#define LAST_THREADS 256

/* A step through the threads of a process. */
struct process_walk {
	struct process_ending *p;
	u64 self;
	u64 head;
	u64 node;
};

/* Adds the times and counts of a thread. Returns 1 at the end of the list. */
static long process_other(u32 i, void *arg)
{
	struct process_walk *w = arg;
	struct process_ending *p = w->p;
	struct task_struct___used *other = NULL;
	u64 address = w->node - bpf_core_field_offset(other->thread_node);

	if (w->node == w->head)
		return 1;
	other = (void *)address;
	if (address != w->self) {
		p->cpu_ns += BPF_CORE_READ(other, se.sum_exec_runtime);
		p->user_ns += BPF_CORE_READ(other, utime);
		p->system_ns += BPF_CORE_READ(other, stime);
		p->event.minor_faults += BPF_CORE_READ(other, min_flt);
		p->event.major_faults += BPF_CORE_READ(other, maj_flt);
		p->event.voluntary += BPF_CORE_READ(other, nvcsw);
		p->event.involuntary += BPF_CORE_READ(other, nivcsw);
	}
	w->node = host_address(BPF_CORE_READ(other, thread_node.next));
	return 0;
}

/* Adds up the times and counts of all threads but this one. The kernel has the sum of the reaped threads. The others are in the
 * process's list: its first thread, which is reaped last, and threads that have not fully ended yet. False: a thread was reaped
 * during the read, and may have been counted twice or not at all. */
static __noinline bool process_others(struct process_ending *p, struct task_struct___used *t)
{
	struct signal_struct___used *sig = t->signal;
	struct process_walk w = { .p = p, .self = host_address(t) };
	u32 before = BPF_CORE_READ(sig, stats_lock.seqcount.seqcount.sequence);

	w.head = host_address(sig) + bpf_core_field_offset(sig->thread_head);
	w.node = host_address(BPF_CORE_READ(sig, thread_head.next));
	p->cpu_ns = BPF_CORE_READ(sig, sum_sched_runtime);
	p->user_ns = BPF_CORE_READ(sig, utime);
	p->system_ns = BPF_CORE_READ(sig, stime);
	p->event.minor_faults = BPF_CORE_READ(sig, min_flt);
	p->event.major_faults = BPF_CORE_READ(sig, maj_flt);
	p->event.voluntary = BPF_CORE_READ(sig, nvcsw);
	p->event.involuntary = BPF_CORE_READ(sig, nivcsw);
	host_loop(LAST_THREADS, process_other, &w);
	return !(before & 1) && before == BPF_CORE_READ(sig, stats_lock.seqcount.seqcount.sequence);
}

/* Whether this thread is the first one that finds no thread of the process alive. */
static __always_inline bool process_claim(struct process_ending *p)
{
	u32 zero = 0;

	/* If no other thread has used anything, there was no other thread. Before Linux 6.4 operations of maps return 32 bits,
	 * and the upper half of the helper's result is 0. */
	return !p->cpu_ns || (int)bpf_map_update_elem(&told, &p->name, &zero, BPF_NOEXIST) != -EEXIST_;
}

#endif /* TOPSTAT_PROCESSES_ENDING_H */
