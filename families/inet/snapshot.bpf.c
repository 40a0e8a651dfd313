// SPDX-License-Identifier: GPL-2.0-only
/*
 * What readers run: programs that are called, never attached, on the state that the
 * observer keeps. Each reader loads its own, with a section of its own to write to, so
 * readers don't know of each other, and nothing is drained.
 */
#define INET_READER /* see fallbacks.bpf.h */
#include "fallbacks.bpf.h"
#include "logic.h"

char LICENSE[] SEC("license") = "GPL";

#define ranked_row inet_row
#define ranked_section inet_section

/* A field in the copy of a socket. */
#define INET_SOCK_FIELD(s, type, field) \
	((type *)((void *)(s)->sock + bpf_core_field_offset(struct sock_common, field)))

/* Who and where the object is, read from the socket itself: in one piece, since a snapshot does
 * this for hundreds of rows. */
static __always_inline void ranked_describe(struct inet_section *s, struct inet_row *row, u32 sample, u64 obj)
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

/* Nothing has been held back. */
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
