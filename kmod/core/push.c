// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pushes of modules that use topstat.h, and the life of their objects.
 *
 *   KO1 The table whose number is in `table` counts the object. No other table has had that number since boot, so the number
 *       tells an object that has outlived its table from an object of this table.
 *   KO2 The CPU that swaps `table` to the number with ENTERING enters the object. First it adds the earlier sum of a static
 *       object to the total, so that rows never exceed it (P1). Then it gives the object an id. The swap of `table` to the number
 *       alone is the last store: it says that all fields are in place.
 *   KO3 While one CPU enters an object, the pushes of other CPUs are added to the total and to `late`. Then the pushing CPU reads
 *       `table`, and the entering CPU reads `late` after it has written `table`; both with a full barrier in between. So one of
 *       them finds the amount in `late`. The CPU that swaps it to 0 adds it to the sum.
 *   KO4 `dead` is written before the id is swapped to 0, and read after an id was given, each with a full barrier in between: an
 *       object that dies while it is entered has no id in the end.
 *       A reset swaps `table` back to ENTERING, and waits until all pushes that have seen it otherwise have ended. Then it zeroes
 *       the sums and enters the object anew, with another id: a row of the former id is the row of an ended object.
 *   KO5 An object that an existing table counts is entered into no other table. Memory that is no object, or that is not at the
 *       address where it was initialised, is entered into no table. A push to either is refused: it counts to the total, is
 *       counted, and bounds the unknown part of any object (T6). Overwritten memory may have had any value; missed[] says so
 *       (T5).
 */

#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include "core.h"
#include "topstat/push.h"

/* A flag in `table`, beside the number of a table. */
#define ENTERING BIT_ULL(63)
/* The numbers of a table and of its sums, in their bank. */
#define OWN 0
#define SUMS 1

static_assert(sizeof(struct ts_window) <= TOPSTAT_DYNAMIC_WORDS * sizeof(u64));
static_assert(sizeof(struct ts_count) <= TOPSTAT_STATIC_WORDS * sizeof(u64));
/* Both kinds of values begin with the sums: enter() clears a window behind them, and tables of sums read them alone. */
static_assert(!offsetof(struct ts_window, sum) && !offsetof(struct ts_count, sum));
/* Windows begin a cache line. */
static_assert(TT_VALUE_AT % 64 == 0);

/* A table on the CPU that runs. The caller has preemption off, which keeps the table: topstat_table_del() waits for it. */
struct here {
	struct topstat_table *t;
	struct ts_bank *bank;
	struct ts_table *on;
	struct ts_table *sums; /* of t->sums; NULL where t->sums is NULL */
	u64 now; /* jiffies */
	u32 generation;
};

static __always_inline void come(struct here *h, struct topstat_table *t)
{
	h->bank = tt_bank(t, smp_processor_id());
	h->t = t;
	h->on = ts_bank_table(h->bank, OWN, t->stride);
	h->sums = t->sums ? ts_bank_table(h->bank, SUMS, t->stride) : NULL;
	h->now = get_jiffies_64();
	h->generation = READ_ONCE(t->settings->generation);
	ts_bank_to(h->bank, t->stride, t->bank_config, h->generation, h->now);
}

/* KO3 */
static void take_late(struct topstat_object *o)
{
	u64 late;
	int part;

	for (part = 0; part < TS_PARTS; part++) {
		late = xchg(&o->late[part], 0);
		if (late)
			ts_add(&tt_sums(o)[part], late);
	}
}

/* Count the object as found by the refill that is under way, once: it was ordered, or has ended. See tt_refill(). */
static void find(struct topstat_table *t, struct topstat_object *o, u64 id)
{
	u64 refill = READ_ONCE(t->refills);

	if (id <= READ_ONCE(t->refill_to) && xchg(&o->refill, refill) != refill)
		atomic64_inc(&t->refilled);
}

/* KO4: returns true to one caller only. The caller has preemption off, which keeps the table. */
static bool end(struct topstat_table *t, struct topstat_object *o)
{
	u64 id;

	lockdep_assert_preemption_disabled();
	id = xchg(&o->id, 0);
	if (!id)
		return false;
	if (t) {
		ts_add(&t->census.ended, 1);
		find(t, o, id);
	}
	return true;
}

static bool is_where_it_began(const struct topstat_object *o)
{
	return o->self == (u64)(unsigned long)o;
}

static bool is_of_this_abi(const struct topstat_object *o)
{
	u32 abi = READ_ONCE(o->abi);

	return abi == tt_abi(TS_DYNAMIC) || abi == tt_abi(TS_STATIC);
}

