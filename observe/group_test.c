/* SPDX-License-Identifier: GPL-2.0-only */
/* The rule of process.h, on hosts with v2, with v1, and with both. */
#include "observe/host.h"

struct group_constants {
	struct ts_shape shape;
	u32 v1_controller;
};

TS_SETTINGS(group, 1);
HOST_STATE(group, 1, 1);

TS_INLINE u32 obs_at(u32 number, u32 table)
{
	return 0;
}

TS_INLINE u32 obs_type(u32 number, u32 table)
{
	return TS_DYNAMIC;
}

#include "observe/group.h"
#include "observe/obs.h"
#include "observe/user_test.h"

static const struct {
	u64 v2, v1; /* where the task is */
	u32 asked;
	u64 number;
} cases[] = {
	/* v2 alone */
	{ 1, 0, PROCESS_V1_NONE, 1 },
	{ 7, 0, PROCESS_V1_NONE, 7 },
	/* v1 alone: all are at the root of v2 */
	{ 1, 1, PROCESS_V1_PIDS, 1 | PROCESS_GROUP_V1 },
	{ 1, 7, PROCESS_V1_CPU, 7 | PROCESS_GROUP_V1 },
	/* both: v2 tells tasks apart, or says more than v1 */
	{ 7, 1, PROCESS_V1_MEMORY, 7 },
	{ 8, 1, PROCESS_V1_MEMORY, 8 },
	{ 7, 9, PROCESS_V1_MEMORY, 7 },
	/* both: v1 alone knows the task */
	{ 1, 9, PROCESS_V1_MEMORY, 9 | PROCESS_GROUP_V1 },
	/* v1 hierarchies that are not chosen */
	{ 1, 9, PROCESS_V1_NONE, 1 },
	{ 7, 9, PROCESS_V1_NONE, 7 },
};

TEST(group)
{
	struct kernfs_node v2_node = {}, v1_node = {};
	struct cgroup_root v2_root = { .hierarchy_id = 0 };
	struct cgroup_root v1_root = { .hierarchy_id = 5 };
	struct cgroup v2 = { .kn = &v2_node, .root = &v2_root }, v1 = { .kn = &v1_node, .root = &v1_root };
	struct cgroup_subsys_state state = { .cgroup = &v1 };
	struct css_set css = { .subsys = { &state }, .dfl_cgrp = &v2 };
	struct task_struct task = { .cgroups = &css };
	u32 i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct cgroup *found;
		u64 number = 0;

		constants.v1_controller = cases[i].asked;
		v2_node.id = cases[i].v2;
		v1_node.id = cases[i].v1;
		v1_root.subsys_mask = cases[i].asked ? 1U << host_controller(cases[i].asked) : 0;
		found = group_of(&task, &number);
		TEST_WANT(number == cases[i].number, "case %u: %llx", i, (unsigned long long)number);
		TEST_WANT(found == (number & PROCESS_GROUP_V1 ? &v1 : &v2), "case %u: another group", i);
		TEST_WANT(group_number(found) == number, "case %u: its group has another number", i);
		TEST_WANT(group_number(&v1) == (cases[i].asked ? cases[i].v1 | PROCESS_GROUP_V1 : 0),
			  "case %u: a group of a hierarchy that is not asked", i);
	}
}
