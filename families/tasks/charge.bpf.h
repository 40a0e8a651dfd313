/* SPDX-License-Identifier: GPL-2.0-only */
/* What a task has used of a CPU is pushed: when it leaves it, when it ends, and when a snapshot is taken. */
#ifndef TOPSTAT_TASKS_CHARGE_H
#define TOPSTAT_TASKS_CHARGE_H

#include "group.bpf.h"
#include "topstat/spread.h"

/* What is pushed at once. */
struct top_amounts {
	u64 used_ns;
	u64 waited_ns;
	u64 unknown_ns; /* it has waited no more than that, but nobody knows how long */
	u64 since_jiffies; /* when it began to be used */
	u64 now_jiffies;
	u32 switches;
};

/* The clock that is read at switches may be another one than that of fine ticks: there, all was used
 * until now. */
static __always_inline u64 top_since(const struct top_amounts *a, const struct ts_tick *tick,
				     const struct ts_config *c)
{
	return c->precise ? tick->now - a->used_ns : a->since_jiffies;
}

static __always_inline u64 top_early(const struct top_amounts *a, const struct ts_tick *tick, const struct ts_config *c)
{
	return ts_spread_early(tick, top_since(a, tick, c), c->precise ? tick->now : a->now_jiffies, a->used_ns);
}

/* Time on a CPU to the total alone: nobody's, idle, or (`lost`) of something that should have an object. */
static __always_inline void top_charge_total(struct ts_bank *bank, u32 table, const struct ts_config *c,
					     const struct top_amounts *a, struct ts_window *idle, u32 lost)
{
	struct ts_table *t = ranked_table(bank, table);
	struct ts_tick *tick = &bank->tick[table];
	u64 early = top_early(a, tick, c);

	if (early)
		ts_window_spread(&t->total, tick, top_since(a, tick, c), early, 0);
	ts_push_total(t, tick, 0, a->used_ns - early);
	if (lost)
		ts_refuse(t, tick, a->used_ns);
	if (!idle)
		return;
	if (idle->slide != tick->slide)
		ts_window_begin_since(idle, tick, c, top_since(a, tick, c));
	if (early)
		ts_window_spread(idle, tick, top_since(a, tick, c), early, 0);
	ts_window_add(idle, tick, 0, a->used_ns - early);
}

/* Time on a CPU. The part that was used before this slide goes first: total before object (P1). */
static __always_inline void top_charge_cpu(struct ts_bank *bank, u32 sample, const struct ts_config *c, int claimed,
					   u64 self, u64 id, struct ts_window *w, const struct top_amounts *a)
{
	struct ts_table *t = ranked_table(bank, TASKS_CPU);
	struct ts_tick *tick = &bank->tick[TASKS_CPU];
	u64 early = top_early(a, tick, c);

	if (ts_unlikely(early))
		ts_window_spread(&t->total, tick, top_since(a, tick, c), early, 0);
	if (ts_unlikely(w->slide != tick->slide))
		ts_window_begin_since(w, tick, c, top_since(a, tick, c));
	if (ts_unlikely(early))
		ts_window_spread(w, tick, top_since(a, tick, c), early, 0);
	ts_push(t, tick, c, ranked_view(sample, TASKS_CPU), claimed, self, id, w, 0, a->used_ns - early);
}

/* To the total alone, as above; of other tables than those of time on a CPU by window. */
static __always_inline void top_charge_none(struct ts_bank *bank, u32 table, u64 amount, u32 lost)
{
	struct ts_table *t = ranked_table(bank, table);

	ts_push_total(t, &bank->tick[table], 0, amount);
	if (lost && amount)
		ts_refuse(t, &bank->tick[table], amount);
}

static __always_inline void top_charge_task(struct task_struct *task, struct tasks_object *o, u32 lost,
					    struct tasks_runner *r, u32 cpu, const struct top_amounts *a)
{
	struct ts_config *c = settings.config[TASKS_TASKS];
	struct ts_bank *bank = ranked_bank(cpu, TASKS_TASKS);
	int claimed;

