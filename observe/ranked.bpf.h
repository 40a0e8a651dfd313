/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the observer and the readers of a family of ranked tables have in common, once. Before it
 * is included, a family
 *
 *   - defines RANKED_BANKS: the banks of a CPU, a power of two (trait Ranked in ranking/mod.rs);
 *   - includes apart.bpf.h, and then its own header, which includes topstat/section.h.
 *
 * And it defines `constants`, which begins with a struct ts_shape, `settings`, whose `config` is
 * [RANKED_BANKS][TS_BANK_TABLES], and
 *
 *	ts_view ranked_view(u32 bank, u32 table)
 *
 * which says where a table's window is in an object.
 */
#ifndef TOPSTAT_RANKED_BPF_H
#define TOPSTAT_RANKED_BPF_H

/* The bank of a CPU, at [cpu * RANKED_BANKS + bank]. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RANKED_BANKS);
	__uint(key_size, sizeof(u32));
	__uint(value_size, 4096);
} banks SEC(".maps");

static __always_inline ts_view ranked_view(u32 bank, u32 table);

static __always_inline struct ts_bank *ranked_bank(u32 cpu, u32 bank)
{
	u32 i = cpu * RANKED_BANKS + bank;

	return bpf_map_lookup_elem(&banks, &i);
}

static __always_inline struct ts_table *ranked_table(struct ts_bank *bank, u32 table)
{
	return ts_bank_table(bank, table, constants.shape.table_stride);
}

__noinline int ranked_settle(u32 where, u32 pos, u64 key, u32 slot)
{
	u32 i = where >> 8, table = where & (TS_BANK_TABLES - 1);
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &i);

	if (bank)
		ts_settle(ranked_table(bank, table), pos, key, slot, constants.shape.entries_mask);
	return 0;
}

__noinline int ranked_look_again(u32 where, u32 slot)
{
	u32 i = where >> 8, table = where & (TS_BANK_TABLES - 1);
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &i);

	if (bank)
		ts_look_again(ranked_table(bank, table), &bank->tick[table], slot,
			      ranked_view(i & (RANKED_BANKS - 1), table));
	return 0;
}

__noinline int ranked_order_slow(u32 where, u64 obj, u64 id, u64 value)
{
	u32 i = where >> 8, table = where & (TS_BANK_TABLES - 1);
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &i);

	if (bank)
		ts_order_slow(ranked_table(bank, table), &bank->tick[table], obj, id, value,
			      ranked_view(i & (RANKED_BANKS - 1), table));
	return 0;
}

__noinline int ranked_roll(u32 bank_index)
{
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &bank_index);
	u32 i = bank_index & (RANKED_BANKS - 1);

	if (bank)
		ts_bank_roll(bank, constants.shape.table_stride, settings.config[i], settings.all.generation,
			     bpf_jiffies64());
	return 0;
}

/* The object at this address has ended: this CPU's tables forget it at once. */
__noinline int ranked_forget(u32 bank_number, u64 obj)
{
	struct ts_bank *bank = ranked_bank(bpf_get_smp_processor_id(), bank_number);
	u32 table;

	if (!bank || !ts_bank_enter(bank))
		return 0;
	for (table = 0; table < TS_BANK_TABLES; table++)
		ts_forget(ranked_table(bank, table), obj, constants.shape.entries_mask);
	ts_bank_leave(bank, 1);
	return 0;
}

#endif /* TOPSTAT_RANKED_BPF_H */
