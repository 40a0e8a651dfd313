/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of the four samples: what the observer writes and what readers, which load
 * programs of their own onto the same maps, read.
 */
#ifndef TOPSTAT_INET_MAPS_H
#define TOPSTAT_INET_MAPS_H

#include "../bpf/kernel.h"

/* What the engine keeps apart, as global functions; see "apart.bpf.h". */
int inet_order_slow(u32 where, u64 obj, u64 id, u64 value);
int inet_look_again(u32 where, u32 slot);
int inet_roll(u32 bank_index);
int inet_settle(u32 where, u32 pos, u64 key, u32 slot);
#define ts_order_apart(t, tick, obj, id, value, view) inet_order_slow((t)->where, obj, id, value)
#define ts_look_apart(t, tick, slot, view) inet_look_again((t)->where, slot)
#define ts_settle_apart(t, pos, key, slot, mask) inet_settle((t)->where, pos, key, slot)
#define ts_roll_apart(bank, stride, c, generation, now) \
	inet_roll(ts_bank_table(bank, 0, stride)->where >> 8)

#include "fallbacks.bpf.h"

/* A section of its own, so that its place is known. */
const volatile struct inet_constants constants SEC(".rodata.constants") = {
	.shape = { .entries_mask = TS_TOP_DEFAULT * TS_SPARE - 1, .table_stride = 4096 },
};

struct inet_settings settings SEC(".data.settings");
struct ts_census census[INET_SAMPLES] SEC(".data.census");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct inet_object);
} objects SEC(".maps");

/* The bank of one sample on one CPU, at [cpu * INET_SAMPLES + sample]. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, INET_SAMPLES);
	__uint(key_size, sizeof(u32));
	__uint(value_size, 4096);
} banks SEC(".maps");

static __always_inline struct ts_bank *inet_bank(u32 cpu, u32 sample)
{
	u32 i = cpu * INET_SAMPLES + sample;

	return bpf_map_lookup_elem(&banks, &i);
}

static __always_inline struct ts_table *inet_table(struct ts_bank *bank, u32 table)
{
	return ts_bank_table(bank, table, constants.shape.table_stride);
}

static __always_inline ts_view inet_view(u32 table)
{
	u32 id = offsetof(struct inet_object, id);

	if (table == INET_BYTES)
		return ts_view_of(constants.shape.entries_mask, TS_STATIC, offsetof(struct inet_object, bytes), id);
	return ts_view_of(constants.shape.entries_mask, TS_DYNAMIC,
			  offsetof(struct inet_object, window) + table * sizeof(struct ts_window), id);
}

#endif /* TOPSTAT_INET_MAPS_H */
