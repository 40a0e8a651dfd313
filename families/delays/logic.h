/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The waits of processes, on any host. The kernel keeps an account of every task (struct task_delay_info, which taskstats
 * reports). The difference since the last look is pushed when the task leaves a CPU, and when it ends.
 */
#ifndef TOPSTAT_DELAYS_LOGIC_H
#define TOPSTAT_DELAYS_LOGIC_H

#include "observe/host.h"
#include "delays.h"

HOST_STATE(delays, 1, DELAYS_BANKS);
HOST_STORAGE(objects, task, struct delays_object);
/* Each thread has one, whether objects are processes or threads. */
HOST_STORAGE(threads, task, struct delays_thread);

TS_INLINE u32 obs_at(u32 number, u32 table)
{
	return offsetof(struct delays_object, window) +
	       host_item_at(number * TS_BANK_TABLES + table, DELAYS_TABLES, sizeof(struct ts_window));
}

/* Numbers of the last bank without a table are never pushed to. */
TS_INLINE u32 obs_type(u32 number, u32 table)
{
	return TS_DYNAMIC;
}

#include "observe/process_life.h"

/*
 * Pushes ns that were spent until now: a wait that is longer than a slide belongs to several slides. Without an object, they
 * count to the total only (`refused`: the object is missing for want of memory).
 */
TS_GLOBAL_FN int delays_push(struct delays_object *o, u32 table, u64 ns, u32 refused)
{
	u32 number = table / TS_BANK_TABLES, of_bank = table % TS_BANK_TABLES;
	struct obs x;

	if (table >= DELAYS_TABLES || !obs_is_on(number, of_bank))
		return 0;
	if (o ? !obs_begin(&x, number, &o->object) : !obs_begin_total(&x, number, refused))
		return 0;
	obs_add_since(&x, of_bank, 0, ns, obs_since_ns(&x, of_bank, ns));
	obs_end(&x);
	return 0;
}

/* The part of these ns that was waited since the task was last looked at is unknown: at most all of them. */
TS_GLOBAL_FN int delays_refuse(u32 table, u64 ns)
{
	u32 number = table / TS_BANK_TABLES, of_bank = table % TS_BANK_TABLES;
	struct obs x;

	if (table < DELAYS_TABLES && obs_begin_total(&x, number, 1)) {
		obs_refuse(&x, of_bank, ns);
		obs_end(&x);
	}
	return 0;
}

/* A task without storage has waited at some time. This is counted each time that the task leaves a CPU. */
TS_NOINLINE int delays_lost(struct task_struct *task)
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
 * The number of waits for block I/O that were longer than the time there was for them. Such a wait begins when the task leaves a
 * CPU and is over before it comes back, so it can't be longer than the time since the task was last looked at. Linux 6.12 and
 * later (152e11f6df29, "sched/fair: Implement delayed dequeue") may record the beginning of a wait in the account of a task that
 * does not wait. Then the wait seems to have lasted since the task's previous wait, or since the host was started. Its true
 * length is unknown: it is not pushed, but counted here. (All other kinds of waits may span several periods on a CPU.)
 */
HOST_WORD(impossible);

/* The longest time that a task may have waited since it was last looked at. */
TS_INLINE u64 delays_most(struct task_struct *task, const struct delays_thread *w, u64 now_jiffies)
{
	/* One jiffy more at each end: both moments are known to a jiffy only. */
	if (w->left)
		return (now_jiffies - w->left + 2) * constants.jiffy_ns;
	return host_since_boot() - task->start_boottime;
}

/* The difference since the last look. By a swap: a snapshot may interrupt its own task here. */
TS_INLINE u64 delays_fresh(u64 *seen, u64 now)
{
	u64 before = host_swap(seen, now);

	return now > before ? now - before : 0;
}