/* The memory has an object that was not ended: it was freed without that, or is in use. */
static void end_forgotten(struct topstat_object *o)
{
	struct topstat_table *t = tt_live(READ_ONCE(o->table));

	if (t && end(t, o) && tt_misused(t, TT_BROKEN))
		tt_mistake("topstat: an object of %s/%s was freed without topstat_object_dead(), or is initialised twice\n",
			   t->sample->info.name, t->name);
}

void __topstat_object_init(struct topstat_object *o, enum topstat_type type)
{
	preempt_disable();
	if (is_of_this_abi(o) && !o->dead && is_where_it_began(o))
		end_forgotten(o);
	preempt_enable();
	memset(o, 0, sizeof(*o) + (type == TOPSTAT_STATIC ? sizeof(struct ts_count) : sizeof(struct ts_window)));
	o->abi = tt_abi(type);
	o->self = (u64)(unsigned long)o;
}
EXPORT_SYMBOL_GPL(__topstat_object_init);

/* An object whose sums a table is to show has them when it enters: an earlier table has counted them. */
static void enter_kept(struct topstat_table *t, struct ts_table *on, struct topstat_object *o)
{
	u64 kept = 0, sum;
	int part;

	for (part = 0; part < TS_PARTS; part++) {
		sum = READ_ONCE(tt_sums(o)[part]);
		ts_add(&on->total.sum[part], sum);
		kept |= sum;
	}
	if (!kept || !READ_ONCE(t->complete))
		return;
	/* There may be other objects, of unknown size. */
	WRITE_ONCE(t->complete, false);
	if (!tt_of(t)->each)
		pr_warn_once("topstat: %s/%s counts an object that was kept, after topstat_table_complete(): no row is proven any more\n",
			     t->sample->info.name, t->name);
}

/* KO2 */
static void enter(const struct here *h, struct topstat_object *o)
{
	struct topstat_table *t = h->t;

	xchg(&o->id, 0); /* the id from a deleted table */
	WRITE_ONCE(o->quiet, 0);
	if (h->sums)
		enter_kept(t->sums, h->sums, o);
	if (tt_is_static(t)) {
		enter_kept(t, h->on, o);
		tt_count(o)->ordered = 0;
	} else {
		struct ts_window *w = tt_window(o);

		/* A window of another table has no slide of this table. */
		memset((char *)w + sizeof(w->sum), 0, sizeof(*w) - sizeof(w->sum));
	}
	ts_add(&t->census.begun, 1);
	xchg(&o->id, (u64)atomic64_inc_return(&t->ids));
	if (READ_ONCE(o->dead))
		end(t, o);
	xchg(&o->table, t->instance);
	take_late(o);
}

/* P1: before the amount is added to an object. */
static __always_inline void count_sums(const struct here *h, u32 part, u64 amount)
{
	if (h->sums)
		ts_add(&h->sums->total.sum[part & 1], amount);
}

static void count_total(const struct here *h, u32 part, u64 amount)
{
	ts_push_total(h->on, &h->bank->tick[OWN], part, amount);
	count_sums(h, part, amount);
}

/* KO5: refuse a push to an object that the table can't count. */
static void refuse(const struct here *h, u32 part, u64 amount)
{
	count_total(h, part, amount);
	ts_unknown(h->on, &h->bank->tick[OWN], amount);
	ts_unknown(h->sums, &h->bank->tick[SUMS], amount);
}

static noinline void refuse_foreign(const struct here *h, u64 of, u32 part, u64 amount)
{
	struct topstat_table *other = tt_live(of & ~ENTERING);

	if (tt_misused(h->t, TT_FOREIGN))
		tt_mistake("topstat: pushed an object to %s/%s that %s/%s counts: an object has one table, and this push no row\n",
			   h->t->sample->info.name, h->t->name, other ? other->sample->info.name : "?",
			   other ? other->name : "?");
	refuse(h, part, amount);
}

static noinline void refuse_broken(const struct here *h, const struct topstat_object *o, u32 part, u64 amount)
{
	const char *sample = h->t->sample->info.name, *table = h->t->name;
	u32 abi = READ_ONCE(o->abi);

	if (!tt_misused(h->t, TT_BROKEN))
		;
	else if (abi != h->t->object_abi && is_of_this_abi(o))
		tt_mistake("topstat: pushed to %s/%s an object of the other type: static tables take struct topstat_static\n",
			   sample, table);
	else if (abi && !(abi & ~0xffff) && abi != h->t->object_abi)
		tt_mistake("topstat: pushed an object of ABI %u to %s/%s, this is ABI %u: build its module anew\n", abi & 0xff,
			   sample, table, TOPSTAT_OBJECT_ABI);
	else
		tt_mistake("topstat: pushed to %s/%s what is no object: not initialised, zeroed, copied or overwritten\n", sample,
			   table);
	ts_miss(h->on->missed_nested, &h->bank->tick[OWN], ~0ULL, ts_view_type(h->t->view));
	if (h->sums)
		ts_miss(h->sums->missed_nested, &h->bank->tick[SUMS], ~0ULL, TS_STATIC);
	refuse(h, part, amount);
}

