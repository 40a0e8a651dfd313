// SPDX-License-Identifier: GPL-2.0-only
/*
 * What readers of the tables run: programs that are called, never attached, on the state that
 * the observer keeps. Each reader loads its own, with a section of its own to write to.
 */
#include "charge.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define ranked_row tasks_row
#define ranked_section tasks_section

static __always_inline void ranked_describe(struct tasks_section *s, struct tasks_row *row, u32 sample,
					    u64 obj)
{
	u64 id = row->row.id, at = 0;

	if (sample == TASKS_CGROUPS) {
		__builtin_memset(&row->who, 0, sizeof(row->who));
		row->who.cgroup = id & TASKS_GROUP_V1 ? 1 : id;
		row->who.cgroup_v1 = id & TASKS_GROUP_V1 ? id & ~TASKS_GROUP_V1 : 0;
		return;
	}
	ts_peek(&at, sizeof(at), obj + offsetof(struct tasks_object, task));
	process_describe(&row->who, (void *)at, constants.by_thread, constants.v1_controller);
}

/* A task may run long before it leaves the CPU: what it has used before counts now. */
static __always_inline int ranked_before(u32 cpu)
{
	return top_charge_running(cpu);
}

#include "observe/ranked_snapshot.bpf.h"

SEC("iter/task")
int top_refill_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct tasks_object *o;

	if (!task)
		return 0;
	o = bpf_task_storage_get(&objects, task, NULL, 0);
	if (o)
		ranked_order_again(o->self, o->id);
	return 0;
}

#ifdef TOPSTAT_PLAIN

SEC("iter/bpf_map_elem")
int top_refill_groups(struct bpf_iter__bpf_map_elem *ctx)
{
	struct tasks_group *g = ctx->value;

	if (g)
		ranked_order_again(g->self, g->id);
	return 0;
}

#else

SEC("iter/cgroup")
int top_refill_groups(struct bpf_iter__cgroup *ctx)
{
	struct cgroup *cgroup = ctx->cgroup;
	struct tasks_group *g;

	if (!cgroup)
		return 0;
	g = bpf_cgrp_storage_get(&groups, cgroup, NULL, 0);
	if (g)
		ranked_order_again(g->self, g->id);
	else
		refill.skipped++; /* it has none, or it can't be looked at just now */
	return 0;
}

#endif
