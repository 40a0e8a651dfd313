/* SPDX-License-Identifier: GPL-2.0-only */
/* The global functions that host_bpf.h announces: obs.h includes them where the host is eBPF. */
#ifndef TOPSTAT_HOST_COLD_BPF_H
#define TOPSTAT_HOST_COLD_BPF_H

/* A place is bank << 8 | table. */
#define HOST_PLACE_TABLE(place) ((place) & (TS_BANK_TABLES - 1))
#define HOST_NUMBER(bank) ((bank) & (HOST_BANKS - 1))

__noinline int host_settle(u32 place, u32 pos, u64 key, u32 slot)
{
	u32 i = place >> 8, table = HOST_PLACE_TABLE(place);
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &i);

	if (bank)
		ts_settle(obs_table(bank, table), pos, key, slot, constants.shape.entries_mask);
	return 0;
}

__noinline int host_look_again(u32 place, u32 slot)
{
	u32 i = place >> 8, table = HOST_PLACE_TABLE(place);
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &i);

	if (bank)
		ts_look_again(obs_table(bank, table), &bank->tick[table], slot, obs_view(HOST_NUMBER(i), table));
	return 0;
}

#ifdef TS_KEEPS

__noinline int host_look_at_kept(u32 place, u32 slot)
{
	u32 i = place >> 8, table = HOST_PLACE_TABLE(place);
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &i);

	if (bank)
		ts_look_at_kept(obs_table(bank, table), &bank->tick[table], slot, obs_view(HOST_NUMBER(i), table));
	return 0;
}

#endif

__noinline int host_admit(u32 place, u64 obj, u64 id, u64 value)
{
	u32 i = place >> 8, table = HOST_PLACE_TABLE(place);
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &i);

	if (!bank)
		return 0;
	return ts_admit(obs_table(bank, table), &bank->tick[table], obj, id, value, obs_view(HOST_NUMBER(i), table));
}

__noinline int host_bank_roll(u32 place)
{
	u32 i = place >> 8;
	struct ts_bank *bank = bpf_map_lookup_elem(&banks, &i);

	if (bank)
		ts_bank_roll(bank, constants.shape.table_stride, settings.config[HOST_NUMBER(i)],
			     settings.all.generation, host_jiffies());
	return 0;
}

#endif /* TOPSTAT_HOST_COLD_BPF_H */
