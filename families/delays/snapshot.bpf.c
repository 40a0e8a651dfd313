// SPDX-License-Identifier: GPL-2.0-only
/*
 * The programs that readers of the tables run on the observer's state. They are called, never attached. Each reader loads its own
 * programs, and they write to the reader's own section.
 */
#include "logic.h"
#include "observe/process.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define ranked_row delays_row
#define ranked_section delays_section

static __always_inline void ranked_describe(struct delays_section *s, struct delays_row *row, u32 number, u64 obj)
{
	process_describe_object(&row->who, obj + offsetof(struct delays_object, task));
}

/* A running task may not leave the CPU for long: its waits until now count now. */
static __always_inline int ranked_settle(u32 cpu)
{
	delays_charge(bpf_get_current_task_btf());
	return 1;
}

#include "observe/ranked_snapshot.bpf.h"

PROCESS_REFILL(delays_refill)
