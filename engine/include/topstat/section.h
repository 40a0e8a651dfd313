/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A section: one CPU's part of a snapshot. Every slot of a table is looked at again at one
 * instant, the rows are written one behind the other, and nothing is drained.
 *
 * Two ways (`read_only`):
 *
 *   0  on the table's own CPU, under its bank's claim: what has gone or aged leaves the table,
 *      keys are brought up to date (T4);
 *   1  from any CPU, at any time: the table is left as it is. An entry that is being moved just
 *      then may be seen twice or not at all.
 */
#ifndef TOPSTAT_SECTION_H
#define TOPSTAT_SECTION_H

#include "ended.h"

/* What all rows have; what describes the object follows it. */
struct ts_row {
	u64 id;
	u64 value;
	u64 part[TS_PARTS];
	u64 key; /* the value it was ordered by */
	u64 pushed; /* ticks, when last pushed on this CPU */
	u32 slot;
	u32 count; /* how often ordered on this CPU */
	u32 busy; /* the value is the key, for the object was being written */
	u32 cpu; /* of the object's latest event, from 1, where a family knows it; 0: this section's */
};

struct ts_section {
	struct ts_tick tick; /* the instant */
	u64 missed; /* T5: nothing outside of the rows was larger on this CPU */
	u64 contended;
	u64 no_memory;
	u64 full;
	u64 unmatched;
	u64 crowded;
	u64 opaque;
	u64 missed_ended; /* T8: none that has ended, either */
	u64 unkept;
	u64 ends; /* T9: when it began */
	u32 rows;
	u32 slots; /* in use when it began */
	struct ts_window scratch;
};

/* What to take a section of: the arguments of the program that does. */
struct ts_section_args {
	u64 cpu;
	u64 bank;
	u64 table;
	u64 now; /* the instant, in ticks; 0: now, which the section then tells */
	u64 read_only;
};

/* What to order again: the arguments of a refill, and what it did. */
struct ts_refill {
	u32 bank;
	u32 table;
	u64 objects; /* looked at */
	u64 skipped; /* not ordered, for the claim was taken */
};

/* At an instant, or now where that is 0: see ts_tick_now(). */
TS_INLINE void ts_section_begin(struct ts_section *s, const struct ts_config *c, u64 jiffies, u64 instant)
{
	s->tick.end = 0; /* its slide may be another table's */
	ts_tick_now(&s->tick, c, jiffies, instant);
	s->rows = 0;
}

/* The table's turn, under the claim unless it is only read. */
TS_INLINE void ts_section_table(struct ts_section *s, struct ts_table *t, const struct ts_config *c, u32 read_only)
{
	struct ts_ended *ended = ts_ended_of(t->place);

	s->slots = t->n;
	s->ends = ended ? ts_read(ended->ends) : 0;
	ts_rmb(); /* before the rows; pairs with what is atomic between ts_keep_begin() and the end of an id */
	if (!read_only && c->type != TS_STATIC)
		ts_miss_begin(t, &s->tick);
}

/* The slot's object, into *row; its address, or 0: there is none. */
TS_INLINE u64 ts_section_row(struct ts_section *s, struct ts_table *t, u32 slot, ts_view view, u32 read_only,
			     struct ts_row *row)
{
	u32 mask = ts_view_mask(view), look;
	struct ts_entry *e = ts_entry(t, slot, mask);
	struct ts_value value;
	u64 obj = e->obj, key;

	if (!obj)
		return 0;
	row->id = e->id;
	row->key = key = ts_entry(t, e->pos, mask)->key;
	row->cpu = 0;
	row->slot = slot;
	row->count = e->count;
	row->pushed = e->pushed;
	if (ts_is_kept(obj))
		look = read_only ? ts_evaluate_kept(t, &s->tick, slot, view, &s->scratch, &value) :
				   ts_refresh_kept(t, &s->tick, slot, view, &value);
	else if (read_only)
		look = ts_evaluate(t, &s->tick, slot, view, &s->scratch, &value);
	else
		look = ts_refresh(t, &s->tick, slot, view, &value);
	if (look == TS_LOOK_GONE)
		return 0;
	row->value = value.value;
	row->part[0] = value.part[0];
	row->part[1] = value.part[1];
	row->busy = look == TS_LOOK_BUSY;
	if (row->busy)
		row->value = key;
	return obj;
}

/* The row has been described: it counts, if the same object is there still. */
TS_INLINE void ts_section_keep(struct ts_section *s, struct ts_table *t, const struct ts_row *row, u64 obj, ts_view view)
{
	if (ts_id_in(t, row->slot, obj, view) == row->id)
		s->rows++;
}

TS_INLINE u64 ts_most_missed(const u64 *missed, const u64 *nested)
{
	u64 most = 0;
	u32 i;

	for (i = 0; i < TS_MARKS; i++) {
		if (missed[i] > most)
			most = missed[i];
		if (nested[i] > most)
			most = nested[i];
	}
	return most;
}

TS_INLINE void ts_section_end(struct ts_section *s, const struct ts_table *t)
{
	struct ts_ended *ended = ts_ended_of(t->place);

	s->missed = ts_most_missed(t->missed, t->missed_nested);
	s->missed_ended = ended ? ts_most_missed(ended->missed, ended->missed_nested) : 0;
	s->unkept = ended ? ended->unkept : 0;
	s->contended = t->contended;
	s->no_memory = t->no_memory;
	s->full = t->full;
	s->unmatched = t->unmatched;
	s->crowded = t->crowded;
	s->opaque = t->opaque;
}

/* A section with the rows of a family: struct family_section of struct family_row, which begin with a ts_row. */
#define TS_SECTION(family)                \
	struct family##_section {         \
		struct ts_section head;   \
		struct family##_row row[]; \
	}

#endif /* TOPSTAT_SECTION_H */
