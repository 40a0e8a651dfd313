/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Windows, compiled so that a test chooses at each access which CPU continues: see sim/interleave.rs. */
#define TS_STEP() topstat_step()

void topstat_step(void);

#include "shim.h"

/* Push an amount that was used from `since` on, as an observer of tasks does it. `since` is the present time for an amount that
 * was used at once. Returns the value. */
u64 topstat_interleaved_push(struct ts_window *w, const struct ts_tick *tick, const struct ts_config *c, u64 since,
			     u64 amount, u32 part)
{
	u64 early = ts_spread_early(tick, since, tick->now, amount);

	if (ts_read(w->slide) != tick->slide)
		ts_window_begin_since(w, tick, c, since);
	if (early)
		ts_window_spread(w, tick, since, early, part);
	ts_window_add(w, tick, part, amount - early);
	return ts_window_now(w, tick);
}

int topstat_interleaved_value(u64 window, const struct ts_tick *tick, struct ts_value *v)
{
	struct ts_window copy = {};

	return ts_window_peek(&copy, window) || ts_window_eval(&copy, tick, v);
}
