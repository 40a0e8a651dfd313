/* SPDX-License-Identifier: GPL-2.0-only */
/* UDP by its own functions: see observe/datagram.bpf.h. */
#ifndef TOPSTAT_INET_FUNCTIONS_H
#define TOPSTAT_INET_FUNCTIONS_H

#include "list.bpf.h"
#include "object.bpf.h"
#include "observe/datagram.bpf.h"
#include "observe/gate.bpf.h"
#include "udp.h"

/* The object of a socket that has no object or id yet. NULL: the datagram is counted to the totals alone. */
static __noinline struct inet_object *inet_udp_ready(struct sock *sk, u32 part, u32 packets, u32 bytes)
{
	u32 sample = sk->__sk_common.skc_family == AF_INET6 ? INET_UDP_V6 : INET_UDP_V4;
	struct inet_object *o = host_make(objects, sk, sk);
	u64 id;

	if (!o || !inet_object_own(o, (u64)sk, NULL)) {
		inet_count_total(sample, part, packets, bytes, 1);
		return NULL;
	}
	if (!inet_is_dead(o) && !o->object.id) {
		id = bpf_get_socket_cookie(sk);
		if (inet_is_kernels(sk, sample))
			id = inet_kernels_id(id);
		inet_object_begin(o, sample, id);
	}
	if (!inet_is_dead(o))
		return o;
	inet_count_total(sample, part, packets, bytes, 0);
	return NULL;
}

static __noinline int inet_datagram(struct sock *sk, struct sk_buff *skb, u32 part, u32 bytes)
{
	u32 packets = host_number(datagram_segments(skb)), sample;
	struct inet_object *o = host_of(objects, sk, sk);

	if (ts_unlikely(!o || !inet_object_is_own(o) || !o->object.id)) {
		o = inet_udp_ready(sk, part, packets, bytes);
		if (!o)
			return 0;
	}
	sample = o->sample;
	if (sample >= INET_UDP_V4 && sample < INET_SAMPLES)
		inet_udp_count(sk, o, part, packets, host_number(bytes));
	return 0;
}

static __always_inline int inet_sends(struct sk_buff *skb)
{
	return datagram_is_of(skb->sk) ? inet_datagram(skb->sk, skb, INET_TX, datagram_sent_bytes(skb)) : 0;
}

TS_GATE("fentry/__udp_enqueue_schedule_skb", inet_received)

SEC("fentry/__udp_enqueue_schedule_skb")
int BPF_PROG(inet_received, struct sock *sk, struct sk_buff *skb)
{
	return sk->sk_protocol == IPPROTO_UDP ? inet_datagram(sk, skb, INET_RX, skb->len) : 0;
}

TS_GATE("fentry/ip_send_skb", inet_sent)

SEC("fentry/ip_send_skb")
int BPF_PROG(inet_sent, struct net *net, struct sk_buff *skb)
{
	return inet_sends(skb);
}

TS_GATE("fentry/ip6_send_skb", inet_sent6)

SEC("fentry/ip6_send_skb")
int BPF_PROG(inet_sent6, struct sk_buff *skb)
{
	return inet_sends(skb);
}

#endif /* TOPSTAT_INET_FUNCTIONS_H */
