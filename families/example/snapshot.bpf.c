// SPDX-License-Identifier: GPL-2.0-only
/* Programs of the readers of the tables. They are called, never attached, and work on the observer's state. */
#include "logic.h"

char LICENSE[] SEC("license") = "GPL";

#define ranked_row example_row
#define ranked_section example_section
#define ranked_settle(cpu) 1 /* nothing is pending: a signal counts when it is sent */

static __always_inline void ranked_describe(struct example_section *s, struct example_row *row, u32 number, u64 obj)
{
	ts_peek(&row->signal, sizeof(row->signal), obj + offsetof(struct example_object, key));
}

#include "observe/ranked_snapshot.bpf.h"

KEYED_REFILL(example_refill)
