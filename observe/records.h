/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Windows of counters that the kernel has itself, for instance a TCP connection's. Nothing is pushed: at the first event of a
 * slide a hook copies the kernel's counters into the object's ring, which is a record. Readers take the present counters; the
 * differences between records are the amounts of the slides.
 *
 *      slide    s-10   s-9          s-7     s
 *             |      |      |      |      |      |
 *             r      r             r      r      ^ the counters of now
 *             '------'-------------'------'------'
 *              amounts of the slides that have a record
 *
 * A record and the counters become a struct ts_window (window.h), so a table of records has the same values, by the same law (W1
 * to W3), as a table that is pushed to, and the engine has one kind of window.
 *
 *   R1  A record holds the counters as of just before the first event of its slide; or as of an earlier moment, if only events of
 *       this slide have come since.
 *   R2  One CPU at a time adds records: the caller holds the object's lock. It writes `done` last, and TS_WRITING before it
 *       writes any other field (as W7 and W9 of window.h). No locked operation is needed.
 *   R3  A reader reads the ring first, and then the counters. So no record is ahead of the counters, except by a half-done update
 *       that a reader without the object's lock may see, and that counts as 0 (records_more()).
 *   R4  Tables whose slides have the same length share one ring. A ring has the tag of its length and of the moment when the
 *       first of the tables was switched on. It is empty for a table with another tag, and the next record makes it anew.
 *   R5  A table counts from the moment `since` on, when it was switched on or its period was changed. A record that is older is
 *       skipped. So in the slide of that moment, only a record that was made after it counts.
 */
#ifndef TOPSTAT_RECORDS_H
#define TOPSTAT_RECORDS_H

#include "observe/host.h"
#include "observe/record_ring.h"

/* Sums in windows begin this far above 0, so that no record is below 0. */
#define RECORDS_BASE (1ULL << 55)
/* A counter that has gone back by less than this was read during a half-done update (R3). */
#define RECORDS_BACK (1U << 20)

/*
 * The tag of a table's ring: of the length of its slides, their clock, and `began` (R4): when a table was switched on while no
 * other table with records was on. Two of them may have one tag; then a ring has older records until the next record is made.
 */
TS_INLINE u64 records_tag(const struct ts_config *c, u64 began)
{
	u64 of = ts_read(c->slide) << 1 | (ts_read(c->precise) & 1);

	return ((of ^ of >> 15 ^ of >> 30 ^ began ^ began >> 15) & 0x7fff) + 1;
}

/* Whether two tables share one ring (R4). */
TS_INLINE int records_are_alike(const struct ts_config *a, const struct ts_config *b)
{
	return ts_read(a->slide) == ts_read(b->slide) && ts_read(a->precise) == ts_read(b->precise);
}

/* The number of a table's ring among the rings of its sample: the number of the first table with this length of a slide. */
TS_INLINE u32 records_ring(const struct ts_config *c, u32 table)
{
	if (table == RECORDS_PACKETS || records_are_alike(&c[RECORDS_PACKETS], &c[table]))
		return RECORDS_PACKETS;
	if (table == RECORDS_BYTES || records_are_alike(&c[RECORDS_BYTES], &c[table]))
		return RECORDS_BYTES;
	return RECORDS_RESENT;
}

/*
 * The present slides of several tables, in jiffies: what they have in common. A hook that makes records at the first event in it
 * makes them at the first event of each table's slide (R1).
 */
struct records_cell {
	u32 slide; /* the length of the shortest slide; 0: less than a jiffy, so that any event may be the first of a slide */
	u32 ago; /* since when all slides last */
	u32 left; /* until the first of them ends */
};

/* Limit the cell to the present slide of one table more. */
TS_INLINE void records_within(struct records_cell *cell, const struct ts_config *c, u64 jiffies)
{
	u32 slide = ts_read(c->precise) ? 0 : ts_read(c->slide), ago = (u32)jiffies - host_slide_start(jiffies, slide);

	if (slide < cell->slide)
		cell->slide = slide;
	if (!slide)
		return;
	if (ago < cell->ago)
		cell->ago = ago;
	if (slide - ago < cell->left)
		cell->left = slide - ago;
}

TS_INLINE struct record *records_at(const struct record_ring *g, u32 i)
{
	return (void *)((char *)g->record + host_item_at(i, TS_MARKS, sizeof(struct record)));
}

/*
 * Add a record of the present slide, unless there is one. `tag`: of the ring. `now`: in ticks of the clock. `active`: the time
 * of the event before this one, in ticks; equal to `now`: unknown.
 */
