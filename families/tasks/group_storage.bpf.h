/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups in the storage of their cgroups, of which there are as many as the kernel has: their life is the
 * kernel's. Nothing is allocated at a switch, where that is dear and takes locks in an order that lockdep
 * doubts.
 *
 *   S1  A group is made when its cgroup is, before a task can be in it; for what was there before, when
 *       the observer is loaded; and when a task is made, if there was no memory until then.
 *   S2  Whoever swaps `self` from 0 makes it, and writes the id last. Whoever swaps the id to 0 ends it,
 *       when the cgroup is removed. The kernel makes no storage for a cgroup that is being removed, and
 *       who finds his removed meanwhile ends it himself.
 *   S3  A switch finds the group, or counts as refused (T6): there was no memory, or this CPU was
 *       interrupted amid a look at any cgroup's storage, and the kernel does not look again meanwhile.
 */
#ifndef TOPSTAT_TASKS_GROUP_STORAGE_H
#define TOPSTAT_TASKS_GROUP_STORAGE_H

static __always_inline void top_group_end(struct cgroup *cgroup, u64 id)
{
	struct tasks_group *g = bpf_cgrp_storage_get(&groups, cgroup, NULL, 0);

	if (!g || !id || !ts_cas(&g->id, id, 0))
		return;
	ts_add(&census.objects[TASKS_CGROUPS].ended, 1);
	ranked_forget(TASKS_CGROUPS, g->self);
}

/* S1 */
static __always_inline void top_group_begin(struct cgroup *cgroup, u64 id)
{
	struct tasks_group *g = bpf_cgrp_storage_get(&groups, cgroup, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!g || !id || !ts_cas(&g->self, 0, (u64)g))
		return;
	ts_wmb();
	ts_write(g->id, id);
	ts_add(&census.objects[TASKS_CGROUPS].begun, 1);
	/* The first look takes a lock, to remember where it is: so that no switch has to. */
	bpf_cgrp_storage_get(&groups, cgroup, NULL, 0);
	if (!(cgroup->self.flags & CSS_ONLINE))
		top_group_end(cgroup, id);
}

/* The group of a task that has just been made, or was there before. */
static __always_inline void top_group_of(struct task_struct *task)
{
	u64 id;
	struct cgroup *cgroup = top_cgroup(task, &id);
	struct tasks_group *g = bpf_cgrp_storage_get(&groups, cgroup, NULL, 0);

	if (!g)
		top_group_begin(cgroup, id);
}

/* The task's group, and its id. `lost`: there should be one. */
static __always_inline struct tasks_group *top_group(struct task_struct *task, struct tasks_object *o, u64 *id,
						     u32 *lost)
{
	struct cgroup *cgroup = top_cgroup(task, id);
	struct tasks_group *g = bpf_cgrp_storage_get(&groups, cgroup, NULL, 0);

	if (ts_likely(g && g->id == *id))
		return g;
	*lost = !!(cgroup->self.flags & CSS_ONLINE);
	return NULL;
}

#endif /* TOPSTAT_TASKS_GROUP_STORAGE_H */
