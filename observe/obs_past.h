/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* For obs.h: amounts that were used before the present moment, in dynamic tables. */
#ifndef TOPSTAT_OBS_PAST_H
#define TOPSTAT_OBS_PAST_H

/* The moment `ns` ago, on a table's clock. `jiffies`: the jiffies of that moment. */
TS_INLINE u64 obs_since(const struct obs *x, u32 table, u64 jiffies, u64 ns)
{
	return x->config[table].precise ? x->bank->tick[table].now - ns : jiffies;
}

/* The bound of amounts that can be spread: see spread.h. A longer time, of more than a day, counts to the present moment. */
#define OBS_SPREAD_MAX (1ULL << (64 - TS_SPREAD_SHIFT - 1))

/* As obs_since(), without the jiffies of that moment. */
TS_INLINE u64 obs_since_ns(const struct obs *x, u32 table, u64 ns)
{
	const struct ts_config *c = &x->config[table];
	const struct ts_tick *tick = &x->bank->tick[table];
	u64 slide = c->slide, tick_ns, ticks;

	if (!slide || ns >= OBS_SPREAD_MAX)
		return tick->now;
	tick_ns = (u64)c->period_ms * (1000000 / TS_SLIDES) / slide;
	ticks = tick_ns ? ns / tick_ns : 0;
	return ticks < tick->now ? tick->now - ticks : 0;
}

/* Spread an amount to a window, after obs_spread_total() has spread it to the total. `early`: the result of obs_spread_total().
 * */
TS_INLINE void obs_spread(struct obs *x, u32 table, struct ts_window *w, u32 part, u64 early, u64 since)
{
	struct ts_tick *tick = &x->bank->tick[table];

	if (ts_unlikely(w->slide != tick->slide))
		ts_window_begin_since(w, tick, &x->config[table], since);
	if (ts_unlikely(early))
		ts_window_spread(w, tick, since, early, part);
}

/* Spread the part of an amount that came before this slide to the total, and return it: total before object (P1). */
TS_INLINE u64 obs_spread_total(struct obs *x, u32 table, u32 part, u64 amount, u64 since)
{
	struct ts_tick *tick = &x->bank->tick[table];
	u64 early = ts_spread_early(tick, since, tick->now, amount);

	if (ts_unlikely(early))
		ts_window_spread(&obs_table(x->bank, table)->total, tick, since, early, part);
	return early;
}

/* `since`: the result of obs_since() or obs_since_ns(). For dynamic tables. */
TS_INLINE void obs_add_since(struct obs *x, u32 table, u32 part, u64 amount, u64 since)
{
	u64 early;

	if (!x->config[table].enabled)
		return;
	early = obs_spread_total(x, table, part, amount, since);
	if (!x->object) {
		struct ts_table *t = obs_table(x->bank, table);

		ts_push_total(t, &x->bank->tick[table], part, amount - early);
		if (x->refused)
			ts_refuse(t, &x->bank->tick[table], x->refused, amount);
		return;
	}
	obs_spread(x, table, (void *)((char *)x->object + obs_at(x->number, table)), part, early, since);
	obs_push_object(x, table, part, amount - early);
}

/* Add both parts of an amount that was used `ago` slides ago, and order once: see ts_window_add_ago(). For dynamic tables. */
TS_INLINE void obs_add_ago(struct obs *x, u32 table, u64 amount0, u64 amount1, u32 ago)
{
	struct ts_table *t = obs_table(x->bank, table);
	struct ts_tick *tick = &x->bank->tick[table];
	struct ts_window *w;

	if (!x->config[table].enabled)
		return;
	ts_window_add_ago(&t->total, tick, ago, amount0, amount1);
	if (!x->object) {
		if (x->refused)
			ts_refuse(t, tick, x->refused, amount0 + amount1);
		return;
	}
	w = (void *)((char *)x->object + obs_at(x->number, table));
	if (ts_unlikely(ts_read(w->slide) != tick->slide))
		ts_window_begin(w, tick);
	ts_window_add_ago(w, tick, ago, amount0, amount1);
	obs_push_object(x, table, 0, 0);
}

#endif /* TOPSTAT_OBS_PAST_H */
