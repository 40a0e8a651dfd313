/* SPDX-License-Identifier: GPL-2.0-only */
/* What a packet says of itself: its payload, and to which sample its socket belongs. */
#ifndef TOPSTAT_INET_PACKET_H
#define TOPSTAT_INET_PACKET_H

#include "fallbacks.bpf.h"
#include "logic.h"

/* Instead of a payload: IPsec has wrapped the packet before it came here, so none can be read. */
#define INET_OPAQUE 0xffffffff
/* Where IPsec passes through NAT its packets are UDP's, from this port (RFC 3948). */
#define INET_NAT_T_PORT 4500

/* Whether a UDP packet that a socket sends is IPsec's, with the socket's inside: its port isn't the socket's. */
static __always_inline int inet_is_nat_t(struct __sk_buff *skb, u32 part, u16 from)
{
	struct bpf_sock *sk;

	if (ts_likely(from != bpf_htons(INET_NAT_T_PORT)) || part != INET_TX)
		return 0;
	sk = skb->sk;
	return sk && sk->src_port != INET_NAT_T_PORT;
}

/* The size of a packet's headers, IP options and extension headers among them; INET_OPAQUE: they aren't those of the
 * sample's protocol. */
static __noinline u32 inet_headers(struct __sk_buff *skb, u32 sample, u32 part)
{
	u32 header, next, i;
	u8 first = 0, doff = 0;
	u16 from = 0;

	/* The packet tells, not the sample: dual-stack UDP sockets see both. */
	bpf_skb_load_bytes(skb, 0, &first, 1);
	if (first >> 4 == 4) {
		header = (first & 15) * 4;
		bpf_skb_load_bytes(skb, 9, &first, 1);
	} else {
		header = 40;
		bpf_skb_load_bytes(skb, 6, &first, 1);
	}
	next = first;
	/* Hop-by-hop, routing, destination options, authentication. */
	for (i = 0; i < 6 && (next == 0 || next == 43 || next == 60 || next == 51); i++) {
		u8 ext[2] = {};

		bpf_skb_load_bytes(skb, header, ext, 2);
		header += next == 51 ? (ext[1] + 2) * 4 : (ext[1] + 1) * 8;
		next = ext[0];
	}
	if (next != (sample == INET_TCP_V4 || sample == INET_TCP_V6 ? IPPROTO_TCP : IPPROTO_UDP))
		return INET_OPAQUE;
	if (next == IPPROTO_UDP) {
		bpf_skb_load_bytes(skb, header, &from, 2);
		return inet_is_nat_t(skb, part, from) ? INET_OPAQUE : header + 8;
	}
	bpf_skb_load_bytes(skb, header + 12, &doff, 1);
	return header + (doff >> 4 << 2);
}

/* Bytes behind the transport header, or INET_OPAQUE; a GSO/GRO packet has its headers once. */
static __always_inline u32 inet_payload(struct __sk_buff *skb, u32 sample, u32 part)
{
	u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u32 len = skb->len, header;

	/* The usual ones: no options, no extension headers. */
	if (sample == INET_TCP_V4 && data + 40 <= end && data[0] == 0x45 && data[9] == IPPROTO_TCP)
		header = 20 + (data[32] >> 4 << 2);
	else if (sample == INET_TCP_V6 && data + 60 <= end && data[0] >> 4 == 6 && data[6] == IPPROTO_TCP)
		header = 40 + (data[52] >> 4 << 2);
	else if (sample == INET_UDP_V4 && data + 28 <= end && data[0] == 0x45 && data[9] == IPPROTO_UDP)
		header = inet_is_nat_t(skb, part, *(u16 *)(data + 20)) ? INET_OPAQUE : 28;
	else if (sample == INET_UDP_V6 && data + 48 <= end && data[0] >> 4 == 6 && data[6] == IPPROTO_UDP)
		header = inet_is_nat_t(skb, part, *(u16 *)(data + 40)) ? INET_OPAQUE : 48;
	else
		header = inet_headers(skb, sample, part);
	if (ts_unlikely(header == INET_OPAQUE))
		return INET_OPAQUE;
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
