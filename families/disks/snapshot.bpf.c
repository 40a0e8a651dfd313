// SPDX-License-Identifier: GPL-2.0-only
/* Programs of the readers of the tables. They are called, never attached, and work on the observer's state. */
#include "logic.h"

char LICENSE[] SEC("license") = "GPL";

#define ranked_row disks_row
#define ranked_section disks_section
#define ranked_settle(cpu) 1 /* a request counts when it is completed */

static __always_inline void ranked_describe(struct disks_section *s, struct disks_row *row, u32 number, u64 obj)
{
	row->closed = keyed_is_closed(obj);
	ts_peek(&row->in_flight, sizeof(row->in_flight), obj + offsetof(struct disks_object, keyed.held));
	ts_peek(&row->who, sizeof(row->who), obj + offsetof(struct disks_object, who));
}

#include "observe/ranked_snapshot.bpf.h"

KEYED_REFILL(disks_refill)
