/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A table ranks objects by value, on one CPU.
 *
 * It is an array of entries. Their number is a power of two, and twice the number of rows to show: an entry that fades must not
 * hold back a larger newcomer, so there is room for both. Three structures share the array. Each uses its own fields of entry i:
 *
 *      heap node i   key, order      a min-heap by key; order is a slot's number
 *      slot i        obj, id, pos …  one object; pos is the object's node in the heap
 *      buckets 4i … 4i+3  head[]     hash of obj -> slot, chained by next
 *
 *      head[hash(obj)] --> slot --next--> slot
 *                           | ^
 *                       pos v | order
 *                         heap node            node 0: the smallest key
 *
 * Links to slots (head[], next) count from 1; 0 means no slot.
 *
 * Invariants, where n objects are in the table:
 *
 *   T1  order of the nodes 0 … slots-1 is a permutation of the slots. The slots of the nodes n … are free. (Slot s of node p has
 *       pos p.)
 *   T2  key(parent) <= key(child) for all nodes < n.
 *   T3  An object is in at most one slot. It is found by hash(obj) within TS_CHAIN steps; an object that could not be found so
 *       is not put in.
 *   T4  key is the object's value at its latest evaluation: at a push on this CPU, or at a re-evaluation, which every entry gets
 *       at most once a slide. The key may be too large for a slide, when the object fades, but never too small.
 *   T5  missed[] bounds the value of every object that is not in the table and was pushed on this CPU: at its latest push, no
 *       object of this kind was larger than the greatest missed[] of the last period. Hence the proof: rows that are at least
 *       that large are the true top.
 *   T6  refused is a window of two kinds of amounts on this CPU: an amount that was pushed to the total alone although it should
 *       have had an object, and the upper bound of an amount that was not pushed because it could not be determined. So the
 *       unknown part of an object, which may be the whole object, is never more than the sum of all CPUs' refused: within the
 *       period in a dynamic table, over all time in a static one. Hence the proof where amounts were refused: rows are
 *       proven that exceed every object without a row by that sum.
 *   T7 … T9 are about objects that have ended: see keep.h.
 *
 * Cost: the object is found in O(1). Its key moves in O(log n), mostly O(1). A push of an object that does not get into the table
 * is O(1), and evaluates two entries again.
 *
 * Concurrency: only this CPU writes its tables, and only under their bank's claim. A push that interrupts the holder does not get
 * the claim: it has been summed, its ordering is skipped and counted in `contended`. Other CPUs and user space read at any time.
 */
#ifndef TOPSTAT_TABLE_H
#define TOPSTAT_TABLE_H

#include "slots.h"

/*
 * The id that the object at this address has now. 0: the object is gone, or never existed. Where a family can't write an
 * object's end into the object, it may define another function.
 */
#ifndef ts_id_now
#define ts_id_now ts_peek_id
#endif

TS_INLINE u64 ts_peek_id(u64 obj, ts_view view)
{
	u64 id = 0;

	return ts_peek(&id, sizeof(id), obj + ts_view_id(view)) ? 0 : id;
}

/* The present id of the object or copy that a slot refers to (T7). 0: it is gone. */
TS_INLINE u64 ts_id_in(struct ts_table *t, u32 slot, u64 obj, ts_view view)
{
	struct ts_kept *kept;

	if (!ts_is_kept(obj))
		return ts_id_now(obj, view);
	kept = ts_kept_of(t->place, slot);
	return kept ? ts_read(kept->id) : 0;
}

/* Copy the window of the object at this address, which may be stale; returns an enum ts_copy. A family whose objects have no
 * windows, because the kernel counts them itself, defines how to make one. */
#ifndef ts_object_peek
#define ts_object_peek(w, obj, view) ts_window_peek((w), (obj) + ts_view_window(view))
#endif

/*
 * Evaluate the object in the slot again; the slot is not one of an ended object. Stores the value at the table's moment to *v,
 * and a copy of the window to *w.
 */
