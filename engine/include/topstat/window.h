/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A window turns pushes into a value: the sum of the pushes of the last period.
 *
 * Time is cut into slides (period / 10). Slides are absolute, time / slide, so
 * they are the same for every window of a table. A window keeps its running sum
 * and, for those of the last slides in which it was pushed, a mark: what the sum was when
 * the slide began, and when in the slide the first and the last push came. A slide without
 * pushes has no mark: its sum is that of the next slide that has one, or else the sum of now.
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
 *   W5  the value is exact below 2^TS_VALUE_BITS in a period; the sum is 64 bit.
 *
 * Concurrency: all CPUs push to one window, and none waits. What is found may be too high for a
 * moment, never too low (T4 and T5 of table.h rest on it):
 *
 *   W6  The sum is added to atomically, and before anything says that part of it is old. Readers
 *       read the sum last.
 *   W7  Marks, `slide`, `fading…` and `base` are written only by the CPU that has swapped `done`
 *       to TS_WRITING; it writes `done` when all is in place. The push of a CPU
 *       that can't swap counts as if it had come a moment earlier or later.
 *   W8  With a `base` that is out of date, all that may have faded still counts. So `base` is written
 *       after the fading fields, and read before them.
 *   W9  A reader that wants to be exact reads `slide`, `done` and `base` before and after the marks,
 *       and tries again if they differ or `done` is not of `slide`.
 *
 * While the writer of W7 is kept from running (a virtual CPU, a thread that was preempted) the window
 * does not age, and readers are told so by W9.
 */
#ifndef TOPSTAT_WINDOW_H
#define TOPSTAT_WINDOW_H

#include "platform.h"

/* Slides in a period. */
#define TS_SLIDES 10
/* Marks kept: the slides s-10 ... s, and one more so that a reader whose clock is
 * one slide behind the pushes still finds its oldest. */
#define TS_MARKS 12
/* A bit for each of them. */
#define TS_MARKS_ALL ((1U << TS_MARKS) - 1)
/* Those of the slides that are in the period as a whole. */
#define TS_MARKS_RECENT ((1U << TS_SLIDES) - 1)
/* An amount pushed has two parts, summed apart: received and sent for traffic. */
#define TS_PARTS 2
/* Slide numbers carry the epoch of their configuration above this bit: after a
 * change of period, slides can't be compared and windows start afresh. */
#define TS_EPOCH_SHIFT 48
/* Positions inside a slide are 8 bit fractions. */
#define TS_FRACTIONS 256
/* A value has at most so many bits: sums in marks have 56, and one tells a difference below 0. */
#define TS_VALUE_BITS 55
/* `done` while a CPU writes to the window (W7). No slide has this number. */
#define TS_WRITING (~0ULL)
/* Of a slide, the number without the epoch; and of `done`. */
#define TS_SLIDE_NUMBER ((1ULL << TS_EPOCH_SHIFT) - 1)

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define TS_LOW_BYTE 0
#else
#define TS_LOW_BYTE 7
#endif

/* A table's clock: in which slide a moment lies, and where inside it. */
struct ts_tick {
	u64 now;
	u64 slide; /* with its epoch */
	u64 start; /* of the slide, ticks */
	u64 end;
	u32 fraction;
	u32 epoch;
	/* slide % TS_MARKS, and by it the places of marks in a window (TS_MARK_PLACES): dividing is dear, so once a slide */
	u8 mark;
	u8 place; /* of the slide's mark */
	u8 place_recent; /* of s-9's */
	u8 place_fading; /* of s-10's */
	u32 stamp; /* of slide and epoch: the same in the same slide, else hardly ever */
};

/* sum[0] << 8 | fraction of the first push, sum[1] << 8 | fraction of the last. */
struct ts_mark {
	u64 sum[TS_PARTS];
};

/*
 * The head, then the marks. The head, all that a push within a slide touches, is 64 bytes: one cache line, where the
 * window is aligned; and beside what a family has before its first window.
 *
 * The window is as large as sixteen marks, and its marks are in the last twelve of these places: the verifier knows of
 * the number of a place that it is below 16, and so finds every access in the window. Sixteen marks would need 64 bytes
 * more for each window.
 */
