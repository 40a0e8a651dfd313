// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pushes of modules that use topstat.h, and the life of their objects.
 *
 *   O1  The table whose number is in `table` counts the object. No other table has had that number since boot, so the number
 *       tells an object that has outlived its table from an object of this table.
 *   O2  The CPU that swaps `table` to the number with ENTERING enters the object. First it adds the earlier sum of a static
 *       object to the total, so that rows never exceed it (P1). Then it gives the object an id. The swap of `table` to the number
 *       alone is the last store: it says that all fields are in place.
 *   O3  While one CPU enters an object, the pushes of other CPUs are added to the total and to `late`. Then the pushing CPU reads
 *       `table`, and the entering CPU reads `late` after it has written `table`; both with a full barrier in between. So one of
 *       them finds the amount in `late`. The CPU that swaps it to 0 adds it to the sum.
 *   O4  `dead` is written before the id is swapped to 0, and read after an id was given, each with a full barrier in between: an
 *       object that dies while it is entered has no id in the end.
 *   O5  An object that an existing table counts is entered into no other table. Memory that is no object, or that is not at the
 *       address where it was initialised, is entered into no table. A push to either is refused: it counts to the total, is
 *       counted, and bounds the unknown part of any object (T6). Overwritten memory may have had any value; missed[] says so
 *       (T5).
 */

#include <linux/preempt.h>
#include <linux/refcount.h>
#include "core.h"
#include "topstat/push.h"

/* A flag in `table`, beside the number of a table. */
#define ENTERING BIT_ULL(63)

static_assert(sizeof(struct tt_object) <= TOPSTAT_OBJECT_WORDS * sizeof(u64));
/* enter() clears a window behind its sums. */
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

/* O4: returns true to one caller only. The caller has preemption off, which keeps the table. */
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

/* The memory has an object that was not ended: it was freed without that, or is in use. */
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

/* Plain data has a plain number; refcount_t warns of an overflow or underflow. */
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

/* A static object that has a value when it enters: an earlier table has counted it. */
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

/* O2. `on` is the table of this CPU. */
static void enter(struct topstat_table *t, struct ts_table *on, struct topstat_object *o)
{
	struct tt_object *e = tt_object(o);

	xchg(&e->head.id, 0); /* the id from a deleted table */
	WRITE_ONCE(e->quiet, 0);
	if (tt_is_static(t)) {
		enter_kept(t, on, e);
		e->count.ordered = 0;
	} else {
		/* A window of another table has no slide of this table. */
		memset((char *)&e->window + sizeof(e->window.sum), 0, sizeof(e->window) - sizeof(e->window.sum));
	}
	ts_add(&t->census.begun, 1);
	xchg(&e->head.id, (u64)atomic64_inc_return(&t->ids));
	if (READ_ONCE(o->dead))
		end(t, o);
	xchg(&o->table, t->instance);
	take_late(t, o);
}

/* O5: refuse a push to an object that the table can't count. Returns false. */
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
 * The table does not count the object, or not yet. Returns true if it now does. Otherwise the amount has been counted: to the
 * total, and where the object lives, to the object.
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
	/* If the swap fails, another CPU has changed `table`: read it again. */
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

	cpu = get_cpu(); /* also keeps the table: topstat_table_del() waits until no CPU is in a section like this */
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

/* The existing table that counts the object: `t`, or by mistake another table. NULL: there is no table. */
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
	/* This CPU's table forgets it at once. Other CPUs see the end by its id, which is 0. */
	bank = tt_bank(t, cpu);
	if (ts_bank_enter(bank)) {
		ts_forget(ts_bank_table(bank, t->number, t->stride), tt_object(o)->head.self, ts_view_mask(t->view));
		ts_bank_leave(bank, 1);
	}
out:
	put_cpu();
}
EXPORT_SYMBOL_GPL(topstat_object_dead);
