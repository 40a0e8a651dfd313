// SPDX-License-Identifier: GPL-2.0-only
/*
 * Programs of the readers of the tables. They are called, never attached, and work on the observer's state. Each reader loads its
 * programs, with a separate section to write to.
 */
#include "logic.h"
#include "observe/process.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define ranked_row tasks_row
#define ranked_section tasks_section

static __always_inline void ranked_describe(struct tasks_section *s, struct tasks_row *row, u32 sample,
					    u64 obj)
{
	if (sample == TASKS_CGROUPS) {
		__builtin_memset(&row->who, 0, sizeof(row->who));
		row->who.cgroup = row->row.id;
		return;
	}
	process_describe_object(&row->who, obj + offsetof(struct tasks_object, task));
}

/* A task may run long before it leaves the CPU: its time so far counts now. */
static __always_inline int ranked_settle(u32 cpu)
{
	return top_charge_running(bpf_get_current_task_btf());
}

#include "observe/ranked_snapshot.bpf.h"

PROCESS_REFILL(top_refill_tasks)

#ifdef TOPSTAT_PLAIN

REFILL_PLACES(top_refill_groups, groups, o->object, 1)

#else

SEC("iter/cgroup")
int top_refill_groups(struct bpf_iter__cgroup *ctx)
{
	struct cgroup *cgroup = ctx->cgroup;
	struct tasks_group *g;

	if (!cgroup)
		return 0;
	g = host_of(groups, cgrp, cgroup);
	if (g)
		ranked_order_again(g->object.self, g->object.id);
	else
		refill.skipped++; /* the cgroup has no storage, or it can't be looked up just now */
	return 0;
}

#endif
