/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * push(table, object, amount). An observer calls these functions, in this order:
 *
 *	ts_bank_to(bank, …, now)                the time, once for all tables
 *	if (ts_quiet(…))                        nothing to order, no slide to begin:
 *		ts_push_quiet(…) …                  sums only
 *	else {
 *		claimed = ts_bank_enter(bank)
 *		ts_push(…, claimed, …) …            for each table
 *		ts_bank_leave(bank, claimed)
 *	}
 *
 *   P1  a push adds the amount to the CPU's total before it adds it to the object, so a reader that reads objects before totals
 *       never finds more in the objects;
 *   P2  a push always sums, even where it interrupts another context or is interrupted; without the claim it does not order;
 *   P3  a push orders the object at most once per delay;
 *   P4  a push takes the time once, so that total and object count it in the same slide;
 *   P5  an amount that should have an object and has no object is added to the total, and to `refused` (T6).
 */
#ifndef TOPSTAT_PUSH_H
#define TOPSTAT_PUSH_H

#include "table.h"

TS_INLINE struct ts_table *ts_bank_table(struct ts_bank *bank, u32 table, u64 stride)
{
	return (void *)((char *)(bank + 1) + ts_times(table, stride));
}

/* The clock has moved, or a setting has changed: bring all tables of the bank up to date. Totals begin their slide here, before
 * any push can be in it. */
TS_INLINE void ts_bank_roll(struct ts_bank *bank, u64 stride, struct ts_config *c, u32 generation, u64 now)
{
	u32 k, precise = 0;

	for (k = 0; k < TS_BANK_TABLES; k++) {
		struct ts_table *t = ts_bank_table(bank, k, stride);
		struct ts_tick *tick = &bank->tick[k];

		if (!ts_read(c[k].epoch)) /* no such table */
			continue;
		precise |= ts_read(c[k].precise);
		ts_tick_now(tick, &c[k], now, 0);
		if (c[k].type == TS_STATIC)
			continue;
		ts_miss_begin(t, tick);
		ts_window_begin(&t->total, tick);
	}
	/* a push that interrupts this and finds the bank up to date, finds its ticks up to date */
	ts_publish(bank->generation, generation);
	/* The nanosecond clock has moved at every call. */
	bank->now = precise ? ~0ULL : now;
}

/* Bring the bank to `now` (jiffies). `generation` changes with every setting. */
TS_INLINE void ts_bank_to(struct ts_bank *bank, u64 stride, struct ts_config *c, u32 generation, u64 now)
{
	if (ts_unlikely(bank->now != now || bank->generation != generation))
		TS_COLD_CALL(ts_bank_roll, bank, stride, c, generation, now);
}

/* Returns whether the bank's tables may be ordered. The caller passes the result to the pushes that follow and to
 * ts_bank_leave(). */
TS_INLINE int ts_bank_enter(struct ts_bank *bank)
{
	return ts_claim(&bank->claim);
}

TS_INLINE void ts_bank_leave(struct ts_bank *bank, int claimed)
{
	if (claimed)
		ts_release(&bank->claim);
}

/* True, at most once per delay, when the object has to be ordered now. */
TS_INLINE int ts_due(u32 *ordered, const struct ts_config *c, u64 now)
{
	u32 at;

	if (!c->delay)
		return 1;
	at = (u32)(now >> (c->delay_shift & 63)) + 1;
	if (!at) /* which is never */
		at = 1;
	if (*ordered && at - *ordered < c->delay)
		return 0;
	*ordered = at;
	return 1;
}

/* The time (jiffies, exclusive) until which a push to the table only sums: the object is not due and no slide begins. At most
 * `before`. */
TS_INLINE u64 ts_quiet_until(u64 before, const struct ts_tick *tick, const struct ts_config *c, u32 ordered)
{
	u64 until;
	u32 since;

	if (!c->enabled)
		return before;
	if (!c->delay || c->precise || !ordered)
		return 0;
	/* A unit of the delay is a jiffy here. The object may have been ordered with another unit: as in ts_due(), it is due if
	 * its `ordered` lies in the future. */
	since = (u32)tick->now + 1 - ordered;
	if (since >= c->delay)
		return 0;
	until = tick->now + (c->delay - since);
	if (until > tick->end)
		until = tick->end;
	return until < before ? until : before;
}

/*
 * An object keeps the result of ts_quiet_until() in one word, so that no CPU sees half of it. The low 40 bits are the time (35
 * years of jiffies at 1000 Hz); above them is the generation of the settings that it was computed for. Two generations have the
 * same bits only after 2^24 changes of settings, all within one delay.
 */
#define TS_QUIET_SHIFT 40

TS_INLINE u64 ts_quiet_word(u32 generation, u64 until)
{
	return (u64)generation << TS_QUIET_SHIFT | (until & ((1ULL << TS_QUIET_SHIFT) - 1));
}

/* Whether a push (at `now`, jiffies) only sums. */
TS_INLINE int ts_quiet(u64 word, u32 generation, u64 now)
{
	u64 until = word ^ (u64)generation << TS_QUIET_SHIFT;

	return now < until && !(until >> TS_QUIET_SHIFT);
}

/* Count an amount to the total alone. */
TS_INLINE void ts_push_total(struct ts_table *t, const struct ts_tick *tick, u32 part, u64 amount)
{
	ts_window_add(&t->total, tick, part, amount);
}

/* Bound an unknown amount of some object: it is at most `most` (T6). */
TS_INLINE void ts_bound_unknown(struct ts_table *t, const struct ts_tick *tick, u64 most)
{
	if (ts_read(t->refused.slide) != tick->slide)
		ts_window_begin(&t->refused, tick);
	ts_window_add(&t->refused, tick, 0, most);
}

