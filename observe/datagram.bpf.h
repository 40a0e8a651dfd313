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
#ifndef TOPSTAT_DATAGRAM_BPF_H
#define TOPSTAT_DATAGRAM_BPF_H

#include "observe/host.h"

#define DATAGRAM_UDP_HEADER 8

/* A GSO or GRO packet counts its segments. */
static __always_inline u32 datagram_segments(struct sk_buff *skb)
{
	u64 shared = (u64)skb->head + skb->end;
	u16 segments = 0;

	ts_peek(&segments, sizeof(segments), shared + bpf_core_field_offset(struct skb_shared_info, gso_segs));
	return segments ?: 1;
}

/* The payload of one that is sent. */
static __always_inline u32 datagram_sent_bytes(struct sk_buff *skb)
{
	u32 headers = (u16)(skb->transport_header - skb->network_header) + DATAGRAM_UDP_HEADER;

	return skb->len > headers ? skb->len - headers : 0;
}

/* Raw sockets, ICMP and answers of TCP's that are of no connection are sent by the same functions. */
static __always_inline int datagram_is_of(struct sock *sk)
{
	return sk && sk->sk_protocol == IPPROTO_UDP && sk->sk_type != SOCK_RAW;
}

#endif /* TOPSTAT_DATAGRAM_BPF_H */
