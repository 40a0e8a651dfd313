/* SPDX-License-Identifier: GPL-2.0-only */
/* Groups in a bounded array: see GI1 … GI5 at struct tasks_group. */
#ifndef TOPSTAT_TASKS_GROUP_ARRAY_H
#define TOPSTAT_TASKS_GROUP_ARRAY_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TASKS_GROUPS);
	__type(key, u32);
	__type(value, struct tasks_group);
} groups SEC(".maps");

/* The place of each group, by id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TASKS_GROUPS);
	__type(key, u64);
	__type(value, u32);
} group_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, TASKS_GROUPS);
	__uint(key_size, 0);
	__uint(value_size, sizeof(u32));
} group_free SEC(".maps");

struct tasks_shares shares SEC(".data.shares");

/* No index. */
#define TOP_NO_GROUP (~0U)

/* GI5: the count of groups below the cgroup's ancestor on this level. The ancestor may be the cgroup itself. */
static __always_inline u32 *top_share(struct cgroup *cgroup, u32 level)
{
	u64 ancestor = 0;

	bpf_probe_read_kernel(&ancestor, sizeof(ancestor),
			      (void *)cgroup + bpf_core_field_offset(cgroup->ancestors) + level * sizeof(ancestor));
	/* The hash is the one of ts_bucket(). */
	ancestor = (ancestor * 0x9E3779B97F4A7C15ULL) >> 32;
	return &shares.groups[level - 1][ancestor & (TASKS_SHARES - 1)];
}

/* GI5: count one more group, or one less (-1), in each subtree that contains the cgroup. */
static __noinline int top_share_add(struct cgroup *cgroup, int more)
{
	u32 level;

	for (level = 1; level <= TASKS_SHARE_LEVELS; level++) {
		if ((int)level > cgroup->level)
			break;
		__sync_fetch_and_add(top_share(cgroup, level), more);
	}
	return 0;
}

/* GI5: whether the array has a place for the cgroup. */
static __noinline int top_share_left(struct cgroup *cgroup)
{
	struct ts_census *groups_now = &census[TASKS_CGROUPS];
	u64 used = ts_read(groups_now->begun) - ts_read(groups_now->ended);
	u64 left = used < constants.groups ? constants.groups - used : 0;
	u32 level;

	for (level = 1; level <= TASKS_SHARE_LEVELS; level++) {
		if ((int)level > cgroup->level)
			break;
		if (*top_share(cgroup, level) >= left << (TASKS_SHARE_LEVELS - level))
			return 0;
	}
	return left > 0;
}

/* GI3 */
static __always_inline void top_group_end(struct cgroup *cgroup, u64 id)
{
	u32 *found = bpf_map_lookup_elem(&group_index, &id), index;
	struct tasks_group *g;

	if (!found)
		return;
	index = *found;
	if (bpf_map_delete_elem(&group_index, &id))
		return; /* another CPU removes it */
	g = bpf_map_lookup_elem(&groups, &index);
	if (g)
		ts_write(g->object.id, 0);
	bpf_map_push_elem(&group_free, &index, BPF_ANY);
	ts_add(&census[TASKS_CGROUPS].ended, 1);
	top_share_add(cgroup, -1);
}

/* GI2. Returns the index. */
static __always_inline u32 top_group_begin(struct cgroup *cgroup, u64 id)
{
	u32 index = TOP_NO_GROUP, *found;
	struct tasks_group *g;

	if (!top_share_left(cgroup))
		return TOP_NO_GROUP;
	if (ts_read(shares.indices) < constants.groups)
		index = __sync_fetch_and_add(&shares.indices, 1);
	if (index >= constants.groups && bpf_map_pop_elem(&group_free, &index))
		return TOP_NO_GROUP;
	g = bpf_map_lookup_elem(&groups, &index);
	if (!g)
		return TOP_NO_GROUP;
	__builtin_memset(&g->window, 0, sizeof(g->window));
	g->object.self = (u64)g;
	if (bpf_map_update_elem(&group_index, &id, &index, BPF_NOEXIST)) {
		bpf_map_push_elem(&group_free, &index, BPF_ANY);
		found = bpf_map_lookup_elem(&group_index, &id);
		return found ? *found : TOP_NO_GROUP;
	}
	ts_write(g->object.id, id);
	ts_add(&census[TASKS_CGROUPS].begun, 1);
	top_share_add(cgroup, 1);
	return index;
}

/*
 * The group is not at the remembered index. Either none of its tasks has left a CPU before; or the group has been removed, and
 * must not be made again, for no hook would end it.
 */
static __noinline u32 top_group_index(struct cgroup *cgroup, u64 id)
{
	u32 *found = bpf_map_lookup_elem(&group_index, &id), index;

	if (found)
		return *found;
	if (!(cgroup->self.flags & CSS_ONLINE))
		return TOP_NO_GROUP;
	index = top_group_begin(cgroup, id);
	if (!(cgroup->self.flags & CSS_ONLINE))
		top_group_end(cgroup, id); /* removed since: top_rmdir() may not have found it */
	return index;
}

/* Groups are made at switches: see top_group(). */
static __always_inline void top_group_of(struct task_struct *task)
{
}

/* The task's group. NULL: it has no place; `refused` is an enum ts_cause, or 0 if the cgroup was removed. */
static __always_inline struct tasks_group *top_group(struct task_struct *task, struct tasks_object *o, u32 *refused)
{
	u64 id;
	struct cgroup *cgroup = group_of(task, &id);
	u32 index = o ? o->group : 0;
	struct tasks_group *g = bpf_map_lookup_elem(&groups, &index);

	if (ts_likely(g && g->object.id == id))
		return g;
	index = top_group_index(cgroup, id);
	*refused = index == TOP_NO_GROUP && cgroup->self.flags & CSS_ONLINE ? TS_FULL : 0;
	if (o && index != TOP_NO_GROUP)
		o->group = index;
	return bpf_map_lookup_elem(&groups, &index);
}

#endif /* TOPSTAT_TASKS_GROUP_ARRAY_H */