TS_INLINE void delays_push_fresh(struct delays_object *o, struct delays_thread *w, u32 table, u64 now, u32 refused)
{
	u64 fresh = delays_fresh(&w->seen[table], now);

	if (fresh)
		delays_push(o, table, fresh, refused);
}

TS_NOINLINE int delays_push_all(struct task_struct *task, struct delays_thread *w, u32 counts, u64 now_jiffies)
{
	struct task_delay_info *d = task->delays;
	struct delays_object *o = NULL;
	struct task_struct *leader;
	u64 blkio_ns;
	u32 refused = 0;

	if (!w || !d)
		return 0;
	leader = process_of(task);
	if (leader) {
		o = host_of(objects, task, leader);
		refused = !o;
		if (o && !o->object.id)
			o = NULL; /* the object has ended */
	}
	w->counts = counts;
	blkio_ns = delays_fresh(&w->seen[DELAYS_BLKIO], d->blkio_delay);
	if (ts_unlikely(blkio_ns > delays_most(task, w, now_jiffies)))
		ts_add(&impossible, 1);
	else if (blkio_ns)
		delays_push(o, DELAYS_BLKIO, blkio_ns, refused);
	delays_push_fresh(o, w, DELAYS_SWAPIN, d->swapin_delay, refused);
	delays_push_fresh(o, w, DELAYS_RECLAIM, d->freepages_delay, refused);
	delays_push_fresh(o, w, DELAYS_THRASHING, d->thrashing_delay, refused);
	delays_push_fresh(o, w, DELAYS_COMPACT, d->compact_delay, refused);
	delays_push_fresh(o, w, DELAYS_WPCOPY, d->wpcopy_delay, refused);
	return 0;
}

/* The sum of all counts. They lie side by side, unlike the times: two cache lines. */
TS_INLINE u32 delays_counts(const struct task_delay_info *d)
{
	return d->blkio_count + d->swapin_count + d->freepages_count + d->thrashing_count + d->compact_count +
	       d->wpcopy_count;
}

/* Pushes what a task on this CPU has waited since it was last looked at. Most tasks have never waited. */
TS_INLINE void delays_charge(struct task_struct *task)
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
	w = host_of(threads, task, task);
	if (ts_unlikely(!w)) {
		delays_lost(task);
		return;
	}
	now_jiffies = host_jiffies();
	if (ts_unlikely(w->counts != counts))
		delays_push_all(task, w, counts, now_jiffies);
	w->left = now_jiffies;
}

/* Makes the storage of a task. `now_jiffies`: the task is new; 0: it existed before. */
TS_INLINE void delays_begin(struct task_struct *task, u64 now_jiffies)
{
	struct task_delay_info *d = task->delays;
	struct delays_thread *w;
	struct delays_object *o;

	w = host_make(threads, task, task);
	/* Waits before the account began do not count. */
	if (w && d && !w->known) {
		w->seen[DELAYS_BLKIO] = d->blkio_delay;
		w->seen[DELAYS_SWAPIN] = d->swapin_delay;
		w->seen[DELAYS_RECLAIM] = d->freepages_delay;
		w->seen[DELAYS_THRASHING] = d->thrashing_delay;
		w->seen[DELAYS_COMPACT] = d->compact_delay;
		w->seen[DELAYS_WPCOPY] = d->wpcopy_delay;
		w->counts = delays_counts(d);
		w->known = 1;
		w->left = now_jiffies;
	}
	if (!process_is_object(task))
		return;
	o = host_make(objects, task, task);
	if (o && !o->object.self) /* without memory, its pushes are counted as refused */
		process_begin(&o->object, &o->task, task, 0);
}

/*
 * A task ends. When it leaves its CPU for the last time it may have been reaped, and belong to no process: its waits until now
 * are pushed now.
 */
TS_INLINE void delays_end(struct task_struct *task)
{
	delays_charge(task);
	process_end(task, 0);
}

#endif /* TOPSTAT_DELAYS_LOGIC_H */
