// SPDX-License-Identifier: GPL-2.0-only
/*
 * What readers of the tables run: programs that are called, never attached, on the state that
 * the observer keeps. Each reader loads its own, with a section of its own to write to.
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

/* A task may run long before it leaves the CPU: what it has waited before counts now. */
static __always_inline int ranked_settle(u32 cpu)
{
	delays_charge(bpf_get_current_task_btf());
	return 1;
}

#include "observe/ranked_snapshot.bpf.h"

PROCESS_REFILL(delays_refill)
