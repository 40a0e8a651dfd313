/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#include "shim.h"

__thread u64 ts_precise_now;
__thread struct topstat_keeps topstat_keeps;

void topstat_set_keeps(struct ts_ended *ended, struct ts_kept *kept, u32 entries)
{
	topstat_keeps = (struct topstat_keeps){ ended, kept, entries };
}

void topstat_set_precise(u64 ns)
{
	ts_precise_now = ns;
}

int topstat_window_eval(const struct ts_window *w, const struct ts_tick *tick, struct ts_value *v)
{
	struct ts_window copy = *w;

	return ts_window_eval(&copy, tick, v);
}

int topstat_window_is_done(const struct ts_window *w)
{
	return ts_is_done(w->done, w->slide);
}

u32 topstat_marks_oldest(u32 marks)
{
	return ts_marks_oldest(marks);
}

void topstat_window_begin(struct ts_window *w, const struct ts_tick *tick)
{
	ts_window_begin(w, tick);
}

void topstat_window_add(struct ts_window *w, const struct ts_tick *tick, u32 part, u64 amount)
{
	ts_window_add(w, tick, part, amount);
}

void topstat_window_begin_since(struct ts_window *w, const struct ts_tick *tick, const struct ts_config *c,
				u64 since)
{
	ts_window_begin_since(w, tick, c, since);
}

void topstat_window_add_ago(struct ts_window *w, const struct ts_tick *tick, u32 ago, u64 amount0, u64 amount1)
{
	ts_window_add_ago(w, tick, ago, amount0, amount1);
}

void topstat_window_spread(struct ts_window *w, const struct ts_tick *tick, u64 since, u64 amount, u32 part)
{
	ts_window_spread(w, tick, since, amount, part);
}

u64 topstat_spread_early(const struct ts_tick *tick, u64 since, u64 now, u64 amount)
{
	return ts_spread_early(tick, since, now, amount);
}

u64 topstat_window_now(struct ts_window *w, const struct ts_tick *tick)
{
	return ts_window_now(w, tick);
}

void topstat_fold(u64 *sums, const u64 *counters, u64 items)
{
	ts_fold(sums, counters, items);
}

u64 topstat_table_size(u32 entries)
{
	return ts_table_size(entries);
}

void topstat_table_init(struct ts_table *t, u32 entries, u32 place)
{
	ts_table_init(t, entries, place);
}

struct ts_entry *topstat_entry(struct ts_table *t, u32 i, u32 mask)
{
	return ts_entry(t, i, mask);
}

void topstat_tick_to(struct ts_tick *tick, const struct ts_config *c, u64 now)
{
	ts_tick_to(tick, c, c->epoch, now);
}

ts_view topstat_view_of(u32 mask, u32 type, u32 window, u32 id)
{
	return ts_view_of(mask, type, window, id);
}

u32 topstat_bucket(u64 obj, u32 mask)
{
	return ts_bucket(obj, mask);
}

int topstat_find(struct ts_table *t, u64 obj, u32 mask)
{
	return ts_find(t, obj, ts_bucket(obj, mask), mask);
}

void topstat_rekey(struct ts_table *t, u32 pos, u64 key, u32 mask)
{
	ts_rekey(t, pos, key, mask);
}

void topstat_forget(struct ts_table *t, u64 obj, u32 mask)
{
	ts_forget(t, obj, mask);
}

void topstat_keep(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 id, ts_view view, int claimed)
{
	u32 slot;

	if (!claimed) {
		ts_keep_none(t, tick, obj, view);
		return;
	}
	slot = ts_keep_begin(t, tick, obj, id, view);
	if (slot)
		ts_keep_end(t, tick, slot, id, view);
}

int topstat_refresh(struct ts_table *t, const struct ts_tick *tick, u32 slot, ts_view view, struct ts_value *v)
{
	if (ts_is_kept(ts_entry(t, slot, ts_view_mask(view))->obj))
		return ts_refresh_kept(t, tick, slot, view, v);
	return ts_refresh(t, tick, slot, view, v);
}

void topstat_miss_begin(struct ts_table *t, const struct ts_tick *tick)
{
	ts_miss_begin(t, tick);
}

u64 topstat_missed(const struct ts_table *t)
{
	return ts_most_missed(t->missed, t->missed_nested);
}

u64 topstat_missed_ended(const struct ts_table *t)
{
	const struct ts_ended *ended = ts_ended_of(t->place);

	return ended ? ts_most_missed(ended->missed, ended->missed_nested) : 0;
}

struct ts_table *topstat_bank_table(struct ts_bank *bank, u32 table, u64 stride)
{
	return ts_bank_table(bank, table, stride);
}

void topstat_bank_to(struct ts_bank *bank, u64 stride, struct ts_config *c, u32 generation, u64 now)
{
	ts_bank_to(bank, stride, c, generation, now);
}

int topstat_bank_enter(struct ts_bank *bank)
{
	return ts_bank_enter(bank);
}

void topstat_bank_leave(struct ts_bank *bank, int claimed)
{
	ts_bank_leave(bank, claimed);
}

u64 topstat_quiet_until(u64 before, const struct ts_tick *tick, const struct ts_config *c, u32 ordered)
{
	return ts_quiet_until(before, tick, c, ordered);
}

void topstat_push_total(struct ts_table *t, const struct ts_tick *tick, u32 part, u64 amount)
{
	ts_push_total(t, tick, part, amount);
}

int topstat_refuse(struct ts_table *t, const struct ts_tick *tick, u64 amount)
{
	return ts_refuse(t, tick, TS_NO_MEMORY, amount);
}

void topstat_push_quiet(struct ts_table *t, const struct ts_tick *tick, struct ts_window *w, u32 part, u64 amount)
{
	ts_push_quiet(t, tick, w, part, amount);
}

void topstat_push_static_quiet(struct ts_table *t, struct ts_count *w, u32 part, u64 amount)
{
	ts_push_static_quiet(t, w, part, amount);
}

u64 topstat_push(struct ts_table *t, const struct ts_tick *tick, const struct ts_config *c, ts_view view,
		 int claimed, u64 obj, u64 id, struct ts_window *w, u32 part, u64 amount)
{
	return ts_push(t, tick, c, view, claimed, obj, id, w, part, amount);
}

u64 topstat_push_static(struct ts_table *t, const struct ts_tick *tick, const struct ts_config *c, ts_view view,
			int claimed, u64 obj, u64 id, struct ts_count *w, u32 part, u64 amount)
{
	return ts_push_static(t, tick, c, view, claimed, obj, id, w, part, amount);
}

void topstat_order_pushed(struct ts_table *t, const struct ts_tick *tick, ts_view view, int claimed, u64 obj, u64 id,
			  struct ts_window *w)
{
	ts_order_pushed(t, tick, view, claimed, obj, id, w);
}

void topstat_order_static_pushed(struct ts_table *t, const struct ts_tick *tick, ts_view view, int claimed, u64 obj,
				 u64 id, struct ts_count *w)
{
	ts_order_static_pushed(t, tick, view, claimed, obj, id, w);
}