enum ts_look {
	TS_LOOK_OK = 0,
	TS_LOOK_GONE = 1, /* another object is at the address, or none */
	TS_LOOK_BUSY = 2, /* a CPU is writing to the object: its value is unknown */
};

TS_INLINE int ts_evaluate(struct ts_table *t, const struct ts_tick *tick, u32 slot, ts_view view,
			  struct ts_window *w, struct ts_value *v)
{
	struct ts_entry *e = ts_entry(t, slot, ts_view_mask(view));
	u64 id;
	int copy;

	v->value = v->part[0] = v->part[1] = 0;
	if (ts_view_type(view) == TS_STATIC)
		copy = ts_count_peek(w, e->obj + ts_view_window(view));
	else
		copy = ts_object_peek(w, e->obj, view);
	/* The id is read after the copy: if it is the right id now, the copy shows the same object. */
	id = copy == TS_COPY_GONE ? 0 : ts_id_now(e->obj, view);
	if (!id || id != e->id)
		return TS_LOOK_GONE;
	if (copy == TS_COPY_BUSY)
		return TS_LOOK_BUSY;
	if (ts_view_type(view) == TS_STATIC) {
		v->part[0] = w->sum[0];
		v->part[1] = w->sum[1];
		v->value = v->part[0] + v->part[1];
		return TS_LOOK_OK;
	}
	if (ts_window_eval(w, tick, v))
		return TS_LOOK_BUSY;
	return TS_LOOK_OK;
}

/* As ts_evaluate(), for the copy of an ended object (T7). It runs on any CPU. */
TS_INLINE int ts_evaluate_kept(struct ts_table *t, const struct ts_tick *tick, u32 slot, ts_view view,
			       struct ts_window *w, struct ts_value *v)
{
	struct ts_kept *kept = ts_kept_of(t->place, slot);
	int copy;

	v->value = v->part[0] = v->part[1] = 0;
	if (!kept)
		return TS_LOOK_GONE;
	copy = ts_window_peek(w, (u64)(unsigned long)&kept->window);
	ts_rmb(); /* pairs with ts_keep_end() */
	if (copy == TS_COPY_GONE || ts_read(kept->id) != ts_entry(t, slot, ts_view_mask(view))->id)
		return TS_LOOK_GONE;
	return copy == TS_COPY_BUSY || ts_window_eval(w, tick, v) ? TS_LOOK_BUSY : TS_LOOK_OK;
}

/* T4: bring the slot's key up to date, or remove the entry, where the object is gone or has aged out. */
TS_INLINE int ts_refresh(struct ts_table *t, const struct ts_tick *tick, u32 slot, ts_view view,
			 struct ts_value *v)
{
	struct ts_entry *e = ts_entry(t, slot, ts_view_mask(view));
	int look;

	look = ts_evaluate(t, tick, slot, view, &t->scratch, v);
	if (look == TS_LOOK_OK && !v->value && ts_view_type(view) != TS_STATIC)
		look = TS_LOOK_GONE;
	if (look == TS_LOOK_OK) {
		e->seen_in = tick->stamp;
		ts_rekey(t, e->pos, v->value, ts_view_mask(view));
	} else if (look == TS_LOOK_GONE) {
		ts_remove_node(t, e->pos, ts_view_mask(view));
	}
	return look;
}

/* As ts_refresh(), for the copy of an ended object. Only the holder of the claim writes to the copy. */
TS_INLINE int ts_refresh_kept(struct ts_table *t, const struct ts_tick *tick, u32 slot, ts_view view,
			      struct ts_value *v)
{
	struct ts_entry *e = ts_entry(t, slot, ts_view_mask(view));
	struct ts_kept *kept = ts_kept_of(t->place, slot);
	int look = TS_LOOK_GONE;

