/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of the tables of delays, and how what a task has waited for is pushed to them: when it
 * leaves a CPU, when it ends, and when a snapshot is taken. The kernel adds to a task's account when
 * the wait is over: for a device before the task is woken, and else by the task itself.
 */
#ifndef TOPSTAT_DELAYS_CHARGE_H
#define TOPSTAT_DELAYS_CHARGE_H

#include "observe/apart.bpf.h"
#include "delays.h"
#include "topstat/spread.h"

const volatile struct delays_constants constants SEC(".rodata.constants") = {
	.shape = { .entries_mask = TS_TOP_DEFAULT * TS_SPARE - 1, .table_stride = 4096 },
};

struct delays_settings settings SEC(".data.settings");
struct ts_census census[1] SEC(".data.census");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct delays_object);
} objects SEC(".maps");

/* Of every thread, whatever the objects are. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct delays_thread);
} threads SEC(".maps");

#define RANKED_BANKS DELAYS_BANKS
#include "observe/ranked.bpf.h"
#include "observe/process.bpf.h"

/* Numbers of the last bank that are no tables are never pushed to. */
static __always_inline ts_view ranked_view(u32 bank, u32 table)
{
	return ts_view_of(constants.shape.entries_mask, TS_DYNAMIC,
			  offsetof(struct delays_object, window) +
				  (bank * TS_BANK_TABLES + table) * sizeof(struct ts_window),
			  offsetof(struct delays_object, id));
}

/* Amounts that can be spread: see spread.h. A longer wait, of more than a day, counts to now. */
#define DELAYS_SPREAD_MAX (1ULL << (64 - TS_SPREAD_SHIFT - 1))
/* Nanoseconds of a slide, by the period in ms. */
#define DELAYS_SLIDE_NS(period_ms) ((u64)(period_ms) * (1000000 / TS_SLIDES))

/* When a wait began that is over now, in ticks. */
static __always_inline u64 delays_since(const struct ts_tick *tick, const struct ts_config *c, u64 amount_ns)
{
	u64 slide = c->slide, tick_ns, ticks;

	if (!slide || amount_ns >= DELAYS_SPREAD_MAX)
		return tick->now;
	tick_ns = DELAYS_SLIDE_NS(c->period_ms) / slide;
	ticks = tick_ns ? amount_ns / tick_ns : 0;
	return ticks < tick->now ? tick->now - ticks : 0;
}

/*
 * Push so many ns to an object, or without one (`lost`: there should be one) to the total alone. They are taken to have been
 * spent until now: a wait that is longer than a slide is not of this slide alone. A global function:
 * it rarely runs, and the verifier looks at it once.
 */
__noinline int delays_push(struct delays_object *o, u32 table, u64 amount_ns, u32 lost)
{
	u32 bank_number = table / TS_BANK_TABLES, number = table % TS_BANK_TABLES;
	u64 since, early, id, self;
	struct ts_window *w;
	struct ts_config *c;
	struct ts_bank *bank;
	struct ts_tick *tick;
	struct ts_table *t;
	int claimed;

	if (table >= DELAYS_TABLES)
		return 0;
	bank = ranked_bank(bpf_get_smp_processor_id(), bank_number);
	if (!bank)
		return 0;
	c = &settings.config[ts_bound(bank_number, DELAYS_BANKS - 1)][ts_bound(number, TS_BANK_TABLES - 1)];
	if (!c->enabled)
		return 0;
	ts_bank_to(bank, constants.shape.table_stride, settings.config[ts_bound(bank_number, DELAYS_BANKS - 1)],
		   settings.all.generation, bpf_jiffies64());
	t = ranked_table(bank, number);
	tick = &bank->tick[ts_bound(number, TS_BANK_TABLES - 1)];
	since = delays_since(tick, c, amount_ns);
	early = ts_spread_early(tick, since, tick->now, amount_ns);
	/* Total before object (P1). */
	if (early)
		ts_window_spread(&t->total, tick, since, early, 0);
	if (!o) {
		ts_push_total(t, tick, 0, amount_ns - early);
		if (lost)
			ts_refuse(t, tick, amount_ns);
		return 0;
	}
	w = &o->window[table];
	if (w->slide != tick->slide)
		ts_window_begin_since(w, tick, c, since);
	if (early)
		ts_window_spread(w, tick, since, early, 0);
	id = o->id;
	self = o->self;
	claimed = ts_bank_enter(bank);
	ts_push(t, tick, c, ranked_view(bank_number, number), claimed, self, id, w, 0, amount_ns - early);
	ts_bank_leave(bank, claimed);
	return 0;
}

/* Nobody knows how much of this was waited since the task was last looked at: at most all of it. */
__noinline int delays_refuse(u32 table, u64 amount_ns)
{
	u32 bank_number = table / TS_BANK_TABLES, number = table % TS_BANK_TABLES;
	struct ts_bank *bank;
	struct ts_config *c;

	if (table >= DELAYS_TABLES || !amount_ns)
		return 0;
	bank = ranked_bank(bpf_get_smp_processor_id(), bank_number);
	if (!bank)
		return 0;
	c = settings.config[ts_bound(bank_number, DELAYS_BANKS - 1)];
	if (!c[ts_bound(number, TS_BANK_TABLES - 1)].enabled)
		return 0;
	ts_bank_to(bank, constants.shape.table_stride, c, settings.all.generation, bpf_jiffies64());
	ts_refuse(ranked_table(bank, number), &bank->tick[ts_bound(number, TS_BANK_TABLES - 1)], amount_ns);
	return 0;
}

