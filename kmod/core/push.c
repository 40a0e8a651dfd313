// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pushes of modules that use topstat.h, and the life of their objects.
 *
 *   O1  An object is counted by the table whose number stands in `table`. A table has a number that no other one has had
 *       since boot, so an object that has outlived its table is told from one that is this table's.
 *   O2  The CPU that swaps `table` to the number with ENTERING enters the object: what a static object has summed until then
 *       is added to the total first, so that rows never exceed it (P1), and then it gets an id. The swap of the last word,
 *       `table` again, says that all is in place.
 *   O3  What others push meanwhile is added to the total and to `late`. After that the other looks at `table`, and the CPU
 *       that enters looks at `late` after it has written `table`; both with a full barrier in between. So one of them
 *       finds what is in `late`, and whoever swaps it to 0 adds it to the sum.
 *   O4  `dead` is written before the id is swapped to 0, and read after an id was given, each with a full barrier between:
 *       an object that dies while it is entered has no id in the end.
 *   O5  An object that a table counts which is there is entered into no other one, and what is no object, or is not where
 *       it was initialised, into none. What is pushed to it is refused: it counts to the total, bounds what is not known
 *       (T6), and is counted; of what was overwritten, which may have had any value, missed[] says that (T5).
 */

#include <linux/preempt.h>
#include <linux/refcount.h>
#include "core.h"
#include "topstat/push.h"

/* Of the number of a table in `table`. */
#define ENTERING BIT_ULL(63)

static_assert(sizeof(struct tt_object) <= TOPSTAT_OBJECT_WORDS * sizeof(u64));
/* enter() keeps the sums of a window, and nothing behind them. */
static_assert(!offsetof(struct ts_window, sum));
/* Windows begin a cache line. */
static_assert((TT_OBJECT_AT + offsetof(struct tt_object, window)) % 64 == 0);

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

/* O4: true for one caller only. Preemption is off, which keeps the table. */
static bool end(struct topstat_table *t, struct topstat_object *o)
{
	lockdep_assert_preemption_disabled();
	if (!xchg(&tt_object(o)->head.id, 0))
		return false;
	if (t)
		ts_add(&t->census.ended, 1);
	return true;
}

static bool is_where_it_began(const struct topstat_object *o)
{
	return ((const struct tt_object *)o->words)->head.self == (u64)(unsigned long)o->words;
}

/* Memory that has an object which was not ended: it was freed so, or is in use. */
static void end_forgotten(struct topstat_object *o)
{
	struct topstat_table *t = tt_live(READ_ONCE(o->table));

	if (t && end(t, o) && tt_misused(t, TT_BROKEN))
		pr_warn("topstat: an object of %s/%s was freed without topstat_object_dead(), or is initialised twice\n",
			t->sample->info.name, t->name);
}

