// SPDX-License-Identifier: GPL-2.0-only
/* Orders all objects of a table again, so that its rows are proven. */

#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/smp.h>
#include "core.h"

static void clear_missed(void *arg)
{
	struct ts_table **tables = arg, *on;
	u32 i, k;

	for (k = 0; k < 2; k++) {
		on = tables[k];
		for (i = 0; on && i < TS_MARKS; i++) {
			on->missed[i] = 0;
			on->missed_nested[i] = 0;
		}
	}
}

/*
 * All objects of topstat.h are ordered again, by the callback of their table: then missed[] is known anew (T5). Before that,
 * the bounds of each CPU are cleared, so no row is proven until the end. Returns false if the callback has left out an object, or
 * there is no callback.
 */
bool tt_refill(struct topstat_table *t)
{
	u64 ended, alive, found, to;
	u32 cpu;

	t = tt_of(t);
	if (!t->each || time_before64(get_jiffies_64(), READ_ONCE(t->refill_next)) || mutex_lock_killable(&t->refill_lock))
		return false;
	WRITE_ONCE(t->refills, t->refills + 1);
	smp_wmb(); /* a reader that sees a bound cleared sees the refill: pairs with tt_snapshot_take() */
	atomic64_set(&t->refilled, 0);
	ended = READ_ONCE(t->census.ended);
	smp_rmb(); /* an object that has ended had an id */
	to = atomic64_read(&t->ids);
	/* All objects up to this id have to be found, but for those that have ended. An object that ends just now may be missed. */
	WRITE_ONCE(t->refill_to, to);
	alive = to - ended;
	for_each_possible_cpu(cpu) {
		struct ts_table *tables[2] = {
			/* A dynamic table forgets its bounds within a period. */
			tt_is_static(t) ? tt_table_on(t, cpu) : NULL,
			t->sums ? tt_table_on(t->sums, cpu) : NULL,
		};

		/* On the CPU itself no push is between its ordering and its bound. A CPU that is offline pushes nothing. */
		if (smp_call_function_single(cpu, clear_missed, tables, 1))
			clear_missed(tables);
	}
	t->each(t, t->sample->info.private);
	WRITE_ONCE(t->refill_to, 0);
	found = atomic64_read(&t->refilled);
	if (found >= alive) {
		tt_complete(t);
	} else {
		/* The objects that were left out have no bound. */
		if (tt_is_static(t))
			tt_distrust(t);
		if (t->sums)
			tt_distrust(t->sums);
		/* Readers would do in vain what takes the longer, the more objects there are. */
		WRITE_ONCE(t->refill_next, get_jiffies_64() + HZ);
		ended = READ_ONCE(t->census.ended) - ended;
		if (found + ended < alive && (!test_and_set_bit(TT_LOST, &t->said) || tt_debug))
			pr_warn("topstat: %s/%s counts %llu objects that its module has not attached: freed without topstat_object_dead()?\n",
				t->sample->info.name, t->name, alive - found - ended);
	}
	smp_wmb(); /* a reader that sees the end of the refill sees all its bounds */
	WRITE_ONCE(t->refills, t->refills + 1);
	mutex_unlock(&t->refill_lock);
	return found >= alive;
}