/* As ts_bound_unknown(), for an observer. The total already has the amount. */
TS_GLOBAL_FN int ts_unknown(struct ts_table *t, const struct ts_tick *tick, u64 most)
{
	if (!t || !tick)
		return 0;
	ts_bound_unknown(t, tick, most);
	return 0;
}

/*
 * P5: besides the push to the total, refuse an amount that should have an object and has no object. `cause`: enum ts_cause. An
 * amount that was used over time (spread.h) counts completely to now, so it bounds the object for longer than needed, never for
 * less. In a static table only the sum matters.
 */
TS_GLOBAL_FN int ts_refuse(struct ts_table *t, const struct ts_tick *tick, u32 cause, u64 amount)
{
	if (!t || !tick)
		return 0;
	ts_bound_unknown(t, tick, amount);
	if (cause == TS_FULL)
		ts_add(&t->full, 1);
	else if (cause == TS_UNMATCHED)
		ts_add(&t->unmatched, 1);
	else
		ts_add(&t->no_memory, 1);
	return 0;
}

/* The amount of an event can't be determined, but it is at most `most`. It is not pushed, and may belong to any object (T6). */
TS_GLOBAL_FN int ts_push_opaque(struct ts_table *t, const struct ts_tick *tick, u64 most)
{
	if (!t || !tick)
		return 0;
	ts_bound_unknown(t, tick, most);
	ts_add(&t->opaque, 1);
	return 0;
}

/* Push to a dynamic table before ts_quiet_until(). The total's slide has begun. The object's slide may not have begun, if the
 * previous pushes added nothing to it. */
TS_INLINE void ts_push_quiet(struct ts_table *t, const struct ts_tick *tick, struct ts_window *w, u32 part,
			     u64 amount)
{
	ts_window_add(&t->total, tick, part, amount);
	if (ts_unlikely(ts_read(w->slide) != tick->slide))
		ts_window_begin(w, tick);
	ts_window_add(w, tick, part, amount);
}

/* Push to a static table before ts_quiet_until(). */
TS_INLINE void ts_push_static_quiet(struct ts_table *t, struct ts_count *w, u32 part, u64 amount)
{
	ts_add(&t->total.sum[part & 1], amount);
	ts_add(&w->sum[part & 1], amount);
}

/* Push to a dynamic table. Returns the object's value. */
TS_INLINE u64 ts_push(struct ts_table *t, const struct ts_tick *tick, const struct ts_config *c, ts_view view,
		      int claimed, u64 obj, u64 id, struct ts_window *w, u32 part, u64 amount)
{
	u64 value;

	ts_window_add(&t->total, tick, part, amount);
	if (ts_unlikely(ts_read(w->slide) != tick->slide))
		ts_window_begin(w, tick);
	ts_window_add(w, tick, part, amount);
	value = ts_window_now(w, tick);
	if (!ts_due(&w->ordered, c, tick->now))
		return value;
	if (ts_likely(claimed))
		ts_order(t, tick, obj, id, value, view, &w->slot);
	else
		ts_contended(t, tick, value, view);
	return value;
}

/* Push to a static table. Returns the object's value. */
TS_INLINE u64 ts_push_static(struct ts_table *t, const struct ts_tick *tick, const struct ts_config *c,
			     ts_view view, int claimed, u64 obj, u64 id, struct ts_count *w, u32 part,
			     u64 amount)
{
	u64 value;

	ts_push_static_quiet(t, w, part, amount);
	value = w->sum[0] + w->sum[1];
	if (!ts_due(&w->ordered, c, tick->now))
		return value;
	if (ts_likely(claimed))
		ts_order(t, tick, obj, id, value, view, &w->slot);
	else
		ts_contended(t, tick, value, view);
	return value;
}

/*
 * The value of an object, without a push. The function does not begin the tick's slide in the window: a slide is spread from its
 * first push on (W1), and there is no push. Where a CPU is writing to the window because of a push, the slide has begun already.
 */
TS_INLINE u64 ts_window_pushed(struct ts_table *t, const struct ts_tick *tick, ts_view view, int claimed, u64 obj,
			       struct ts_window *w)
{
	struct ts_value v;

	if (ts_read(w->slide) == tick->slide)
		return ts_window_now(w, tick);
	if (claimed && ts_window_peek(&t->scratch, obj + ts_view_window(view)) == TS_COPY_OK &&
	    !ts_window_eval(&t->scratch, tick, &v))
		return v.value;
	ts_window_begin(w, tick);
	return ts_window_now(w, tick);
}

/* Order an object of a dynamic table by the value of its earlier pushes. */
TS_INLINE void ts_order_pushed(struct ts_table *t, const struct ts_tick *tick, ts_view view, int claimed, u64 obj, u64 id,
			       struct ts_window *w)
{
	u64 value = ts_window_pushed(t, tick, view, claimed, obj, w);

	if (!value)
		return;
	if (ts_likely(claimed))
		ts_order(t, tick, obj, id, value, view, &w->slot);
	else
		ts_contended(t, tick, value, view);
}

/* As ts_order_pushed(), for a static table. */
TS_INLINE void ts_order_static_pushed(struct ts_table *t, const struct ts_tick *tick, ts_view view, int claimed, u64 obj,
				      u64 id, struct ts_count *w)
{
	if (ts_likely(claimed))
		ts_order(t, tick, obj, id, w->sum[0] + w->sum[1], view, &w->slot);
	else
		ts_contended(t, tick, w->sum[0] + w->sum[1], view);
}

#endif /* TOPSTAT_PUSH_H */
