/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The interface that observers are written with: a cursor over the tables of one sample, or of one bank of the sample.
 *
 *	struct obs x;
 *
 *	if (obs_begin(&x, SAMPLE, &o->object)) {
 *		obs_add(&x, BYTES, RX, n);
 *		obs_end(&x);
 *	}
 *
 * The functions do nothing for a table that is switched off. After HOST_STATE() of host.h and before this header, a family
 * defines where its windows are, by the number of a bank and of a table in it:
 *
 *	u32 obs_at(u32 number, u32 table)      offset of the table's window (or count) in an object
 *	u32 obs_type(u32 number, u32 table)    TS_DYNAMIC: a ts_window; TS_STATIC: a ts_count
 *
 * Objects begin with a struct ts_object.
 *
 *   begin        obs_begin           amounts are added to the object and to the CPU's total
 *                obs_begin_total     amounts are added to the total alone: they belong to no object, or their object is missing
 *                                    (`refused`, of enum ts_cause: T6)
 *   add          obs_add             an amount of the present moment; obs_add_any: an amount that may be 0
 *                obs_add_since       an amount that was used evenly since a moment
 *                obs_add_ago         an amount that was used a number of slides ago
 *                obs_add_unranked    adds to a window that no table ranks, and to the total
 *                obs_refuse          an amount of some object is lost for lack of memory. The bound of the amount goes to the
 *                                    proof alone (T6); obs_refuse_for: for another cause
 *                obs_opaque          as obs_refuse, for an event whose amount can't be determined
 *                obs_unknown         as obs_refuse, for an amount that is in the total, and perhaps not in the object's row
 *   end          obs_end
 *   objects      obs_object_begin, obs_object_end, obs_forget; obs_keep, where ended objects are kept
 *
 * All of it is inlined, so the cursor is in registers.
 */
#ifndef TOPSTAT_OBS_H
#define TOPSTAT_OBS_H

#include "observe/host.h"

struct obs {
	struct ts_bank *bank; /* of this CPU */
	struct ts_config *config; /* of the bank's tables */
	struct ts_object *object; /* NULL: totals alone */
	u64 id; /* of the object when the push began: another CPU may end the object amid it, and take the id away */
	u64 now; /* jiffies */
	u32 generation; /* of the settings */
	u32 number; /* of the bank */
	u32 refused; /* why the object is missing: enum ts_cause; 0: there is an object, or the amounts belong to none */
	int claimed; /* tables may be ordered */
};

TS_INLINE u32 obs_at(u32 number, u32 table);
TS_INLINE u32 obs_type(u32 number, u32 table);

TS_INLINE ts_view obs_view(u32 number, u32 table)
{
	u32 mask = constants.shape.entries_mask, at = obs_at(number, table), id = offsetof(struct ts_object, id);

	if (obs_type(number, table) == TS_STATIC)
		return ts_view_of(mask, TS_STATIC, at, id);
	return ts_view_of(mask, TS_DYNAMIC, at, id);
}

TS_INLINE struct ts_table *obs_table(struct ts_bank *bank, u32 table)
{
	return ts_bank_table(bank, table, constants.shape.table_stride);
}

struct obs_claiming {
	u64 *word;
	int claimed;
};

/* Returns 1, which ends the loop, when the word is claimed. */
TS_NOINLINE long obs_claim_once(u32 i, void *arg)
{
	struct obs_claiming *c = arg;

	c->claimed = !ts_read(*c->word) && ts_claim(c->word);
	return c->claimed;
}

/*
 * Claim a word that another CPU is about to release, in at most `tries` tries. Returns false where the holder does not release
 * it: this CPU has interrupted the holder, or the holder does not run. The caller releases the word by ts_release().
 */
TS_GLOBAL_FN int obs_claim_soon(u64 *word, u32 tries)
{
	struct obs_claiming c = { .word = word };

	if (word)
		host_loop(tries, obs_claim_once, &c);
	return c.claimed;
}

/* Whether the table is on. A caller that would look for an object only for this table asks first. */
TS_INLINE int obs_is_on(u32 number, u32 table)
{
	return settings.config[number][table].enabled;
}

/* Begin without the claim. 0: there is no bank with this number. */
TS_INLINE int obs_open(struct obs *x, u32 number, u64 now)
{
	x->bank = host_bank(host_cpu(), number);
	if (!x->bank)
		return 0;
	x->config = settings.config[ts_bound(number, HOST_BANKS - 1)];
	x->generation = settings.all.generation;
	x->now = now;
	x->number = number;
	x->object = NULL;
	x->id = 0;
	x->refused = 0;
	x->claimed = 0;
	ts_bank_to(x->bank, constants.shape.table_stride, x->config, x->generation, now);
	return 1;
}