struct ts_window {
	u64 sum[TS_PARTS]; /* of all pushes ever */
	u64 slide; /* of the latest push; 0: never pushed */
	u64 done; /* the slide the marks are complete for, and which slides have one: see ts_done() */
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

#define TS_MARK_PLACES 16 /* a power of two */
#define TS_MARK_FIRST (TS_MARK_PLACES - TS_MARKS)
_Static_assert(sizeof(struct ts_window) == TS_MARK_PLACES * sizeof(struct ts_mark), "every place is in the window");

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

/*
 * `done` of a window that nobody writes to: the number of its slide, and above it for each of the last TS_MARKS slides, the
 * latest one in the lowest bit, whether it has a mark.
 */
TS_INLINE u64 ts_done(u64 slide, u32 marks)
{
	return (slide & TS_SLIDE_NUMBER) | (u64)marks << TS_EPOCH_SHIFT;
}

TS_INLINE u32 ts_done_marks(u64 done)
{
	return done >> TS_EPOCH_SHIFT;
}

/* Whether nobody was writing to the window (W7). */
TS_INLINE int ts_is_done(u64 done, u64 slide)
{
	return !((done ^ slide) & TS_SLIDE_NUMBER);
}

/* The number of an older slide's mark: below TS_MARKS, for age up to TS_MARKS. */
TS_INLINE u32 ts_mark_index(u32 mark, u32 age)
{
	u32 i = mark + TS_MARKS - age;

	return i >= TS_MARKS ? i - TS_MARKS : i;
}

TS_INLINE struct ts_mark *ts_window_place(struct ts_window *w, u32 place)
{
	return (struct ts_mark *)w + ts_bound(place, TS_MARK_PLACES - 1);
}

TS_INLINE struct ts_mark *ts_window_mark(struct ts_window *w, const struct ts_tick *tick, u32 age)
{
	return ts_window_place(w, TS_MARK_FIRST + ts_mark_index(tick->mark, age));
}

/*
 * The age of the oldest of these marks, which are of the last 16 slides at most, and are not none. Without a branch, for the
 * verifier looks at what follows once for each way that leads there. The highest bit is a power of two, 2^n; multiplied by
 * De Bruijn's sequence of four bits it has other bits on top for each n; which, this number tells, digit by digit.
 */
TS_INLINE u32 ts_marks_oldest(u32 marks)
{
	marks |= marks >> 1;
	marks |= marks >> 2;
	marks |= marks >> 4;
	marks |= marks >> 8;
	marks -= marks >> 1;
	return 0xCD7EA84FB6935210ULL >> ((0x09AF * marks >> 12 & 15) * 4) & 15;
}

/* The mark that has the sum of when slide s-9 began: its own, or else the next one's. There is one. */
TS_INLINE struct ts_mark *ts_window_recent(struct ts_window *w, const struct ts_tick *tick, u32 marks)
{
	if (ts_likely(marks >> (TS_SLIDES - 1) & 1))
		return ts_window_place(w, tick->place_recent);
	return ts_window_mark(w, tick, ts_marks_oldest(marks & TS_MARKS_RECENT));
}

/* a - b for the sums in two marks, which hold the low 56 bits of each. */
TS_INLINE u64 ts_mark_diff(u64 a, u64 b)
{
	return ((a & ~255ULL) - (b & ~255ULL)) >> 8;
}

/* The fraction in a mark: a byte of its own, so that others may add to the rest. */
TS_INLINE void ts_mark_fraction(u64 *mark, u8 fraction)
{
	ts_write(((u8 *)mark)[TS_LOW_BYTE], fraction);
}

/*
 * Begin the tick's slide in the window: write its mark, and what pushes in it need. Once per slide and window, and in a
 * time that does not depend on how long ago the latest push was. Nothing is done where another CPU is ahead, or
 * is writing just now (W7).
 */
TS_APART int ts_window_begin(struct ts_window *w, const struct ts_tick *tick)
{
	u64 slide, done, old, gap, fading, sum0, sum1;
	u32 spread, first, last, marks = 0;
	struct ts_mark *mark, *oldest;

	if (!w || !tick)
		return 0;
	slide = tick->slide;
	done = ts_read(w->done);
	old = ts_read(w->slide);
	gap = slide - old;
	if (!gap || !ts_is_done(done, old))
		return 0;
	if (gap < TS_MARKS)
		marks = ts_done_marks(done) << gap & TS_MARKS_ALL;
	else if (old > slide && ts_same_epoch(old, slide)) /* another CPU's clock is ahead of ours */
		return 0;
	/*
	 * Pushes of CPUs that can't swap `done` come after the swap: they are not in these, and so count to
	 * the new slide. Only if the one before it has just ended can they count to that.
	 */
	sum0 = ts_read(w->sum[0]) << 8;
	sum1 = ts_read(w->sum[1]) << 8;
	if (!ts_cas(&w->done, done, TS_WRITING))
		return 0;
	if (marks & 2) { /* somebody may have changed its marks (spread.h), and the sum before them (W6) */
		sum0 = ts_read(w->sum[0]) << 8;
		sum1 = ts_read(w->sum[1]) << 8;
	}
	last = ts_read(w->last);
	ts_write(w->slide, slide);
	if (marks)
		ts_mark_fraction(&ts_window_mark(w, tick, gap)->sum[1], last);
	marks |= 1;
	mark = ts_window_place(w, tick->place);
	ts_write(mark->sum[0], sum0 | (tick->fraction & 255));
	ts_write(mark->sum[1], sum1);
	mark = ts_window_recent(w, tick, marks);
	sum0 = mark->sum[0];
	sum1 = mark->sum[1];
	fading = 0;
	if (marks >> TS_SLIDES & 1) {
		oldest = ts_window_place(w, tick->place_fading);
		fading = ts_mark_diff(sum0, oldest->sum[0]) + ts_mark_diff(sum1, oldest->sum[1]);
	}
	ts_write(w->fading, fading);
	if (fading) {
		first = oldest->sum[0] & 255;
		last = oldest->sum[1] & 255;
		spread = last + 1 - first;
		spread = spread ? spread : 1;
		ts_write(w->fading_first, first);
		ts_write(w->fading_last, last);
		ts_write(w->fading_step, ((fading << 8) + spread - 1) / spread);
	}
	ts_wmb(); /* W8: pairs with ts_window_now() */
	ts_write(w->base, (sum0 >> 8) + (sum1 >> 8));
	ts_wmb(); /* W9: pairs with ts_window_peek() */
	ts_write(w->done, ts_done(slide, marks));
	return 0;
}

/* Add to the window; the caller has begun the slide, or tried to (W7). */
TS_INLINE void ts_window_add(struct ts_window *w, const struct ts_tick *tick, u32 part, u64 amount)
{
	ts_add(&w->sum[part & 1], amount);
	ts_write(w->last, ts_likely(ts_read(w->slide) == tick->slide) ? tick->fraction : TS_FRACTIONS - 1);
}

/* The same of both parts. */
TS_INLINE void ts_window_add_parts(struct ts_window *w, const struct ts_tick *tick, u64 amount0, u64 amount1)
{
	if (amount0)
		ts_add(&w->sum[0], amount0);
	if (amount1)
		ts_add(&w->sum[1], amount1);
	ts_write(w->last, ts_likely(ts_read(w->slide) == tick->slide) ? tick->fraction : TS_FRACTIONS - 1);
}

/* The value right after a push, from what ts_window_begin() prepared. By rounding it may be 1 above
 * ts_window_eval(), never below: T5 bounds by it what is evaluated later. */
TS_INLINE u64 ts_window_now(struct ts_window *w, const struct ts_tick *tick)
{
	u64 base = ts_read(w->base), fading, step, recent;
	u32 first, last, fraction;

	ts_rmb(); /* W8: pairs with ts_window_begin() and ts_window_spread() */
	fading = ts_read(w->fading);
	first = ts_read(w->fading_first);
	last = ts_read(w->fading_last);
	step = ts_read(w->fading_step);
	ts_rmb();
	/* Where the window is in another slide than the tick, nothing is taken to have faded of that. */
	fraction = ts_likely(ts_read(w->slide) == tick->slide) ? tick->fraction : 0;
	ts_rmb(); /* W6 */
	/* Below 2^56 the sum in a mark is the sum itself; beyond, the difference
	 * modulo 2^56 still is. */
	recent = ((ts_read(w->sum[0]) + ts_read(w->sum[1]) - base) << 8) >> 8;
	if (!fading || fraction > last)
		return recent;
	if (fraction <= first)
		return recent + fading;
	return recent + ((step * (last + 1 - fraction) + 128) >> 8);
}

/* What a copy of a window is compared by (W9): the beginning of the head. */
struct ts_window_head {
	u64 sum[TS_PARTS];
	u64 slide;
	u64 done;
	u64 base;
};

enum ts_copy {
	TS_COPY_OK = 0,
	TS_COPY_GONE = 1, /* there is no such memory */
	TS_COPY_BUSY = 2, /* it was written meanwhile: copy it again */
};

/* Copy the window at an address that may be stale, as W9 demands. */
TS_INLINE int ts_window_peek(struct ts_window *w, u64 addr)
{
	struct ts_window_head head = {};

	if (ts_peek(w, sizeof(*w), addr))
		return TS_COPY_GONE;
	ts_rmb(); /* pairs with ts_window_begin() and ts_window_spread() */
	if (ts_peek(&head, sizeof(head), addr))
		return TS_COPY_GONE;
	if (head.slide != w->slide || head.done != w->done || head.base != w->base)
		return TS_COPY_BUSY;
	w->sum[0] = head.sum[0]; /* W6 */
	w->sum[1] = head.sum[1];
	return TS_COPY_OK;
}

/* The same for a static table's count: its sums, into a window's. */
TS_INLINE int ts_count_peek(struct ts_window *w, u64 addr)
{
	return ts_peek(w->sum, sizeof(w->sum), addr + offsetof(struct ts_count, sum)) ? TS_COPY_GONE : TS_COPY_OK;
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
	u64 at = w->slide, slide = tick->slide, recent, fading, fading_all = 0;
	struct ts_mark *mark = NULL, *oldest = NULL;
	u32 part, first = 0, last = 0, marks;

	v->value = v->part[0] = v->part[1] = 0;
	if (!at || !ts_same_epoch(at, slide))
		return 0;
	if (!ts_is_done(w->done, at))
		return 1;
	marks = ts_done_marks(w->done);
	if (at > slide) {
		if (at - slide > TS_MARKS - 1 - TS_SLIDES)
			return 1;
		/* Unless an older slide in the period has a mark. */
		mark = ts_window_mark(w, tick, TS_MARKS - (at - slide));
		marks >>= at - slide;
	} else {
		if (slide - at > TS_SLIDES)
			return 0;
		marks <<= slide - at;
	}
	if (marks & TS_MARKS_RECENT)
		mark = ts_window_recent(w, tick, marks);
	if (marks >> TS_SLIDES & 1) {
		oldest = ts_window_place(w, tick->place_fading);
		first = oldest->sum[0] & 255;
		last = slide - TS_SLIDES == at ? w->last : (u32)(oldest->sum[1] & 255);
	}
	for (part = 0; part < TS_PARTS; part++) {
		u64 sum = w->sum[part] << 8;
		u64 since = mark ? mark->sum[part] : sum;

		fading = oldest ? ts_mark_diff(since, oldest->sum[part]) : 0;
		recent = ts_mark_diff(sum, since);
		if ((fading | recent) >> TS_VALUE_BITS) /* of two moments, a slide apart (W9) */
			return 1;
		fading_all += fading;
		v->value += recent;
		if (!part)
			v->part[0] = v->value + ts_fade(fading, tick->fraction, first, last);
	}
	/* Both parts fade as one, so that the value is rounded once. */
	v->value += ts_fade(fading_all, tick->fraction, first, last);
	v->part[1] = v->value - v->part[0];
	return 0;
}

#endif /* TOPSTAT_WINDOW_H */
