/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of the tables of tasks and cgroups: what the observer writes and what readers, which
 * load programs of their own onto the same maps, read.
 */
#ifndef TOPSTAT_TASKS_TOP_H
#define TOPSTAT_TASKS_TOP_H

#include "../bpf/kernel.h"

/* What the engine keeps apart because it rarely runs: global functions, which the verifier looks
 * at once. */
int top_order_slow(u32 where, u64 obj, u64 id, u64 value);
int top_look_again(u32 where, u32 slot);
int top_roll(u32 bank_index);
int top_settle(u32 where, u32 pos, u64 key, u32 slot);
#define ts_order_apart(t, tick, obj, id, value, view) top_order_slow((t)->where, obj, id, value)
#define ts_look_apart(t, tick, slot, view) top_look_again((t)->where, slot)
#define ts_settle_apart(t, pos, key, slot, mask) top_settle((t)->where, pos, key, slot)
#define ts_roll_apart(bank, stride, c, generation, now) top_roll(ts_bank_table(bank, 0, stride)->where >> 8)
/* Tasks mostly stay on a CPU. */
#define ts_find_pushed ts_find_again

#include "tasks.h"

const volatile struct tasks_top_constants constants SEC(".rodata.constants") = {
	.shape = { .entries_mask = TS_TOP_DEFAULT * TS_SPARE - 1, .table_stride = 4096 },
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

/* By CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct tasks_runner);
} runners SEC(".maps");

/* The bank of one sample on one CPU, at [cpu * TASKS_SAMPLES + sample]. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TASKS_SAMPLES);
	__uint(key_size, sizeof(u32));
	__uint(value_size, 4096);
} banks SEC(".maps");

static __always_inline struct ts_bank *top_bank(u32 cpu, u32 sample)
{
	u32 i = cpu * TASKS_SAMPLES + sample;

	return bpf_map_lookup_elem(&banks, &i);
}

static __always_inline struct ts_table *top_table(struct ts_bank *bank, u32 table)
{
	return ts_bank_table(bank, table, constants.shape.table_stride);
}

static __always_inline ts_view top_view(u32 sample, u32 table)
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

__noinline int top_settle(u32 where, u32 pos, u64 key, u32 slot)
{
	u32 table = where & (TS_BANK_TABLES - 1), i = where >> 8;
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &i);

	if (bank)
		ts_settle(top_table(bank, table), pos, key, slot, constants.shape.entries_mask);
	return 0;
}

__noinline int top_look_again(u32 where, u32 slot)
{
	u32 i = where >> 8, table = where & (TASKS_TABLES - 1);
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &i);

	if (bank)
		ts_look_again(top_table(bank, table), &bank->tick[table], slot,
			      top_view(i & (TASKS_SAMPLES - 1), table));
	return 0;
}

__noinline int top_order_slow(u32 where, u64 obj, u64 id, u64 value)
{
	u32 i = where >> 8, table = where & (TASKS_TABLES - 1);
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &i);

	if (bank)
		ts_order_slow(top_table(bank, table), &bank->tick[table], obj, id, value,
			      top_view(i & (TASKS_SAMPLES - 1), table));
	return 0;
}

__noinline int top_roll(u32 bank_index)
{
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &bank_index);
	u32 sample = bank_index & (TASKS_SAMPLES - 1);

	if (bank)
		ts_bank_roll(bank, constants.shape.table_stride, settings.config[sample], settings.all.generation,
			     bpf_jiffies64());
	return 0;
}

#endif /* TOPSTAT_TASKS_TOP_H */
