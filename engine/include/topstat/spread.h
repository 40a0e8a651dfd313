/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A push of what was used over time, such as time itself: it is pushed when it ends, but most of
 * it may belong to slides that have gone by.
 *
 *      slide   s-3        s-2        s-1        s
 *            |      xxxx|xxxxxxxxxx|xxxxxxxxxx|xxx          one push, now
 *                   ^since                    ^  ^now
 *                       +          +          +             added to these marks
 *
 * What falls into the slide of now is pushed as ever. The rest is added here to the sum and, by
 * what had been used when each slide began, to the marks since then: as if it had been pushed
 * evenly all the while, which keeps W1 … W4.
 *
 * Concurrency: as for a push. The sum grows before the marks do, so what is read in between is
 * too high, never too low.
 */
#ifndef TOPSTAT_SPREAD_H
#define TOPSTAT_SPREAD_H

#include "push.h"

/* Parts of an amount are computed with so many bits behind the point. Amounts must be below
 * 2^(64 - 17): nanoseconds of a day. */
#define TS_SPREAD_SHIFT 16

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define TS_LOW_BYTE 0
#else
#define TS_LOW_BYTE 7
#endif

/* The fraction in a mark: a byte of its own, so that others may add to the rest. */
TS_INLINE void ts_mark_fraction(u64 *mark, u8 fraction)
{
	ts_write(((u8 *)mark)[TS_LOW_BYTE], fraction);
}

/*
 * Add what was used evenly from `since` to the beginning of the tick's slide (both in ticks), and
 * on. The caller has begun the slide.
 */
TS_NOINLINE int ts_window_spread(struct ts_window *w, const struct ts_tick *tick, u64 since, u64 amount, u32 part)
{
	u64 length, over, rate, back, share, recent = 0, oldest = 0, spread;
	struct ts_mark *mark;
	u32 i;

	if (!w || !tick || since >= tick->start)
		return 0;
	length = tick->end - tick->start;
	over = tick->start - since;
	ts_add(&w->sum[part & 1], amount);
	rate = (amount << TS_SPREAD_SHIFT) / over;
	ts_mark_fraction(&ts_window_mark(w, tick, 0)->sum[0], 0);
	for (i = 0; i <= TS_SLIDES; i++) {
		back = i * length;
		if (back >= over)
			break;
		share = amount - (rate * back >> TS_SPREAD_SHIFT);
		ts_add(&ts_window_mark(w, tick, i)->sum[part & 1], share << 8);
		if (i == TS_SLIDES - 1)
			recent = share;
		if (i == TS_SLIDES) {
			oldest = share;
			break;
		}
		/* The slide before this one was used to its end, and maybe from its beginning. */
		mark = ts_window_mark(w, tick, i + 1);
		ts_mark_fraction(&mark->sum[1], TS_FRACTIONS - 1);
		if (back + length < over)
			ts_mark_fraction(&mark->sum[0], 0);
	}
	if (!recent)
		return 0;
	mark = ts_window_mark(w, tick, TS_SLIDES);
	w->fading += recent - oldest;
	w->fading_first = mark->sum[0] & 255;
	w->fading_last = TS_FRACTIONS - 1;
	spread = TS_FRACTIONS - w->fading_first;
	w->fading_step = ((w->fading << 8) + spread - 1) / spread;
	ts_barrier();
	ts_add(&w->base, recent);
	return 0;
}

/* Begin the tick's slide in the window, for something that was used since then: not only since it
 * is pushed. */
TS_INLINE void ts_window_begin_since(struct ts_window *w, const struct ts_tick *tick, const struct ts_config *c,
				     u64 since)
{
	ts_window_begin(w, tick);
	since = since > tick->start ? since - tick->start : 0;
	ts_mark_fraction(&ts_window_mark(w, tick, 0)->sum[0], since * ts_read(c->fraction) >> 48);
}

/* How much of an amount that was used evenly from `since` to `now` (ticks) came before the
 * tick's slide began: to be spread, and the rest to be pushed. */
TS_INLINE u64 ts_spread_early(const struct ts_tick *tick, u64 since, u64 now, u64 amount)
{
	u64 early;

	if (ts_likely(since >= tick->start || now <= since))
		return 0;
	if (now <= tick->start)
		return amount;
	early = (amount << TS_SPREAD_SHIFT) / (now - since) * (tick->start - since) >> TS_SPREAD_SHIFT;
	return early < amount ? early : amount;
}

#endif /* TOPSTAT_SPREAD_H */
