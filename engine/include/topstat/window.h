/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A window turns pushes into a value: the sum of the pushes of the last period.
 *
 * Time is divided into slides (period / 10). A slide's number is time / slide, so all windows of a table have the same slides.
 * A window keeps its running sum. For each of the last slides in which it was pushed, it also keeps a mark: the sum at the
 * beginning of the slide, and the times of the slide's first and last push. A slide without pushes has no mark: the sum at its
 * beginning is the mark of the next slide that has one, or otherwise the present sum.
 *
 *      slide   s-10     s-9                                       s
 *            |fading| <-------------- recent --------------->| now |
 *            ^      ^                                              ^
 *        mark[s-10] mark[s-9]                                     sum
 *
 *      value = (sum - mark[s-9]) + weight * (mark[s-9] - mark[s-10])
 *
 * The period begins inside the fading slide. The window takes the pushes of that slide as spread evenly from its first push to
 * its last push, and weight is the share that came since the period began. So
 *
 *   W1  a burst (first = last) counts whole for the period after it, and not at all one period and one slide after it;
 *   W2  a steady flow is reported without bias: on average, and to the grain of the clock at every moment;
 *   W3  there is no timer: a window without pushes ages when it is read;
 *   W4  pushes are never lost: the sum is the only field that a push must add to, and marks only say how much of the sum
 *       is old;
 *   W5  the value is exact below 2^TS_VALUE_BITS in a period; the sum is 64 bit.
 *
 * Concurrency: all CPUs push to one window, and none waits. A reader may find a value that is too high for that moment, and never
 * one that is too low (T4 and T5 of table.h depend on it):
 *
 *   W6  A push adds to the sum atomically, and before any field says that part of the amount is old. Readers read the sum last.
 *   W7  Only the CPU that has swapped `done` to TS_WRITING writes marks, `slide`, `fading…` and `base`. It writes `done` when
 *       all of them are in place. The push of a CPU that can't swap counts as if it had come a moment earlier or later.
 *   W8  With an outdated `base`, everything that may have faded still counts. So `base` is written after the fading fields, and
 *       read before them.
 *   W9  A reader that needs an exact value reads `slide`, `done` and `base` before and after the marks, and tries again if they
 *       differ or `done` is not of `slide`.
 *
 * While the writer of W7 does not run (a descheduled virtual CPU, a preempted thread), the window does not age, and W9 shows this
 * to readers.
 */
#ifndef TOPSTAT_WINDOW_H
#define TOPSTAT_WINDOW_H

#include "platform.h"

/* Slides in a period. */
#define TS_SLIDES 10
/* The number of marks: for the slides s-10 ... s, and one more, so that a reader whose clock is one slide behind the pushes
 * still finds its oldest mark. */
#define TS_MARKS 12
/* A bit for each mark. */
#define TS_MARKS_ALL ((1U << TS_MARKS) - 1)
/* The bits of the slides that lie completely in the period. */
#define TS_MARKS_RECENT ((1U << TS_SLIDES) - 1)
/* An amount has two parts with separate sums: received and sent, for traffic. */
#define TS_PARTS 2
/* Above this bit, slide numbers have the epoch of their configuration: after a change of the period, slides can't be compared
 * and windows start afresh. */
#define TS_EPOCH_SHIFT 48
/* Positions inside a slide are 8-bit fractions. */
#define TS_FRACTIONS 256
/* A value has at most 55 bits: a sum in a mark has 56, and one bit shows a difference below 0. */
#define TS_VALUE_BITS 55
/* `done` while a CPU writes to the window (W7). No slide has this number. */
#define TS_WRITING (~0ULL)
/* The bits of a slide, and of `done`, that hold the number without the epoch. */
#define TS_SLIDE_NUMBER ((1ULL << TS_EPOCH_SHIFT) - 1)

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define TS_LOW_BYTE 0
#else
#define TS_LOW_BYTE 7
#endif

/* A moment on a table's clock: its slide, and its position inside the slide. */
struct ts_tick {
	u64 now;
	u64 slide; /* with its epoch */
	u64 start; /* of the slide, ticks */
	u64 end;
	u32 fraction;
	u32 epoch;
	/* slide % TS_MARKS, and from it the places of marks in a window (TS_MARK_PLACES): a division is slow, so once a slide */
	u8 mark;
	u8 place; /* of the slide's mark */
	u8 place_recent; /* of the mark of s-9 */
	u8 place_fading; /* of the mark of s-10 */
	u32 stamp; /* of slide and epoch: equal stamps mean the same slide, with very rare exceptions */
};

