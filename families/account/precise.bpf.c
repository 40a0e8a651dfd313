// SPDX-License-Identifier: GPL-2.0-only
/*
 * The precise account of CPU time: how long each thread ran, to the nanosecond. The sum over all threads and idle time is the
 * elapsed time × CPUs. "account.h" says how it works (A1 … A6).
 *
 * A switch costs one reading of the clock, two look-ups of storage and a few additions. All other work is done once per snapshot,
 * or once in a thread's life.
 */
#include "precise.bpf.h"
#include "calls.bpf.h"
#include "interrupts.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* A3. The exchange also orders the clock: it is read after all CPUs can see that `seq` is odd. */
static __always_inline void precise_enter(struct account_cpu *c)
{
	__sync_lock_test_and_set(&c->seq, c->seq + 1);
}

static __always_inline void precise_leave(struct account_cpu *c)
{
	ts_publish(c->seq, c->seq + 1);
}

/* Unique unless a pid is used again within a microsecond, or 50 days later to the microsecond. */
static __always_inline u64 precise_id(struct task_struct *task)
{
	return BPF_CORE_READ(task, start_boottime) >> 10 << 22 | (BPF_CORE_READ(task, pid) & 0x3fffff);
}

/* Opens the account of a thread: before the thread first runs, or when it is adopted. */
static __always_inline void precise_open(struct task_struct *task)
{
	struct account_thread *t;
	u32 tgid;

	t = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t) {
		ts_add(&control.no_memory, 1);
		return;
	}
	if (t->id)
		return;
	t->task = (u64)task;
	tgid = task->tgid;
	if (bpf_map_lookup_elem(&chosen, &tgid)) {
		t->own.exact = 1;
		t->in = ACCOUNT_IN_KERNEL; /* it leaves the kernel at the end of a system call */
	}
	precise_kernel(&t->base, task);
	ts_publish(t->id, precise_id(task));
}

/* A1: the thread leaves a CPU for the first time since the instant T was written. */
static __noinline int precise_enter_ran(struct account_thread *t, u64 T)
{
	struct account_ran *entry;
	u64 number;
	u32 i;

	if (!t)
		return 0;
	t->entered_at = T;
	number = __sync_fetch_and_add(&control.ran_end, 1) + 1;
	i = number & constants.ran_mask;
	entry = bpf_map_lookup_elem(&ran, &i);
	if (!entry)
		return 0;
	__sync_lock_test_and_set(&entry->number, 0);
	entry->thread = (u64)t;
	entry->id = t->id;
	__sync_lock_test_and_set(&entry->number, number);
	return 0;
}

/* A1: the thread leaves a CPU for the first time after the instant T. Its account until this slice is `own`; in this slice it ran
 * for `before` until T. */
static __noinline int precise_keep(struct account_thread *t, struct task_struct *prev, u64 T, u64 before)
{
	if (!t || !prev)
		return 0;
	t->kept.own = t->own;
	t->kept.own.run += before;
	precise_user(&t->kept.own, t->in, t->mark);
	precise_kernel(&t->kept.kernel, prev);
	precise_since(&t->kept.kernel, &t->base);
	/* A reader that sees the running account go on sees this, too (A4). */
	__sync_lock_test_and_set(&t->kept_at, T);
	return 0;
}

/*
 * A6: the thread has left the CPU for the last time. Its parent was recorded at its exit; the thread may have another parent
 * since. Its `sighand` is NULL once the thread is reaped; until then its parent exists.
 */
static __noinline int precise_end(struct account_thread *t, struct task_struct *prev, u64 now)
{
	struct task_struct *parent;
	struct account_dead *entry;
	u64 number;
	u32 i;

	if (!t || !prev)
		return 0;
	if (BPF_CORE_READ(prev, sighand)) {
		parent = BPF_CORE_READ(prev, real_parent, group_leader);
		if ((u32)BPF_CORE_READ(parent, tgid) != t->who.ppid)
			precise_who(&t->who, prev);
	}
	if (!BPF_CORE_READ(prev, signal, live.counter))
		t->who.flags |= ACCOUNT_LAST;
	number = __sync_fetch_and_add(&control.dead_end, 1) + 1;
	i = number & constants.dead_mask;
	entry = bpf_map_lookup_elem(&dead, &i);
	if (!entry)
		return 0;
	__sync_lock_test_and_set(&entry->number, 0);
	entry->id = t->id;
	entry->died = now;
	entry->kept_at = t->kept_at;
	entry->kept = t->kept;
	entry->times.own = t->own;
	precise_kernel(&entry->times.kernel, prev);
	precise_since(&entry->times.kernel, &t->base);
	entry->who = t->who;
	__sync_lock_test_and_set(&entry->number, number);
	/* Entries of `ran` that point to this storage find no thread. */
	ts_write(t->id, 0);
	return 0;
}

