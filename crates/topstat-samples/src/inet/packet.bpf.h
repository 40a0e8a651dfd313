/* SPDX-License-Identifier: GPL-2.0-only */
/* What a packet says of itself: its payload, and to which sample its socket belongs. */
#ifndef TOPSTAT_INET_PACKET_H
#define TOPSTAT_INET_PACKET_H

#include "maps.bpf.h"

/* The size of a packet's headers, IP options and extension headers among them. */
static __noinline u32 inet_headers(struct __sk_buff *skb, u32 sample)
{
	u32 header, next, i;
	u8 first = 0, doff = 0;

	/* The packet tells, not the sample: dual-stack UDP sockets see both. */
	bpf_skb_load_bytes(skb, 0, &first, 1);
	if (first >> 4 == 4) {
		header = (first & 15) * 4;
		next = sample == INET_TCP_V4 ? IPPROTO_TCP : IPPROTO_UDP;
	} else {
		bpf_skb_load_bytes(skb, 6, &first, 1);
		header = 40;
		next = first;
		/* Hop-by-hop, routing, destination options, authentication. */
		for (i = 0; i < 6 && (next == 0 || next == 43 || next == 60 || next == 51); i++) {
			u8 ext[2] = {};

			bpf_skb_load_bytes(skb, header, ext, 2);
			header += next == 51 ? (ext[1] + 2) * 4 : (ext[1] + 1) * 8;
			next = ext[0];
		}
	}
	if (next == IPPROTO_UDP)
		return header + 8;
	bpf_skb_load_bytes(skb, header + 12, &doff, 1);
	return header + (doff >> 4 << 2);
}

/* Bytes behind the transport header; a GSO/GRO packet has its headers once. */
static __always_inline u32 inet_payload(struct __sk_buff *skb, u32 sample)
{
	u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u32 len = skb->len, header;

	/* The usual ones: no options, no extension headers. */
	if (sample == INET_TCP_V4 && data + 40 <= end && data[0] == 0x45)
		header = 20 + (data[32] >> 4 << 2);
	else if (sample == INET_TCP_V6 && data + 60 <= end && data[6] == IPPROTO_TCP)
		header = 40 + (data[52] >> 4 << 2);
	else if (sample == INET_UDP_V4 && data + 20 <= end && data[0] == 0x45)
		header = 28;
	else if (sample == INET_UDP_V6 && data + 40 <= end && data[0] >> 4 == 6 && data[6] == IPPROTO_UDP)
		header = 48;
	else
		header = inet_headers(skb, sample);
	return len > header ? len - header : 0;
}

/* Which sample a packet's socket belongs to: TCP by the packets it exchanges (a
 * dual-stack socket with an IPv4 peer is an IPv4 connection), UDP by its family. */
static __always_inline u32 inet_sample_of(struct __sk_buff *skb, struct bpf_sock *sk)
{
	u8 protocol = 0;

	if (sk->type == SOCK_RAW)
		return INET_SAMPLES;
	if (skb->protocol == bpf_htons(0x0800)) {
		bpf_skb_load_bytes(skb, 9, &protocol, 1);
		if (protocol == IPPROTO_TCP)
			return INET_TCP_V4;
		if (protocol == IPPROTO_UDP)
			return sk->family == AF_INET6 ? INET_UDP_V6 : INET_UDP_V4;
	} else {
		bpf_skb_load_bytes(skb, 6, &protocol, 1);
		/* Behind extension headers the socket tells. */
		if (protocol == IPPROTO_TCP || (protocol != IPPROTO_UDP && sk->protocol == IPPROTO_TCP))
			return INET_TCP_V6;
		if (protocol == IPPROTO_UDP || sk->protocol == IPPROTO_UDP)
			return INET_UDP_V6;
	}
	return INET_SAMPLES;
}

#endif /* TOPSTAT_INET_PACKET_H */
