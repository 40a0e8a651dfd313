/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Functions that Rust can call. The engine's functions, and the functions that observers call, are inline. Each function here has
 * the name of its inline function, with topstat_ for ts_, and only calls it.
 */
#ifndef TOPSTAT_SHIM_H
#define TOPSTAT_SHIM_H

/* The longer of the two functions; it contains the other one. */
#define ts_find_pushed ts_find_again

/* The simulation chooses whether tables keep ended objects. */
#define TS_KEEPS

#include "topstat/fold.h"
#include "topstat/section.h"
#include "topstat/spread.h"

/* The copies that the tables of a simulation keep, by table and slot, for each thread; NULL: none. A place is cpu << 8 | table.
 * */
struct topstat_keeps {
	struct ts_ended *ended;
	struct ts_kept *kept;
	u32 entries;
};
extern __thread struct topstat_keeps topstat_keeps;
void topstat_set_keeps(struct ts_ended *ended, struct ts_kept *kept, u32 entries);

TS_INLINE u32 topstat_kept_place(u32 place)
{
	return (place >> 8) * TS_BANK_TABLES + (place & 255);
}

TS_INLINE struct ts_ended *ts_ended_of(u32 place)
{
	return topstat_keeps.ended ? &topstat_keeps.ended[topstat_kept_place(place)] : NULL;
}

TS_INLINE struct ts_kept *ts_kept_of(u32 place, u32 slot)
{
	return topstat_keeps.kept ? &topstat_keeps.kept[topstat_kept_place(place) * topstat_keeps.entries + slot] : NULL;
}

/* Set the time that ts_precise() returns in this thread. */
void topstat_set_precise(u64 ns);

int topstat_window_eval(const struct ts_window *w, const struct ts_tick *tick, struct ts_value *v);
int topstat_window_is_done(const struct ts_window *w);
u32 topstat_marks_oldest(u32 marks);
void topstat_window_begin(struct ts_window *w, const struct ts_tick *tick);
void topstat_window_add(struct ts_window *w, const struct ts_tick *tick, u32 part, u64 amount);
void topstat_window_begin_since(struct ts_window *w, const struct ts_tick *tick, const struct ts_config *c,
				u64 since);
void topstat_window_add_ago(struct ts_window *w, const struct ts_tick *tick, u32 ago, u64 amount0, u64 amount1);
void topstat_window_spread(struct ts_window *w, const struct ts_tick *tick, u64 since, u64 amount, u32 part);
u64 topstat_spread_early(const struct ts_tick *tick, u64 since, u64 now, u64 amount);
u64 topstat_window_now(struct ts_window *w, const struct ts_tick *tick);

/* In interleaved.c. */
u64 topstat_interleaved_push(struct ts_window *w, const struct ts_tick *tick, const struct ts_config *c, u64 since,
			     u64 amount, u32 part);
int topstat_interleaved_value(u64 window, const struct ts_tick *tick, struct ts_value *v);

void topstat_fold(u64 *sums, const u64 *counters, u64 items);

u64 topstat_table_size(u32 entries);
void topstat_table_init(struct ts_table *t, u32 entries, u32 place);
struct ts_entry *topstat_entry(struct ts_table *t, u32 i, u32 mask);
void topstat_tick_to(struct ts_tick *tick, const struct ts_config *c, u64 now);
ts_view topstat_view_of(u32 mask, u32 type, u32 window, u32 id);
u32 topstat_bucket(u64 obj, u32 mask);
int topstat_find(struct ts_table *t, u64 obj, u32 mask);
void topstat_rekey(struct ts_table *t, u32 pos, u64 key, u32 mask);
void topstat_forget(struct ts_table *t, u64 obj, u32 mask);
/* Keep a copy of an object that ends; without the claim no copy is kept. */
void topstat_keep(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 id, ts_view view, int claimed);
int topstat_refresh(struct ts_table *t, const struct ts_tick *tick, u32 slot, ts_view view, struct ts_value *v);
void topstat_miss_begin(struct ts_table *t, const struct ts_tick *tick);
/* The greatest of missed[] and missed_nested[]: for living objects (T5), and for objects that have ended (T8). */
u64 topstat_missed(const struct ts_table *t);
u64 topstat_missed_ended(const struct ts_table *t);

struct ts_table *topstat_bank_table(struct ts_bank *bank, u32 table, u64 stride);
void topstat_bank_to(struct ts_bank *bank, u64 stride, struct ts_config *c, u32 generation, u64 now);
int topstat_bank_enter(struct ts_bank *bank);
void topstat_bank_leave(struct ts_bank *bank, int claimed);
u64 topstat_quiet_until(u64 before, const struct ts_tick *tick, const struct ts_config *c, u32 ordered);
void topstat_push_total(struct ts_table *t, const struct ts_tick *tick, u32 part, u64 amount);
int topstat_refuse(struct ts_table *t, const struct ts_tick *tick, u64 amount);
void topstat_push_quiet(struct ts_table *t, const struct ts_tick *tick, struct ts_window *w, u32 part, u64 amount);
void topstat_push_static_quiet(struct ts_table *t, struct ts_count *w, u32 part, u64 amount);
u64 topstat_push(struct ts_table *t, const struct ts_tick *tick, const struct ts_config *c, ts_view view,
		 int claimed, u64 obj, u64 id, struct ts_window *w, u32 part, u64 amount);
u64 topstat_push_static(struct ts_table *t, const struct ts_tick *tick, const struct ts_config *c, ts_view view,
			int claimed, u64 obj, u64 id, struct ts_count *w, u32 part, u64 amount);
void topstat_order_pushed(struct ts_table *t, const struct ts_tick *tick, ts_view view, int claimed, u64 obj, u64 id,
			  struct ts_window *w);
void topstat_order_static_pushed(struct ts_table *t, const struct ts_tick *tick, ts_view view, int claimed, u64 obj,
				 u64 id, struct ts_count *w);

#endif /* TOPSTAT_SHIM_H */