	v->value = 0;
	if (kept && kept->id == e->id)
		look = ts_window_eval(&kept->window, tick, v) ? TS_LOOK_BUSY : TS_LOOK_OK;
	if (look == TS_LOOK_OK && v->value) {
		e->seen_in = tick->stamp;
		ts_rekey(t, e->pos, v->value, ts_view_mask(view));
		return TS_LOOK_OK;
	}
	if (look != TS_LOOK_BUSY) {
		ts_remove_node(t, e->pos, ts_view_mask(view));
		return TS_LOOK_GONE;
	}
	return look;
}

/* As ts_refresh(), during a push: every slot gets one turn a slide. */
TS_INLINE void ts_look_again(struct ts_table *t, const struct ts_tick *tick, u32 slot, ts_view view)
{
	struct ts_entry *e;
	struct ts_value v;

	e = ts_entry(t, slot, ts_view_mask(view));
	if (e->obj && e->pushed_in != tick->stamp && e->seen_in != tick->stamp)
		ts_refresh(t, tick, slot, view, &v);
}

#ifdef TS_KEEPS

/* Apart from ts_look_again(), to save stack. */
TS_INLINE void ts_look_at_kept(struct ts_table *t, const struct ts_tick *tick, u32 slot, ts_view view)
{
	struct ts_value v;

	if (ts_entry(t, slot, ts_view_mask(view))->seen_in != tick->stamp)
		ts_refresh_kept(t, tick, slot, view, &v);
}

#define ts_look_at(t, tick, slot, view)                                          \
	do {                                                                     \
		u32 slot_ = (slot);                                              \
		if (ts_is_kept(ts_entry(t, slot_, ts_view_mask(view))->obj))     \
			TS_COLD_CALL(ts_look_at_kept, t, tick, slot_, view);          \
		else                                                             \
			TS_COLD_CALL(ts_look_again, t, tick, slot_, view);            \
	} while (0)

#else

#define ts_look_at(t, tick, slot, view) TS_COLD_CALL(ts_look_again, t, tick, slot, view)

#endif

/* Put in an object that is not in the table and whose hash chain has room for it (T3: ts_find() returned 0), or one that has
 * ended. Returns its slot, from 1. 0: it is turned away. */
TS_INLINE u32 ts_admit(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 id, u64 value,
			ts_view view)
{
	u32 mask = ts_view_mask(view), entries = mask + 1, pos = t->n, slot;
	struct ts_entry *e;
	u64 root;

	if (pos >= entries) {
		if (value <= t->entry[0].key && t->settled != tick->slide) {
			/* The smallest entry may have faded since its latest evaluation; so may any other entry. */
			ts_look_at(t, tick, t->entry[0].order, view);
			t->hand = ts_bound(t->hand + 1, mask);
			ts_look_at(t, tick, t->hand, view);
			if (t->round != tick->slide) {
				t->round = tick->slide;
				t->round_left = entries;
			}
			if (!--t->round_left)
				t->settled = tick->slide;
		}
		pos = t->n;
	}
	root = t->entry[0].key;
	if (pos >= entries && value <= root) {
		ts_turn_away(t, tick, obj, value, ts_view_type(view));
		return 0;
	}
	if (pos >= entries) {
		pos = 0;
		slot = t->entry[0].order;
		ts_turn_away(t, tick, ts_entry(t, slot, mask)->obj, root, ts_view_type(view));
		ts_unlink(t, slot, mask);
	} else {
		slot = ts_entry(t, pos, mask)->order;
		t->n = pos + 1;
	}
	ts_link(t, slot, obj, id, ts_bucket(obj, mask), mask);
	e = ts_entry(t, slot, mask);
	e->pushed = tick->now;
	e->pushed_in = tick->stamp;
	e->seen_in = 0;
	e->count = 1;
	TS_COLD_CALL(ts_settle, t, pos, value, slot, mask);
	return ts_bound(slot, mask) + 1;
}

/* The object's hash chain is full: the object is not put in (T3, T5). */
TS_INLINE void ts_crowd(struct ts_table *t, const struct ts_tick *tick, u64 value, ts_view view)
{
	t->crowded++;
	ts_miss(t->missed, tick, value, ts_view_type(view));
}

