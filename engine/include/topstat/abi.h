/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The structures in shared memory: tables, their settings, and the functions that find their parts. Pinned maps consist of these
 * structures, so a change of any of them is a change of every family's ABI.
 */
#ifndef TOPSTAT_ABI_H
#define TOPSTAT_ABI_H

#include "window.h"

/* The numbers of rows that a table can be created for, and the number of entries for each row. */
#define TS_TOP_MIN 1
#define TS_TOP_MAX 1024
#define TS_TOP_DEFAULT 128
#define TS_SPARE 2
#define TS_ENTRIES_MAX (TS_TOP_MAX * TS_SPARE)
/* The heap has at most this many levels: log2(TS_ENTRIES_MAX) + 1. */
#define TS_LEVELS 12
/* The longest hash chain. With four buckets to an entry, a longer chain does not occur (probability below 1e-15 for a full
 * table). */
#define TS_CHAIN 12

enum ts_type {
	TS_DYNAMIC = 1,
	TS_STATIC = 2,
};

/*
 * The settings of a table. User space writes them at any time, the epoch last; every push reads them. Times are in ticks of the
 * table's clock: jiffies where a slide is long enough, otherwise nanoseconds (`precise`).
 */
struct ts_config {
	u32 enabled; /* the switches of root, sample and table together */
	u32 type; /* enum ts_type */
	u32 epoch; /* 16 bit, never 0; a new epoch starts all windows afresh */
	u32 precise; /* the clock: 0 jiffies, 1 nanoseconds */
	u64 slide; /* ticks in a slide */
	u64 fraction; /* 2^56 / slide: converts ticks to fractions without a division */
	u32 delay; /* in units of 2^delay_shift ticks; 0: every push orders */
	u32 delay_shift;
	u32 period_ms; /* as set by the user */
	u32 delay_ms;
	u32 switches; /* of enum ts_switch; `enabled` combines the first three */
	u32 quiet; /* every table of the sample that is switched on has a delay */
	u32 raised_ms; /* the delay that a budget asks for; `delay` is the longer of both */
	u32 pad;
};

enum ts_switch {
	TS_SWITCH_TABLE = 1,
	TS_SWITCH_SAMPLE = 2,
	TS_SWITCH_ROOT = 4,
	TS_SWITCH_ALL = 7,
	TS_SWITCH_SYNC = 8, /* for readers: see topstat/section.h */
};

/* Before the settings of a family's tables: ts_config[banks of a CPU][TS_BANK_TABLES]. */
struct ts_settings {
	u32 generation; /* changes with every setting; written last */
	/* Readers write these two, and may be killed at any time. `refills` is odd while a reader orders all objects of a table
	 * again: nothing can be proven then (T5). `refilling` is the table: bank * TS_BANK_TABLES + table. */
	u32 refills;
	u32 refilling;
	u32 pad[13];
};

/* The settings of a family with this number of banks: struct family_settings. */
#define TS_SETTINGS(family, banks)                              \
	struct family##_settings {                              \
		struct ts_settings all;                         \
		struct ts_config config[banks][TS_BANK_TABLES]; \
	}

/* The sizes that a family's tables were made for; the family's constants begin with it. */
struct ts_shape {
	u32 abi; /* of the family: a program with another ABI can't use the structures */
	u32 top; /* rows of a table */
	u32 entries_mask; /* entries of a table - 1 */
	u32 table_stride; /* bytes from one table of a bank to the next */
};

/* The number of objects of a sample; begun - ended is the number of living objects. */
struct ts_census {
	u64 begun;
	u64 ended;
};

/* Every object begins with this structure. */
struct ts_object {
	u64 id; /* 0: there is no object here, or it has ended */
	u64 self; /* its own address */
};

struct ts_entry {
	/* heap node */
	u64 key;
	/* slot */
	u64 obj; /* address of the object */
	u64 id; /* its id, which differs from the id of a later object at the same address */
	u64 pushed; /* ticks, at the latest push here */
	/* Stamps, because ticks of two clocks or of two periods can't be compared: */
	u32 pushed_in; /* the slide of the latest push here */
	u32 seen_in; /* the slide in which the entry was last evaluated here without a push */
	u32 count; /* number of times ordered here; for `dump` */
	u16 order; /* heap node: its slot */
	u16 pos; /* slot: its heap node */
	u16 next; /* slot: next of the chain */
	u16 head[4]; /* buckets */
	u16 pad[3];
};

/* Why a push lacks the object that it should have, and is refused (T6). */
enum ts_cause {
	TS_NO_MEMORY = 1, /* the kernel had no memory for the object */
	TS_FULL, /* all places for objects of this kind are taken */
	TS_UNMATCHED, /* the observer has not seen the event that names the owner */
};

