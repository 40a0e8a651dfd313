/* SPDX-License-Identifier: GPL-2.0-only */
/* What happens to a packet: its object is found or made, and pushed to the tables. */
#ifndef TOPSTAT_INET_COUNT_H
#define TOPSTAT_INET_COUNT_H

#include "packet.bpf.h"
#include "object.bpf.h"

static __always_inline void inet_count(struct ts_bank *bank, u32 table, u32 part, u64 amount, u32 lost)
{
	struct ts_table *t = ranked_table(bank, table);

	ts_push_total(t, &bank->tick[table], part, amount);
	if (lost)
		ts_refuse(t, &bank->tick[table], amount);
}

/*
 * IPsec has wrapped a packet that the socket at this address (0: not known) sends, and its payload can't be told. Returns
 * whether the packet itself is to be counted; what is not counted of it, is counted as opaque. Three cases:
 *
 *   - The socket's own route leads through IPsec, by a policy. This is the packet, seen for the first time.
 *   - The route leads to another device than the packet leaves by. That device (xfrm, vti) has wrapped it, and before
 *     that the packet came here in the clear: there is nothing to count any more.
 *   - The socket has no route of its own (it is not connected), or IPsec came in later: nobody knows.
 */
static __noinline int inet_opaque(struct __sk_buff *skb, u64 sock, u32 sample)
{
	struct dst_entry *dst = NULL;
	void *xfrm = NULL;
	struct ts_config *c;
	struct ts_bank *bank;
	u32 device = 0, packets = skb->gso_segs;

	if (sample >= INET_SAMPLES)
		return 0;
	if (sock)
		dst = BPF_CORE_READ((struct sock___route *)sock, sk_dst_cache);
	if (dst && bpf_core_field_exists(dst->xfrm))
		xfrm = BPF_CORE_READ(dst, xfrm);
	if (dst && !xfrm)
		device = BPF_CORE_READ(dst, dev, ifindex);
	if (device && device != skb->ifindex)
		return 0;
	bank = ranked_bank(bpf_get_smp_processor_id(), sample);
	if (!bank)
		return 0;
	c = settings.config[sample];
	ts_bank_to(bank, constants.shape.table_stride, c, settings.all.generation, bpf_jiffies64());
	if (!xfrm && c[INET_PPS].enabled)
		ts_push_opaque(ranked_table(bank, INET_PPS), &bank->tick[INET_PPS], packets ? packets : 1);
	/* A packet's payload is shorter than the packet. */
	if (c[INET_BPS].enabled)
		ts_push_opaque(ranked_table(bank, INET_BPS), &bank->tick[INET_BPS], skb->len);
	if (c[INET_BYTES].enabled)
		ts_push_opaque(ranked_table(bank, INET_BYTES), &bank->tick[INET_BYTES], skb->len);
	return !!xfrm;
}

/* Count a packet that has no object to the totals alone: either there should be one (`lost`), or
 * its socket is closed already. */
static __noinline int inet_unobjected(struct __sk_buff *skb, u32 sample, u32 part, u32 lost)
{
	u32 packets = skb->gso_segs, bytes;
	struct ts_config *c;
	struct ts_bank *bank;

	if (sample >= INET_SAMPLES)
		return 0;
	bank = ranked_bank(bpf_get_smp_processor_id(), sample);
	if (!bank)
		return 0;
	packets = packets ? packets : 1;
	bytes = inet_payload(skb, sample, part);
	if (bytes == INET_OPAQUE) {
		inet_opaque(skb, 0, sample);
		return 0;
	}
	c = settings.config[sample];
	ts_bank_to(bank, constants.shape.table_stride, c, settings.all.generation, bpf_jiffies64());
	if (c[INET_PPS].enabled)
		inet_count(bank, INET_PPS, part, packets, lost);
	if (bytes && c[INET_BPS].enabled)
		inet_count(bank, INET_BPS, part, bytes, lost);
	if (bytes && c[INET_BYTES].enabled)
		inet_count(bank, INET_BYTES, part, bytes, lost);
	return 0;
}

/* Segments of the socket are sent again. */
static __noinline int inet_push_resent(struct inet_object *o, u32 segments)
{
	u32 sample, table = INET_RETRANS;
	struct ts_config *c;
	struct ts_bank *bank;
	int claimed;

	if (!o || !segments)
		return 0;
	sample = o->sample;
	if (sample >= INET_SAMPLES)
		return 0;
	c = settings.config[sample];
	if (!c[table].enabled)
		return 0;
	bank = ranked_bank(bpf_get_smp_processor_id(), sample);
	if (!bank)
		return 0;
	ts_bank_to(bank, constants.shape.table_stride, c, settings.all.generation, bpf_jiffies64());
	claimed = ts_bank_enter(bank);
	ts_push(ranked_table(bank, table), &bank->tick[table], &c[table], inet_view(table), claimed, o->self, o->id,
		&o->window[table], INET_TX, segments);
	ts_bank_leave(bank, claimed);
	return 0;
}