	if (!bank)
		return;
	ts_bank_to(bank, constants.shape.table_stride, c, settings.all.generation, a->now_jiffies);
	if (!task->pid) {
		if (c[TASKS_CPU].enabled)
			top_charge_total(bank, TASKS_CPU, &c[TASKS_CPU], a, &r->idle[TASKS_TASKS], 0);
		if (c[TASKS_CPU_TOTAL].enabled) {
			ts_add(&ranked_table(bank, TASKS_CPU_TOTAL)->total.sum[0], a->used_ns);
			ts_add(&r->idle_total.sum[0], a->used_ns);
		}
		return;
	}
	if (ts_unlikely(!o)) {
		if (c[TASKS_CPU].enabled)
			top_charge_total(bank, TASKS_CPU, &c[TASKS_CPU], a, NULL, lost);
		if (c[TASKS_SWITCHES].enabled)
			top_charge_none(bank, TASKS_SWITCHES, a->switches, lost);
		if (c[TASKS_WAITS].enabled)
			top_charge_none(bank, TASKS_WAITS, a->waited_ns, lost);
		if (c[TASKS_CPU_TOTAL].enabled)
			top_charge_none(bank, TASKS_CPU_TOTAL, a->used_ns, lost);
		return;
	}
	if (ts_unlikely(a->unknown_ns))
		ts_refuse(ranked_table(bank, TASKS_WAITS), &bank->tick[TASKS_WAITS], a->unknown_ns);
	claimed = ts_bank_enter(bank);
	if (c[TASKS_CPU].enabled)
		top_charge_cpu(bank, TASKS_TASKS, &c[TASKS_CPU], claimed, o->self, o->id, &o->window[TASKS_CPU], a);
	if (a->switches && c[TASKS_SWITCHES].enabled)
		ts_push(ranked_table(bank, TASKS_SWITCHES), &bank->tick[TASKS_SWITCHES], &c[TASKS_SWITCHES],
			ranked_view(TASKS_TASKS, TASKS_SWITCHES), claimed, o->self, o->id,
			&o->window[TASKS_SWITCHES], 0, a->switches);
	if (a->waited_ns && c[TASKS_WAITS].enabled)
		ts_push(ranked_table(bank, TASKS_WAITS), &bank->tick[TASKS_WAITS], &c[TASKS_WAITS],
			ranked_view(TASKS_TASKS, TASKS_WAITS), claimed, o->self, o->id,
			&o->window[TASKS_WAITS], 0, a->waited_ns);
	if (c[TASKS_CPU_TOTAL].enabled)
		ts_push_static(ranked_table(bank, TASKS_CPU_TOTAL), &bank->tick[TASKS_CPU_TOTAL], &c[TASKS_CPU_TOTAL],
			       ranked_view(TASKS_TASKS, TASKS_CPU_TOTAL), claimed, o->self, o->id, &o->total, 0,
			       a->used_ns);
	ts_bank_leave(bank, claimed);
}

static __always_inline void top_charge_group(struct task_struct *task, struct tasks_object *o,
					     struct tasks_runner *r, u32 cpu, const struct top_amounts *a)
{
	struct ts_config *c = settings.config[TASKS_CGROUPS];
	struct tasks_group *g;
	struct ts_bank *bank;
	u32 lost = 0;
	int claimed;
	u64 id;

	if (!c[TASKS_CPU].enabled)
		return;
	bank = ranked_bank(cpu, TASKS_CGROUPS);
	if (!bank)
		return;
	ts_bank_to(bank, constants.shape.table_stride, c, settings.all.generation, a->now_jiffies);
	if (!task->pid) {
		top_charge_total(bank, TASKS_CPU, &c[TASKS_CPU], a, &r->idle[TASKS_CGROUPS], 0);
		return;
	}
	g = top_group(task, o, &id, &lost);
	if (ts_unlikely(!g)) {
		top_charge_total(bank, TASKS_CPU, &c[TASKS_CPU], a, NULL, lost);
		return;
	}
	claimed = ts_bank_enter(bank);
	top_charge_cpu(bank, TASKS_CGROUPS, &c[TASKS_CPU], claimed, g->self, id, &g->window, a);
	ts_bank_leave(bank, claimed);
}

/* What the thread has waited for a CPU since it was last asked. The kernel adds to its account
 * when the thread comes onto a CPU, and when it is moved from one queue to another. */
static __always_inline u64 top_waited_since(struct task_struct *task, u64 *seen)
{
	u64 all = task->sched_info.run_delay, since = all - *seen;

	*seen = all;
	return since;
}