/*
 * The table does not count the object, or not yet. Returns true if it now does. Otherwise the amount has been counted: to the
 * total, and where the object lives, to the object.
 */
static noinline bool make_ready(const struct here *h, struct topstat_object *o, u32 part, u64 amount)
{
	u64 entering = h->t->instance | ENTERING, of;

	if (!is_of_this_abi(o) || !is_where_it_began(o)) {
		refuse_broken(h, o, part, amount);
		return false;
	}
	if (READ_ONCE(o->dead)) {
		count_total(h, part, amount);
		return false;
	}
	/* If the swap fails, another CPU has changed `table`: read it again. */
	while ((of = READ_ONCE(o->table)) != entering) {
		if (of == h->t->instance)
			return true;
		if (of & ENTERING || tt_live(of)) {
			refuse_foreign(h, of, part, amount);
			return false;
		}
		if (o->abi != h->t->object_abi) {
			refuse_broken(h, o, part, amount);
			return false;
		}
		if (cmpxchg(&o->table, of, entering) == of) {
			enter(h, o);
			return true;
		}
	}
	count_total(h, part, amount);
	ts_add(&h->on->contended, 1);
	if (h->sums)
		ts_add(&h->sums->contended, 1);
	ts_add(&o->late[part & 1], amount);
	smp_mb(); /* KO3: pairs with the swap of `table` in enter() */
	if (READ_ONCE(o->table) != entering)
		take_late(o);
	return false;
}

/* Order the object in the table of sums. */
static void order_sums(const struct here *h, int claimed, struct topstat_object *o, u64 id)
{
	const struct topstat_table *sums = h->t->sums;

	if (READ_ONCE(sums->config->enabled))
		ts_order_static_pushed(h->sums, &h->bank->tick[SUMS], sums->view, claimed, o->self, id, tt_count(o));
}

static u64 push_ordered(const struct here *h, struct topstat_object *o, u32 part, u64 amount)
{
	struct topstat_table *t = h->t;
	struct ts_tick *tick = &h->bank->tick[OWN];
	u64 id = READ_ONCE(o->id), value;
	int claimed = ts_bank_enter(h->bank);
	u32 ordered;

	count_sums(h, part, amount);
	if (tt_is_static(t)) {
		value = ts_push_static(h->on, tick, t->config, t->view, claimed, o->self, id, tt_count(o), part, amount);
		ordered = tt_count(o)->ordered;
	} else {
		value = ts_push(h->on, tick, t->config, t->view, claimed, o->self, id, tt_window(o), part, amount);
		ordered = tt_window(o)->ordered;
	}
	if (h->sums)
		order_sums(h, claimed, o, id);
	ts_bank_leave(h->bank, claimed);
	if (t->config->quiet)
		WRITE_ONCE(o->quiet, ts_quiet_word(h->generation, ts_quiet_until(~0ULL, tick, t->config, ordered)));
	return value;
}

static __always_inline u64 push(const struct here *h, struct topstat_object *o, u64 amount, u32 part)
{
	struct ts_tick *tick = &h->bank->tick[OWN];
	struct topstat_table *t = h->t;

	if (unlikely(o->abi != t->object_abi || READ_ONCE(o->table) != t->instance || READ_ONCE(o->dead))) {
		if (!make_ready(h, o, part, amount))
			return 0;
	}
	if (!ts_quiet(READ_ONCE(o->quiet), h->generation, h->now)) {
		if (likely(is_where_it_began(o)))
			return push_ordered(h, o, part, amount);
		refuse_broken(h, o, part, amount);
		return 0;
	}
	if (tt_is_static(t)) {
		ts_push_static_quiet(h->on, tt_count(o), part, amount);
		return tt_sums(o)[0] + tt_sums(o)[1];
	}
	count_sums(h, part, amount);
	ts_push_quiet(h->on, tick, tt_window(o), part, amount);
	return ts_window_now(tt_window(o), tick);
}

u64 topstat_push(struct topstat_table *t, struct topstat_object *o, u64 amount, unsigned int part)
{
	struct here h;
	u64 value = 0;

	if (IS_ERR_OR_NULL(t))
		return 0;
	preempt_disable();
	if (READ_ONCE(t->config->enabled)) {
		come(&h, t);
		value = push(&h, o, amount, part);
	}
	preempt_enable();
	return value;
}
EXPORT_SYMBOL_GPL(topstat_push);

