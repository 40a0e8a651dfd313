/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A window turns pushes into a value: the sum of the pushes of the last period.
 *
 * Time is cut into slides (period / 10). Slides are absolute, time / slide, so
 * they are the same for every window of a table. A window keeps its running sum
 * and, for the last slides in which it was pushed, a mark: what the sum was when
 * the slide began, and when in the slide the first and the last push came.
 *
 *      slide   s-10     s-9                                       s
 *            |fading| <-------------- recent --------------->| now |
 *            ^      ^                                              ^
 *        mark[s-10] mark[s-9]                                     sum
 *
 *      value = (sum - mark[s-9]) + weight * (mark[s-9] - mark[s-10])
 *
 * The period begins inside the fading slide. Its pushes are taken as spread
 * evenly from the first to the last of them, and weight is the share that came
 * since the period began. So
 *
 *   W1  a burst (first = last) is counted whole for the period after it, and not
 *       at all one period and one slide after it;
 *   W2  a steady flow is reported without bias: on average, and to the grain of
 *       the clock at every moment;
 *   W3  there is no timer: a window that is not pushed ages when it is read;
 *   W4  pushes are never lost: the sum is the only thing a push must add to, and
 *       marks only say how much of it is old;
 *   W5  the value is exact below 2^55 in a period; the sum is 64 bit.
 *
 * Concurrency: the sum is added to atomically. The first push of a slide, on
 * whatever CPU, writes the marks (whoever wins the swap of `slide`). A push of the
 * old slide that is still under way on another CPU then counts to the new one. In
 * the few instructions between `slide` and `done` the marks are being written: a
 * push takes what it finds (its value may be too high, never too low), a reader
 * that wants to be exact tries again.
 */
#ifndef TOPSTAT_WINDOW_H
#define TOPSTAT_WINDOW_H

#include "platform.h"

/* Slides in a period. */
#define TS_SLIDES 10
/* Marks kept: the slides s-10 ... s, and one more so that a reader whose clock is
 * one slide behind the pushes still finds its oldest. */
#define TS_MARKS 12
/* An amount pushed has two parts, summed apart: received and sent for traffic. */
#define TS_PARTS 2
/* Slide numbers carry the epoch of their configuration above this bit: after a
 * change of period, slides can't be compared and windows start afresh. */
#define TS_EPOCH_SHIFT 48
/* Positions inside a slide are 8 bit fractions. */
#define TS_FRACTIONS 256

/* A table's clock: in which slide a moment lies, and where inside it. */
struct ts_tick {
	u64 now;
	u64 slide; /* with its epoch */
	u64 start; /* of the slide, ticks */
	u64 end;
	u32 fraction;
	u32 epoch;
	u32 mark; /* slide % TS_MARKS: dividing is dear, so once a slide */
	u32 stamp; /* of slide and epoch: the same in the same slide, else hardly ever */
};

/* sum[0] << 8 | fraction of the first push, sum[1] << 8 | fraction of the last. */
struct ts_mark {
	u64 sum[TS_PARTS];
};

/* The head, all that a push within a slide touches, is 64 bytes: one cache line, where whoever
 * owns the window aligns it. */
struct ts_window {
	u64 sum[TS_PARTS]; /* of all pushes ever */
	u64 slide; /* of the latest push; 0: never pushed */
	u64 done; /* the slide the marks are complete for */
	/* What the latest push needs for its value, set once a slide: */
	u64 base; /* mark[s-9], both parts */
	u64 fading; /* sum of slide s-10, both parts */
	u64 fading_step; /* fading * 256 / number of fractions it is spread over, rounded up */
	u32 ordered; /* when last ordered, in the units of ts_config.delay */
	u8 fading_first;
	u8 fading_last;
	u8 last; /* fraction of the latest push */
	u8 slot; /* where its object is in the table: see ts_find_again() */
	struct ts_mark mark[TS_MARKS]; /* of slide x at [x % TS_MARKS] */
};

/* A window that only runs: the value of a static table. */
struct ts_count {
	u64 sum[TS_PARTS];
	u32 ordered;
	u8 slot; /* as a window's */
	u8 pad[3];
};

struct ts_value {
	u64 value;
	u64 part[TS_PARTS]; /* value = part[0] + part[1] */
};

TS_INLINE int ts_same_epoch(u64 a, u64 b)
{
	return a >> TS_EPOCH_SHIFT == b >> TS_EPOCH_SHIFT;
}

/* A window and what must be behind it, whatever that is: all that the verifier can tell of a mark's
 * place is that it is below 16. It is not touched. */
struct ts_window_room {
	struct ts_window window;
	struct ts_mark behind[16 - TS_MARKS];
};

/* Where the mark of an older slide is: below TS_MARKS, for age up to TS_MARKS. */
TS_INLINE u32 ts_mark_index(const struct ts_tick *tick, u32 age)
{
	u32 i = tick->mark + TS_MARKS - age;

	return ts_bound(i >= TS_MARKS ? i - TS_MARKS : i, 15);
}

TS_INLINE struct ts_mark *ts_window_mark(struct ts_window *w, const struct ts_tick *tick, u32 age)
{
	return &w->mark[ts_mark_index(tick, age)];
}

/* a - b for the sums in two marks, which hold the low 56 bits of each. */
TS_INLINE u64 ts_mark_diff(u64 a, u64 b)
{
	return ((a & ~255ULL) - (b & ~255ULL)) >> 8;
}

/*
 * Begin the tick's slide in the window: write the marks of all slides since the latest push.
 * Once per slide and window; at most TS_MARKS steps.
 *
 * The sums, and the place of the last push, are read before the swap of `slide`: until
 * then no push of the new slide can have been added, so none of them is ever taken for
 * an older one.
 */
