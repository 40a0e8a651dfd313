/* SPDX-License-Identifier: GPL-2.0-only */
/* What a packet says of itself: its payload, and to which sample its socket belongs. */
#ifndef TOPSTAT_INET_PACKET_H
#define TOPSTAT_INET_PACKET_H

#include "fallbacks.bpf.h"
#include "logic.h"
#include "observe/packet.bpf.h"

/* Bytes behind the transport header, or PACKET_OPAQUE. */
static __always_inline u32 inet_payload(struct __sk_buff *skb, u32 sample, u32 part)
{
	u32 is_v6 = sample == INET_TCP_V6 || sample == INET_UDP_V6, len = skb->len;
	u32 header = packet_headers(skb, inet_is_tcp(sample) ? IPPROTO_TCP : IPPROTO_UDP, is_v6, part == INET_TX);

	if (ts_unlikely(header == PACKET_OPAQUE))
		return PACKET_OPAQUE;
	return len > header ? len - header : 0;
}

/* Which sample a packet's socket belongs to: TCP by the packets it exchanges (a
 * dual-stack socket with an IPv4 peer is an IPv4 connection), UDP by its family. Which
 * protocol the socket tells: a packet that IPsec has wrapped has another one, and may be
 * of the other family. */
static __always_inline u32 inet_sample_of(struct __sk_buff *skb, struct bpf_sock *sk)
{
	int v4 = skb->protocol == bpf_htons(0x0800);
	u8 protocol = 0;

	if (sk->type == SOCK_RAW)
		return INET_SAMPLES;
	if (sk->protocol == IPPROTO_UDP)
		return sk->family == AF_INET6 ? INET_UDP_V6 : INET_UDP_V4;
	if (sk->protocol != IPPROTO_TCP)
		return INET_SAMPLES;
	bpf_skb_load_bytes(skb, v4 ? 9 : 6, &protocol, 1);
	if (protocol != IPPROTO_TCP)
		v4 = sk->family != AF_INET6 || sk->dst_ip6[2] == bpf_htonl(0xffff);
	return v4 ? INET_TCP_V4 : INET_TCP_V6;
}

#endif /* TOPSTAT_INET_PACKET_H */