/* `own`: the thread's object, if it is its own; see struct tasks_waited. */
static __always_inline void top_waited(struct top_amounts *a, struct task_struct *task, struct tasks_object *own)
{
	struct tasks_waited *w;

	if (!settings.config[TASKS_TASKS][TASKS_WAITS].enabled)
		return;
	if (ts_likely(own)) {
		a->waited_ns = top_waited_since(task, &own->waited_seen);
		return;
	}
	w = bpf_task_storage_get(&waited, task, NULL, 0);
	if (w) {
		a->waited_ns = top_waited_since(task, &w->seen);
		return;
	}
	/* A leader no more: another thread has become it. */
	own = bpf_task_storage_get(&objects, task, NULL, 0);
	if (own)
		a->waited_ns = top_waited_since(task, &own->waited_seen);
	else /* without memory for either: at most all that it ever waited */
		a->unknown_ns = task->sched_info.run_delay;
}

/* The task on this CPU leads to its run queue, and that to its clock. Where one of these is missing
 * (se.cfs_rq: without CONFIG_FAIR_GROUP_SCHED) the monotonic clock is read instead, which takes 30 times as long. */
static __always_inline int top_has_rq_clock(void)
{
	return bpf_core_field_exists(struct sched_entity, cfs_rq) && bpf_core_field_exists(struct cfs_rq, rq) &&
	       bpf_core_field_exists(struct rq, clock);
}

/* C1 */
static __always_inline u64 top_clock_switching(struct task_struct *on_cpu)
{
	return top_has_rq_clock() ? on_cpu->se.cfs_rq->rq->clock : bpf_ktime_get_ns();
}

/* C2: at most once a jiffy. Not on the way to idle, when the scheduler may have looked for work elsewhere
 * since it brought its clock up to date. */
static __always_inline void top_clock_settle(struct tasks_runner *r, u64 clock, u64 now_jiffies,
					     struct task_struct *next)
{
	if (top_has_rq_clock() && ts_unlikely(r->start_jiffies != now_jiffies) && next->pid)
		r->clock_ahead = clock - bpf_ktime_get_ns();
}

/* C2; 0: nothing is known of any clock yet. */
static __always_inline u64 top_clock_between(const struct tasks_runner *r, struct task_struct *on_cpu)
{
	u64 ktime = bpf_ktime_get_ns(), ahead = r->clock_ahead, clock;
	u32 first = 0;

	if (!top_has_rq_clock())
		return ktime;
	if (!ahead) {
		r = bpf_map_lookup_elem(&runners, &first);
		ahead = r ? r->clock_ahead : 0;
	}
	if (!ahead)
		return 0;
	clock = on_cpu->se.cfs_rq->rq->clock;
	return (s64)(ktime + ahead - clock) > 0 ? ktime + ahead : clock;
}

/*
 * Push what `task`, which is on this CPU, has used since it came or since it was last pushed. A
 * task that is never switched is pushed by every snapshot, so that nothing that runs is missed.
 */
static __always_inline void top_charge(struct tasks_runner *r, u32 cpu, struct task_struct *task, u64 clock,
				       u64 now_jiffies, u32 switches)
{
	struct top_amounts a = { .now_jiffies = now_jiffies, .switches = switches };
	struct task_struct *leader = task;
	struct tasks_object *o = NULL;
	u64 start = r->start;
	u32 lost = 0;

	a.since_jiffies = r->start_jiffies;
	r->start_jiffies = now_jiffies;
	if (ts_likely(clock > start)) {
		r->start = clock;
		a.used_ns = clock - start;
	} else if (start - clock > TASKS_CLOCK_SLACK_NS) { /* C3 */
		r->start = clock;
	}
	if (ts_unlikely(!start))
		return;
	if (task->pid) {
		leader = process_of(task, constants.by_thread);
		if (leader) {
			o = bpf_task_storage_get(&objects, leader, NULL, 0);
			lost = !o;
		}
		top_waited(&a, task, leader == task ? o : NULL);
		if (o && !o->id)
			o = NULL; /* it is no object any more */
	}
	top_charge_task(task, o, lost, r, cpu, &a);
	top_charge_group(task, o, r, cpu, &a);
}

/* The same between switches, with preemption off. False: this has interrupted somebody who does it. */
static __always_inline int top_charge_running(u32 cpu)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct tasks_runner *r = bpf_map_lookup_elem(&runners, &cpu);
	u64 clock;

	if (!r)
		return 1;
	if (!ts_claim(&r->claim))
		return 0;
	clock = top_clock_between(r, task);
	if (clock)
		top_charge(r, cpu, task, clock, bpf_jiffies64(), 0);
	ts_release(&r->claim);
	return 1;
}

#endif /* TOPSTAT_TASKS_CHARGE_H */
