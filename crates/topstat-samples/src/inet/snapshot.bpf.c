// SPDX-License-Identifier: GPL-2.0-only
/*
 * What readers run: programs that are called, never attached, on the state that the
 * observer keeps. Each reader loads its own, with a section of its own to write to, so
 * readers don't know of each other, and nothing is drained.
 */
#define INET_READER /* see fallbacks.bpf.h */
#include "apart.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* What the latest call of inet_snapshot found on its CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, 4096);
} section SEC(".maps");

/* A field in the copy of a socket. */
#define INET_SOCK_FIELD(s, type, field) \
	((type *)((void *)(s)->sock + bpf_core_field_offset(struct sock_common, field)))

/* Who and where the object is, read from the socket itself: in one piece, since a snapshot does
 * this for hundreds of rows. */
static __always_inline void inet_describe(struct inet_section *s, struct inet_row *row, u64 obj)
{
	struct net *net;
	u64 sock = 0;

	ts_peek(&row->owner, sizeof(row->owner), obj + offsetof(struct inet_object, owner));
	ts_peek(&sock, sizeof(sock), obj + offsetof(struct inet_object, sock));
	ts_peek(s->sock, sizeof(s->sock), sock);
	row->family = *INET_SOCK_FIELD(s, u16, skc_family);
	row->sport = *INET_SOCK_FIELD(s, u16, skc_num);
	row->dport = bpf_ntohs(*INET_SOCK_FIELD(s, u16, skc_dport));
	net = *INET_SOCK_FIELD(s, struct net *, skc_net);
	row->netns = BPF_CORE_READ(net, ns.inum);
	if (row->family == AF_INET6) {
		__builtin_memcpy(row->sip, INET_SOCK_FIELD(s, u32, skc_v6_rcv_saddr), 16);
		__builtin_memcpy(row->dip, INET_SOCK_FIELD(s, u32, skc_v6_daddr), 16);
	} else {
		*(u32 *)row->sip = *INET_SOCK_FIELD(s, u32, skc_rcv_saddr);
		*(u32 *)row->dip = *INET_SOCK_FIELD(s, u32, skc_daddr);
	}
}

/* One slot: re-evaluated (and aged), and written to the section if an object is there.
 * A global function, which the verifier looks at once and not once a slot. */
__noinline int inet_snapshot_row(u32 cpu, u32 sample, u32 table, u32 slot, u32 read_only)
{
	struct inet_section *s;
	struct inet_row *row;
	struct ts_bank *bank;
	u32 zero = 0;
	ts_view view;
	u64 obj;

	if (table >= INET_TABLES)
		return 0;
	s = bpf_map_lookup_elem(&section, &zero);
	bank = inet_bank(cpu, sample);
	if (!s || !bank)
		return 0;
	view = inet_view(table);
	row = &s->row[ts_bound(s->head.rows, constants.shape.entries_mask)];
	obj = ts_section_row(&s->head, inet_table(bank, table & (INET_TABLES - 1)), slot, view, read_only, &row->row);
	if (!obj)
		return 0;
	inet_describe(s, row, obj);
	ts_section_keep(&s->head, &row->row, obj, view);
	return 0;
}

/*
 * Take one table's section on the CPU that is named, at the instant that is named.
 * Arguments: struct ts_section_args. Returns 0; EAGAIN: a push that this call has
 * interrupted holds the bank, call again; ENOENT: no such table.
 */
SEC("raw_tp")
int inet_snapshot(struct bpf_raw_tracepoint_args *ctx)
{
	u32 cpu = ctx->args[0], sample = ctx->args[1], table = ctx->args[2];
	u64 now = ctx->args[3];
	u32 read_only = ctx->args[4];
	u32 zero = 0, slot;
	struct inet_section *s;
	struct ts_config *c;
	struct ts_bank *bank;
	struct ts_table *t;

	if (sample >= INET_SAMPLES || table >= INET_TABLES)
		return ENOENT;
	s = bpf_map_lookup_elem(&section, &zero);
	bank = inet_bank(cpu, sample);
	if (!s || !bank)
		return ENOENT;
	c = &settings.config[ts_bound(sample, INET_SAMPLES - 1)][ts_bound(table, INET_TABLES - 1)];
	if (!now)
		now = c->precise ? bpf_ktime_get_ns() : bpf_jiffies64();
	ts_section_begin(&s->head, c, now);
	if (!read_only && !ts_bank_enter(bank))
		return EAGAIN;
	t = inet_table(bank, table & (INET_TABLES - 1));
	ts_section_table(&s->head, t, c, read_only);
	for (slot = 0; slot <= constants.shape.entries_mask; slot++)
		inet_snapshot_row(cpu, sample, table, slot, read_only);
	ts_section_end(&s->head, t);
	ts_bank_leave(bank, !read_only);
	return 0;
}

struct ts_refill refill SEC(".data.refill");

/*
 * Order every object of a sample again, in one table, on whatever CPU this runs. For when a
 * snapshot can't be proven (T5): many of the top have gone or faded since smaller ones were
 * turned away. Unlike all else it costs by the object, and it is not needed while traffic
 * goes on.
 */
SEC("iter/bpf_sk_storage_map")
int inet_refill(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct inet_object *o = ctx->value;
	u32 sample = refill.sample, table = refill.table;
	struct ts_value value = {};
	struct ts_config *c;
	struct ts_bank *bank;
	struct ts_tick *tick;
	struct ts_table *t;
	u64 self, id;
	ts_view view;

	if (!o || sample >= INET_SAMPLES || table >= INET_TABLES)
		return 0;
	self = o->self;
	id = o->id;
	if (o->sample != sample || !id || self <= INET_INIT)
		return 0;
	bank = inet_bank(bpf_get_smp_processor_id(), sample);
	if (!bank)
		return 0;
	refill.objects++;
	c = settings.config[sample];
	ts_bank_to(bank, constants.shape.table_stride, c, settings.all.generation, bpf_jiffies64());
	if (!ts_bank_enter(bank)) {
		refill.skipped++;
		return 0;
	}
	tick = &bank->tick[table];
	t = inet_table(bank, table);
	view = inet_view(table);
	/* The iterator lends its value for reading at fixed places only: take a copy. */
	if (table == INET_BYTES) {
		ts_peek(&t->scratch, sizeof(struct ts_count), self + ts_view_window(view));
		value.value = t->scratch.sum[0] + t->scratch.sum[1];
	} else {
		ts_peek(&t->scratch, sizeof(struct ts_window), self + ts_view_window(view));
		if (ts_window_eval(&t->scratch, tick, &value))
			value.value = ts_window_now(&t->scratch, tick->fraction);
	}
	if (value.value)
		ts_order_slow(t, tick, self, id, value.value, view);
	ts_bank_leave(bank, 1);
	return 0;
}
