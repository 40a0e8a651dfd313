/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A table ranks objects by value, on one CPU.
 *
 * It is an array of entries, a power of two of them, twice the rows it is to show:
 * an entry that fades must not hold back a larger newcomer, so there is room for both.
 * Three structures share the array, each using its own fields of entry i:
 *
 *      heap node i   key, order      a min-heap by key; order names a slot
 *      slot i        obj, id, pos …  one object; pos is its node in the heap
 *      buckets 4i … 4i+3  head[]     hash of obj -> slot, chained by next
 *
 *      head[hash(obj)] --> slot --next--> slot
 *                           | ^
 *                       pos v | order
 *                         heap node            node 0: the smallest key
 *
 * Slots and their links are numbered from 1; 0 is none.
 *
 * Invariants, where n objects are in the table:
 *
 *   T1  order of the nodes 0 … slots-1 is a permutation of the slots; those of
 *       nodes n … are free. (Slot s of node p has pos p.)
 *   T2  key(parent) <= key(child) for all nodes < n.
 *   T3  an object is in at most one slot; it is found by hash(obj) within
 *       TS_CHAIN steps, or else it is not put in.
 *   T4  key is the object's value when it was last looked at: pushed on this CPU,
 *       or re-evaluated, which happens to every entry at most once a slide. It may
 *       be too large for a slide, when the object fades, but never too small.
 *       (Who pushes by ts_push_known() sees to it that T4 and T5 hold when the table is
 *       read: until then an object that it has left need not be in the table, and its key may be too small.)
 *   T5  missed[] bounds the value of every object that is not in the table and was
 *       pushed on this CPU: no such object was larger, when last pushed, than the
 *       greatest missed[] of the last period. Hence the proof: rows that are at
 *       least that large are the true top.
 *   T6  refused is the window of all that was pushed on this CPU to the total alone though
 *       it should have had an object, and of all that was not pushed at all, since how much it
 *       was could not be told: there, of the most that it can have been. So what is not known of an object, which may be all
 *       of it, is never more than the sum of all CPUs' refused: within the period in a
 *       dynamic table, ever in a static one. Hence the proof where something was refused:
 *       rows that are larger by that sum than whatever has no row.
 *   T7 … T9 are about objects that have ended: see keep.h.
 *
 * Cost: the object is found in O(1); its key moves in O(log n), mostly O(1); a push
 * that does not make it into the table is O(1) plus looking at two entries again.
 *
 * Concurrency: only this CPU writes its tables, and only under their bank's claim. A push
 * that interrupts the holder does not get it; it has been summed, its ordering is
 * skipped and counted in `contended`. Others read at any time.
 */
#ifndef TOPSTAT_TABLE_H
#define TOPSTAT_TABLE_H

#include "heap.h"
#include "keep.h"

/* The hash is Fibonacci's (Knuth 6.4); the low bits of an address carry nothing. */
TS_INLINE u32 ts_bucket(u64 obj, u32 mask)
{
	return (u32)((obj * 0x9E3779B97F4A7C15ULL) >> 32) & (4 * mask + 3);
}

/* The slot of the object, from 1; 0: not in the table; -1: it may not be put in. */
TS_INLINE int ts_find(struct ts_table *t, u64 obj, u32 bucket, u32 mask)
{
	u32 slot = ts_entry(t, bucket >> 2, mask)->head[bucket & 3];
	u32 i;

	for (i = 0; i < TS_CHAIN; i++) {
		struct ts_entry *e;

		if (!slot)
			return 0;
		e = ts_entry(t, slot - 1, mask);
		if (e->obj == obj)
			return ts_bound(slot - 1, mask) + 1;
		slot = e->next;
	}
	return -1;
}

/*
 * The same for who is pushed again and again: `at` is where it was found last, on whatever CPU. That is
 * right if the slot there is the object's (T3: no other is), and takes one cache line to see instead
 * of two. A byte has room for the slots of a table of the default size; in larger ones objects in the
 * slots beyond are always looked up.
 *
 * Where objects are mostly pushed on the CPU on which they were last, as tasks are, a family defines
 * ts_find_pushed as this. Where CPUs take turns, as with packets, it would mostly look in vain.
 */
