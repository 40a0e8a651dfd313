/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * An object ends, and the engine keeps a copy of it (keep.h):
 *
 *	ts_bank_to(), ts_bank_enter()
 *	slot = ts_keep_begin(t, …)	for each dynamic table: the copy has a slot and a window
 *	if (slot) {
 *		…			the caller describes the copy
 *		ts_keep_end(t, …, slot)
 *	}
 *	ts_bank_leave()
 *
 * Then the caller sets the object's id to 0. A caller that has not got the claim calls ts_keep_none() for each table.
 */
#ifndef TOPSTAT_ENDED_H
#define TOPSTAT_ENDED_H

#include "push.h"

#ifdef TS_KEEPS

/* Tries to copy a window while another CPU writes to it. Writing takes that CPU some twenty stores. */
#define TS_KEEP_TRIES 4

TS_INLINE int ts_keep_copy(struct ts_window *to, u64 obj, ts_view view)
{
	u32 i;

	for (i = 0; i < TS_KEEP_TRIES; i++)
		if (ts_object_peek(to, obj, view) == TS_COPY_OK)
			return 1;
	return 0;
}

/* Returns the slot, from 1, that the object at this address now has as an ended one; its copy has a window. 0: the object has no
 * value any more, or there is no room for it (T8). */
TS_INLINE u32 ts_keep_begin(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 id, ts_view view)
{
	u32 mask = ts_view_mask(view);
	struct ts_ended *ended = ts_ended_of(t->place);
	int slot = ts_find(t, obj, ts_bucket(obj, mask), mask);
	struct ts_kept *kept;
	struct ts_entry *e;

	if (!ended)
		return 0;
	ts_add(&ended->ends, 1);
	if (slot > 0) {
		ts_unlink(t, slot - 1, mask);
		e = ts_entry(t, slot - 1, mask);
		e->obj = ts_kept_mark(id);
		e->id = id;
	} else {
		struct ts_value v;

		if (!ts_keep_copy(&t->scratch, obj, view) || ts_window_eval(&t->scratch, tick, &v))
			v.value = ~0ULL;
		if (!v.value)
			return 0;
		slot = TS_COLD_CALL(ts_admit, t, tick, ts_kept_mark(id), id, v.value, view);
		if (!slot)
			return 0;
	}
	kept = ts_kept_of(t->place, slot - 1);
	if (!kept)
		return 0;
	ts_retract(kept->id, 0); /* a reader that sees the new copy must not take it for the old one */
	if (!ts_keep_copy(&kept->window, obj, view)) {
		ts_turn_away(t, tick, ts_kept_mark(id), ~0ULL, TS_DYNAMIC);
		ts_remove_node(t, ts_entry(t, slot - 1, mask)->pos, mask);
		return 0;
	}
	return slot;
}

/* The copy is complete. */
TS_INLINE void ts_keep_end(struct ts_table *t, const struct ts_tick *tick, u32 slot, u64 id, ts_view view)
{
	struct ts_kept *kept = ts_kept_of(t->place, slot - 1);
	struct ts_value v;

	if (!kept)
		return;
	ts_publish(kept->id, id); /* pairs with ts_evaluate_kept() */
	ts_refresh_kept(t, tick, slot - 1, view, &v);
}

/* An upper bound of the window's value, from its head: the whole fading slide counts. A family whose objects have no windows
 * defines another function. */
#ifndef ts_object_most
#define ts_object_most ts_window_most
#endif

TS_INLINE u64 ts_window_most(const struct ts_tick *tick, u64 obj, ts_view view)
{
	struct {
		struct ts_window_head head;
		u64 fading;
	} w = {};

	_Static_assert(offsetof(struct ts_window, fading) == sizeof(w.head), "the head of a window, and what fades");
	if (ts_peek(&w, sizeof(w), obj + ts_view_window(view)) || !ts_same_epoch(w.head.slide, tick->slide))
		return 0;
	return w.head.sum[0] + w.head.sum[1] - w.head.base + w.fading;
}

/* The object is not kept, because the claim was taken. */
TS_INLINE void ts_keep_none(struct ts_table *t, const struct ts_tick *tick, u64 obj, ts_view view)
{
	struct ts_ended *ended = ts_ended_of(t->place);
	u64 most;

	if (!ended)
		return;
	ts_add(&ended->ends, 1);
	most = ts_object_most(tick, obj, view);
	if (!most)
		return;
	ts_add(&ended->unkept, 1);
	ts_miss(ended->missed_nested, tick, most, TS_DYNAMIC);
}

#endif /* TS_KEEPS */

#endif /* TOPSTAT_ENDED_H */