/* Keeps the CPU's account as of T, at the CPU's first switch after T. */
static __noinline int precise_keep_cpu(struct account_cpu *c, u64 T)
{
	u64 before = c->start < T ? T - c->start : 0;

	if (!c)
		return 0;
	c->kept = c->own;
	if (c->running == ACCOUNT_RUNS_IDLE)
		c->kept.idle += before;
	else if (c->running == ACCOUNT_RUNS_UNOWNED)
		c->kept.unowned += before;
	ts_publish(c->kept_at, T);
	return 0;
}

/* The task that leaves the CPU is not the task that was seen to come: see struct account_moved. */
static __noinline int precise_move(struct account_cpu *c, struct task_struct *prev, u64 me, u64 now, u64 T)
{
	u64 start, ran = now, unowned = 0;
	u32 i;

	if (!c || !prev)
		return 0;
	start = c->start;
	if (prev->pid && bpf_core_field_exists(prev->sched_info.last_arrival)) {
		ran = prev->se.cfs_rq->rq->clock - prev->sched_info.last_arrival;
		if (ran < now - start)
			unowned = now - start - ran;
	}
	if (start < T) {
		i = c->moves++ & (ACCOUNT_MOVED - 1);
		c->moved[i].start = start;
		c->moved[i].unowned = unowned;
		c->moved[i].to = me;
	}
	/* Two slices: the first is unowned, … */
	c->running = ACCOUNT_RUNS_UNOWNED;
	if (now > T && c->kept_at != T && start + unowned > T)
		precise_keep_cpu(c, T);
	c->own.unowned += unowned;
	/* … the second belongs to the task that leaves. */
	c->start = start + unowned;
	c->running = me == ACCOUNT_ID_IDLE ? ACCOUNT_RUNS_IDLE :
		     me == ACCOUNT_ID_UNOWNED ? ACCOUNT_RUNS_UNOWNED : ACCOUNT_RUNS_THREAD;
	return 0;
}

/* A chosen thread leaves the CPU. The switch to it was not seen, and it has made system calls since. precise_call() took the
 * first of these calls, at `came`, for the slice's start. From the slice's true start, `start`, until `came` the thread was where
 * it was before that call (`came_in`). */
