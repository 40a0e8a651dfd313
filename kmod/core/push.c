// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pushes of modules that use topstat.h, and the life of their objects.
 *
 *   O1  An object is counted by the table whose number stands in `table`. A table has a number that no other one has had
 *       since boot, so an object that has outlived its table is told from one that is this table's.
 *   O2  The CPU that swaps `table` to ENTERING enters the object: what a static object has summed until then is added to the
 *       total first, so that rows never exceed it (P1), and then it gets an id. The swap of the last word, `table` again,
 *       says that all is in place.
 *   O3  What others push meanwhile is added to the total and to `late`. After that the other looks at `table`, and the CPU
 *       that enters looks at `late` after it has written `table`; both with a full barrier in between. So one of them
 *       finds what is in `late`, and whoever swaps it to 0 adds it to the sum.
 *   O4  `dead` is written before the id is swapped to 0, and read after an id was given, each with a full barrier between:
 *       an object that dies while it is entered has no id in the end.
 */

#include <linux/preempt.h>
#include <linux/refcount.h>
#include "core.h"
#include "topstat/push.h"

#define ENTERING 1ULL

static_assert(sizeof(struct tt_object) <= TOPSTAT_OBJECT_WORDS * sizeof(u64));
/* enter() keeps the sums of a window, and nothing behind them. */
static_assert(!offsetof(struct ts_window, sum));
/* Windows begin a cache line. */
static_assert((TT_OBJECT_AT + offsetof(struct tt_object, window)) % 64 == 0);

void topstat_object_init(struct topstat_object *o)
{
	memset(o, 0, sizeof(*o));
	o->abi = TOPSTAT_OBJECT_ABI;
	o->references = 1;
	tt_object(o)->head.self = (u64)(unsigned long)o->words;
}
EXPORT_SYMBOL_GPL(topstat_object_init);

/* Plain data has a plain number; refcount_t warns of what is wrong with it. */
static_assert(sizeof(refcount_t) == sizeof(u32));

void topstat_object_get(struct topstat_object *o)
{
	refcount_inc((refcount_t *)&o->references);
}
EXPORT_SYMBOL_GPL(topstat_object_get);

bool topstat_object_put(struct topstat_object *o)
{
	return refcount_dec_and_test((refcount_t *)&o->references);
}
EXPORT_SYMBOL_GPL(topstat_object_put);

static u64 *sums(const struct topstat_table *t, struct tt_object *e)
{
	return tt_is_static(t) ? e->count.sum : e->window.sum;
}

/* O3 */
static void take_late(const struct topstat_table *t, struct topstat_object *o)
{
	u64 late;
	int part;

	for (part = 0; part < TS_PARTS; part++) {
		late = xchg(&o->late[part], 0);
		if (late)
			ts_add(&sums(t, tt_object(o))[part], late);
	}
}

/* O4: true, of those who ask once. Preemption is off, which keeps the table. */
static bool end(struct topstat_table *t, struct topstat_object *o)
{
	lockdep_assert_preemption_disabled();
	if (!xchg(&tt_object(o)->head.id, 0))
		return false;
	if (t)
		ts_add(&t->census.ended, 1);
	return true;
}

/* O2. The bank is that of this CPU. */
static void enter(struct topstat_table *t, struct ts_table *on, struct topstat_object *o)
{
	struct tt_object *e = tt_object(o);
	int part;

	xchg(&e->head.id, 0); /* of a table that is gone */
	WRITE_ONCE(e->quiet, 0);
	if (tt_is_static(t)) {
		for (part = 0; part < TS_PARTS; part++)
			ts_add(&on->total.sum[part], READ_ONCE(e->count.sum[part]));
		e->count.ordered = 0;
	} else {
		/* Of the windows of other tables no slide is this one's. */
		memset((char *)&e->window + sizeof(e->window.sum), 0, sizeof(e->window) - sizeof(e->window.sum));
	}
	ts_add(&t->census.begun, 1);
	xchg(&e->head.id, (u64)atomic64_inc_return(&t->ids));
	if (READ_ONCE(o->dead))
		end(t, o);
	xchg(&o->table, t->instance);
	take_late(t, o);
}

/*
 * The object is not, or not yet, this table's. True: it is now. Else the amount has been counted: to the total, and where the
 * object lives, to it.
 */
