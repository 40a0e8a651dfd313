/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * UDP is counted by the functions that it receives and sends a datagram by, so that TCP, whose packets do not go through
 * them, pays nothing for it:
 *
 *   __udp_enqueue_schedule_skb()       what the socket, its filter and programs of control groups have let in, and a full
 *                                      buffer may still refuse; its UDP header is taken off; IPv4 and IPv6
 *   ip_send_skb(), ip6_send_skb()      a whole datagram, however many calls have made it up, on its way to netfilter's output,
 *                                      to IPsec, and to whatever cuts it (GSO, fragments). By which of them tells the
 *                                      packet, not the socket: an IPv6 socket sends to IPv4, too
 *
 * Tunnels of the kernel's pass by both: what they receive does not come to the socket's queue, and what they send is
 * not handed to IP by UDP.
 */
#ifndef TOPSTAT_INET_FUNCTIONS_H
#define TOPSTAT_INET_FUNCTIONS_H

#include "object.bpf.h"
#include "observe/gate.bpf.h"

#define INET_UDP_HEADER 8

/* A GSO or GRO packet counts its segments. */
static __always_inline u32 inet_segments(struct sk_buff *skb)
{
	u64 shared = (u64)skb->head + skb->end;
	u16 segments = 0;

	ts_peek(&segments, sizeof(segments), shared + bpf_core_field_offset(struct skb_shared_info, gso_segs));
	return segments ?: 1;
}

/* The object of a socket that has none yet, or none with an id; NULL: the datagram is counted to the totals alone. */
static __noinline struct inet_object *inet_udp_ready(struct sock *sk, u32 part, u32 packets, u32 bytes)
{
	u32 sample = sk->__sk_common.skc_family == AF_INET6 ? INET_UDP_V6 : INET_UDP_V4;
	struct inet_object *o = host_make(objects, sk, sk);
	struct inet_seen now = {};
	u64 id;

	if (!o || !inet_object_own(o, (u64)sk, &now)) {
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
	u32 packets = host_number(inet_segments(skb)), sample;
	struct inet_object *o = host_of(objects, sk, sk);

	if (ts_unlikely(!o || !inet_object_is_own(o) || !o->object.id)) {
		o = inet_udp_ready(sk, part, packets, bytes);
		if (!o)
			return 0;
	}
	sample = o->sample;
	if (sample < INET_SAMPLES)
		inet_count(o, sample, part, packets, host_number(bytes));
	return 0;
}

/* Raw sockets, ICMP and answers of TCP's that are of no connection are sent by the same functions. */
static __always_inline int inet_sends(struct sk_buff *skb)
{
	struct sock *sk = skb->sk;
	u32 headers;

	if (!sk || sk->sk_protocol != IPPROTO_UDP || sk->sk_type == SOCK_RAW)
		return 0;
	headers = (u16)(skb->transport_header - skb->network_header) + INET_UDP_HEADER;
	return inet_datagram(sk, skb, INET_TX, skb->len > headers ? skb->len - headers : 0);
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