TS_INLINE int ts_find_again(struct ts_table *t, u64 obj, u8 *at, u32 mask)
{
	u32 slot = ts_read(*at);
	int found;

	if (ts_likely(ts_entry(t, slot, mask)->obj == obj))
		return ts_bound(slot, mask) + 1;
	found = ts_find(t, obj, ts_bucket(obj, mask), mask);
	if (found > 0)
		ts_write(*at, found - 1);
	return found;
}

#ifndef ts_find_pushed
#define ts_find_pushed(t, obj, at, mask) ts_find(t, obj, ts_bucket(obj, mask), mask)
#endif

/* Take the slot out of its hash chain. */
TS_INLINE void ts_unlink(struct ts_table *t, u32 slot, u32 mask)
{
	struct ts_entry *e = ts_entry(t, slot, mask);
	u32 bucket = ts_bucket(e->obj, mask);
	struct ts_entry *b = ts_entry(t, bucket >> 2, mask);
	u16 *link = &b->head[bucket & 3];
	u32 i;

	for (i = 0; i < TS_CHAIN; i++) {
		if (ts_is_kept(e->obj) || !*link)
			break;
		if (*link == slot + 1) {
			*link = e->next;
			break;
		}
		link = &ts_entry(t, *link - 1, mask)->next;
	}
	e->obj = 0;
	e->id = 0;
	e->next = 0;
}

/* Put the object into a free slot. */
TS_INLINE void ts_link(struct ts_table *t, u32 slot, u64 obj, u64 id, u32 bucket, u32 mask)
{
	struct ts_entry *e = ts_entry(t, slot, mask);
	u16 *head = &ts_entry(t, bucket >> 2, mask)->head[bucket & 3];

	e->obj = obj;
	e->id = id;
	e->count = 0;
	if (ts_is_kept(obj)) { /* nobody looks for it */
		e->next = 0;
		return;
	}
	e->next = *head;
	*head = slot + 1;
}

/* Take the entry at node `pos` out; the last node takes its place. */
TS_NOINLINE int ts_remove_node(struct ts_table *t, u32 pos, u32 mask)
{
	struct ts_entry *last;
	u32 slot, last_slot, n;
	u64 last_key;

	if (!t || !t->n)
		return 0;
	n = t->n - 1;
	slot = ts_entry(t, pos, mask)->order;
	ts_unlink(t, slot, mask);
	t->n = n;
	last = ts_entry(t, n, mask);
	last_slot = last->order;
	last_key = last->key;
	/* The freed slot goes behind the others (T1). */
	ts_node_set(t, n, 0, slot, mask);
	if (pos != n)
		TS_COLD(ts_settle, t, pos, last_key, last_slot, mask);
	return 0;
}

/* T5: an object of this value is not in the table. */
TS_INLINE void ts_miss(u64 *missed, const struct ts_tick *tick, u64 value, u32 type)
{
	u32 i = type == TS_STATIC ? 0 : ts_bound(tick->mark, TS_MARK_PLACES - 1);

	if (value > missed[i])
		missed[i] = value;
}

/* The same of one of a dynamic table that is turned away, or may have ended (T8). */
TS_INLINE void ts_turn_away(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 value, u32 type)
{
	struct ts_ended *ended = ts_is_kept(obj) ? ts_ended_of(t->place) : NULL;

	if (!ended) {
		ts_miss(t->missed, tick, value, type);
		return;
	}
	ts_add(&ended->unkept, 1);
	ts_miss(ended->missed, tick, value, type);
}

/* Forget what was missed in slides that the period has left behind. */
TS_INLINE void ts_miss_begin(struct ts_table *t, const struct ts_tick *tick)
{
	u64 slide = tick->slide, old = t->missed_slide, gap = TS_MARKS;
	struct ts_ended *ended;
	u32 i;

	if (ts_same_epoch(old, slide)) {
		if (slide <= old)
			return;
		gap = slide - old;
	}
	t->missed_slide = slide;
	ended = ts_ended_of(t->place);
	for (i = 0; i < TS_MARKS; i++) {
		u32 k = ts_bound(ts_mark_index(tick->mark, i), TS_MARK_PLACES - 1);

		if (i >= gap)
			break;
		t->missed[k] = 0;
		t->missed_nested[k] = 0;
		if (ended) {
			ended->missed[k] = 0;
			ended->missed_nested[k] = 0;
		}
	}
}

