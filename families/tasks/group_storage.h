/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups in the storage of their cgroups: there are as many as the kernel has, and they live as long. A switch allocates nothing,
 * for an allocation is expensive there and takes locks in an order that lockdep warns of.
 *
 *   GS1 A group is made with its cgroup, before a task can be in it; for older cgroups, when the observer is loaded; and when a
 *       task is made, if there was no memory before.
 *   GS2 The CPU that swaps `self` from 0 makes the group, and writes the id last. The CPU that swaps the id to 0 ends it, when
 *       the cgroup is removed. The kernel makes no storage for a cgroup that is being removed; a CPU that finds the cgroup
 *       removed after it has made the group ends the group.
 *   GS3 A switch finds the group, or counts as refused (T6): there was no memory, or this CPU was interrupted during a lookup of
 *       any cgroup's storage, and the kernel refuses a second lookup until the first is over.
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

/* GS1 */
TS_INLINE void top_group_begin(struct cgroup *cgroup, u64 id)
{
	struct tasks_group *g = host_make(groups, cgrp, cgroup);

	if (!g || !id || !ts_cas(&g->object.self, 0, (u64)(unsigned long)g))
		return;
	obs_object_begin(&g->object, TASKS_CGROUPS, id);
	/* The first lookup takes a lock, to cache the result: so no switch takes it. */
	host_of(groups, cgrp, cgroup);
	if (!(cgroup->self.flags & CSS_ONLINE))
		top_group_end(cgroup, id);
}

/* Make the group of a task that is new or adopted, if there is none. */
TS_INLINE void top_group_of(struct task_struct *task)
{
	u64 id;
	struct cgroup *cgroup = group_of(task, &id);
	struct tasks_group *g = host_of(groups, cgrp, cgroup);

	if (!g)
		top_group_begin(cgroup, id);
}

/* The task's group. NULL: it has no storage; `refused`: the cgroup exists. */
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
