/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of the four samples: what the observer writes and what readers, which load
 * programs of their own onto the same maps, read.
 */
#ifndef TOPSTAT_INET_MAPS_H
#define TOPSTAT_INET_MAPS_H

#include "observe/apart.bpf.h"
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

#define RANKED_BANKS INET_SAMPLES
#include "observe/ranked.bpf.h"

static __always_inline ts_view inet_view(u32 table)
{
	u32 id = offsetof(struct inet_object, id);

	if (table == INET_BYTES)
		return ts_view_of(constants.shape.entries_mask, TS_STATIC, offsetof(struct inet_object, bytes), id);
	return ts_view_of(constants.shape.entries_mask, TS_DYNAMIC,
			  offsetof(struct inet_object, window) + table * sizeof(struct ts_window), id);
}

/* All samples have the same tables. */
static __always_inline ts_view ranked_view(u32 sample, u32 table)
{
	return inet_view(table);
}

#endif /* TOPSTAT_INET_MAPS_H */