/* As obs_begin(), at a moment that the caller has already read. */
TS_INLINE int obs_begin_at(struct obs *x, u32 number, struct ts_object *o, u64 now)
{
	if (!obs_open(x, number, now))
		return 0;
	x->object = o;
	x->id = ts_read(o->id);
	x->claimed = ts_bank_enter(x->bank);
	return 1;
}

TS_INLINE int obs_begin(struct obs *x, u32 number, struct ts_object *o)
{
	return obs_begin_at(x, number, o, host_jiffies());
}

TS_INLINE int obs_begin_total_at(struct obs *x, u32 number, u32 refused, u64 now)
{
	if (!obs_open(x, number, now))
		return 0;
	x->refused = refused;
	return 1;
}

TS_INLINE int obs_begin_total(struct obs *x, u32 number, u32 refused)
{
	return obs_begin_total_at(x, number, refused, host_jiffies());
}

/* Release the claim. */
TS_INLINE void obs_end(struct obs *x)
{
	ts_bank_leave(x->bank, x->claimed);
}

TS_INLINE void obs_push_total(struct obs *x, u32 table, u32 part, u64 amount)
{
	struct ts_table *t = obs_table(x->bank, table);

	ts_push_total(t, &x->bank->tick[table], part, amount);
	if (x->refused)
		ts_refuse(t, &x->bank->tick[table], x->refused, amount);
}

TS_INLINE void obs_push_object(struct obs *x, u32 table, u32 part, u64 amount)
{
	void *w = (char *)x->object + obs_at(x->number, table);
	struct ts_table *t = obs_table(x->bank, table);
	struct ts_tick *tick = &x->bank->tick[table];

	if (obs_type(x->number, table) == TS_STATIC)
		ts_push_static(t, tick, &x->config[table], obs_view(x->number, table), x->claimed, x->object->self, x->id, w, part, amount);
	else
		ts_push(t, tick, &x->config[table], obs_view(x->number, table), x->claimed, x->object->self, x->id, w, part, amount);
}

/* An amount of 0 also orders the object. */
TS_INLINE void obs_add(struct obs *x, u32 table, u32 part, u64 amount)
{
	if (!x->config[table].enabled)
		return;
	if (x->object)
		obs_push_object(x, table, part, amount);
	else
		obs_push_total(x, table, part, amount);
}

/* For an amount that may be 0: 0 adds and orders nothing. */
TS_INLINE void obs_add_any(struct obs *x, u32 table, u32 part, u64 amount)
{
	if (amount)
		obs_add(x, table, part, amount);
}

/* The next push orders the object, whatever the delay. */
TS_INLINE void obs_order_next(struct obs *x, u32 table)
{
	void *w = (char *)x->object + obs_at(x->number, table);

	if (obs_type(x->number, table) == TS_STATIC)
		ts_write(((struct ts_count *)w)->ordered, 0);
	else
		ts_write(((struct ts_window *)w)->ordered, 0);
}

/* Order the object by the value of its earlier pushes, whatever the delay. Orders also in a table that was switched off since:
 * the table may be switched on again. */
TS_INLINE void obs_order(struct obs *x, u32 table)
{
	void *w = (char *)x->object + obs_at(x->number, table);
	struct ts_table *t = obs_table(x->bank, table);
	struct ts_tick *tick = &x->bank->tick[table];
	ts_view view = obs_view(x->number, table);

	if (obs_type(x->number, table) == TS_STATIC)
		ts_order_static_pushed(t, tick, view, x->claimed, x->object->self, x->id, w);
	else
		ts_order_pushed(t, tick, view, x->claimed, x->object->self, x->id, w);
}

#include "observe/obs_past.h"

/* Add an amount that belongs to no object and is still shown, such as idle time. For dynamic tables. */
TS_INLINE void obs_add_unranked(struct obs *x, u32 table, struct ts_window *w, u64 amount, u64 since)
{
	struct ts_tick *tick = &x->bank->tick[table];
	u64 early;

	if (!x->config[table].enabled)
		return;
	early = obs_spread_total(x, table, 0, amount, since);
	ts_push_total(obs_table(x->bank, table), tick, 0, amount - early);
	obs_spread(x, table, w, 0, early, since);
	ts_window_add(w, tick, 0, amount - early);
}

/* As obs_add_unranked(), for a static table. */
TS_INLINE void obs_add_unranked_count(struct obs *x, u32 table, struct ts_count *w, u64 amount)
{
	if (x->config[table].enabled)
		ts_push_static_quiet(obs_table(x->bank, table), w, 0, amount);
}