void topstat_object_init(struct topstat_object *o)
{
	preempt_disable();
	if (o->abi == TOPSTAT_OBJECT_ABI && !o->dead && is_where_it_began(o))
		end_forgotten(o);
	preempt_enable();
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

/* A static object has a value when it enters: an earlier table has counted it. */
static void enter_kept(struct topstat_table *t, struct ts_table *on, const struct tt_object *e)
{
	u64 kept = 0, sum;
	int part;

	for (part = 0; part < TS_PARTS; part++) {
		sum = READ_ONCE(e->count.sum[part]);
		ts_add(&on->total.sum[part], sum);
		kept |= sum;
	}
	if (!kept || !READ_ONCE(t->complete))
		return;
	/* There may be other objects, of unknown size. */
	WRITE_ONCE(t->complete, false);
	pr_warn_once("topstat: %s/%s counts an object that was kept, after topstat_table_complete(): no row is proven any more\n",
		     t->sample->info.name, t->name);
}

/* O2. The bank is that of this CPU. */
static void enter(struct topstat_table *t, struct ts_table *on, struct topstat_object *o)
{
	struct tt_object *e = tt_object(o);

	xchg(&e->head.id, 0); /* of a table that is gone */
	WRITE_ONCE(e->quiet, 0);
	if (tt_is_static(t)) {
		enter_kept(t, on, e);
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

/* O5: what was pushed to what the table can't count. Returns false. */
static bool refuse(struct ts_table *on, const struct ts_tick *tick, u32 part, u64 amount)
{
	ts_push_total(on, tick, part, amount);
	ts_unknown(on, tick, amount);
	return false;
}

static noinline bool refuse_foreign(struct topstat_table *t, struct ts_table *on, const struct ts_tick *tick, u64 of,
				    u32 part, u64 amount)
{
	struct topstat_table *other = tt_live(of & ~ENTERING);

	if (tt_misused(t, TT_FOREIGN))
		pr_warn("topstat: pushed an object to %s/%s that %s/%s counts: an object has one table, and this push no row\n",
			t->sample->info.name, t->name, other ? other->sample->info.name : "?", other ? other->name : "?");
	return refuse(on, tick, part, amount);
}

static noinline bool refuse_broken(struct topstat_table *t, struct ts_table *on, const struct ts_tick *tick,
				   const struct topstat_object *o, u32 part, u64 amount)
{
	u32 abi = READ_ONCE(o->abi);

	if (tt_misused(t, TT_BROKEN)) {
		if (abi && abi != TOPSTAT_OBJECT_ABI)
			pr_warn("topstat: pushed an object of ABI %u to %s/%s, this is ABI %u: build its module anew\n", abi,
				t->sample->info.name, t->name, TOPSTAT_OBJECT_ABI);
		else
			pr_warn("topstat: pushed to %s/%s what is no object: not initialised, zeroed, copied or overwritten\n",
				t->sample->info.name, t->name);
	}
	ts_miss(on->missed_nested, tick, ~0ULL, ts_view_type(t->view));
	return refuse(on, tick, part, amount);
}

/*
 * The object is not, or not yet, this table's. True: it is now. Else the amount has been counted: to the total, and where the
 * object lives, to it.
 */
static noinline bool make_ready(struct topstat_table *t, struct ts_table *on, const struct ts_tick *tick,
				struct topstat_object *o, u32 part, u64 amount)
{
	u64 entering = t->instance | ENTERING, of;

	if (READ_ONCE(o->abi) != TOPSTAT_OBJECT_ABI || !is_where_it_began(o))
		return refuse_broken(t, on, tick, o, part, amount);
	if (READ_ONCE(o->dead)) {
		ts_push_total(on, tick, part, amount);
		return false;
	}
	/* Where the swap fails, another CPU has got further. */
	while ((of = READ_ONCE(o->table)) != entering) {
		if (of == t->instance)
			return true;
		if (of & ENTERING || tt_live(of))
			return refuse_foreign(t, on, tick, of, part, amount);
		if (cmpxchg(&o->table, of, entering) == of) {
			enter(t, on, o);
			return true;
		}
	}
	ts_push_total(on, tick, part, amount);
	ts_add(&on->contended, 1);
	ts_add(&o->late[part & 1], amount);
	smp_mb(); /* O3: pairs with the swap of `table` in enter() */
	if (READ_ONCE(o->table) != entering)
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

	cpu = get_cpu(); /* also keeps the table: topstat_table_del() waits until no CPU is in such a section */
	if (!READ_ONCE(t->config->enabled))
		goto out;
	bank = tt_bank(t, cpu);
	on = ts_bank_table(bank, t->number, t->stride);
	generation = READ_ONCE(t->settings->generation);
	ts_bank_to(bank, t->stride, t->bank_config, generation, now);
	if (unlikely(o->abi != TOPSTAT_OBJECT_ABI || READ_ONCE(o->table) != t->instance || READ_ONCE(o->dead))) {
		if (!make_ready(t, on, &bank->tick[t->number], o, part, amount))
			goto out;
	}
	if (!ts_quiet(READ_ONCE(e->quiet), generation, now)) {
		if (unlikely(!is_where_it_began(o)))
			refuse_broken(t, on, &bank->tick[t->number], o, part, amount);
		else
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

bool topstat_object_attach(struct topstat_table *t, struct topstat_object *o)
{
	u32 cpu = get_cpu(), generation = READ_ONCE(t->settings->generation);
	struct ts_bank *bank = tt_bank(t, cpu);
	struct ts_table *on = ts_bank_table(bank, t->number, t->stride);
	bool ready;

	ts_bank_to(bank, t->stride, t->bank_config, generation, get_jiffies_64());
	ready = make_ready(t, on, &bank->tick[t->number], o, 0, 0);
	if (ready)
		push_ordered(t, bank, on, tt_object(o), 0, 0, generation);
	put_cpu();
	return ready;
}
EXPORT_SYMBOL_GPL(topstat_object_attach);

void topstat_table_complete(struct topstat_table *t)
{
	WRITE_ONCE(t->complete, true);
}
EXPORT_SYMBOL_GPL(topstat_table_complete);

/* The table that counts the object, of those that are there: `t`, or by mistake another one. NULL: none. */
static struct topstat_table *table_of(struct topstat_table *t, const struct topstat_object *o)
{
	u64 of = READ_ONCE(o->table) & ~ENTERING;
	struct topstat_table *counts = t && of == t->instance ? t : tt_live(of);

	if (t && counts && counts != t && tt_misused(t, TT_FOREIGN))
		pr_warn("topstat: an object that %s/%s counts is said to have ended in %s/%s\n", counts->sample->info.name,
			counts->name, t->sample->info.name, t->name);
	return counts;
}

void topstat_object_dead(struct topstat_table *t, struct topstat_object *o)
{
	u32 cpu = get_cpu(); /* also keeps the table, as in topstat_push() */
	struct ts_bank *bank;

	if (READ_ONCE(o->abi) != TOPSTAT_OBJECT_ABI) {
		if (t && tt_misused(t, TT_BROKEN))
			pr_warn("topstat: what is said to have ended in %s/%s is no object: it was zeroed or overwritten\n",
				t->sample->info.name, t->name);
		goto out;
	}
	WRITE_ONCE(o->dead, 1);
	smp_mb(); /* O4: pairs with the swap of the id in enter() */
	t = table_of(t, o);
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