/* Order an object by its value, without a push. The caller has the bank's claim. */
TS_INLINE void ts_order_again(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 id, u64 value,
			     ts_view view)
{
	u32 mask = ts_view_mask(view);
	int slot = ts_find(t, obj, ts_bucket(obj, mask), mask);

	if (slot > 0)
		ts_rekey(t, ts_entry(t, slot - 1, mask)->pos, value, mask);
	else if (!slot)
		ts_admit(t, tick, obj, id, value, view);
	else
		ts_crowd(t, tick, value, view);
}

/*
 * The object in this slot was pushed just now. Give it its new key where its node can stay in place. Returns 1 where the node
 * stays, 0 where the caller has to settle it. The caller has the bank's claim.
 */
TS_INLINE int ts_rekey_in_place(struct ts_table *t, const struct ts_tick *tick, u32 slot, u64 id, u64 value, u32 mask)
{
	struct ts_entry *e = ts_entry(t, slot, mask), *node;
	u64 least = ~0ULL;
	u32 pos;

	e->id = id; /* the object may be a later one at the same address */
	e->pushed = tick->now;
	e->pushed_in = tick->stamp;
	e->count++;
	pos = e->pos;
	node = ts_entry(t, pos, mask);
	/* Mostly the key grows or fades a little, and stays between its parent and its children. */
	if (value >= node->key) {
		if (2 * pos + 1 < t->n)
			least = ts_entry(t, 2 * pos + 1, mask)->key;
		if (2 * pos + 2 < t->n && ts_entry(t, 2 * pos + 2, mask)->key < least)
			least = ts_entry(t, 2 * pos + 2, mask)->key;
		if (value > least)
			return 0;
	} else if (pos && ts_entry(t, (pos - 1) >> 1, mask)->key > value) {
		/* It has faded since this slide began. Its node moves once a slide, which is enough (T4). */
		if (e->seen_in == tick->stamp)
			return 1;
		e->seen_in = tick->stamp;
		return 0;
	}
	node->key = value;
	return 1;
}

/* Order the object by its value. `at`: see ts_find_again(). The caller has the bank's claim. */
TS_INLINE void ts_order(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 id, u64 value,
			ts_view view, u8 *at)
{
	u32 mask = ts_view_mask(view);
	int slot;

	slot = ts_find_pushed(t, obj, at, mask);
	if (slot > 0) {
		if (!ts_rekey_in_place(t, tick, slot - 1, id, value, mask))
			TS_COLD_CALL(ts_settle, t, ts_entry(t, slot - 1, mask)->pos, value, slot - 1, mask);
		return;
	}
	if (!slot && t->n > mask && value <= t->entry[0].key && t->settled == tick->slide) {
		/* The object is too small, and every entry of the table was pushed or evaluated in this slide. */
		ts_miss(t->missed, tick, value, ts_view_type(view));
		return;
	}
	if (ts_likely(!slot))
		TS_COLD_CALL(ts_admit, t, tick, obj, id, value, view);
	else
		ts_crowd(t, tick, value, view);
}

/* The claim was taken: the push is summed, its ordering is skipped. */
TS_GLOBAL_FN int ts_contended(struct ts_table *t, const struct ts_tick *tick, u64 value, ts_view view)
{
	if (!t || !tick)
		return 0;
	ts_add(&t->contended, 1);
	ts_miss(t->missed_nested, tick, value, ts_view_type(view));
	return 0;
}

/* The object is gone: remove it from this CPU's table at once (under the claim). Tables of other CPUs, and this CPU's table where
 * the claim is taken, detect the end by its id, which is 0 by now. */
TS_INLINE void ts_forget(struct ts_table *t, u64 obj, u32 mask)
{
	int slot = ts_find(t, obj, ts_bucket(obj, mask), mask);

	if (slot > 0)
		ts_remove_node(t, ts_entry(t, slot - 1, mask)->pos, mask);
}

#endif /* TOPSTAT_TABLE_H */