/* A task without storage has waited at some time. Counted each time that it leaves a CPU. */
static __noinline int delays_lost(struct task_struct *task)
{
	struct task_delay_info *d = task->delays;

	if (!d)
		return 0;
	delays_refuse(DELAYS_BLKIO, d->blkio_delay);
	delays_refuse(DELAYS_SWAPIN, d->swapin_delay);
	delays_refuse(DELAYS_RECLAIM, d->freepages_delay);
	delays_refuse(DELAYS_THRASHING, d->thrashing_delay);
	delays_refuse(DELAYS_COMPACT, d->compact_delay);
	delays_refuse(DELAYS_WPCOPY, d->wpcopy_delay);
	return 0;
}

/*
 * Waits for block I/O that were longer than there was time for. Such a wait begins when the task
 * leaves a CPU and is over before it comes back, so it can't be longer than the time since the task
 * was last looked at. Linux 6.12 and later (152e11f6df29, "sched/fair: Implement delayed dequeue")
 * may take down the beginning of one in the account of another task than waits; then it seems to
 * have lasted since the task's wait before, or since the host was started. How long it was is not
 * known: it is not pushed, but counted here. (All other waits may contain several times on a CPU.)
 */
u64 impossible SEC(".data.impossible");

/* How long a task may have waited at most since it was last looked at. */
static __always_inline u64 delays_most(struct task_struct *task, const struct delays_thread *w, u64 now_jiffies)
{
	/* One jiffy more at each end: neither moment is known better. */
	if (w->left)
		return (now_jiffies - w->left + 2) * constants.jiffy_ns;
	return bpf_ktime_get_boot_ns() - task->start_boottime;
}

/* What was added since it was last asked for. By a swap: a snapshot may interrupt its own task here. */
static __always_inline u64 delays_fresh(u64 *seen, u64 now)
{
	u64 before = __sync_lock_test_and_set(seen, now);

	return now > before ? now - before : 0;
}

#define DELAYS_ONE(table, field)                                     \
	do {                                                         \
		u64 fresh = delays_fresh(&w->seen[table], d->field); \
		if (fresh)                                           \
			delays_push(o, table, fresh, lost);          \
	} while (0)

static __noinline int delays_push_all(struct task_struct *task, struct delays_thread *w, u32 counts, u64 now_jiffies)
{
	struct task_delay_info *d = task->delays;
	struct delays_object *o = NULL;
	struct task_struct *leader;
	u64 blkio_ns;
	u32 lost = 0;

	if (!w || !d)
		return 0;
	leader = process_of(task, constants.by_thread);
	if (leader) {
		o = bpf_task_storage_get(&objects, leader, NULL, 0);
		lost = !o;
		if (o && !o->id)
			o = NULL; /* it has ended */
	}
	w->counts = counts;
	blkio_ns = delays_fresh(&w->seen[DELAYS_BLKIO], d->blkio_delay);
	if (ts_unlikely(blkio_ns > delays_most(task, w, now_jiffies)))
		ts_add(&impossible, 1);
	else if (blkio_ns)
		delays_push(o, DELAYS_BLKIO, blkio_ns, lost);
	DELAYS_ONE(DELAYS_SWAPIN, swapin_delay);
	DELAYS_ONE(DELAYS_RECLAIM, freepages_delay);
	DELAYS_ONE(DELAYS_THRASHING, thrashing_delay);
	DELAYS_ONE(DELAYS_COMPACT, compact_delay);
	DELAYS_ONE(DELAYS_WPCOPY, wpcopy_delay);
	return 0;
}

/* All counts together. They lie side by side, unlike the sums: two cache lines. */
static __always_inline u32 delays_counts(const struct task_delay_info *d)
{
	return d->blkio_count + d->swapin_count + d->freepages_count + d->thrashing_count + d->compact_count +
	       d->wpcopy_count;
}

/* Push what a task, which is on this CPU, has waited since it was last looked at. Most never have. */
static __always_inline void delays_charge(struct task_struct *task)
{
	struct task_delay_info *d = task->delays;
	struct delays_thread *w;
	u64 now_jiffies;
	u32 counts;

	if (!d)
		return;
	counts = delays_counts(d);
	if (!counts)
		return;
	w = bpf_task_storage_get(&threads, task, NULL, 0);
	if (ts_unlikely(!w)) {
		delays_lost(task);
		return;
	}
	now_jiffies = bpf_jiffies64();
	if (ts_unlikely(w->counts != counts))
		delays_push_all(task, w, counts, now_jiffies);
	w->left = now_jiffies;
}

#endif /* TOPSTAT_DELAYS_CHARGE_H */