/*
 * The packet's socket has no object yet, or one without a place or a sure owner. Gives
 * the object, which may not have begun, or NULL (which has been counted).
 */
static __noinline struct inet_object *inet_object_make(struct __sk_buff *skb, u32 part)
{
	struct bpf_sock *sk = skb->sk;
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
		inet_unobjected(skb, sample, part, 0);
		return NULL;
	}
	o = bpf_sk_storage_get(&objects, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!o) {
		inet_unobjected(skb, sample, part, 1);
		return NULL;
	}
	if (o->self != (u64)o && !inet_object_init(o, sk)) {
		inet_unobjected(skb, sample, part, 1);
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
	if (o->dead && !o->id && part == INET_TX && inet_is_tcp(sample) && sk->state == TCP_SYN_SENT)
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
	if (!o->dead && !o->id) {
		id = bpf_get_socket_cookie(skb);
		if (inet_is_kernels((void *)ts_read(o->sock), o->sample))
			id |= INET_KERNELS;
		/* A SYN-ACK, before there was a socket. */
		if (inet_object_begin(o, o->sample, id))
			inet_push_resent(o, inet_resent_since(o, inet_resent_now(sk)));
	}
	if (o->dead) {
		inet_unobjected(skb, o->sample, part, 0);
		return NULL;
	}
	return o;
}

/* Count one packet of the socket: what both hooks do. Always 1: let it pass. */
static __always_inline int inet_packet(struct __sk_buff *skb, struct bpf_sock *sk, u32 part)
{
	u32 sample, packets, bytes, resent;
	struct inet_object *o;
	struct ts_config *c;
	struct ts_bank *bank;
	u64 self, id, now, quiet;
	u32 generation;
	int claimed;

	if (!sk)
		return 1;
	o = bpf_sk_storage_get(&objects, sk, NULL, 0);
	if (ts_unlikely(!o || o->self != (u64)o || !o->id || (part == INET_TX && !o->sure) ||
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
	bank = ranked_bank(bpf_get_smp_processor_id(), sample);
	if (!bank)
		return 1;
	c = settings.config[sample];
	id = o->id;
	self = o->self;
	packets = skb->gso_segs;
	packets = packets ? packets : 1;
	packets = inet_any(packets);
	bytes = inet_payload(skb, sample, part);
	if (ts_unlikely(bytes == INET_OPAQUE)) {
		if (!inet_opaque(skb, o->sock, sample))
			return 1;
		bytes = 0;
	}
	bytes = inet_any(bytes);

	now = bpf_jiffies64();
	generation = settings.all.generation;
	ts_bank_to(bank, constants.shape.table_stride, c, generation, now);

	if (now < o->quiet && o->generation == generation) {
		if (c[INET_PPS].enabled)
			ts_push_quiet(ranked_table(bank, INET_PPS), &bank->tick[INET_PPS], &o->window[INET_PPS], part, packets);
		if (bytes && c[INET_BPS].enabled)
			ts_push_quiet(ranked_table(bank, INET_BPS), &bank->tick[INET_BPS], &o->window[INET_BPS], part, bytes);
		if (bytes && c[INET_BYTES].enabled)
			ts_push_static_quiet(ranked_table(bank, INET_BYTES), &o->bytes, part, bytes);
		return 1;
	}

	claimed = ts_bank_enter(bank);
	if (c[INET_PPS].enabled)
		ts_push(ranked_table(bank, INET_PPS), &bank->tick[INET_PPS], &c[INET_PPS], inet_view(INET_PPS),
			claimed, self, id, &o->window[INET_PPS], part, packets);
	if (bytes && c[INET_BPS].enabled)
		ts_push(ranked_table(bank, INET_BPS), &bank->tick[INET_BPS], &c[INET_BPS], inet_view(INET_BPS),
			claimed, self, id, &o->window[INET_BPS], part, bytes);
	if (bytes && c[INET_BYTES].enabled)
		ts_push_static(ranked_table(bank, INET_BYTES), &bank->tick[INET_BYTES], &c[INET_BYTES],
			       inet_view(INET_BYTES), claimed, self, id, &o->bytes, part, bytes);
	ts_bank_leave(bank, claimed);

	if (c[INET_PPS].quiet) {
		quiet = ts_quiet_until(~0ULL, &bank->tick[INET_PPS], &c[INET_PPS], o->window[INET_PPS].ordered);
		quiet = ts_quiet_until(quiet, &bank->tick[INET_BPS], &c[INET_BPS], o->window[INET_BPS].ordered);
		o->quiet = ts_quiet_until(quiet, &bank->tick[INET_BYTES], &c[INET_BYTES], o->bytes.ordered);
		o->generation = generation;
	}
	return 1;
}

#endif /* TOPSTAT_INET_COUNT_H */