TS_APART int ts_window_begin_in(struct ts_window_room *room, const struct ts_tick *tick)
{
	u64 gap = TS_MARKS, slide, recent0, recent1, fading, old, sum0, sum1;
	struct ts_mark *mark, *oldest;
	u32 i, spread, last;
	struct ts_window *w;

	if (!room || !tick)
		return 0;
	w = &room->window;
	slide = tick->slide;
	old = ts_read(w->slide);
	sum0 = ts_read(w->sum[0]) << 8;
	sum1 = ts_read(w->sum[1]) << 8;
	last = ts_read(w->last);
	if (old && ts_same_epoch(old, slide)) {
		if (slide <= old) /* another CPU's clock is ahead of ours */
			return 0;
		gap = slide - old;
	}
	if (!ts_cas(&w->slide, old, slide))
		return 0;
	if (gap < TS_MARKS) {
		mark = ts_window_mark(w, tick, gap);
		mark->sum[1] = (mark->sum[1] & ~255ULL) | last;
	}
	for (i = 0; i < TS_MARKS; i++) {
		if (i >= gap)
			break;
		mark = ts_window_mark(w, tick, i);
		mark->sum[0] = sum0 | (i ? 0 : tick->fraction & 255);
		mark->sum[1] = sum1;
	}
	mark = ts_window_mark(w, tick, TS_SLIDES - 1);
	oldest = ts_window_mark(w, tick, TS_SLIDES);
	recent0 = ts_mark_diff(sum0, mark->sum[0]);
	recent1 = ts_mark_diff(sum1, mark->sum[1]);
	fading = ts_mark_diff(mark->sum[0], oldest->sum[0]) +
		 ts_mark_diff(mark->sum[1], oldest->sum[1]);
	w->base = (sum0 >> 8) + (sum1 >> 8) - recent0 - recent1;
	w->fading = fading;
	if (fading) {
		w->fading_first = oldest->sum[0] & 255;
		w->fading_last = oldest->sum[1] & 255;
		spread = w->fading_last + 1 - w->fading_first;
		spread = spread ? spread : 1;
		w->fading_step = ((fading << 8) + spread - 1) / spread;
	}
	ts_barrier();
	ts_write(w->done, slide);
	return 0;
}

TS_INLINE void ts_window_begin(struct ts_window *w, const struct ts_tick *tick)
{
	ts_window_begin_in((struct ts_window_room *)w, tick);
}

/* Add to the window; the caller has begun the slide. */
TS_INLINE void ts_window_add(struct ts_window *w, u32 part, u64 amount, u32 fraction)
{
	ts_add(&w->sum[part & 1], amount);
	w->last = fraction;
}

/* The value right after a push in the slide that the window is in, from what
 * ts_window_begin() prepared. By rounding it may be 1 above ts_window_eval(), never
 * below: T5 bounds by it what is evaluated later. */
TS_INLINE u64 ts_window_now(struct ts_window *w, u32 fraction)
{
	/* Below 2^56 the sum in a mark is the sum itself; beyond, the difference
	 * modulo 2^56 still is. */
	u64 recent = ((w->sum[0] + w->sum[1] - w->base) << 8) >> 8;

	if (!w->fading || fraction > w->fading_last)
		return recent;
	if (fraction <= w->fading_first)
		return recent + w->fading;
	return recent + ((w->fading_step * (w->fading_last + 1 - fraction) + 128) >> 8);
}

/* The share of a fading slide's sum that is still inside the period (W1, W2), to the
 * nearest unit: rounded down, flows of a few pushes per slide would be 1% short. */
TS_INLINE u64 ts_fade(u64 sum, u32 fraction, u32 first, u32 last)
{
	if (fraction <= first)
		return sum;
	if (fraction > last)
		return 0;
	return (sum * (last + 1 - fraction) + (last + 1 - first) / 2) / (last + 1 - first);
}

/*
 * The value at the tick's moment, from a copy of a window. Returns non-zero when
 * the copy was taken while its marks were written, or when the window has gone on by
 * two slides or more: take another copy, or ask for a later moment.
 */
TS_INLINE int ts_window_eval(struct ts_window *w, const struct ts_tick *tick, struct ts_value *v)
{
	u64 at = w->slide, slide = tick->slide, fading, fading_all = 0;
	struct ts_mark *mark, *oldest;
	u32 part, first, last;

	v->value = v->part[0] = v->part[1] = 0;
	if (!at || !ts_same_epoch(at, slide))
		return 0;
	if (w->done != at)
		return 1;
	if (at > slide) {
		if (at - slide > TS_MARKS - 1 - TS_SLIDES)
			return 1;
	} else if (slide - at > TS_SLIDES) {
		return 0;
	}
	mark = ts_window_mark(w, tick, TS_SLIDES - 1);
	oldest = ts_window_mark(w, tick, TS_SLIDES);
	first = oldest->sum[0] & 255;
	last = slide - TS_SLIDES == at ? w->last : (u32)(oldest->sum[1] & 255);
	for (part = 0; part < TS_PARTS; part++) {
		u64 sum = w->sum[part] << 8;
		/* A slide after the latest push began with the sum of now. */
		u64 since = slide - (TS_SLIDES - 1) > at ? sum : mark->sum[part];

		fading = ts_mark_diff(since, oldest->sum[part]);
		fading_all += fading;
		v->value += ts_mark_diff(sum, since);
		if (!part)
			v->part[0] = v->value + ts_fade(fading, tick->fraction, first, last);
	}
	/* Both parts fade as one, so that the value is rounded once. */
	v->value += ts_fade(fading_all, tick->fraction, first, last);
	v->part[1] = v->value - v->part[0];
	return 0;
}

#endif /* TOPSTAT_WINDOW_H */
