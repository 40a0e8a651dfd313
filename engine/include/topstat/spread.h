/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A push of an amount that was used over time, for instance of time itself. It is pushed when the use ends, but most of it may
 * belong to earlier slides.
 *
 *      slide   s-3        s-2        s-1        s
 *            |      xxxx|xxxxxxxxxx|xxxxxxxxxx|xxx          one push, now
 *                   ^since                    ^  ^now
 *                       +          +          +             added to these marks
 *
 * The caller pushes the part in the present slide as usual. The functions here add the rest to the sum and to the marks since
 * then: to each mark the amount that had been used when its slide began. The window is then as if the amount had been pushed
 * evenly over that time, which keeps W1 … W4.
 *
 * Concurrency: W6 … W9 of window.h. While another CPU is writing to the window, all of the amount counts as pushed now: it ages
 * later than it should, by the length of its use.
 */
#ifndef TOPSTAT_SPREAD_H
#define TOPSTAT_SPREAD_H

#include "push.h"

/* The number of binary places that parts of an amount are computed with. Amounts must be below 2^(64 - 17): nanoseconds of a
 * day. */
#define TS_SPREAD_SHIFT 16

/*
 * Add an amount that was used evenly from `since` to the beginning of the tick's slide (both in ticks), and on. The caller has
 * begun the slide.
 */
TS_GLOBAL_FN int ts_window_spread(struct ts_window *w, const struct ts_tick *tick, u64 since, u64 amount, u32 part)
{
	u64 done, length, over, rate, back, share, fading, sum0 = 0, sum1 = 0, recent = 0, oldest = 0;
	struct ts_mark *mark;
	u32 i, first, spread, had, marks;

	if (!w || !tick || since >= tick->start)
		return 0;
	length = tick->end - tick->start;
	over = tick->start - since;
	ts_add(&w->sum[part & 1], amount);
	done = ts_read(w->done);
	if (!ts_is_done(done, tick->slide) || !ts_cas(&w->done, done, TS_WRITING))
		return 0;
	marks = had = ts_done_marks(done);
	rate = (amount << TS_SPREAD_SHIFT) / over;
	ts_mark_fraction(&ts_window_mark(w, tick, 0)->sum[0], 0);
	for (i = 0; i <= TS_SLIDES; i++) {
		back = i * length;
		if (back >= over)
			break;
		share = amount - (rate * back >> TS_SPREAD_SHIFT);
		mark = ts_window_mark(w, tick, i);
		sum0 = mark->sum[0];
		sum1 = mark->sum[1];
		ts_write(mark->sum[part & 1], (part & 1 ? sum1 : sum0) + (share << 8));
		if (i == TS_SLIDES - 1)
			recent = share;
		if (i == TS_SLIDES) {
			oldest = share;
			break;
		}
		/* The slide before this one was used to its end, and maybe from its beginning. From now on it has a mark. */
		mark = ts_window_mark(w, tick, i + 1);
		marks |= 2U << i;
		if (!(had >> (i + 1) & 1)) {
			ts_write(mark->sum[0], sum0 & ~255ULL);
			ts_write(mark->sum[1], sum1 & ~255ULL);
		}
		ts_mark_fraction(&mark->sum[1], TS_FRACTIONS - 1);
		if (back + length < over)
			ts_mark_fraction(&mark->sum[0], 0);
	}
	if (recent) {
		mark = ts_window_mark(w, tick, TS_SLIDES);
		first = mark->sum[0] & 255;
		spread = TS_FRACTIONS - first;
		fading = w->fading + recent - oldest;
		ts_write(w->fading, fading);
		ts_write(w->fading_first, first);
		ts_write(w->fading_last, TS_FRACTIONS - 1);
		ts_write(w->fading_step, ((fading << 8) + spread - 1) / spread);
		ts_publish(w->base, w->base + recent); /* W8: pairs with ts_window_now() */
	}
	ts_publish(w->done, ts_done(tick->slide, marks)); /* W9: pairs with ts_window_peek() */
	return 0;
}

/*
 * Add an amount that was used in an earlier slide, `ago` slides before the tick's: as if it had been pushed evenly in that slide.
 * An amount older than TS_SLIDES goes to the sum alone, and to no value. The caller has begun the tick's slide.
 */
TS_GLOBAL_FN int ts_window_add_ago(struct ts_window *w, const struct ts_tick *tick, u32 ago, u64 amount0, u64 amount1)
{
	u64 done, fading, sum0 = 0, sum1 = 0;
	struct ts_mark *mark;
	u32 i, marks;

	if (!w || !tick)
		return 0;
	done = ts_read(w->done);
	if (ago > TS_SLIDES) {
		if (!ts_is_done(done, tick->slide) || !ts_cas(&w->done, done, TS_WRITING))
			return 0;
		ts_add(&w->sum[0], amount0);
		ts_add(&w->sum[1], amount1);
	} else {
		ts_add(&w->sum[0], amount0);
		ts_add(&w->sum[1], amount1);
		if (!ago || !ts_is_done(done, tick->slide) || !ts_cas(&w->done, done, TS_WRITING))
			return 0;
	}
	marks = ts_done_marks(done);
	/* The sum at the beginning of each later slide was larger by this amount. */
	for (i = 0; i < TS_MARKS; i++) {
		if (i >= ago)
			break;
		if (!(marks >> i & 1))
			continue;
		mark = ts_window_mark(w, tick, i);
		sum0 = mark->sum[0];
		sum1 = mark->sum[1];
		ts_write(mark->sum[0], sum0 + (amount0 << 8));
		ts_write(mark->sum[1], sum1 + (amount1 << 8));
	}
	if (ago > TS_SLIDES) {
		ts_write(w->base, w->base + amount0 + amount1);
		ts_publish(w->done, done); /* W9: pairs with ts_window_peek() */
		return 0;
	}
	mark = ts_window_mark(w, tick, ago);
	if (!(marks >> ago & 1)) { /* without pushes, the slide began with the same sum as the next slide that has a mark */
		ts_write(mark->sum[0], sum0);
		ts_write(mark->sum[1], sum1);
	}
	ts_mark_fraction(&mark->sum[0], 0);
	ts_mark_fraction(&mark->sum[1], TS_FRACTIONS - 1);
	if (ago == TS_SLIDES) { /* the amount adds to the fading part, and to the sum at the beginning of the period */
		fading = w->fading + amount0 + amount1;
		ts_write(w->fading, fading);
		ts_write(w->fading_first, 0);
		ts_write(w->fading_last, TS_FRACTIONS - 1);
		ts_write(w->fading_step, ((fading << 8) + TS_FRACTIONS - 1) / TS_FRACTIONS);
		ts_publish(w->base, w->base + amount0 + amount1); /* W8: pairs with ts_window_now() */
	}
	ts_publish(w->done, ts_done(tick->slide, marks | 1U << ago)); /* W9: pairs with ts_window_peek() */
	return 0;
}

/* Begin the tick's slide in the window, for an amount that was used from `since` on, which is before its push. */
TS_INLINE void ts_window_begin_since(struct ts_window *w, const struct ts_tick *tick, const struct ts_config *c,
				     u64 since)
{
	ts_window_begin(w, tick);
	if (ts_read(w->slide) != tick->slide)
		return;
	since = since > tick->start ? since - tick->start : 0;
	ts_mark_fraction(&ts_window_mark(w, tick, 0)->sum[0], since * ts_read(c->fraction) >> 48);
}

/* The part of an amount, used evenly from `since` to `now` (ticks), that came before the tick's slide began. The caller spreads
 * this part, and pushes the rest. */
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