TS_INLINE int records_add(struct record_ring *g, const struct ts_config *c, u64 tag, const struct records_counts *counts,
			  u64 now, u64 active, u32 cpu)
{
	u64 length = ts_read(c->slide), number, slide, old, gap, start;
	u32 marks = 0, mark, last = TS_FRACTIONS - 1;
	struct record *r;

	if (!length)
		return 0;
	number = now / length;
	slide = tag << TS_EPOCH_SHIFT | (number & TS_SLIDE_NUMBER);
	old = ts_read(g->slide);
	gap = slide - old;
	if (!gap)
		return 0;
	mark = number % TS_MARKS;
	if (gap < TS_MARKS) {
		marks = ts_done_marks(ts_read(g->done)) << gap & TS_MARKS_ALL;
		start = (number - gap) * length;
		if (active >= start && active - start < length)
			last = ((active - start) * ts_read(c->fraction)) >> 48 & (TS_FRACTIONS - 1);
	} else if (old > slide && ts_same_epoch(old, slide)) { /* another CPU's clock is ahead of this one's */
		return 0;
	}
	ts_write(g->done, TS_WRITING);
	ts_wmb(); /* pairs with records_window() */
	if (marks) {
		r = records_at(g, ts_mark_index(mark, gap));
		ts_mark_fraction(&r->bytes[1], last);
	}
	r = records_at(g, mark);
	ts_write(r->bytes[0], counts->bytes[0] << 8 | ((((now - number * length) * ts_read(c->fraction)) >> 48) & 255));
	ts_write(r->bytes[1], counts->bytes[1] << 8 | (TS_FRACTIONS - 1));
	r->packets[0] = counts->packets[0];
	r->packets[1] = counts->packets[1];
	r->resent = counts->resent;
	r->cpu = cpu;
	ts_write(g->slide, slide);
	ts_wmb(); /* pairs with records_window() */
	ts_write(g->done, ts_done(slide, marks | 1));
	return 1;
}

/* The difference between a counter at one moment and at a later one. */
TS_INLINE u64 records_more(u64 earlier, u64 later, u32 of)
{
	u64 more = later - earlier;

	if (of == RECORDS_BYTES) {
		more &= (1ULL << 56) - 1;
		return more > (1ULL << 56) - RECORDS_BACK ? 0 : more;
	}
	more &= ~0U;
	return more > (u64)~0U - RECORDS_BACK ? 0 : more;
}

/* The amount since a record, in one part of a table. */
TS_INLINE u64 records_since(const struct record *r, const struct records_counts *now, u32 of, u32 part)
{
	if (of == RECORDS_BYTES)
		return records_more(r->bytes[part] >> 8, now->bytes[part], of);
	if (of == RECORDS_PACKETS)
		return records_more(r->packets[part], now->packets[part], of);
	return part ? records_more(r->resent, now->resent, of) : 0;
}

/* Without a branch for marks that do not count: the verifier would check each combination of them. */
TS_INLINE void records_marks_of(struct ts_window *w, const struct record_ring *g, const struct records_counts *now, u32 of)
{
	struct ts_mark *m;
	struct record *r;
	u32 i;

	for (i = 0; i < TS_MARKS; i++) {
		r = records_at(g, i);
		m = ts_window_place(w, TS_MARK_FIRST + i);
		m->sum[0] = (RECORDS_BASE - records_since(r, now, of, 0)) << 8 | (r->bytes[0] & 255);
		m->sum[1] = (RECORDS_BASE - records_since(r, now, of, 1)) << 8 | (r->bytes[1] & 255);
	}
}

/*
 * Make a window's marks from the records. A separate function, for the verifier. It has a loop for each counter, so that the marks
 * need no branch by counter.
 */
TS_GLOBAL_FN int records_marks(struct ts_window *w, const struct record_ring *g, const struct records_counts *now, u32 of)
{
	if (!w || !g || !now)
		return 0;
	if (of == RECORDS_PACKETS)
		records_marks_of(w, g, now, RECORDS_PACKETS);
	else if (of == RECORDS_BYTES)
		records_marks_of(w, g, now, RECORDS_BYTES);
	else
		records_marks_of(w, g, now, RECORDS_RESENT);
	return 0;
}

