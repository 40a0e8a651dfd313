/* SPDX-License-Identifier: GPL-2.0-only */
/* UDP by its packets, at the hooks of the root cgroup: a packet's object is found or made, and counts it. */
#ifndef TOPSTAT_INET_PACKET_H
#define TOPSTAT_INET_PACKET_H

#include "list.bpf.h"
#include "object.bpf.h"
#include "observe/packet.bpf.h"
#include "udp.h"

/* Bytes behind the transport header, or PACKET_OPAQUE. */
static __always_inline u32 inet_payload(struct __sk_buff *skb, u32 sample, u32 part)
{
	u32 header = packet_headers(skb, IPPROTO_UDP, sample == INET_UDP_V6, part == INET_TX), len = skb->len;

	if (ts_unlikely(header == PACKET_OPAQUE))
		return PACKET_OPAQUE;
	return len > header ? len - header : 0;
}

/*
 * IPsec has wrapped a packet that the socket at this address (0: unknown) sends, and the size of its payload is unknown. Returns
 * whether the packet itself counts. Its uncounted amounts are counted as opaque.
 */
static __noinline int inet_opaque(struct __sk_buff *skb, u64 sock, u32 sample)
{
	u32 wrapped = packet_wrapped(skb, sock), is_counted = wrapped == PACKET_ITSELF;

	if (sample >= INET_SAMPLES || wrapped == PACKET_AGAIN)
		return 0;
	/* A packet's payload is shorter than the packet. */
	inet_count_opaque(sample, is_counted ? 0 : packet_segments(skb), skb->len);
	return is_counted;
}

/*
 * Count a packet without an object to the totals alone: there is no memory for the object (`refused`), or the socket is closed
 * already.
 */
static __noinline int inet_count_without(struct __sk_buff *skb, u32 sample, u32 part, u32 refused)
{
	u32 bytes;

	if (sample >= INET_SAMPLES)
		return 0;
	bytes = inet_payload(skb, sample, part);
	if (bytes == PACKET_OPAQUE)
		inet_opaque(skb, 0, sample);
	else
		inet_count_total(sample, part, packet_segments(skb), bytes, refused);
	return 0;
}

/*
 * For a packet whose socket has no object, or an object without an id or a known owner. Returns the object, which may have no id
 * yet, or NULL (the packet has been counted).
 */
static __noinline struct inet_object *inet_object_make(struct __sk_buff *skb, u32 part)
{
	struct bpf_sock *sk = skb->sk;
	struct inet_object *o;
	u32 sample;

	if (!sk)
		return NULL;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->type == SOCK_RAW)
		return NULL;
	sample = sk->family == AF_INET6 ? INET_UDP_V6 : INET_UDP_V4;
	o = host_make(objects, sk, sk);
	if (!o || !inet_object_own(o, (u64)sk, NULL)) {
		inet_count_without(skb, sample, part, 1);
		return NULL;
	}
	/* Other sockets are known since they were made or adopted, so this one is the kernel's own. */
	if (part == INET_TX)
		o->sure = 1;
	o->sample = sample;
	return o;
}

/*
 * Returns the object, ready to be pushed to, or NULL (the packet has been counted). Separate from inet_object_make(), which needs
 * much stack: all functions of a call chain share 512 bytes.
 */
static __noinline struct inet_object *inet_object_ready(struct __sk_buff *skb, u32 part)
{
	struct inet_object *o = inet_object_make(skb, part);
	u64 id;

	if (!o)
		return NULL;
	if (!inet_is_dead(o) && !o->object.id) {
		id = bpf_get_socket_cookie(skb);
		if (inet_is_kernels((void *)ts_read(o->sock), o->sample))
			id = inet_kernels_id(id);
		inet_object_begin(o, o->sample, id);
	}
	if (inet_is_dead(o)) {
		inet_count_without(skb, o->sample, part, 0);
		return NULL;
	}
	return o;
}

/* Count one packet of the UDP socket, for both hooks. Always 1: the packet passes. */
static __always_inline int inet_packet(struct __sk_buff *skb, struct bpf_sock *sk, u32 part)
{
	struct inet_object *o;
	u32 sample, packets, bytes;

	if (!sk)
		return 1;
	o = host_of(objects, sk, sk);
	if (ts_unlikely(!o || !inet_object_is_own(o) || !o->object.id || (part == INET_TX && !o->sure))) {
		o = inet_object_ready(skb, part);
		if (!o)
			return 1;
	}
	sample = o->sample;
	if (sample < INET_UDP_V4 || sample >= INET_SAMPLES)
		return 1;
	packets = host_number(packet_segments(skb));
	bytes = inet_payload(skb, sample, part);
	if (ts_unlikely(bytes == PACKET_OPAQUE)) {
		if (!inet_opaque(skb, o->sock, sample))
			return 1;
		bytes = 0;
	}
	inet_udp_count((void *)sk, o, part, packets, host_number(bytes));
	return 1;
}

#endif /* TOPSTAT_INET_PACKET_H */
