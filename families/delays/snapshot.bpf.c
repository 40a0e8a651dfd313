// SPDX-License-Identifier: GPL-2.0-only
/*
 * What readers of the tables run: programs that are called, never attached, on the state that
 * the observer keeps. Each reader loads its own, with a section of its own to write to.
 */
#include "charge.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define ranked_row delays_row
#define ranked_section delays_section

static __always_inline void ranked_describe(struct delays_section *s, struct delays_row *row, u32 bank, u64 obj)
{
	u64 at = 0;

	ts_peek(&at, sizeof(at), obj + offsetof(struct delays_object, task));
	process_describe(&row->who, (void *)at, constants.by_thread, constants.v1_controller);
}

/* A task may run long before it leaves the CPU: what it has waited before counts now. */
static __always_inline int ranked_before(u32 cpu)
{
	struct task_struct *task = bpf_get_current_task_btf();

	delays_charge(task);
	return 1;
}

#include "observe/ranked_snapshot.bpf.h"

SEC("iter/task")
int delays_refill(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct delays_object *o;

	if (!task)
		return 0;
	o = bpf_task_storage_get(&objects, task, NULL, 0);
	if (o)
		ranked_order_again(o->self, o->id);
	return 0;
}
