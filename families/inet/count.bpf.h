/* SPDX-License-Identifier: GPL-2.0-only */
/* What happens to a packet: its object is found or made, and pushed to the tables. */
#ifndef TOPSTAT_INET_COUNT_H
#define TOPSTAT_INET_COUNT_H

#include "packet.bpf.h"
#include "object.bpf.h"

/*
 * IPsec has wrapped a packet that the socket at this address (0: not known) sends, and its payload can't be told. Returns
 * whether the packet itself is to be counted; what is not counted of it, is counted as opaque.
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

/* Count a packet that has no object to the totals alone: either there should be one (`refused`), or
 * its socket is closed already. */
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
 * The packet's socket has no object yet, or one without a place or a sure owner. Gives
 * the object, which may not have begun, or NULL (which has been counted).
 */
static __noinline struct inet_object *inet_object_make(struct __sk_buff *skb, u32 part)
{
	struct bpf_sock *sk = skb->sk;
	struct inet_seen now = {};
	struct inet_object *o;
	u32 sample;

	if (!sk)
		return NULL;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return NULL;
	sample = inet_sample_of(skb, sk);
	if (sample >= INET_SAMPLES)
		return NULL;
	if (inet_is_tcp(sample) && sk->state == TCP_CLOSE) {
		/* Closed before it had an object, or with one: whoever ends objects may have been here. */
		inet_count_without(skb, sample, part, 0);
		return NULL;
	}
	o = host_make(objects, sk, sk);
	if (!o) {
		inet_count_without(skb, sample, part, 1);
		return NULL;
	}
	now.resent = inet_resent_now(sk);
	if (!inet_object_own(o, (u64)sk, &now)) {
		inet_count_without(skb, sample, part, 1);
		return NULL;
	}
	if (part == INET_TX && !o->sure) {
		struct sock *kernel_sk = (void *)ts_read(o->sock);

		/*
		 * A packet sent while the socket is locked by its user is sent by its
		 * user: softirqs leave a locked socket alone. UDP sends without the lock;
		 * but its sockets are known from when they were made or adopted, so this
		 * is one of the kernel's own.
		 */
		if (BPF_CORE_READ(kernel_sk, sk_lock.owned))
			inet_owner(o, (void *)bpf_get_current_task());
		else if (sample == INET_UDP_V4 || sample == INET_UDP_V6)
			o->sure = 1;
	}
	/* A socket that is used again, which nobody was told of: its SYN, sent under its lock. */
	if (inet_is_dead(o) && !o->object.id && part == INET_TX && inet_is_tcp(sample) && sk->state == TCP_SYN_SENT)
		inet_object_reset(o);
	o->sample = sample;
	return o;
}

/*
 * Gives the object, ready to be pushed to, or NULL (which has been counted). Apart from
 * inet_object_make(), which needs much of the stack: all calls that lead to one another
 * have 512 bytes of it.
 */
static __noinline struct inet_object *inet_object_ready(struct __sk_buff *skb, u32 part)
{
	struct inet_object *o = inet_object_make(skb, part);
	struct bpf_sock *sk = skb->sk;
	u64 id;

	if (!o || !sk)
		return NULL;
	if (!inet_is_dead(o) && !o->object.id) {
		id = bpf_get_socket_cookie(skb);
		if (inet_is_kernels((void *)ts_read(o->sock), o->sample))
			id = inet_kernels_id(id);
		if (inet_object_begin(o, o->sample, id))
			inet_resent_before(o, sk);
	}
	if (inet_is_dead(o)) {
		inet_count_without(skb, o->sample, part, 0);
		return NULL;
	}
	return o;
}

/* Count one packet of the socket: what both hooks do. Always 1: let it pass. */
static __always_inline int inet_packet(struct __sk_buff *skb, struct bpf_sock *sk, u32 part)
{
	u32 sample, packets, bytes, resent;
	struct inet_object *o;

	if (!sk)
		return 1;
	o = host_of(objects, sk, sk);
	if (ts_unlikely(!o || !inet_object_is_own(o) || !o->object.id || (part == INET_TX && !o->sure) ||
			inet_is_over(sk, o->sample))) {
		o = inet_object_ready(skb, part);
		if (!o)
			return 1;
	}
	sample = o->sample;
	if (sample >= INET_SAMPLES)
		return 1;
	resent = part == INET_TX ? inet_resent_by_packet(o, sk) : 0;
	if (ts_unlikely(resent))
		inet_push_resent(o, resent);
	packets = host_number(packet_segments(skb));
	bytes = inet_payload(skb, sample, part);
	if (ts_unlikely(bytes == PACKET_OPAQUE)) {
		if (!inet_opaque(skb, o->sock, sample))
			return 1;
		bytes = 0;
	}
	inet_count(o, sample, part, packets, host_number(bytes));
	return 1;
}

#endif /* TOPSTAT_INET_COUNT_H */
