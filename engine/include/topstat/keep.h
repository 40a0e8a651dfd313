/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The engine keeps a copy of an object that has ended: in a dynamic table its row stays until it has aged out. The copy has a
 * slot like any object. The slot refers to a copy of the object's last window, because the object's own memory is freed:
 *
 *      slot of an object             obj: its address             found by its hash
 *      slot of an ended object       obj: ts_kept_mark(id), odd   kept[slot]; not in the hash, because no push looks for it
 *
 *   T7  A slot whose obj is odd refers to its own kept[slot] and to no other memory. No CPU writes to the copy's window any
 *       more, so its value only falls. The copy leaves the table when its value is 0, or when a larger object evicts it.
 *   T8  ended.missed[] bounds the value of every ended object that left earlier or found no room, as missed[] does (T5) for
 *       living objects. The two arrays are separate, because a refill orders all living objects again, and cannot find ended
 *       ones.
 *   T9  `ends` changes before an object's id does. A reader can find an object in no table: the object was in the table of
 *       another CPU, and has ended since. The reader then finds that `ends` of the CPU on which the object ended differs from
 *       its earlier value, and reads that CPU again, or for the first time if it was idle. The reader has already seen every
 *       object that ends after all CPUs were read.
 *
 * A family that keeps ended objects defines TS_KEEPS, and
 *
 *   struct ts_ended *ts_ended_of(u32 place)             NULL: this table keeps no ended objects
 *   struct ts_kept *ts_kept_of(u32 place, u32 slot)     NULL: this table keeps no ended objects
 *
 * `place` is ts_table.place.
 */
#ifndef TOPSTAT_KEEP_H
#define TOPSTAT_KEEP_H

#include "abi.h"

/* The copy. The fields that describe the object follow it. */
struct ts_kept {
	u64 id; /* 0: there is no copy, or it is being written */
	struct ts_window window;
};

/* The ended objects of one table on one CPU. */
struct ts_ended {
	u64 ends; /* objects that have ended here; T9 */
	u64 unkept; /* the ended objects that left before they had aged out, or found no room */
	u64 missed[TS_MARKS]; /* T8, by slide */
	u64 missed_nested[TS_MARKS]; /* T8, by slide, written without the claim */
	u64 pad[TS_MARK_PLACES - TS_MARKS]; /* so that every place that the verifier considers possible is in this structure */
};

TS_INLINE u64 ts_kept_mark(u64 id)
{
	return id << 1 | 1;
}

#ifdef TS_KEEPS

TS_INLINE struct ts_ended *ts_ended_of(u32 place);
TS_INLINE struct ts_kept *ts_kept_of(u32 place, u32 slot);

TS_INLINE int ts_is_kept(u64 obj)
{
	return obj & 1;
}

#else

#define ts_ended_of(place) ((void)(place), (struct ts_ended *)NULL)
#define ts_kept_of(place, slot) ((void)(place), (void)(slot), (struct ts_kept *)NULL)
#define ts_is_kept(obj) ((void)(obj), 0)

#endif

#endif /* TOPSTAT_KEEP_H */