struct ts_table {
	u32 n; /* entries in use */
	u32 hand; /* the slot that is evaluated next */
	u64 settled; /* the slide in which the hand has visited every slot */
	u64 round; /* the slide in which the hand has begun its round … */
	u32 round_left; /* … and the number of slots that it has not visited yet */
	u32 pad2;
	u32 unknown; /* see ts_mark_unknown() */
	u32 place; /* bank << 8 | number in the bank: the host finds the table by it */
	u64 contended; /* pushes that were summed but not ordered, because the claim was taken */
	u64 no_memory; /* pushes to the total alone, with the enum ts_cause TS_NO_MEMORY */
	u64 crowded; /* pushes that were not ordered, because a hash chain was full */
	u64 missed_slide; /* the slide that missed[] is up to date for */
	u64 missed[TS_MARKS]; /* T5, by slide; [0] alone in a static table */
	u64 missed_nested[TS_MARKS]; /* T5, by slide, written by pushes without the claim */
	u64 opaque; /* events that were not pushed, because the observer could not find their amount */
	/* As no_memory, for other causes. They take former padding: a table that an older build has pinned has 0 here. */
	u64 full; /* TS_FULL */
	u64 unmatched; /* TS_UNMATCHED */
	struct ts_window total __attribute__((aligned(64))); /* all pushes on this CPU */
	struct ts_window refused; /* T6; its slide begins at the first refused amount in it */
	struct ts_window scratch; /* a copy of a window, for evaluation; used under the claim */
	struct ts_entry entry[] __attribute__((aligned(64)));
};

/* A bank has the tables that are pushed to together, on one CPU: the tables of a sample, or four of them where the sample has
 * more than four. The tables follow their bank in memory, each `stride` bytes after the previous one. */
#define TS_BANK_TABLES 4

struct ts_bank {
	u64 claim;
	u64 now; /* the ticks are up to date for this time and for this `generation` */
	u32 generation;
	u32 pad[11];
	struct ts_tick tick[TS_BANK_TABLES];
} __attribute__((aligned(64)));

/*
 * The number of a table's entries, and the offsets of its window and of the id inside an object. It is one word, so it stays in a
 * register, where the verifier knows its value.
 */
typedef u64 ts_view;

/* window, id: offsets from the object's address, below 2^16. The id is 0 once the object is gone. */
TS_INLINE ts_view ts_view_of(u32 mask, u32 type, u32 window, u32 id)
{
	return (u64)mask | (u64)type << 16 | (u64)window << 32 | (u64)id << 48;
}

/* entries - 1 */
TS_INLINE u32 ts_view_mask(ts_view view)
{
	return view & 0xffff;
}

TS_INLINE u32 ts_view_type(ts_view view)
{
	return view >> 16 & 0xffff;
}

TS_INLINE u32 ts_view_window(ts_view view)
{
	return view >> 32 & 0xffff;
}

TS_INLINE u32 ts_view_id(ts_view view)
{
	return view >> 48;
}

TS_INLINE u64 ts_table_size(u32 entries)
{
	return sizeof(struct ts_table) + (u64)entries * sizeof(struct ts_entry);
}

TS_INLINE struct ts_entry *ts_entry(struct ts_table *t, u32 i, u32 mask)
{
	return &t->entry[ts_bound(i, mask)];
}

/* Initialise a table that is all zeroes: every slot is free (T1). */
TS_INLINE void ts_table_init(struct ts_table *t, u32 entries, u32 place)
{
	u32 i;

	t->place = place;
	for (i = 0; i < entries; i++)
		t->entry[i].order = i;
}

/*
 * Set the tick to `now`, by the table's clock. `epoch`: the settings' epoch, which the caller has read before any field that says
 * which clock the table has. The epoch is written last, so the clock and the slide belong to that epoch or to a later one. A tick
 * with the slide of a later epoch carries an epoch that is over. In the opposite order, a slide of the new epoch could have the
 * number of another clock, far from the slides to come. At most one division, once a slide.
 */
TS_INLINE void ts_tick_to(struct ts_tick *tick, const struct ts_config *c, u32 epoch, u64 now)
{
	if (now >= tick->end || now < tick->start || tick->epoch != epoch) {
		u64 length = ts_read(c->slide), slide;

		if (!length)
			length = 1;
		slide = now / length;
		tick->slide = ((u64)epoch << TS_EPOCH_SHIFT) | slide;
		tick->start = slide * length;
		tick->end = tick->start + length;
		tick->epoch = epoch;
		tick->mark = slide % TS_MARKS;
		tick->place = TS_MARK_FIRST + tick->mark;
		tick->place_recent = TS_MARK_FIRST + ts_mark_index(tick->mark, TS_SLIDES - 1);
		tick->place_fading = TS_MARK_FIRST + ts_mark_index(tick->mark, TS_SLIDES);
		tick->stamp = (u32)slide ^ (epoch << 16);
	}
	tick->now = now;
	tick->fraction = (((now - tick->start) * ts_read(c->fraction)) >> 48) & 255;
}

/*
 * Set the tick to the present time of the clock that the settings name; or to `instant` where that is not 0, in ticks of that
 * clock. `jiffies`: the present time of the coarse clock. Settings may change during the call.
 */
TS_INLINE void ts_tick_now(struct ts_tick *tick, const struct ts_config *c, u64 jiffies, u64 instant)
{
	u32 epoch = ts_read(c->epoch);

	ts_rmb(); /* pairs with the writer of settings, which writes the epoch last: see ts_tick_to() */
	if (!instant)
		instant = ts_read(c->precise) ? ts_precise() : jiffies;
	ts_tick_to(tick, c, epoch, instant);
}

#endif /* TOPSTAT_ABI_H */
