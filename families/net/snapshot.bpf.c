// SPDX-License-Identifier: GPL-2.0-only
/* Programs of the readers of the tables. They are called, never attached, and work on the observer's state. */
#include "logic.h"

char LICENSE[] SEC("license") = "GPL";

#define ranked_row net_row
#define ranked_section net_section
#define ranked_settle(cpu) 1 /* net_settle() has run before */

static __always_inline void ranked_describe(struct net_section *s, struct net_row *row, u32 number, u64 obj)
{
	row->family = AF_INET6;
	row->closed = keyed_is_closed(obj);
	ts_peek(&row->key, sizeof(row->key), obj + offsetof(struct net_object, key));
	ts_peek(&row->owner, sizeof(row->owner), obj + offsetof(struct net_object, owner));
}

#include "observe/ranked_snapshot.bpf.h"

KEYED_REFILL(net_refill)