static noinline bool make_ready(struct topstat_table *t, struct ts_table *on, const struct ts_tick *tick,
				struct topstat_object *o, u32 part, u64 amount)
{
	u64 of = READ_ONCE(o->table);

	if (READ_ONCE(o->dead)) {
		ts_push_total(on, tick, part, amount);
		return false;
	}
	if (of == t->instance)
		return true;
	if (of != ENTERING && cmpxchg(&o->table, of, ENTERING) == of) {
		enter(t, on, o);
		return true;
	}
	ts_push_total(on, tick, part, amount);
	ts_add(&on->contended, 1);
	ts_add(&o->late[part & 1], amount);
	smp_mb(); /* O3: pairs with the swap of `table` in enter() */
	if (READ_ONCE(o->table) != ENTERING)
		take_late(t, o);
	return false;
}

static u64 push_ordered(struct topstat_table *t, struct ts_bank *bank, struct ts_table *on, struct tt_object *e,
			u32 part, u64 amount, u32 generation)
{
	struct ts_tick *tick = &bank->tick[t->number];
	u64 id = READ_ONCE(e->head.id), value;
	int claimed = ts_bank_enter(bank);
	u32 ordered;

	if (tt_is_static(t)) {
		value = ts_push_static(on, tick, t->config, t->view, claimed, e->head.self, id, &e->count, part, amount);
		ordered = e->count.ordered;
	} else {
		value = ts_push(on, tick, t->config, t->view, claimed, e->head.self, id, &e->window, part, amount);
		ordered = e->window.ordered;
	}
	ts_bank_leave(bank, claimed);
	if (t->config->quiet)
		WRITE_ONCE(e->quiet, ts_quiet_word(generation, ts_quiet_until(~0ULL, tick, t->config, ordered)));
	return value;
}

u64 topstat_push(struct topstat_table *t, struct topstat_object *o, u64 amount, unsigned int part)
{
	u64 now = get_jiffies_64(), value = 0;
	struct tt_object *e = tt_object(o);
	u32 generation, cpu;
	struct ts_bank *bank;
	struct ts_table *on;

	if (unlikely(o->abi != TOPSTAT_OBJECT_ABI)) {
		pr_warn_once("topstat: pushed an object of ABI %u to %s, this is ABI %u: build its module anew\n",
			     o->abi, t->name, TOPSTAT_OBJECT_ABI);
		return 0;
	}
	cpu = get_cpu(); /* also keeps the table: topstat_table_del() waits until no CPU is in such a section */
	if (!READ_ONCE(t->config->enabled))
		goto out;
	bank = tt_bank(t, cpu);
	on = ts_bank_table(bank, t->number, t->stride);
	generation = READ_ONCE(t->settings->generation);
	ts_bank_to(bank, t->stride, t->bank_config, generation, now);
	if (unlikely(READ_ONCE(o->table) != t->instance || READ_ONCE(o->dead))) {
		if (!make_ready(t, on, &bank->tick[t->number], o, part, amount))
			goto out;
	}
	if (!ts_quiet(READ_ONCE(e->quiet), generation, now)) {
		value = push_ordered(t, bank, on, e, part, amount, generation);
	} else if (tt_is_static(t)) {
		ts_push_static_quiet(on, &e->count, part, amount);
		value = e->count.sum[0] + e->count.sum[1];
	} else {
		ts_push_quiet(on, &bank->tick[t->number], &e->window, part, amount);
		value = ts_window_now(&e->window, &bank->tick[t->number]);
	}
out:
	put_cpu();
	return value;
}
EXPORT_SYMBOL_GPL(topstat_push);

void topstat_object_dead(struct topstat_table *t, struct topstat_object *o)
{
	u32 cpu = get_cpu(); /* also keeps the table, as in topstat_push() */
	struct ts_bank *bank;

	WRITE_ONCE(o->dead, 1);
	smp_mb(); /* O4: pairs with the swap of the id in enter() */
	if (!end(t, o) || !t)
		goto out;
	/* This CPU's table forgets it at once. On others its id, which is 0, tells that it has gone. */
	bank = tt_bank(t, cpu);
	if (ts_bank_enter(bank)) {
		ts_forget(ts_bank_table(bank, t->number, t->stride), tt_object(o)->head.self, ts_view_mask(t->view));
		ts_bank_leave(bank, 1);
	}
out:
	put_cpu();
}
EXPORT_SYMBOL_GPL(topstat_object_dead);
