/* SPDX-License-Identifier: GPL-2.0-only */
/* The maps of the precise account, and functions that its programs and its readers' programs share. */
#ifndef TOPSTAT_ACCOUNT_PRECISE_H
#define TOPSTAT_ACCOUNT_PRECISE_H

#include "observe/kernel.h"

#include "account.h"

const volatile struct account_constants constants SEC(".rodata.constants") = {
	.ran_mask = 1023,
	.dead_mask = 1023,
	.cpus = 1,
};

struct account_control control SEC(".data.control");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct account_thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct account_cpu);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct account_ran);
} ran SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct account_dead);
} dead SEC(".maps");

/* By tgid: the processes whose system calls are traced. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ACCOUNT_CHOSEN);
	__type(key, u32);
	__type(value, u32);
} chosen SEC(".maps");

static __always_inline struct account_cpu *precise_slot(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&slots, &cpu);
}

/* The time that the hypervisor has taken from this CPU, as of the last update of the run queue's clock. Every switch and every
 * tick updates that clock. */
static __always_inline u64 precise_steal(struct task_struct *on_cpu)
{
	if (!constants.steal || !bpf_core_field_exists(on_cpu->se.cfs_rq->rq->prev_steal_time_rq))
		return 0;
	return on_cpu->se.cfs_rq->rq->prev_steal_time_rq;
}

/* Net time of a thread: its CPU time in user space and in the kernel, without interrupts, softirqs and steal. */
static __always_inline u64 precise_net(const struct account_own *own)
{
	return own->run - own->irq - own->softirq - own->steal;
}

/*
 * A chosen thread was in user space or in the kernel (`in`) from the net time `mark` to the net time `net`. Steal becomes known a
 * little later than it is taken (precise_steal()). So net time may go back while the thread is in the kernel: then the stolen
 * time was counted as user time.
 */
static __always_inline void precise_part(struct account_own *own, u64 in, u64 mark, u64 net)
{
	if (in == ACCOUNT_IN_USER) {
		if (net > mark)
			own->user += net - mark;
	} else if (ts_unlikely(net < mark)) {
		own->user -= own->user < mark - net ? own->user : mark - net;
	}
}

/* Adds the user time since the mark, as of an instant. The instant may be before the mark. */
static __always_inline void precise_user(struct account_own *own, u64 in, u64 mark)
{
	u64 net = precise_net(own);

	if (own->exact && in == ACCOUNT_IN_USER && net > mark)
		own->user += net - mark;
}

/* The kernel's counters of a task. */
static __always_inline void precise_kernel(struct account_kernel *k, struct task_struct *task)
{
	k->utime = BPF_CORE_READ(task, utime);
	k->stime = BPF_CORE_READ(task, stime);
	k->gtime = BPF_CORE_READ(task, gtime);
	k->wait = 0;
	if (bpf_core_field_exists(task->sched_info.run_delay))
		k->wait = BPF_CORE_READ(task, sched_info.run_delay);
	k->switches = BPF_CORE_READ(task, nvcsw) + BPF_CORE_READ(task, nivcsw);
}

static __always_inline void precise_since(struct account_kernel *k, const struct account_kernel *base)
{
	k->utime -= base->utime;
	k->stime -= base->stime;
	k->gtime -= base->gtime;
	k->wait -= base->wait;
	k->switches -= base->switches;
}

/* The identity of a task. A read of memory that is gone gives zeroes. */
static __always_inline void precise_who(struct account_who *who, struct task_struct *task)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	struct task_struct *parent = BPF_CORE_READ(task, real_parent, group_leader);

	who->pid = BPF_CORE_READ(task, pid);
	who->tgid = BPF_CORE_READ(task, tgid);
	who->ppid = BPF_CORE_READ(parent, tgid);
	who->gppid = BPF_CORE_READ(parent, real_parent, tgid);
	who->start = BPF_CORE_READ(leader, start_boottime);
	who->parent_start = BPF_CORE_READ(parent, start_boottime);
	who->flags = BPF_CORE_READ(task, flags) & PF_KTHREAD ? ACCOUNT_KERNEL : 0;
	who->pad = 0;
	BPF_CORE_READ_INTO(&who->comm, leader, comm);
	BPF_CORE_READ_INTO(&who->thread_comm, task, comm);
	BPF_CORE_READ_INTO(&who->parent_comm, parent, comm);
}

#endif /* TOPSTAT_ACCOUNT_PRECISE_H */
