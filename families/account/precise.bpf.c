// SPDX-License-Identifier: GPL-2.0-only
/*
 * The precise account of CPU time: who ran how long, to the nanosecond, so that the sum of all
 * is the time that has passed times the CPUs. "account.h" says how it works (A1 … A6).
 *
 * What a switch costs is a clock, two look-ups of storage and a few additions; all else is done
 * once a snapshot, or once in a thread's life.
 */
#include "precise.bpf.h"
#include "calls.bpf.h"
#include "interrupts.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* A3. The exchange also keeps the clock from being read before `seq` is odd for all. */
static __always_inline void precise_enter(struct account_cpu *c)
{
	__sync_lock_test_and_set(&c->seq, c->seq + 1);
}

static __always_inline void precise_leave(struct account_cpu *c)
{
	ts_wmb();
	ts_write(c->seq, c->seq + 1);
}

/* Unique as long as a pid is not used again within a microsecond, or to the microsecond 50 days
 * later. */
static __always_inline u64 precise_id(struct task_struct *task)
{
	return BPF_CORE_READ(task, start_boottime) >> 10 << 22 | (BPF_CORE_READ(task, pid) & 0x3fffff);
}

/* Before a thread first runs, or when it is adopted. */
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
		t->in = ACCOUNT_IN_KERNEL; /* which it leaves by a system call's end */
	}
	precise_kernel(&t->base, task);
	ts_wmb();
	ts_write(t->id, precise_id(task));
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

/* A1: the thread leaves a CPU for the first time since the instant T; it has `own` so far, and
 * ran for `before` until then. */
static __noinline int precise_keep(struct account_thread *t, struct task_struct *prev, u64 T, u64 before)
{
	if (!t || !prev)
		return 0;
	t->kept.own = t->own;
	t->kept.own.run += before;
	precise_user(&t->kept.own, t->in, t->mark);
	precise_kernel(&t->kept.kernel, prev);
	precise_since(&t->kept.kernel, &t->base);
	/* Seen by whoever sees the account go on (A4). */
	__sync_lock_test_and_set(&t->kept_at, T);
	return 0;
}

/*
 * A6: the thread has left the CPU for the last time. Whose child it was has been taken down at
 * its exit; it may have been handed to another one since. Its `sighand` goes when it is reaped,
 * and until then its parent is there.
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
	/* Entries of `ran` that lead here find nobody. */
	ts_write(t->id, 0);
	return 0;
}

/* The CPU's own account as of T, when it first does something after it. */
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
	ts_wmb();
	ts_write(c->kept_at, T);
	return 0;
}

/* Somebody else leaves the CPU than was seen to come: see struct account_moved. */
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
	/* Two slices: the first is nobody's, … */
	c->running = ACCOUNT_RUNS_UNOWNED;
	if (now > T && c->kept_at != T && start + unowned > T)
		precise_keep_cpu(c, T);
	c->own.unowned += unowned;
	/* … the second is who leaves. */
	c->start = start + unowned;
	c->running = me == ACCOUNT_ID_IDLE ? ACCOUNT_RUNS_IDLE :
		     me == ACCOUNT_ID_UNOWNED ? ACCOUNT_RUNS_UNOWNED : ACCOUNT_RUNS_THREAD;
	return 0;
}

/* A chosen thread leaves that had come onto the CPU unseen, and has called the kernel since (precise_call()): its calls took
 * the first of them, at `came`, for its coming. Where it was between its coming, at `start`, and then, it had been before. */
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
	if (now < start) /* clocks of two CPUs, after a repair of the kernel's */
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

/* Every thread that is made, of whatever kind, before it runs: not in sched_switch, where
 * allocating would be dear, and takes locks that others hold there. */
SEC("tp_btf/task_newtask")
int BPF_PROG(precise_new, struct task_struct *task)
{
	precise_open(task);
	return 0;
}

/* It is going to die: its parent is still sure, its name is known, and it runs on for a while. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(precise_exit, struct task_struct *task)
{
	struct account_thread *t = bpf_task_storage_get(&threads, task, NULL, 0);

	/*
	 * It has no account if the kernel left precise_new() out, or refused the storage, since another task was preempted on that
	 * CPU amid either of these. With an account from now on, its exit is told. The time until now stays in no thread's account.
	 */
	if (ts_unlikely(!t || !t->id)) {
		precise_open(task);
		t = bpf_task_storage_get(&threads, task, NULL, 0);
	}
	if (t)
		precise_who(&t->who, task);
	return 0;
}

/* The threads that are there when the account is begun. */
SEC("iter/task")
int precise_adopt(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task)
		precise_open(task);
	return 0;
}

/* Called on each CPU, once: an idle CPU may not switch for long. */
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
