/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of the tables of tasks and cgroups: what the observer writes and what readers, which
 * load programs of their own onto the same maps, read.
 */
#ifndef TOPSTAT_TASKS_TOP_H
#define TOPSTAT_TASKS_TOP_H

#include "observe/apart.bpf.h"

/* Tasks mostly stay on a CPU. */
#define ts_find_pushed ts_find_again

#include "tasks.h"

const volatile struct tasks_constants constants SEC(".rodata.constants") = {
	.shape = { .entries_mask = TS_TOP_DEFAULT * TS_SPARE - 1, .table_stride = 4096 },
	.groups = TASKS_GROUPS,
};

struct tasks_settings settings SEC(".data.settings");
struct tasks_census census SEC(".data.census");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tasks_object);
} objects SEC(".maps");

/* Of every thread that is no object. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tasks_waited);
} waited SEC(".maps");

#ifdef TOPSTAT_PLAIN

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TASKS_GROUPS);
	__type(key, u32);
	__type(value, struct tasks_group);
} groups SEC(".maps");

/* By id. */
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

#else

struct {
	__uint(type, MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tasks_group);
} groups SEC(".maps");

#endif

/* By CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct tasks_runner);
} runners SEC(".maps");

#define RANKED_BANKS TASKS_SAMPLES
#include "observe/ranked.bpf.h"
#include "observe/process.bpf.h"

static __always_inline ts_view ranked_view(u32 sample, u32 table)
{
	u32 mask = constants.shape.entries_mask;

	if (sample == TASKS_CGROUPS)
		return ts_view_of(mask, TS_DYNAMIC, offsetof(struct tasks_group, window),
				  offsetof(struct tasks_group, id));
	if (table == TASKS_CPU_TOTAL)
		return ts_view_of(mask, TS_STATIC, offsetof(struct tasks_object, total),
				  offsetof(struct tasks_object, id));
	return ts_view_of(mask, TS_DYNAMIC,
			  offsetof(struct tasks_object, window) + table * sizeof(struct ts_window),
			  offsetof(struct tasks_object, id));
}

#endif /* TOPSTAT_TASKS_TOP_H */
