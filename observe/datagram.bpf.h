/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * UDP is counted at the functions that receive and send a datagram. TCP's packets do not go through them, so TCP pays nothing for
 * it:
 *
 *   __udp_enqueue_schedule_skb()       a datagram that the socket, its filter and programs of control groups have let in; a full
 *                                      buffer may still refuse it; its UDP header is removed; IPv4 and IPv6
 *   ip_send_skb(), ip6_send_skb()      a whole datagram, however many calls have built it, on its way to netfilter's output, to
 *                                      IPsec, and to the code that segments it (GSO, fragments). The packet decides which of the
 *                                      two functions is called, not the socket: an IPv6 socket sends to IPv4, too
 *
 * Tunnels of the kernel pass by both: their received packets do not come to the socket's queue, and UDP does not hand their sent
 * packets to IP.
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

/* The payload of a sent datagram. */
static __always_inline u32 datagram_sent_bytes(struct sk_buff *skb)
{
	u32 headers = (u16)(skb->transport_header - skb->network_header) + DATAGRAM_UDP_HEADER;

	return skb->len > headers ? skb->len - headers : 0;
}

/* These functions also send packets of raw sockets, ICMP, and answers of TCP that belong to no connection. */
static __always_inline int datagram_is_of(struct sock *sk)
{
	return sk && sk->sk_protocol == IPPROTO_UDP && sk->sk_type != SOCK_RAW;
}

#endif /* TOPSTAT_DATAGRAM_BPF_H */
