/* SPDX-License-Identifier: GPL-2.0-only */
/* Which control group a task counts to. How groups are kept depends on the host. */
#ifndef TOPSTAT_TASKS_GROUP_H
#define TOPSTAT_TASKS_GROUP_H

#include "state.h"

/* The cgroup that a task counts to: in v2, or where that is the root, in v1. */
TS_INLINE struct cgroup *top_cgroup(struct task_struct *task, u64 *id)
{
	struct css_set *css = host_css_set(task);
	struct cgroup *cgroup = css->dfl_cgrp;

	*id = cgroup->kn->id;
	if (*id != 1 || !constants.v1_controller)
		return cgroup;
	cgroup = host_subsys(css, constants.v1_controller)->cgroup;
	*id = cgroup->kn->id | TASKS_GROUP_V1;
	return cgroup;
}

/* The id by which a cgroup is known; 0: it is of a hierarchy that no task counts to. Hierarchies have ids
 * of their own: the same one may be another cgroup's elsewhere. */
TS_INLINE u64 top_group_id(struct cgroup *cgroup)
{
	struct cgroup_root *root = cgroup->root;
	u64 id = cgroup->kn->id;

	if (!root->hierarchy_id)
		return id;
	if (!constants.v1_controller || !(root->subsys_mask >> host_controller(constants.v1_controller) & 1))
		return 0;
	return id | TASKS_GROUP_V1;
}

#ifdef TOPSTAT_PLAIN
#include "fallbacks.bpf.h"
#else
#include "group_storage.h"
#endif

#endif /* TOPSTAT_TASKS_GROUP_H */
