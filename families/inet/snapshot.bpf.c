// SPDX-License-Identifier: GPL-2.0-only
/*
 * Programs of the readers: they are called, never attached, and work on the observer's state. Each reader loads its programs with
 * a separate section, so readers do not affect each other, and reading takes nothing out of the tables.
 */
#define INET_READER /* see inet.bpf.h */
#include "inet.bpf.h"
#include "logic.h"
#include "observe/sock.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define ranked_row inet_row
#define ranked_section inet_section

/* The CPU that has made the newest record, from 1. (Readers order connections on any CPU.) */
static __always_inline u32 inet_cpu_of(u64 obj)
{
	u64 ring = obj + offsetof(struct inet_object, counted.ring), slide = 0;
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

/* Sockets that this refill has found already: there are two ways to a socket, and several processes may have it open. */
HOST_STORAGE(visited, sk, u64);

static __always_inline void inet_refill_found(struct sock *sk)
{
	struct inet_object *o = sk ? host_of(objects, sk, sk) : NULL;
	u64 *last;

	if (!o || !inet_object_is_own(o) || o->sample != refill.bank || o->object.self <= INET_INIT)
		return;
	last = host_make(visited, sk, sk);
	if (last && *last == refill.number)
		return;
	if (last)
		*last = refill.number;
	ranked_order_again(o->object.self, o->object.id);
}

/* As inet_refill(), by the files of all processes. */
SEC("iter/task_file")
int inet_refill_files(struct bpf_iter__task_file *ctx)
{
	if (ctx->task && ctx->file)
		inet_refill_found(sock_of_file(ctx->file));
	return 0;
}

/* As inet_refill(), over the connections of this network namespace, also those that no process has open. */
SEC("iter/tcp")
int inet_refill_hashed(struct bpf_iter__tcp *ctx)
{
	struct sock_common *found = ctx->sk_common;

	if (found)
		inet_refill_found((struct sock *)bpf_skc_to_tcp_sock(found));
	return 0;
}
