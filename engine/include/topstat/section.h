/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A section: one CPU's part of a snapshot. The reader evaluates every slot of a table at one instant, and writes the rows one
 * behind the other. It drains nothing.
 *
 * There are two ways (`read_only`):
 *
 *   0  on the table's own CPU, under its bank's claim: objects that have gone or aged out leave the table, and keys are brought
 *      up to date (T4);
 *   1  from any CPU, at any time: the table stays unchanged. The reader may see an entry that is being moved twice or not at all.
 */
#ifndef TOPSTAT_SECTION_H
#define TOPSTAT_SECTION_H

#include "ended.h"

/* The fields that all rows have. The fields that describe the object follow them. */
struct ts_row {
	u64 id;
	u64 value;
	u64 part[TS_PARTS];
	u64 key; /* the value that the table had ordered it by */
	u64 pushed; /* ticks, at the latest push on this CPU */
	u32 slot;
	u32 count; /* number of times ordered on this CPU */
	u32 busy; /* the value is the key, because a CPU was writing to the object */
	u32 cpu; /* of the object's latest event, from 1, where a family knows it; 0: this section's CPU */
};

struct ts_section {
	struct ts_tick tick; /* the instant */
	u64 missed; /* T5: no object without a row was larger on this CPU */
	u64 contended;
	u64 no_memory;
	u64 full;
	u64 unmatched;
	u64 crowded;
	u64 opaque;
	u64 missed_ended; /* T8: no ended object without a row was larger */
	u64 unkept;
	u64 ends; /* T9: at the beginning of the section */
	u32 rows;
	u32 slots; /* in use at the beginning of the section */
	struct ts_window scratch;
};

/* The arguments of the program that takes a section. */
struct ts_section_args {
	u64 cpu;
	u64 bank;
	u64 table;
	u64 now; /* the instant, in ticks; 0: the present time, which the program then stores in the section */
	u64 read_only;
};

/* The arguments of a refill, which orders a table's objects again, and its results. */
struct ts_refill {
	u32 bank;
	u32 table;
	u64 objects; /* objects that it has looked at */
	u64 skipped; /* objects that it has not ordered, because the claim was taken */
	u64 number; /* of this refill of the reader */
};

/* Begin a section at an instant; 0: at the present time. See ts_tick_now(). */
TS_INLINE void ts_section_begin(struct ts_section *s, const struct ts_config *c, u64 jiffies, u64 instant)
{
	s->tick.end = 0; /* the tick may hold a slide of another table */
	ts_tick_now(&s->tick, c, jiffies, instant);
	s->rows = 0;
}

/* Begin the table. The caller has the claim, unless `read_only`. */
TS_INLINE void ts_section_table(struct ts_section *s, struct ts_table *t, const struct ts_config *c, u32 read_only)
{
	struct ts_ended *ended = ts_ended_of(t->place);

	s->slots = t->n;
	s->ends = ended ? ts_read(ended->ends) : 0;
	ts_rmb(); /* before the rows; pairs with the atomic operations between ts_keep_begin() and the end of an id */
	if (!read_only && c->type != TS_STATIC)
		ts_miss_begin(t, &s->tick);
}

/* Store the slot's object to *row. Returns the object's address. 0: the slot has no object. */
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

/* The caller has described the row: count it, if the slot still has the same object. */
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

/* A row, and the address of its object. */
struct ts_found {
	struct ts_row row;
	u64 object;
};

/*
 * Take a table's part of a section that has begun, on hosts without a verifier. The rows are `size` bytes apart, and each begins with a
 * struct ts_found; there is room for one more than the table has entries. The caller has the claim, unless `read_only`.
 */
TS_INLINE void ts_section_take(struct ts_section *s, struct ts_table *t, const struct ts_config *c, ts_view view, u32 read_only,
			       void *rows, u64 size)
{
	struct ts_found *found;
	u32 slot;

	ts_section_table(s, t, c, read_only);
	for (slot = 0; slot <= ts_view_mask(view); slot++) {
		found = (void *)((char *)rows + s->rows * size);
		found->object = ts_section_row(s, t, slot, view, read_only, &found->row);
		if (found->object)
			s->rows++;
	}
	ts_section_end(s, t);
}

/* A section with the rows of a family: struct family_section of struct family_row, which begin with a ts_row. */
#define TS_SECTION(family)                \
	struct family##_section {         \
		struct ts_section head;   \
		struct family##_row row[]; \
	}

#endif /* TOPSTAT_SECTION_H */