TS_INLINE void obs_refuse_for(struct obs *x, u32 table, u32 cause, u64 most)
{
	if (most && x->config[table].enabled)
		ts_refuse(obs_table(x->bank, table), &x->bank->tick[table], cause, most);
}

/* The cause is lack of memory. */
TS_INLINE void obs_refuse(struct obs *x, u32 table, u64 most)
{
	obs_refuse_for(x, table, TS_NO_MEMORY, most);
}

TS_INLINE void obs_opaque(struct obs *x, u32 table, u64 most)
{
	if (most && x->config[table].enabled)
		ts_push_opaque(obs_table(x->bank, table), &x->bank->tick[table], most);
}

TS_INLINE void obs_unknown(struct obs *x, u32 table, u64 most)
{
	if (most && x->config[table].enabled)
		ts_unknown(obs_table(x->bank, table), &x->bank->tick[table], most);
}

/* The object at this address has ended: this CPU's tables forget it at once. Other CPUs see that its id is 0. */
TS_GLOBAL_FN int obs_forget(u32 number, u64 self)
{
	struct ts_bank *bank = host_bank(host_cpu(), number);
	u32 table;

	if (!bank || !ts_bank_enter(bank))
		return 0;
	for (table = 0; table < TS_BANK_TABLES; table++)
		ts_forget(obs_table(bank, table), self, constants.shape.entries_mask);
	ts_bank_leave(bank, 1);
	return 0;
}

#ifdef TS_KEEPS

/* A family that keeps ended objects defines this: describe the object at this address. `scratch` is memory for the function. */
TS_INLINE void obs_describe_kept(struct ts_kept *kept, u64 self, struct ts_window *scratch);

/* Keep a copy in one table. A separate function, to save stack. */
TS_GLOBAL_FN int obs_keep_in(u32 number, u32 table, u64 self, u64 id, u32 claimed)
{
	struct ts_bank *bank = host_bank(host_cpu(), number);
	struct ts_kept *kept;
	struct ts_tick *tick;
	struct ts_table *t;
	ts_view view;
	u32 slot;

	if (!bank || table >= TS_BANK_TABLES)
		return 0;
	table = ts_bound(table, TS_BANK_TABLES - 1);
	t = obs_table(bank, table);
	tick = &bank->tick[table];
	view = obs_view(number, table);
	if (ts_view_type(view) == TS_STATIC) {
		if (claimed)
			ts_forget(t, self, ts_view_mask(view));
		return 0;
	}
	if (!claimed) {
		ts_keep_none(t, tick, self, view);
		return 0;
	}
	slot = ts_keep_begin(t, tick, self, id, view);
	kept = slot ? ts_kept_of(t->place, slot - 1) : NULL;
	if (!kept)
		return 0;
	obs_describe_kept(kept, self, &t->scratch);
	ts_keep_end(t, tick, slot, id, view);
	return 0;
}

/* The object at this address is about to end and still has this id: this CPU's dynamic tables keep copies of it. The caller has
 * pushed all of its amounts. */
TS_GLOBAL_FN int obs_keep(u32 number, u64 self, u64 id)
{
	struct obs x;
	u32 table;

	if (!obs_begin_total(&x, number, 0))
		return 0;
	x.claimed = ts_bank_enter(x.bank); /* a kept row takes a place in the order */
	for (table = 0; table < TS_BANK_TABLES; table++)
		obs_keep_in(number, table, self, id, x.claimed);
	obs_end(&x);
	return 0;
}

#endif

TS_INLINE struct ts_census *obs_census(u32 sample)
{
	return (void *)((char *)census + host_item_at(sample, HOST_SAMPLES, sizeof(*census)));
}

/* From this call on, the object may be pushed to. No other CPU begins it at the same time. */
TS_INLINE void obs_object_begin(struct ts_object *o, u32 sample, u64 id)
{
	o->self = (u64)(unsigned long)o;
	ts_wmb(); /* a CPU that sees the id sees all of the object */
	ts_write(o->id, id);
	ts_add(&obs_census(sample)->begun, 1);
}

/* The object leaves all tables; its pushes stay in the totals. False: it had already ended. */
TS_INLINE int obs_object_end(struct ts_object *o, u32 sample)
{
	u64 id = ts_read(o->id);
	u32 i;

	if (!id || !ts_cas(&o->id, id, 0))
		return 0;
	ts_add(&obs_census(sample)->ended, 1);
	for (i = 0; i < HOST_SAMPLE_BANKS; i++)
		obs_forget(sample * HOST_SAMPLE_BANKS + i, o->self);
	return 1;
}

#if defined(__bpf__)
#include "observe/host_cold.bpf.h"
#endif

#endif /* TOPSTAT_OBS_H */
