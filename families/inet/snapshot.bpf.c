// SPDX-License-Identifier: GPL-2.0-only
/*
 * Programs of the readers: they are called, never attached, and work on the observer's state. Each reader loads its programs with
 * a separate section, so readers do not affect each other, and reading takes nothing out of the tables.
 */
#define INET_READER /* see inet.bpf.h */
#include "inet.bpf.h"
#include "logic.h"

char LICENSE[] SEC("license") = "GPL";

#define ranked_row inet_row
#define ranked_section inet_section

/* The CPU that has made the newest record, from 1. (Readers order connections on any CPU.) */
static __always_inline u32 inet_cpu_of(u64 obj)
{
	u64 ring = obj + offsetof(struct inet_object, tcp.ring), slide = 0;
	u32 cpu = 0;

	ts_peek(&slide, sizeof(slide), ring);
	ring += offsetof(struct record_ring, record) + (slide & TS_SLIDE_NUMBER) % TS_MARKS * sizeof(struct record);
	ts_peek(&cpu, sizeof(cpu), ring + offsetof(struct record, cpu));
	return cpu + 1;
}

static __always_inline void ranked_describe(struct inet_section *s, struct inet_row *row, u32 sample, u64 obj)
{
	inet_describe(&row->about, s->sock, obj);
	row->about.closed = 0;
	if (inet_is_tcp(sample))
		row->row.cpu = inet_cpu_of(obj);
}

static __always_inline void ranked_describe_kept(struct inet_row *row, const struct inet_kept *k)
{
	if (k)
		row->about = k->about;
}

/* No amounts are held back. */
static __always_inline int ranked_settle(u32 cpu)
{
	return 1;
}

#include "observe/ranked_snapshot.bpf.h"

SEC("iter/bpf_sk_storage_map")
int inet_refill(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct inet_object *o = ctx->value;

	if (o && o->sample == refill.bank && o->object.self > INET_INIT)
		ranked_order_again(o->object.self, o->object.id);
	return 0;
}