/*
 * The id that the object at this address has now; 0: it is gone, or there is none. Where an object's
 * end can't be written into it, whoever owns it may define how to tell.
 */
#ifndef ts_id_now
#define ts_id_now ts_peek_id
#endif

TS_INLINE u64 ts_peek_id(u64 obj, ts_view view)
{
	u64 id = 0;

	return ts_peek(&id, sizeof(id), obj + ts_view_id(view)) ? 0 : id;
}

/* The id of what a slot refers to now (T7); 0: it is gone. */
TS_INLINE u64 ts_id_in(struct ts_table *t, u32 slot, u64 obj, ts_view view)
{
	struct ts_kept *kept;

	if (!ts_is_kept(obj))
		return ts_id_now(obj, view);
	kept = ts_kept_of(t->place, slot);
	return kept ? ts_read(kept->id) : 0;
}

/* Copy the window of the object at this address, which may be stale; returns an enum ts_copy. A family whose objects have no windows,
 * since the kernel counts them itself, defines how to make one. */
#ifndef ts_object_peek
#define ts_object_peek(w, obj, view) ts_window_peek((w), (obj) + ts_view_window(view))
#endif

/*
 * Look at the object in the slot again, which has not ended: its value at the table's moment, into *v, by
 * way of a copy in *w.
 */
enum ts_look {
	TS_LOOK_OK = 0,
	TS_LOOK_GONE = 1, /* another object is there, or none */
	TS_LOOK_BUSY = 2, /* it is being written just now: nothing is known */
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
	/* The id after the copy: if it is the same object now, it was then. */
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

/* The same of what is kept there (T7), on any CPU. */
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

/* T4: the slot's key is brought up to date, or it leaves, being gone or aged. */
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

/* The same of what is kept there, which nobody writes to but who has the claim. */
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

/* The same on a push, where every slot gets its turn once a slide. */
TS_INLINE void ts_look_again(struct ts_table *t, const struct ts_tick *tick, u32 slot, ts_view view)
{
	struct ts_entry *e;
	struct ts_value v;

	e = ts_entry(t, slot, ts_view_mask(view));
	if (e->obj && e->pushed_in != tick->stamp && e->seen_in != tick->stamp)
		ts_refresh(t, tick, slot, view, &v);
}

#ifdef TS_KEEPS

/* Apart from that, for the stack. */
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
			TS_COLD(ts_look_at_kept, t, tick, slot_, view);          \
		else                                                             \
			TS_COLD(ts_look_again, t, tick, slot_, view);            \
	} while (0)

#else

#define ts_look_at(t, tick, slot, view) TS_COLD(ts_look_again, t, tick, slot, view)

#endif

/* A push of an object that is not in the table, and whose hash chain has room for it (T3): ts_find() gave 0; or of one that
 * has ended. Its slot, from 1; 0: it is turned away. */
