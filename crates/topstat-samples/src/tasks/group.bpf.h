/* SPDX-License-Identifier: GPL-2.0-only */
/* Which control group a task counts to. struct tasks_group says how they are kept (G1 … G4). */
#ifndef TOPSTAT_TASKS_GROUP_H
#define TOPSTAT_TASKS_GROUP_H

#include "top.bpf.h"

/* No index. */
#define TOP_NO_GROUP TASKS_GROUPS

/* The cgroup that a task counts to: in v2, or where that is the root, in v1. */
static __always_inline struct cgroup *top_cgroup(struct task_struct *task, u64 *id)
{
	struct css_set *css = task->cgroups;
	struct cgroup *cgroup = css->dfl_cgrp;
	struct cgroup_subsys_state *subsys;

	*id = cgroup->kn->id;
	if (*id != 1 || !constants.v1_controller)
		return cgroup;
	/* A load that the verifier knows, for the index is constant: reading it by a helper takes 50 ns. */
	subsys = *(struct cgroup_subsys_state **)((void *)css + bpf_core_field_offset(css->subsys) +
						  process_v1_index(constants.v1_controller) * sizeof(subsys));
	cgroup = subsys->cgroup;
	*id = cgroup->kn->id | TASKS_GROUP_V1;
	return cgroup;
}

/* G3 */
static __always_inline void top_group_end(u64 id)
{
	u32 *found = bpf_map_lookup_elem(&group_index, &id), index;
	struct tasks_group *g;

	if (!found)
		return;
	index = *found;
	if (bpf_map_delete_elem(&group_index, &id))
		return; /* somebody else does it */
	g = bpf_map_lookup_elem(&groups, &index);
	if (g)
		ts_write(g->id, 0);
	bpf_map_push_elem(&group_free, &index, BPF_ANY);
	ts_add(&census.objects[TASKS_CGROUPS].ended, 1);
}

/* G2. Returns the index. */
static __always_inline u32 top_group_begin(u64 id)
{
	u32 index = TOP_NO_GROUP, *found;
	struct tasks_group *g;

	if (ts_read(census.indices) < TASKS_GROUPS)
		index = __sync_fetch_and_add(&census.indices, 1);
	if (index >= TASKS_GROUPS && bpf_map_pop_elem(&group_free, &index))
		return TOP_NO_GROUP;
	g = bpf_map_lookup_elem(&groups, &index);
	if (!g)
		return TOP_NO_GROUP;
	__builtin_memset(&g->window, 0, sizeof(g->window));
	g->self = (u64)g;
	if (bpf_map_update_elem(&group_index, &id, &index, BPF_NOEXIST)) {
		bpf_map_push_elem(&group_free, &index, BPF_ANY);
		found = bpf_map_lookup_elem(&group_index, &id);
		return found ? *found : TOP_NO_GROUP;
	}
	ts_write(g->id, id);
	ts_add(&census.objects[TASKS_CGROUPS].begun, 1);
	return index;
}

/* The group is not where it is remembered to be. It may be the first time that something of it leaves a
 * CPU; or it has been removed, and must not be made again, for nobody would end it. */
static __noinline u32 top_group_index(struct cgroup *cgroup, u64 id)
{
	u32 *found = bpf_map_lookup_elem(&group_index, &id), index;

	if (found)
		return *found;
	if (!(cgroup->self.flags & CSS_ONLINE))
		return TOP_NO_GROUP;
	index = top_group_begin(id);
	if (!(cgroup->self.flags & CSS_ONLINE))
		top_group_end(id); /* removed meanwhile: top_rmdir() may not have found it */
	return index;
}

/* The task's group, and its id. `lost`: there should be one. */
static __always_inline struct tasks_group *top_group(struct task_struct *task, struct tasks_object *o, u64 *id,
						     u32 *lost)
{
	struct cgroup *cgroup = top_cgroup(task, id);
	u32 index = o ? o->group : 0;
	struct tasks_group *g = bpf_map_lookup_elem(&groups, &index);

	if (ts_likely(g && g->id == *id))
		return g;
	index = top_group_index(cgroup, *id);
	*lost = index >= TASKS_GROUPS && cgroup->self.flags & CSS_ONLINE;
	if (o && index < TASKS_GROUPS)
		o->group = index;
	return bpf_map_lookup_elem(&groups, &index);
}

#endif /* TOPSTAT_TASKS_GROUP_H */
