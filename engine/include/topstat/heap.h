/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The heap of a table: a min-heap by key in the nodes of its entries (T1, T2 in table.h). Objects stay in their slots; moving a
 * node moves a key and the number of a slot.
 */
#ifndef TOPSTAT_HEAP_H
#define TOPSTAT_HEAP_H

#include "abi.h"

TS_INLINE void ts_node_set(struct ts_table *t, u32 pos, u64 key, u32 slot, u32 mask)
{
	struct ts_entry *node = ts_entry(t, pos, mask);

	node->key = key;
	node->order = slot;
	ts_entry(t, slot, mask)->pos = pos;
}

/* Give node `pos` a key that may be too large for its place: restores T2 downwards. */
TS_INLINE void ts_sift_down(struct ts_table *t, u32 pos, u64 key, u32 slot, u32 n, u32 mask)
{
	u32 level;

	for (level = 0; level < TS_LEVELS; level++) {
		u32 child = 2 * pos + 1;
		struct ts_entry *c;

		if (child >= n)
			break;
		c = ts_entry(t, child, mask);
		if (child + 1 < n) {
			struct ts_entry *right = ts_entry(t, child + 1, mask);

			if (right->key < c->key) {
				c = right;
				child++;
			}
		}
		if (c->key >= key)
			break;
		ts_node_set(t, pos, c->key, c->order, mask);
		pos = ts_mark_unknown(&t->unknown, child);
	}
	ts_node_set(t, pos, key, slot, mask);
}

/* Give node `pos` a key that may be too small for its place: restores T2 upwards. */
TS_INLINE void ts_sift_up(struct ts_table *t, u32 pos, u64 key, u32 slot, u32 mask)
{
	u32 level;

	for (level = 0; level < TS_LEVELS; level++) {
		u32 parent = (pos - 1) >> 1;
		struct ts_entry *p;

		if (!pos)
			break;
		p = ts_entry(t, parent, mask);
		if (p->key <= key)
			break;
		ts_node_set(t, pos, p->key, p->order, mask);
		pos = ts_mark_unknown(&t->unknown, parent);
	}
	ts_node_set(t, pos, key, slot, mask);
}

/* Put a key and its slot at node `pos`, or above or below it, so that T2 holds. */
TS_INLINE void ts_settle(struct ts_table *t, u32 pos, u64 key, u32 slot, u32 mask)
{
	if (pos && ts_entry(t, (pos - 1) >> 1, mask)->key > key)
		ts_sift_up(t, pos, key, slot, mask);
	else
		ts_sift_down(t, pos, key, slot, t->n, mask);
}

/* Give the entry at node `pos` its new key. */
TS_INLINE void ts_rekey(struct ts_table *t, u32 pos, u64 key, u32 mask)
{
	struct ts_entry *node = ts_entry(t, pos, mask);

	if (key != node->key)
		TS_COLD_CALL(ts_settle, t, pos, key, node->order, mask);
}

#endif /* TOPSTAT_HEAP_H */
