// SPDX-License-Identifier: GPL-2.0-only
/* Programs of the readers of a table. They are called, never attached, and work on the observer's state. */
#include "logic.h"

char LICENSE[] SEC("license") = "GPL";

#define ranked_row custom_row
#define ranked_section custom_section
#define ranked_settle(cpu) 1 /* nothing is outstanding */

/* U3 */
static __always_inline u64 custom_still_missing(u64 obj, const struct ts_tick *tick)
{
	u64 missing = 0, born = 0;

	ts_peek(&missing, sizeof(missing), obj + offsetof(struct custom_object, missing));
	ts_peek(&born, sizeof(born), obj + offsetof(struct custom_object, born));
	return custom_is_over(born, tick->slide) ? 0 : missing;
}

static __always_inline void ranked_describe(struct custom_section *s, struct custom_row *row, u32 number, u64 obj)
{
	struct ts_value times = {};

	ts_peek(&row->key, sizeof(row->key), obj + offsetof(struct custom_object, key));
	ts_peek(&row->longest, sizeof(row->longest), obj + offsetof(struct custom_object, longest));
	row->missing = custom_still_missing(obj, &s->head.tick);
	if (ts_window_peek(&s->scratch, obj + offsetof(struct custom_object, times)) ||
	    ts_window_eval(&s->scratch, &s->head.tick, &times))
		times.value = ts_window_now(&s->scratch, &s->head.tick);
	row->times = times.value;
}

#include "observe/ranked_snapshot.bpf.h"

KEYED_REFILL(custom_refill)