TS_INLINE u32 ts_admit(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 id, u64 value,
			ts_view view)
{
	u32 mask = ts_view_mask(view), entries = mask + 1, pos = t->n, slot;
	struct ts_entry *e;
	u64 root;

	if (pos >= entries) {
		if (value <= t->entry[0].key && t->settled != tick->slide) {
			/* The smallest may have faded since; so may any other. */
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
	TS_COLD(ts_settle, t, pos, value, slot, mask);
	return ts_bound(slot, mask) + 1;
}

/* The object's hash chain is full: it is not put in (T3, T5). */
TS_INLINE void ts_crowd(struct ts_table *t, const struct ts_tick *tick, u64 value, ts_view view)
{
	t->crowded++;
	ts_miss(t->missed, tick, value, ts_view_type(view));
}

/* Order an object that was not pushed just now, by its value. The caller has the bank's claim. */
TS_INLINE void ts_order_again(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 id, u64 value,
			     ts_view view)
{
	u32 mask = ts_view_mask(view);
	int slot = ts_find(t, obj, ts_bucket(obj, mask), mask);

	if (slot > 0) {
		ts_rekey(t, ts_entry(t, slot - 1, mask)->pos, value, mask);
	} else if (!slot) {
		ts_admit(t, tick, obj, id, value, view);
	} else {
		ts_crowd(t, tick, value, view);
	}
}

/*
 * The object in this slot was pushed just now: give it its new key where that leaves its node where it is. Else it returns 0,
 * and the node is to be settled. The caller has the bank's claim.
 */
TS_INLINE int ts_rekey_in_place(struct ts_table *t, const struct ts_tick *tick, u32 slot, u64 id, u64 value, u32 mask)
{
	struct ts_entry *e = ts_entry(t, slot, mask), *node;
	u64 least = ~0ULL;
	u32 pos;

	e->id = id; /* a successor at the same address, perhaps */
	e->pushed = tick->now;
	e->pushed_in = tick->stamp;
	e->count++;
	pos = e->pos;
	node = ts_entry(t, pos, mask);
	/* Mostly the key grows or fades a little and stays between its parent and its
	 * children. */
	if (value >= node->key) {
		if (2 * pos + 1 < t->n)
			least = ts_entry(t, 2 * pos + 1, mask)->key;
		if (2 * pos + 2 < t->n && ts_entry(t, 2 * pos + 2, mask)->key < least)
			least = ts_entry(t, 2 * pos + 2, mask)->key;
		if (value > least)
			return 0;
	} else if (pos && ts_entry(t, (pos - 1) >> 1, mask)->key > value) {
		/* It has faded since this slide began: once a slide is enough (T4). */
		if (e->seen_in == tick->stamp)
			return 1;
		e->seen_in = tick->stamp;
		return 0;
	}
	node->key = value;
	return 1;
}

/* Order the object by its value; `at`: see ts_find_again(). The caller has the bank's claim. */
TS_INLINE void ts_order(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 id, u64 value,
			ts_view view, u8 *at)
{
	u32 mask = ts_view_mask(view);
	int slot;

	slot = ts_find_pushed(t, obj, at, mask);
	if (slot > 0) {
		if (!ts_rekey_in_place(t, tick, slot - 1, id, value, mask))
			TS_COLD(ts_settle, t, ts_entry(t, slot - 1, mask)->pos, value, slot - 1, mask);
		return;
	}
	if (!slot && t->n > mask && value <= t->entry[0].key && t->settled == tick->slide) {
		/* Too small, and nothing in the table can have faded unseen. */
		ts_miss(t->missed, tick, value, ts_view_type(view));
		return;
	}
	if (ts_likely(!slot))
		TS_COLD(ts_admit, t, tick, obj, id, value, view);
	else
		ts_crowd(t, tick, value, view);
}

/*
 * The same where it is little work: the object is in the table already, and its node stays where it is, or there is room, so
 * none has to make way. Else it returns 0, and the object is to be ordered (ts_order()) before the table is read.
 */
TS_INLINE int ts_order_known(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 id, u64 value, ts_view view,
			     u8 *at)
{
	u32 mask = ts_view_mask(view);
	int slot = ts_find_pushed(t, obj, at, mask);

	if (slot > 0)
		return ts_rekey_in_place(t, tick, slot - 1, id, value, mask);
	if (slot || t->n > mask)
		return 0;
	TS_COLD(ts_admit, t, tick, obj, id, value, view);
	return 1;
}

/* The claim was taken: the push is summed, its ordering is skipped. */
TS_APART int ts_contended(struct ts_table *t, const struct ts_tick *tick, u64 value, ts_view view)
{
	if (!t || !tick)
		return 0;
	ts_add(&t->contended, 1);
	ts_miss(t->missed_nested, tick, value, ts_view_type(view));
	return 0;
}

/* The object is gone: out of this CPU's table at once (under the claim). Elsewhere, and
 * where the claim can't be had, its id, which is 0 by now, tells. */
TS_INLINE void ts_forget(struct ts_table *t, u64 obj, u32 mask)
{
	int slot = ts_find(t, obj, ts_bucket(obj, mask), mask);

	if (slot > 0)
		ts_remove_node(t, ts_entry(t, slot - 1, mask)->pos, mask);
}

#endif /* TOPSTAT_TABLE_H */