void topstat_push_batch(struct topstat_table *t, const struct topstat_amount *amounts, unsigned int count)
{
	unsigned int i;
	struct here h;

	if (IS_ERR_OR_NULL(t))
		return;
	preempt_disable();
	if (READ_ONCE(t->config->enabled)) {
		come(&h, t);
		for (i = 0; i < count; i++)
			push(&h, amounts[i].object, amounts[i].amount, amounts[i].part);
	}
	preempt_enable();
}
EXPORT_SYMBOL_GPL(topstat_push_batch);

bool topstat_object_attach(struct topstat_table *t, struct topstat_object *o)
{
	struct here h;
	int claimed;
	bool ready;
	u64 id;

	if (IS_ERR_OR_NULL(t))
		return false;
	preempt_disable();
	come(&h, t);
	ready = make_ready(&h, o, 0, 0);
	if (ready) {
		id = READ_ONCE(o->id);
		claimed = ts_bank_enter(h.bank);
		if (tt_is_static(t))
			ts_order_static_pushed(h.on, &h.bank->tick[OWN], t->view, claimed, o->self, id, tt_count(o));
		else
			ts_order_pushed(h.on, &h.bank->tick[OWN], t->view, claimed, o->self, id, tt_window(o));
		if (h.sums)
			order_sums(&h, claimed, o, id);
		ts_bank_leave(h.bank, claimed);
		if (id)
			find(t, o, id);
	}
	preempt_enable();
	return ready;
}
EXPORT_SYMBOL_GPL(topstat_object_attach);

void topstat_table_complete(struct topstat_table *t)
{
	if (!IS_ERR_OR_NULL(t) && !t->each)
		tt_complete(t);
}
EXPORT_SYMBOL_GPL(topstat_table_complete);

/* This CPU's tables forget an object that has ended at once. Other CPUs see the end by its id, which is 0. */
static void forget(const struct here *h, const struct topstat_object *o)
{
	if (!ts_bank_enter(h->bank))
		return;
	ts_forget(h->on, o->self, ts_view_mask(h->t->view));
	if (h->sums)
		ts_forget(h->sums, o->self, ts_view_mask(h->t->sums->view));
	ts_bank_leave(h->bank, 1);
}

void topstat_object_dead(struct topstat_object *o)
{
	static bool said;
	struct topstat_table *t;
	struct here h;

	if (!is_of_this_abi(o)) {
		if (tt_debug || !said)
			tt_mistake("topstat: what is said to have ended is no object: not initialised, zeroed or overwritten\n");
		said = true;
		return;
	}
	preempt_disable(); /* keeps the table */
	WRITE_ONCE(o->dead, 1);
	smp_mb(); /* KO4: pairs with the swap of the id in enter() */
	t = tt_live(READ_ONCE(o->table) & ~ENTERING);
	if (end(t, o) && t) {
		come(&h, t);
		forget(&h, o);
	}
	preempt_enable();
}
EXPORT_SYMBOL_GPL(topstat_object_dead);

bool topstat_object_value(struct topstat_table *t, struct topstat_object *o, u64 parts[TS_PARTS])
{
	struct ts_window copy;
	struct ts_value value;
	bool known = false;
	struct here h;

	parts[0] = 0;
	parts[1] = 0;
	if (IS_ERR_OR_NULL(t))
		return false;
	preempt_disable();
	come(&h, tt_of(t));
	if (READ_ONCE(o->abi) != h.t->object_abi || READ_ONCE(o->table) != h.t->instance || READ_ONCE(o->dead)) {
		/* Not known. */
	} else if (tt_is_static(t)) {
		parts[0] = READ_ONCE(tt_sums(o)[0]);
		parts[1] = READ_ONCE(tt_sums(o)[1]);
		known = true;
	} else if (ts_window_peek(&copy, (u64)(unsigned long)tt_window(o)) == TS_COPY_OK &&
		   !ts_window_eval(&copy, &h.bank->tick[OWN], &value)) {
		parts[0] = value.part[0];
		parts[1] = value.part[1];
		known = true;
	}
	preempt_enable();
	return known;
}
EXPORT_SYMBOL_GPL(topstat_object_value);

bool topstat_object_reset(struct topstat_object *o)
{
	struct topstat_table *t;
	struct here h;
	bool reset;
	u64 of;

	might_sleep();
	if (!is_of_this_abi(o) || READ_ONCE(o->dead))
		return false;
	preempt_disable();
	of = READ_ONCE(o->table);
	t = tt_live(of);
	reset = t && cmpxchg(&o->table, of, of | ENTERING) == of;
	preempt_enable();
	if (!reset)
		return false;
	synchronize_rcu(); /* KO3: pushes that have seen `table` without ENTERING have preemption off, and have ended now */
	preempt_disable();
	come(&h, t);
	if (end(t, o))
		forget(&h, o);
	tt_sums(o)[0] = 0;
	tt_sums(o)[1] = 0;
	enter(&h, o);
	preempt_enable();
	return true;
}
EXPORT_SYMBOL_GPL(topstat_object_reset);
