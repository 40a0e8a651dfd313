/* SPDX-License-Identifier: GPL-2.0-only */
/* Which control group a task counts to. How groups are kept depends on the kernel: fallbacks.bpf.h. */
#ifndef TOPSTAT_TASKS_GROUP_H
#define TOPSTAT_TASKS_GROUP_H

#include "top.bpf.h"

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

/* The id by which a cgroup is known; 0: it is of a hierarchy that no task counts to. Hierarchies have ids
 * of their own: the same one may be another cgroup's elsewhere. */
static __always_inline u64 top_group_id(struct cgroup *cgroup)
{
	struct cgroup_root *root = cgroup->root;
	u64 id = cgroup->kn->id;

	if (!root->hierarchy_id)
		return id;
	if (!constants.v1_controller || !(root->subsys_mask >> process_v1_index(constants.v1_controller) & 1))
		return 0;
	return id | TASKS_GROUP_V1;
}

#include "fallbacks.bpf.h"

#endif /* TOPSTAT_TASKS_GROUP_H */
