/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What is left of an object that has ended: in a dynamic table its row stays until it has aged out. It has a slot like
 * any other, and the slot refers to a copy of what the object last had, for the object's own memory goes with it:
 *
 *      slot of an object             obj: its address             found by its hash
 *      slot of one that has ended    obj: ts_kept_mark(id), odd   kept[slot]; found by nobody, for nobody pushes it
 *
 *   T7  A slot whose obj is odd refers to its own kept[slot] and to no other memory. Its window is not written to any
 *       more, so its value only falls. It leaves the table when that is 0, or for a larger one.
 *   T8  Of those that left before that, or found no room, ended.missed[] bounds the value as missed[] does (T5) of
 *       objects that are there. It is apart, since ordering all objects again finds those alone.
 *   T9  `ends` changes before an object's id does. So a reader who has seen an object in no table, as it was in one of
 *       another CPU and has ended meanwhile, finds `ends` of the CPU that it ended on another one than before, and
 *       reads that CPU again, or for the first time if it had been idle. What ends after all CPUs were read has been
 *       seen by then.
 *
 * Who keeps what has ended defines TS_KEEPS, and
 *
 *   struct ts_ended *ts_ended_of(u32 place)             NULL: nothing is kept of this table
 *   struct ts_kept *ts_kept_of(u32 place, u32 slot)     NULL likewise
 *
 * by what ts_table says of its place.
 */
#ifndef TOPSTAT_KEEP_H
#define TOPSTAT_KEEP_H

#include "abi.h"

/* The copy; what describes the object follows it. */
struct ts_kept {
	u64 id; /* 0: none, or it is being written */
	struct ts_window window;
};

/* Of one table on one CPU. */
struct ts_ended {
	u64 ends; /* objects that have ended here; T9 */
	u64 unkept; /* those of them that left before they had aged out, or found no room */
	u64 missed[TS_MARKS]; /* T8, by slide */
	u64 missed_nested[TS_MARKS]; /* the same, by who did not have the claim */
	u64 pad[TS_MARK_PLACES - TS_MARKS]; /* so that each place that the verifier can think of is in here */
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
