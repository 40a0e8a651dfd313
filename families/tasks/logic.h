/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks and control groups as objects, on any host. When a task leaves a CPU, when it ends, and when a snapshot is taken, these
 * amounts are pushed: the nanoseconds on the CPU (by the clock, so that all of them, with idle time, add up to time × CPUs), the
 * nanoseconds of waiting for the CPU (by the kernel's account), and, on leaving it, one switch.
 */
#ifndef TOPSTAT_TASKS_LOGIC_H
#define TOPSTAT_TASKS_LOGIC_H

#include "state.h"
#include "group.h"

/* The amounts of one push. */
struct top_amounts {
	u64 used_ns;
	u64 waited_ns;
	u64 unknown_ns; /* the task has waited at most this long; the exact time is unknown */
	u64 since_jiffies; /* the beginning of the slice */
	u64 now_jiffies;
	u32 switches;
};

/*
 * The beginning of the slice. The clock of switches may differ from the clock of precise ticks: there the slice is taken to end
 * now.
 */
TS_INLINE u64 top_since(const struct obs *x, const struct top_amounts *a)
{
	return obs_since(x, TASKS_CPU, a->since_jiffies, a->used_ns);
}

TS_INLINE void top_add(struct obs *x, const struct top_amounts *a)
{
	obs_add_since(x, TASKS_CPU, 0, a->used_ns, top_since(x, a));
	obs_add_any(x, TASKS_SWITCHES, 0, a->switches);
	obs_add_any(x, TASKS_WAITS, 0, a->waited_ns);
	obs_add(x, TASKS_CPU_TOTAL, 0, a->used_ns);
	obs_end(x);
}

TS_INLINE void top_charge_task(struct task_struct *task, struct tasks_object *o, u32 refused,
			       struct tasks_runner *r, const struct top_amounts *a)
{
	struct obs x;

	if (!task->pid) {
		if (!obs_begin_total_at(&x, TASKS_TASKS, 0, a->now_jiffies))
			return;
		obs_add_unranked(&x, TASKS_CPU, &r->idle[TASKS_TASKS], a->used_ns, top_since(&x, a));
		obs_add_unranked_count(&x, TASKS_CPU_TOTAL, &r->idle_total, a->used_ns);
		obs_end(&x);
	} else if (ts_unlikely(!o)) {
		if (obs_begin_total_at(&x, TASKS_TASKS, refused, a->now_jiffies))
			top_add(&x, a);
	} else if (obs_begin_at(&x, TASKS_TASKS, &o->object, a->now_jiffies)) {
		if (ts_unlikely(a->unknown_ns))
			obs_refuse(&x, TASKS_WAITS, a->unknown_ns);
		top_add(&x, a);
	}
}

TS_INLINE void top_charge_group(struct task_struct *task, struct tasks_object *o, struct tasks_runner *r,
				const struct top_amounts *a)
{
	struct tasks_group *g;
	u32 refused = 0;
	struct obs x;

	if (!obs_is_on(TASKS_CGROUPS, TASKS_CPU))
		return;
	if (!task->pid) {
		if (!obs_begin_total_at(&x, TASKS_CGROUPS, 0, a->now_jiffies))
			return;
		obs_add_unranked(&x, TASKS_CPU, &r->idle[TASKS_CGROUPS], a->used_ns, top_since(&x, a));
		obs_end(&x);
		return;
	}
	g = top_group(task, o, &refused);
	if (ts_unlikely(!g)) {
		if (!obs_begin_total_at(&x, TASKS_CGROUPS, refused, a->now_jiffies))
			return;
	} else if (!obs_begin_at(&x, TASKS_CGROUPS, &g->object, a->now_jiffies)) {
		return;
	}
	obs_add_since(&x, TASKS_CPU, 0, a->used_ns, top_since(&x, a));
	obs_end(&x);
}

/*
 * The thread's wait for a CPU since the last call. The kernel adds to its account when the thread comes onto a CPU, and when it
 * is moved to another queue.
 */
TS_INLINE u64 top_waited_since(struct task_struct *task, u64 *seen)
{
	u64 all = task->sched_info.run_delay, since = all - *seen;

	*seen = all;
	return since;
}

/* `own`: the thread's own object; NULL: the thread has no object, see struct tasks_waited. */
TS_INLINE void top_waited(struct top_amounts *a, struct task_struct *task, struct tasks_object *own)
{
	struct tasks_waited *w;

	if (!obs_is_on(TASKS_TASKS, TASKS_WAITS))
		return;
	if (ts_likely(own)) {
		a->waited_ns = top_waited_since(task, &own->waited_seen);
		return;
	}
	w = host_of(waited, task, task);
	if (w) {
		a->waited_ns = top_waited_since(task, &w->seen);
		return;
	}
	/* The thread was a leader, and another thread has taken over. */
	own = host_of(objects, task, task);
	if (own)
		a->waited_ns = top_waited_since(task, &own->waited_seen);
	else /* no memory for either: at most all that it has ever waited */
		a->unknown_ns = task->sched_info.run_delay;
}

/* CL1 */
TS_INLINE u64 top_clock_switching(struct task_struct *on_cpu)
{
	return host_has_run_clock() ? host_run_clock(on_cpu) : host_clock();
}

/* CL2: at most once a jiffy. Not on the way to idle: there the scheduler may have searched for work after it updated its clock. */
TS_INLINE void top_clock_settle(struct tasks_runner *r, u64 clock, u64 now_jiffies, struct task_struct *next)
{
	if (host_has_run_clock() && ts_unlikely(r->start_jiffies != now_jiffies) && next->pid)
		r->clock_ahead = clock - host_clock();
}

/* CL2; 0: no clock is known yet. */
TS_INLINE u64 top_clock_between(const struct tasks_runner *r, struct task_struct *on_cpu)
{
	u64 ktime = host_clock(), ahead = r->clock_ahead, clock;

	if (!host_has_run_clock())
		return ktime;
	if (!ahead) {
		r = host_on(runners, 0);
		ahead = r ? r->clock_ahead : 0;
	}
	if (!ahead)
		return 0;
	clock = host_run_clock(on_cpu);
	return (s64)(ktime + ahead - clock) > 0 ? ktime + ahead : clock;
}

/*
 * Push the time of `task`, which is on this CPU, since it came or since its last push. Every snapshot pushes a task that is never
 * switched, so no running task is missed.
 */
TS_INLINE void top_charge(struct tasks_runner *r, struct task_struct *task, u64 clock,
				       u64 now_jiffies, u32 switches)
{
	struct top_amounts a = { .now_jiffies = now_jiffies, .switches = switches };
	struct task_struct *leader = task;
	struct tasks_object *o = NULL;
	u64 start = r->start;
	u32 refused = 0;

	a.since_jiffies = r->start_jiffies;
	r->start_jiffies = now_jiffies;
	if (ts_likely(clock > start)) {
		r->start = clock;
		a.used_ns = clock - start;
	} else if (start - clock > TASKS_CLOCK_SLACK_NS) { /* CL3 */
		r->start = clock;
	}
	if (ts_unlikely(!start))
		return;
	if (task->pid) {
		leader = process_of(task);
		if (leader) {
			o = host_of(objects, task, leader);
			refused = !o;
		}
		top_waited(&a, task, leader == task ? o : NULL);
		if (o && !o->object.id)
			o = NULL; /* the object has ended */
	}
	top_charge_task(task, o, refused, r, &a);
	top_charge_group(task, o, r, &a);
}

/* top_charge() between switches, with preemption off. False: this has interrupted a holder of the claim. */
TS_INLINE int top_charge_running(struct task_struct *task)
{
	struct tasks_runner *r = host_on(runners, host_cpu());
	u64 clock;

	if (!r)
		return 1;
	if (!ts_claim(&r->claim))
		return 0;
	clock = top_clock_between(r, task);
	if (clock)
		top_charge(r, task, clock, host_jiffies(), 0);
	ts_release(&r->claim);
	return 1;
}

/* A task is new and has not been on a CPU, or is adopted just now. */
TS_INLINE void top_begin(struct task_struct *task)
{
	u64 delay = task->sched_info.run_delay;
	struct tasks_object *o = NULL;
	struct tasks_waited *w;

	if (process_is_object(task))
		o = host_make(objects, task, task);
	if (!o) { /* a thread; or there is no memory, and pushes of the task are counted as refused */
		w = host_make(waited, task, task);
		if (w && !w->seen)
			w->seen = delay;
		return;
	}
	if (o->object.self)
		return;
	/* It may have been a thread without an object. */
	w = host_of(waited, task, task);
	if (w)
		delay = w->seen;
	o->waited_seen = delay;
	process_begin(&o->object, &o->task, task, TASKS_TASKS);
}

/* `prev` leaves this CPU for `next`. */
TS_INLINE void top_switched(struct task_struct *prev, struct task_struct *next)
{
	struct tasks_runner *r = host_on(runners, host_cpu());
	u64 clock = top_clock_switching(prev), now = host_jiffies();

	if (!r)
		return;
	top_clock_settle(r, clock, now, next);
	top_charge(r, prev, clock, now, 1);
}

/*
 * A task ends on this CPU. When it leaves the CPU for the last time, it may have been reaped, and then has no process: so its
 * time until now is pushed now.
 */
TS_INLINE void top_end(struct task_struct *task)
{
	top_charge_running(task);
	process_end(task, TASKS_TASKS);
}

#endif /* TOPSTAT_TASKS_LOGIC_H */
