/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The programs of readers of a family of ranked tables, on top of obs.h. Before this header, a family defines `ranked_section`, a
 * ts_section called `head` and its rows; `ranked_row`, which begins with a ts_row called `row`; and
 *
 *	void ranked_describe(struct ranked_section *s, struct ranked_row *row, u32 bank, u64 obj)
 *		writes the description of the object to the row; the section may have scratch memory
 *	void ranked_describe_kept(struct ranked_row *row, struct … *kept)
 *		writes the description of an ended object, where these are kept (TS_KEEPS); `kept` is NULL if there is no copy
 *	int ranked_settle(u32 cpu)
 *		pushes the amounts that were used and not pushed yet; called on a section's own CPU, before the section is taken.
 *		0: this has interrupted another settling, call again. If no amounts are ever outstanding: #define
 *		ranked_settle(cpu) 1
 */
#ifndef TOPSTAT_RANKED_SNAPSHOT_BPF_H
#define TOPSTAT_RANKED_SNAPSHOT_BPF_H

/* The result of the latest call of ranked_snapshot on its CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, 4096);
} section SEC(".maps");

/* One slot. A global function, so that the verifier checks it once and not once a slot. */
__noinline int ranked_snapshot_row(u32 cpu, u32 bank_number, u32 table, u32 slot, u32 read_only)
{
	struct ranked_section *s;
	struct ranked_row *row;
	struct ts_bank *bank;
	struct ts_table *t;
	u32 zero = 0;
	ts_view view;
	u64 obj;

	if (table >= TS_BANK_TABLES || bank_number >= HOST_BANKS)
		return 0;
	s = bpf_map_lookup_elem(&section, &zero);
	bank = host_bank(cpu, bank_number);
	if (!s || !bank)
		return 0;
	view = obs_view(bank_number, table);
	row = &s->row[ts_bound(s->head.rows, constants.shape.entries_mask)];
	t = obs_table(bank, ts_bound(table, TS_BANK_TABLES - 1));
	obj = ts_section_row(&s->head, t, slot, view, read_only, &row->row);
	if (!obj)
		return 0;
#ifdef TS_KEEPS
	if (ts_is_kept(obj))
		ranked_describe_kept(row, (void *)ts_kept_of(t->place, slot));
	else
#endif
		ranked_describe(s, row, bank_number, obj);
	ts_section_keep(&s->head, t, &row->row, obj, view);
	return 0;
}

/*
 * Take one table's section on the given CPU, at the given instant. Arguments: struct ts_section_args. Returns 0; EAGAIN: the
 * context that this call has interrupted holds the bank, call again; ENOENT: there is no such table.
 */
SEC("raw_tp")
int ranked_snapshot(struct bpf_raw_tracepoint_args *ctx)
{
	u32 cpu = ctx->args[0], bank_number = ctx->args[1], table = ctx->args[2];
	u64 instant = ctx->args[3];
	u32 read_only = ctx->args[4];
	struct ranked_section *s;
	u32 zero = 0, slot;
	struct ts_config *c;
	struct ts_bank *bank;
	struct ts_table *t;

	if (bank_number >= HOST_BANKS || table >= TS_BANK_TABLES)
		return ENOENT;
	s = bpf_map_lookup_elem(&section, &zero);
	bank = host_bank(cpu, bank_number);
	if (!s || !bank)
		return ENOENT;
	if (!read_only && cpu == host_cpu() && !ranked_settle(cpu))
		return EAGAIN;
	c = &settings.config[ts_bound(bank_number, HOST_BANKS - 1)][ts_bound(table, TS_BANK_TABLES - 1)];
	ts_section_begin(&s->head, c, host_jiffies(), instant);
	if (!read_only && !ts_bank_enter(bank))
		return EAGAIN;
	t = obs_table(bank, ts_bound(table, TS_BANK_TABLES - 1));
	ts_section_table(&s->head, t, c, read_only);
	for (slot = 0; slot <= constants.shape.entries_mask; slot++)
		ranked_snapshot_row(cpu, bank_number, table, slot, read_only);
	ts_section_end(&s->head, t);
	ts_bank_leave(bank, !read_only);
	return 0;
}

struct ts_refill refill SEC(".data.refill");

/*
 * For the iterator over all objects of a sample: order one object again, in one table, on the CPU that this runs on. It is
 * ordered by its present value, because a CPU that pushes to it at the same time orders it, too. Used when a snapshot can't be
 * proven (T5): many of the top have gone or faded since smaller objects were turned away. It is the only operation whose cost
 * grows with the number of objects, and it is not needed while pushes go on.
 */
static __always_inline void ranked_order_again(u64 self, u64 id)
{
	u32 table = refill.table, bank_number = refill.bank;
	struct ts_value value = {};
	struct ts_bank *bank;
	struct ts_tick *tick;
	struct ts_table *t;
	ts_view view;

	if (!id || !self || table >= TS_BANK_TABLES || bank_number >= HOST_BANKS)
		return;
	bank = host_bank(host_cpu(), bank_number);
	if (!bank)
		return;
	refill.objects++;
	ts_bank_to(bank, constants.shape.table_stride, settings.config[bank_number], settings.all.generation,
		   host_jiffies());
	if (!ts_bank_enter(bank)) {
		refill.skipped++;
		return;
	}
	table = ts_bound(table, TS_BANK_TABLES - 1);
	tick = &bank->tick[table];
	t = obs_table(bank, table);
	view = obs_view(bank_number, table);
	/* Iterators give read access to objects at fixed places only: take a copy. */
	if (ts_view_type(view) == TS_STATIC) {
		ts_count_peek(&t->scratch, self + ts_view_window(view));
		value.value = t->scratch.sum[0] + t->scratch.sum[1];
	} else {
		if (ts_object_peek(&t->scratch, self, view) || ts_window_eval(&t->scratch, tick, &value))
			value.value = ts_window_now(&t->scratch, tick);
	}
	if (value.value)
		ts_order_again(t, tick, self, id, value.value, view);
	ts_bank_leave(bank, 1);
}

/*
 * The refill of a family whose objects are in an array: called for some places at a time, from the first argument on, as many as
 * the second one says. `obj` is the ts_object of `o`, and `when` tells whether `o` belongs to the sample.
 */
#define REFILL_PLACES(program, array, obj, when)                                    \
	static int program##_at(u32 i, u64 *first)                                  \
	{                                                                           \
		typeof((array).value) o = host_item(array, (u32)*first + i);        \
                                                                                    \
		if (!o)                                                             \
			return 1;                                                   \
		if (when)                                                           \
			ranked_order_again((obj).self, (obj).id);                   \
		return 0;                                                           \
	}                                                                           \
	SEC("raw_tp") int program(struct bpf_raw_tracepoint_args *ctx)              \
	{                                                                           \
		u64 first = ctx->args[0];                                           \
                                                                                    \
		bpf_loop(ctx->args[1], program##_at, &first, 0);                    \
		return 0;                                                           \
	}

/* As REFILL_PLACES(), for objects that are keyed by value. */
#define KEYED_REFILL(program) \
	REFILL_PLACES(program, objects, o->keyed.object, o->keyed.sample == refill.bank / HOST_SAMPLE_BANKS)

#endif /* TOPSTAT_RANKED_SNAPSHOT_BPF_H */
