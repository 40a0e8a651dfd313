/* SPDX-License-Identifier: GPL-2.0-only */
/* Counts signals, on any host. */
#ifndef TOPSTAT_EXAMPLE_LOGIC_H
#define TOPSTAT_EXAMPLE_LOGIC_H

#include "observe/host.h"
#include "example.h"

HOST_STATE(example, 1, EXAMPLE_BANKS);

/* Where an object has the window of a table. */
TS_INLINE u32 obs_at(u32 number, u32 table)
{
	return offsetof(struct example_object, window) + host_item_at(table, EXAMPLE_TABLES, sizeof(struct ts_window));
}

TS_INLINE u32 obs_type(u32 number, u32 table)
{
	return TS_DYNAMIC;
}

/* 224 objects, for 64 signals. */
#define KEYED_BUCKETS 32
#define KEYED_KEY struct example_key
#define KEYED_OBJECT struct example_object
#include "observe/keyed.h"

TS_INLINE void example_sent(u64 signal)
{
	struct example_key key = { .signal = signal };
	struct keyed k;

	if (!keyed_begin(&k, 0, &key))
		return;
	keyed_add(&k, EXAMPLE_SENT, 0, 1);
	keyed_end(&k);
}

#endif /* TOPSTAT_EXAMPLE_LOGIC_H */