/* sum[0] << 8 | fraction of the first push, sum[1] << 8 | fraction of the last. */
struct ts_mark {
	u64 sum[TS_PARTS];
};

/*
 * The head is followed by the marks. A push within a slide touches the head alone. The head has 64 bytes: one cache line, where
 * the window is aligned; and it lies next to the fields that a family has before its first window.
 *
 * The window is as large as sixteen marks, and its marks take the last twelve of these places: the verifier knows that the number
 * of a place is below 16, and so finds every access inside the window. A head before sixteen marks would need 64 bytes more for
 * each window.
 */
struct ts_window {
	u64 sum[TS_PARTS]; /* of all pushes ever */
	u64 slide; /* of the latest push; 0: never pushed */
	u64 done; /* the slide that the marks are complete for, and the slides that have a mark: see ts_done() */
	/* The latest push computes its value from these fields, which are set once a slide: */
	u64 base; /* mark[s-9], both parts */
	u64 fading; /* sum of slide s-10, both parts */
	u64 fading_step; /* fading * 256 / number of fractions that it is spread over, rounded up */
	u32 ordered; /* time of the latest ordering, in the units of ts_config.delay */
	u8 fading_first;
	u8 fading_last;
	u8 last; /* fraction of the latest push */
	u8 slot; /* the object's slot in the table: see ts_find_again() */
	struct ts_mark mark[TS_MARKS]; /* of slide x at [x % TS_MARKS] */
};

#define TS_MARK_PLACES 16 /* a power of two */
#define TS_MARK_FIRST (TS_MARK_PLACES - TS_MARKS)
_Static_assert(sizeof(struct ts_window) == TS_MARK_PLACES * sizeof(struct ts_mark), "every place is in the window");

