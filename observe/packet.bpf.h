/* SPDX-License-Identifier: GPL-2.0-only */
/* The properties of a packet at a hook of a control group: its number of segments, its headers, and whether IPsec has wrapped it.
 * */
#ifndef TOPSTAT_PACKET_BPF_H
#define TOPSTAT_PACKET_BPF_H

#include "observe/host.h"

struct sock___route {
	struct dst_entry *sk_dst_cache;
} CORE;

/* Instead of a size of headers: IPsec has wrapped the packet before it came here, so its headers can't be read. */
#define PACKET_OPAQUE 0xffffffff
/* Where IPsec passes through NAT, its packets are UDP packets from this port (RFC 3948). */
#define PACKET_NAT_T_PORT 4500

#define PACKET_UDP_HEADER 8

/* A GSO or GRO packet counts its segments. */
static __always_inline u32 packet_segments(struct __sk_buff *skb)
{
	u32 packets = skb->gso_segs;

	return packets ? packets : 1;
}

/* Whether a UDP packet that a socket sends is an IPsec packet with the socket's packet inside: its port is not the socket's. */
static __always_inline int packet_is_nat_t(struct __sk_buff *skb, u32 is_sent, u16 from)
{
	struct bpf_sock *sk;

	if (ts_likely(from != bpf_htons(PACKET_NAT_T_PORT)) || !is_sent)
		return 0;
	sk = skb->sk;
	return sk && sk->src_port != PACKET_NAT_T_PORT;
}

/* The size of a packet's headers, including IP options and extension headers; PACKET_OPAQUE: the packet has no header of the
 * protocol. */
static __noinline u32 packet_any_headers(struct __sk_buff *skb, u32 protocol, u32 is_sent)
{
	u32 header, next, i;
	u8 first = 0, doff = 0;
	u16 from = 0;

	/* The packet decides the IP version, not the socket: dual-stack UDP sockets see both. */
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
	if (next != protocol)
		return PACKET_OPAQUE;
	if (next == IPPROTO_UDP) {
		bpf_skb_load_bytes(skb, header, &from, 2);
		return packet_is_nat_t(skb, is_sent, from) ? PACKET_OPAQUE : header + PACKET_UDP_HEADER;
	}
	bpf_skb_load_bytes(skb, header + 12, &doff, 1);
	return header + (doff >> 4 << 2);
}

/* As packet_any_headers(), faster for the usual packets: no options, no extension headers. `is_v6`: the packet is probably IPv6.
 * A GSO or GRO packet has its headers once. */
static __always_inline u32 packet_headers(struct __sk_buff *skb, u32 protocol, u32 is_v6, u32 is_sent)
{
	u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u32 is_tcp = protocol == IPPROTO_TCP;

	if (is_tcp && !is_v6 && data + 40 <= end && data[0] == 0x45 && data[9] == IPPROTO_TCP)
		return 20 + (data[32] >> 4 << 2);
	if (is_tcp && is_v6 && data + 60 <= end && data[0] >> 4 == 6 && data[6] == IPPROTO_TCP)
		return 40 + (data[52] >> 4 << 2);
	if (!is_tcp && !is_v6 && data + 28 <= end && data[0] == 0x45 && data[9] == IPPROTO_UDP)
		return packet_is_nat_t(skb, is_sent, *(u16 *)(data + 20)) ? PACKET_OPAQUE : 20 + PACKET_UDP_HEADER;
	if (!is_tcp && is_v6 && data + 48 <= end && data[0] >> 4 == 6 && data[6] == IPPROTO_UDP)
		return packet_is_nat_t(skb, is_sent, *(u16 *)(data + 40)) ? PACKET_OPAQUE : 40 + PACKET_UDP_HEADER;
	return packet_any_headers(skb, protocol, is_sent);
}

/* The amounts to count for a packet that IPsec has wrapped. */
enum packet_wrapped {
	PACKET_AGAIN, /* nothing: the packet came here before, in the clear */
	PACKET_ITSELF, /* the packet; its payload is only known to be shorter */
	PACKET_UNKNOWN, /* unknown */
};

/*
 * IPsec has wrapped a packet that the socket at this address (0: not known) sends. There are three cases:
 *
 *   - The socket's own route leads through IPsec, by a policy. This is the packet, seen for the first time.
 *   - The route leads to another device than the device that the packet leaves by. The device of the route (xfrm, vti) has
 *     wrapped the packet, and before that the packet came here in the clear: there is nothing left to count.
 *   - The socket has no route (it is not connected), or IPsec was set up later: it is unknown whether the packet was counted.
 */
static __always_inline u32 packet_wrapped(struct __sk_buff *skb, u64 sock)
{
	struct dst_entry *dst = NULL;
	void *xfrm = NULL;
	u32 device = 0;

	if (sock)
		dst = BPF_CORE_READ((struct sock___route *)sock, sk_dst_cache);
	if (dst && bpf_core_field_exists(dst->xfrm))
		xfrm = BPF_CORE_READ(dst, xfrm);
	if (xfrm)
		return PACKET_ITSELF;
	if (dst)
		device = BPF_CORE_READ(dst, dev, ifindex);
	return device && device != skb->ifindex ? PACKET_AGAIN : PACKET_UNKNOWN;
}

#endif /* TOPSTAT_PACKET_BPF_H */
