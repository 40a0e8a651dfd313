/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the engine keeps apart because it rarely runs: global functions, which the verifier
 * looks at once. Their arguments are numbers, so that 5.10 takes them too.
 */
#ifndef TOPSTAT_INET_APART_H
#define TOPSTAT_INET_APART_H

#include "maps.bpf.h"

/* The table that ts_table.where names; the bank's claim is the caller's. */
static __always_inline struct ts_bank *inet_where(u32 where)
{
	u32 bank_index = where >> 8;

	return bpf_map_lookup_elem(&banks, &bank_index);
}

__noinline int inet_settle(u32 where, u32 pos, u64 key, u32 slot)
{
	struct ts_bank *bank = inet_where(where);

	if (bank)
		ts_settle(inet_table(bank, where & (INET_TABLES - 1)), pos, key, slot, constants.shape.entries_mask);
	return 0;
}

__noinline int inet_look_again(u32 where, u32 slot)
{
	struct ts_bank *bank = inet_where(where);
	u32 table = where & (INET_TABLES - 1);

	if (bank)
		ts_look_again(inet_table(bank, table), &bank->tick[table], slot, inet_view(table));
	return 0;
}

__noinline int inet_order_slow(u32 where, u64 obj, u64 id, u64 value)
{
	struct ts_bank *bank = inet_where(where);
	u32 table = where & (INET_TABLES - 1);

	if (bank)
		ts_order_slow(inet_table(bank, table), &bank->tick[table], obj, id, value, inet_view(table));
	return 0;
}

__noinline int inet_roll(u32 bank_index)
{
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &bank_index);
	u32 sample = bank_index & (INET_SAMPLES - 1);

	if (bank)
		ts_bank_roll(bank, constants.shape.table_stride, settings.config[sample], settings.all.generation,
			     bpf_jiffies64());
	return 0;
}

#endif /* TOPSTAT_INET_APART_H */