/* Sums without marks: the value of a static table. */
struct ts_count {
	u64 sum[TS_PARTS];
	u32 ordered;
	u8 slot; /* as in ts_window */
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
 * `done` of a window without a writer. The low bits are the number of its slide. Above them is a bit for each of the last
 * TS_MARKS slides, the latest slide in the lowest bit, that is set where the slide has a mark.
 */
TS_INLINE u64 ts_done(u64 slide, u32 marks)
{
	return (slide & TS_SLIDE_NUMBER) | (u64)marks << TS_EPOCH_SHIFT;
}

TS_INLINE u32 ts_done_marks(u64 done)
{
	return done >> TS_EPOCH_SHIFT;
}

/* Whether no CPU was writing to the window (W7). */
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
 * The age of the oldest of these marks. They belong to the last 16 slides at most, and there is at least one. The function has no
 * branch, because the verifier checks the code that follows once for each path that leads to it. The highest bit is a power of
 * two, 2^n. Multiplied by De Bruijn's sequence of four bits it gives other top bits for each n; the constant maps them to n, one
 * hexadecimal digit for each.
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

/* The mark that holds the sum at the beginning of slide s-9: the slide's own mark, or otherwise the next one. There is one. */
TS_INLINE struct ts_mark *ts_window_recent(struct ts_window *w, const struct ts_tick *tick, u32 marks)
{
	if (ts_likely(marks >> (TS_SLIDES - 1) & 1))
		return ts_window_place(w, tick->place_recent);
	return ts_window_mark(w, tick, ts_marks_oldest(marks & TS_MARKS_RECENT));
}

/* a - b, for the sums of two marks. A mark holds the low 56 bits of a sum. */
TS_INLINE u64 ts_mark_diff(u64 a, u64 b)
{
	return ((a & ~255ULL) - (b & ~255ULL)) >> 8;
}

/* Set the fraction in a mark. It is one byte, so that another context may add to the other bytes. */
TS_INLINE void ts_mark_fraction(u64 *mark, u8 fraction)
{
	ts_write(((u8 *)mark)[TS_LOW_BYTE], fraction);
}

/*
 * Begin the tick's slide in the window: write its mark, and the fields that pushes in it use. This happens once per slide and
 * window, and takes a time that does not depend on the age of the latest push. Does nothing where another CPU is ahead, or is
 * writing to the window (W7).
 */
TS_GLOBAL_FN int ts_window_begin(struct ts_window *w, const struct ts_tick *tick)
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
	else if (old > slide && ts_same_epoch(old, slide)) /* another CPU's clock is ahead of this one's */
		return 0;
	/*
	 * Pushes of CPUs that can't swap `done` come after the swap: these sums do not contain them, so they count to the new
	 * slide. They can count to the slide before it only if that slide has just ended.
	 */
	sum0 = ts_read(w->sum[0]) << 8;
	sum1 = ts_read(w->sum[1]) << 8;
	if (!ts_cas(&w->done, done, TS_WRITING))
		return 0;
	if (marks & 2) { /* another CPU may have changed the marks (spread.h), and the sum before them (W6) */
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
	ts_publish(w->base, (sum0 >> 8) + (sum1 >> 8)); /* W8: pairs with ts_window_now() */
	ts_publish(w->done, ts_done(slide, marks)); /* W9: pairs with ts_window_peek() */
	return 0;
}

/* Add to the window. The caller has called ts_window_begin(), which may have done nothing (W7). */
TS_INLINE void ts_window_add(struct ts_window *w, const struct ts_tick *tick, u32 part, u64 amount)
{
	ts_add(&w->sum[part & 1], amount);
	ts_write(w->last, ts_likely(ts_read(w->slide) == tick->slide) ? tick->fraction : TS_FRACTIONS - 1);
}

/* As ts_window_add(), for both parts. */
TS_INLINE void ts_window_add_parts(struct ts_window *w, const struct ts_tick *tick, u64 amount0, u64 amount1)
{
	if (amount0)
		ts_add(&w->sum[0], amount0);
	if (amount1)
		ts_add(&w->sum[1], amount1);
	ts_write(w->last, ts_likely(ts_read(w->slide) == tick->slide) ? tick->fraction : TS_FRACTIONS - 1);
}

/* The value right after a push, from the fields that ts_window_begin() prepared. By rounding it may be 1 above ts_window_eval(),
 * and is never below: T5 uses it as a bound of later evaluations. */
TS_INLINE u64 ts_window_now(struct ts_window *w, const struct ts_tick *tick)
{
	u64 base = ts_read(w->base), fading, step, recent;
	u32 first, last, fraction;

	ts_rmb(); /* W8: pairs with ts_window_begin() and ts_window_spread() */
	fading = ts_read(w->fading);
	first = ts_read(w->fading_first);
	last = ts_read(w->fading_last);
	step = ts_read(w->fading_step);
	ts_rmb(); /* W8: these fields are no later than `slide` */
	/* Where the window and the tick are in different slides, the whole fading slide counts. */
	fraction = ts_likely(ts_read(w->slide) == tick->slide) ? tick->fraction : 0;
	ts_rmb(); /* W6 */
	/* Below 2^56 the sum in a mark equals the sum; above, the difference modulo 2^56 is still right. */
	recent = ((ts_read(w->sum[0]) + ts_read(w->sum[1]) - base) << 8) >> 8;
	if (!fading || fraction > last)
		return recent;
	if (fraction <= first)
		return recent + fading;
	return recent + ((step * (last + 1 - fraction) + 128) >> 8);
}

/* The beginning of a window's head, which a reader compares with its copy (W9). */
struct ts_window_head {
	u64 sum[TS_PARTS];
	u64 slide;
	u64 done;
	u64 base;
};

enum ts_copy {
	TS_COPY_OK = 0,
	TS_COPY_GONE = 1, /* there is no memory at the address */
	TS_COPY_BUSY = 2, /* a CPU was writing to it: copy it again */
};

/* Copy the window at an address that may be stale, by the law W9. */
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

/* As ts_window_peek(), for a static table's count: copies its sums into the window's sums. */
TS_INLINE int ts_count_peek(struct ts_window *w, u64 addr)
{
	return ts_peek(w->sum, sizeof(w->sum), addr + offsetof(struct ts_count, sum)) ? TS_COPY_GONE : TS_COPY_OK;
}

/* The share of a fading slide's sum that is still inside the period (W1, W2), rounded to the nearest unit: rounded down, flows of
 * a few pushes per slide would be 1% short. */
TS_INLINE u64 ts_fade(u64 sum, u32 fraction, u32 first, u32 last)
{
	if (fraction <= first)
		return sum;
	if (fraction > last)
		return 0;
	return (sum * (last + 1 - fraction) + (last + 1 - first) / 2) / (last + 1 - first);
}

/*
 * Evaluate a copy of a window at the tick's moment. Returns non-zero when the copy was taken while a CPU wrote the marks, or when
 * the window is two or more slides ahead of the tick: the caller takes another copy, or evaluates at a later moment.
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
		/* The window's newest slide, unless an older slide in the period has a mark. */
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
		/* The sums are of two moments, a slide apart (W9). */
		if ((fading | recent) >> TS_VALUE_BITS)
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
