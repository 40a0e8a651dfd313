/* SPDX-License-Identifier: GPL-2.0-only */
/* The control group that a task counts to, by the rule of process.h. Included after HOST_STATE(): its constants choose the v1
 * hierarchy. */
#ifndef TOPSTAT_GROUP_H
#define TOPSTAT_GROUP_H

#include "observe/host.h"

/* The cgroup that a task counts to, and its number: see observe/process.h. */
TS_INLINE struct cgroup *group_of(struct task_struct *task, u64 *id)
{
	struct css_set *css = host_css_set(task);
	struct cgroup *cgroup = css->dfl_cgrp;

	*id = cgroup->kn->id;
	if (!process_counts_in_v1(*id, constants.v1_controller))
		return cgroup;
	cgroup = host_subsys(css, constants.v1_controller)->cgroup;
	*id = cgroup->kn->id | PROCESS_GROUP_V1;
	return cgroup;
}

/* The number of a cgroup; 0: no task counts to its hierarchy. */
TS_INLINE u64 group_number(struct cgroup *cgroup)
{
	struct cgroup_root *root = cgroup->root;
	u64 id = cgroup->kn->id;

	if (!root->hierarchy_id)
		return id;
	if (!constants.v1_controller || !(root->subsys_mask >> host_controller(constants.v1_controller) & 1))
		return 0;
	return id | PROCESS_GROUP_V1;
}

#endif /* TOPSTAT_GROUP_H */