static __always_inline void precise_unseen(struct account_thread *t, u64 start)
{
	u64 before = t->came > start ? t->came - start : 0;

	if (t->came_in == ACCOUNT_IN_USER)
		t->own.user += before;
	t->mark += before;
	t->came = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(precise_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct account_cpu *c = precise_slot();
	struct account_thread *t = NULL, *n;
	u64 now, T, start, run, irq = 0, softirq = 0, steal = 0, steal_now, net, me;
	u64 here = bpf_get_smp_processor_id() + 1;

	if (!c)
		return 0;
	precise_enter(c);
	now = bpf_ktime_get_ns();
	T = ts_read(control.instant);
	start = c->start;
	if (ts_unlikely(!c->since))
		c->since = start = c->start = now;
	if (now < start) /* the kernel has corrected the clocks of the CPUs */
		now = start;
	steal_now = precise_steal(prev);
	if (constants.steal) {
		steal = steal_now - c->start_steal;
		c->own.steal += steal;
		c->start_steal = steal_now;
	}
	if (constants.interrupts) {
		irq = c->own.irq - c->start_irq;
		softirq = c->own.softirq - c->start_softirq;
		c->start_irq = c->own.irq;
		c->start_softirq = c->own.softirq;
	}
	if (prev->pid)
		t = bpf_task_storage_get(&threads, prev, NULL, 0);
	me = !prev->pid ? ACCOUNT_ID_IDLE : t && t->id ? t->id : ACCOUNT_ID_UNOWNED;
	if (ts_unlikely(c->id != me || (t && t->on != here))) {
		precise_move(c, prev, me, now, T);
		start = c->start;
		if (t && t->came)
			precise_unseen(t, start);
	}
	run = now - start;
	if (ts_unlikely(now > T && c->kept_at != T))
		precise_keep_cpu(c, T);
	if (ts_likely(t && t->id)) {
		if (ts_unlikely(t->kept_at != T)) {
			if (t->entered_at != T)
				precise_enter_ran(t, T);
			if (now > T)
				precise_keep(t, prev, T, start < T ? T - start : 0);
		}
		t->own.run += run;
		t->own.irq += irq;
		t->own.softirq += softirq;
		t->own.steal += steal;
		if (ts_unlikely(t->own.exact)) {
			net = precise_net(&t->own);
			precise_part(&t->own, t->in, t->mark, net);
			t->mark = net;
		}
		if (ts_unlikely(prev_state & TASK_DEAD))
			precise_end(t, prev, now);
	} else if (prev->pid) {
		c->own.unowned += run;
	} else {
		c->own.idle += run;
		c->own.idle_irq += irq;
		c->own.idle_softirq += softirq;
		c->own.idle_steal += steal;
	}

	c->start = now;
	c->thread = 0;
	c->id = ACCOUNT_ID_IDLE;
	c->running = ACCOUNT_RUNS_IDLE;
	if (next->pid) {
		c->id = ACCOUNT_ID_UNOWNED;
		n = bpf_task_storage_get(&threads, next, NULL, 0);
		c->running = ACCOUNT_RUNS_UNOWNED;
		if (n && n->id) {
			c->thread = (u64)n;
			c->id = n->id;
			c->running = ACCOUNT_RUNS_THREAD;
			n->on = here;
		}
	}
	precise_leave(c);
	return 0;
}

/* Opens the account of every new thread before it runs. sched_switch does not do this: there, an allocation would be expensive,
 * and takes locks that may be held already. */
SEC("tp_btf/task_newtask")
int BPF_PROG(precise_new, struct task_struct *task)
{
	precise_open(task);
	return 0;
}

/* A thread exits, and runs on for a while. Its parent and its name are still certain. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(precise_exit, struct task_struct *task)
{
	struct account_thread *t = bpf_task_storage_get(&threads, task, NULL, 0);

	/*
	 * The thread has no account if the kernel skipped precise_new() or refused the storage. Both happen if another task was
	 * preempted on that CPU amid one of them. With an account from here on, the thread's exit is reported. The time until
	 * here is in no thread's account.
	 */
	if (ts_unlikely(!t || !t->id)) {
		precise_open(task);
		t = bpf_task_storage_get(&threads, task, NULL, 0);
	}
	if (t)
		precise_who(&t->who, task);
	return 0;
}

/* Opens the accounts of the threads that exist when the account begins. */
SEC("iter/task")
int precise_adopt(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task)
		precise_open(task);
	return 0;
}

/* Called once on each CPU: an idle CPU may not switch for a long time. */
SEC("raw_tp")
int precise_start(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *current_task = bpf_get_current_task_btf();
	struct account_cpu *c = precise_slot();
	struct account_thread *t;

	if (!c || c->since)
		return 0;
	precise_enter(c);
	c->since = c->start = bpf_ktime_get_ns();
	c->start_steal = precise_steal(current_task);
	c->running = ACCOUNT_RUNS_IDLE;
	c->id = ACCOUNT_ID_IDLE;
	if (current_task->pid) {
		c->id = ACCOUNT_ID_UNOWNED;
		c->running = ACCOUNT_RUNS_UNOWNED;
		t = bpf_task_storage_get(&threads, current_task, NULL, 0);
		if (t && t->id) {
			c->thread = (u64)t;
			c->id = t->id;
			c->running = ACCOUNT_RUNS_THREAD;
			t->on = bpf_get_smp_processor_id() + 1;
		}
	}
	precise_leave(c);
	return 0;
}
