/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups in the storage of their cgroups, of which there are as many as the kernel has: their life is the
 * kernel's. Nothing is allocated at a switch, where that is dear and takes locks in an order that lockdep
 * doubts.
 *
 *   S1  A group is made when its cgroup is, before a task can be in it; for what was there before, when
 *       the observer is loaded; and when a task is made, if there was no memory until then.
 *   S2  The CPU that swaps `self` from 0 makes the group, and writes the id last. The CPU that swaps the
 *       id to 0 ends it, when the cgroup is removed. The kernel makes no storage for a cgroup that is
 *       being removed; a CPU that finds the cgroup removed after it has made the group ends the group.
 *   S3  A switch finds the group, or counts as refused (T6): there was no memory, or this CPU was
 *       interrupted amid a look at any cgroup's storage, and the kernel does not look again meanwhile.
 */
#ifndef TOPSTAT_TASKS_GROUP_STORAGE_H
#define TOPSTAT_TASKS_GROUP_STORAGE_H

HOST_STORAGE(groups, cgrp, struct tasks_group);

TS_INLINE void top_group_end(struct cgroup *cgroup, u64 id)
{
	struct tasks_group *g = host_of(groups, cgrp, cgroup);

	if (g && id && g->object.id == id)
		obs_object_end(&g->object, TASKS_CGROUPS);
}

/* S1 */
TS_INLINE void top_group_begin(struct cgroup *cgroup, u64 id)
{
	struct tasks_group *g = host_make(groups, cgrp, cgroup);

	if (!g || !id || !ts_cas(&g->object.self, 0, (u64)(unsigned long)g))
		return;
	obs_object_begin(&g->object, TASKS_CGROUPS, id);
	/* The first look takes a lock, to remember where it is: so that no switch has to. */
	host_of(groups, cgrp, cgroup);
	if (!(cgroup->self.flags & CSS_ONLINE))
		top_group_end(cgroup, id);
}

/* The group of a task that has just been made, or was there before. */
TS_INLINE void top_group_of(struct task_struct *task)
{
	u64 id;
	struct cgroup *cgroup = group_of(task, &id);
	struct tasks_group *g = host_of(groups, cgrp, cgroup);

	if (!g)
		top_group_begin(cgroup, id);
}

/* The task's group. `refused`: there should be one. */
TS_INLINE struct tasks_group *top_group(struct task_struct *task, struct tasks_object *o, u32 *refused)
{
	u64 id;
	struct cgroup *cgroup = group_of(task, &id);
	struct tasks_group *g = host_of(groups, cgrp, cgroup);

	if (ts_likely(g && g->object.id == id))
		return g;
	*refused = !!(cgroup->self.flags & CSS_ONLINE);
	return NULL;
}

#endif /* TOPSTAT_TASKS_GROUP_STORAGE_H */