/* The bits of a ring's marks that count: of records made from `since` on, to the grain of a fraction (R5). */
TS_INLINE u32 records_counted(const struct record_ring *g, u64 number, u32 marks, const struct ts_config *c, u64 length,
			      u64 since)
{
	u64 from = since / length, back = number - from, fraction;
	struct record *r;

	if (from > number)
		return 0;
	if (back >= TS_MARKS)
		return marks;
	r = records_at(g, ts_mark_index(number % TS_MARKS, back));
	fraction = ((since - from * length) * ts_read(c->fraction)) >> 48 & 255;
	return marks & ((((r->bytes[0] & 255) < fraction ? 1U : 2U) << back) - 1);
}

/*
 * Make the window of a table, from the ring with this tag and the present counters. `since`: R5, in ticks of the table's clock.
 * `active`: the time of the last event, in ticks; 0: unknown. Returns an enum ts_copy: TS_COPY_BUSY while a CPU makes a record.
 */
TS_INLINE int records_window(struct ts_window *w, const struct record_ring *g, const struct records_counts *now, u32 of,
			     const struct ts_config *c, u64 tag, u64 since, u64 active)
{
	u64 slide = ts_read(g->slide), done = ts_read(g->done), length = ts_read(c->slide), number, start;
	u32 marks;

	w->sum[0] = w->sum[1] = RECORDS_BASE;
	w->slide = w->done = w->fading = 0;
	/* ts_window_now() takes a window that can't be evaluated for the largest possible one. */
	w->base = 1;
	if (!length || slide >> TS_EPOCH_SHIFT != tag)
		return TS_COPY_OK;
	if (!ts_is_done(done, slide))
		return TS_COPY_BUSY;
	ts_rmb(); /* pairs with records_add() */
	number = slide & TS_SLIDE_NUMBER;
	records_marks(w, g, now, of);
	marks = records_counted(g, number, ts_done_marks(done) & TS_MARKS_ALL, c, length, since);
	ts_rmb(); /* pairs with records_add() */
	if (ts_read(g->done) != done || ts_read(g->slide) != slide)
		return TS_COPY_BUSY;
	start = number * length;
	w->last = active >= start && active - start < length ? ((active - start) * ts_read(c->fraction)) >> 48 & 255 :
							       TS_FRACTIONS - 1;
	w->slide = (u64)ts_read(c->epoch) << TS_EPOCH_SHIFT | number;
	w->done = ts_done(w->slide, marks);
	return TS_COPY_OK;
}

/*
 * The index of the ring's oldest record. `done`: of the ring. The amount since that record is an upper bound of the value of any
 * window of the ring.
 */
TS_INLINE u32 records_oldest(u64 slide, u64 done)
{
	u32 marks = ts_done_marks(done) & TS_MARKS_ALL;

	return ts_mark_index((slide & TS_SLIDE_NUMBER) % TS_MARKS, marks ? ts_marks_oldest(marks) : 0);
}

/*
 * Whether a table has counted nothing since the ring's oldest record, so that its value is 0 at any moment. False also where that can't
 * be told: a CPU makes a record, or the ring has another tag.
 */
TS_INLINE int records_are_still(const struct record_ring *g, const struct records_counts *now, u32 of, u64 tag)
{
	u64 slide = ts_read(g->slide), done = ts_read(g->done), more;
	const struct record *r;

	if (slide >> TS_EPOCH_SHIFT != tag || !ts_is_done(done, slide))
		return 0;
	ts_rmb(); /* pairs with records_add() */
	r = records_at(g, records_oldest(slide, done));
	more = records_since(r, now, of, 0) | records_since(r, now, of, 1);
	ts_rmb(); /* pairs with records_add() */
	return !more && ts_read(g->done) == done && ts_read(g->slide) == slide;
}

/*
 * Distribute an amount, `untaken`, over the slides of a window, from the newest on: a total lacks the amount, which is the newest
 * part of the window's sum. Returns the share of the slide with this age (0: the window's newest slide), in one part. `given`:
 * the sum of the shares of newer slides, which grows by the share.
 */
TS_GLOBAL_FN u64 records_share(struct ts_window *w, u32 age, u32 part, u64 untaken, u64 *given)
{
	u64 back, share;
	u32 mark;

	if (!w || !given || !(ts_done_marks(w->done) >> (age & 15) & 1))
		return 0;
	part &= 1;
	mark = (w->slide & TS_SLIDE_NUMBER) % TS_MARKS;
	back = ts_mark_diff(w->sum[part] << 8, ts_window_place(w, TS_MARK_FIRST + ts_mark_index(mark, age))->sum[part]);
	if (back > untaken)
		back = untaken;
	share = back > *given ? back - *given : 0;
	*given += share;
	return share;
}

#endif /* TOPSTAT_RECORDS_H */
