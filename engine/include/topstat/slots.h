/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The slots of a table: an object is found, put in and taken out, and the values of objects without a slot are recorded. The
 * invariants T1 … T9 are in table.h.
 */
#ifndef TOPSTAT_SLOTS_H
#define TOPSTAT_SLOTS_H

#include "heap.h"
#include "keep.h"

/* The hash is Fibonacci's (Knuth 6.4), because the low bits of an address carry no information. */
TS_INLINE u32 ts_bucket(u64 obj, u32 mask)
{
	return (u32)((obj * 0x9E3779B97F4A7C15ULL) >> 32) & (4 * mask + 3);
}

/* The slot of the object, from 1. 0: the object is not in the table. -1: it may not be put in. */
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
 * As ts_find(), for objects that are pushed again and again: `at` is the slot in which the object was found last, on any CPU. The
 * slot is right if it holds the object (T3: no other slot does), and this check touches one cache line instead of two. A byte has
 * room for the slots of a table of the default size; in larger tables, objects in higher slots are always looked up.
 *
 * Where most pushes of an object come on the CPU of the previous push, as with tasks, a family defines ts_find_pushed as this
 * function. Where CPUs take turns, as with packets, the check would mostly fail.
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
	if (ts_is_kept(obj)) { /* it is never looked up by hash */
		e->next = 0;
		return;
	}
	e->next = *head;
	*head = slot + 1;
}

/* Remove the entry at node `pos`. The last node moves to its place. */
TS_INLINE void ts_remove_node(struct ts_table *t, u32 pos, u32 mask)
{
	struct ts_entry *last;
	u32 slot, last_slot, n;
	u64 last_key;

	if (!t->n)
		return;
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
		TS_COLD_CALL(ts_settle, t, pos, last_key, last_slot, mask);
}

/* T5: record the value of an object that is not in the table. */
TS_INLINE void ts_miss(u64 *missed, const struct ts_tick *tick, u64 value, u32 type)
{
	u32 i = type == TS_STATIC ? 0 : ts_bound(tick->mark, TS_MARK_PLACES - 1);

	if (value > missed[i])
		missed[i] = value;
}

/* As ts_miss(), for an object that is turned away or evicted; it may be one that has ended (T8). */
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

/* Clear missed[] of the slides that the period has left behind. */
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

#endif /* TOPSTAT_SLOTS_H */
