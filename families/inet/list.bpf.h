/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The active sockets: their counters may have grown since a reader last took differences. They are in the storage `active`,
 * which readers go through. A hook puts a socket there when it makes a record. A reader takes a socket off after a while of
 * silence, in two steps (INET_LEAVING) that are INET_CELL_MS apart: so no hook is still running that has seen the socket listed.
 */
#ifndef TOPSTAT_INET_LIST_H
#define TOPSTAT_INET_LIST_H

#include "inet.bpf.h"
#include "cell.h"

HOST_STORAGE(active, sk, u64);
/* Connections whose counters may have grown since a reader of the family net took differences. Empty while it is not loaded. */
HOST_STORAGE(guests, sk, u64);
/* Connections with the listener's owner, until their own user is seen. */
HOST_WORD(unsure);
/*
 * The number of sockets on the list, and above INET_LEFT_SHIFT how many have left it. Readers that have found as many look no
 * further.
 *
 *   IL1 A socket is counted before it is on the list, and as long as it is there. So the number is never too small. It stays too
 *       large by each socket whose end no program has seen.
 */
HOST_WORD(on_list);
#define INET_LEFT_SHIFT 32
/* The number of walks of readers over the files of all processes. */
HOST_WORD(walks);
/*
 * Reader runs with amounts that are taken and not yet in the totals: their number, and the jiffies << 16 until which they are
 * believed to go on. Other readers wait for them. A run is one read of an iterator, which no signal ends.
 */
HOST_WORD(running);

static __always_inline u32 inet_sample_of_sock(struct sock *sk)
{
	if (sk->__sk_common.skc_family != AF_INET6)
		return INET_TCP_V4;
	return sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[2] == bpf_htonl(0xffff) ? INET_TCP_V4 : INET_TCP_V6;
}

/* Count the socket as refused: there is no memory for its list entry, or for the connection's object (`o` is NULL). */
static __noinline int inet_no_memory(struct sock *sk, struct tcp_sock *tp, struct inet_object *o)
{
	struct records_counts all;
	u32 sample;

	if (!sk)
		return 0;
	if (tp) {
		tcp_counts(&all, sk, tp, 1);
		sample = inet_sample_of_sock(sk);
	} else if (o) {
		inet_counts_of(&all, &o->counted.own);
		sample = o->sample;
	} else {
		return 0;
	}
	inet_refuse(sample, &all);
	return host_nothing();
}

/* The lists that a socket belongs to, as bits of `listed`. The family net reads TCP's alone. */
static __always_inline u64 inet_lists(const struct inet_object *o)
{
	return inet_is_tcp(o->sample) && ts_read(settings.guest[0].enabled) ? INET_LISTED | INET_GUEST_LISTED : INET_LISTED;
}

static __always_inline int inet_is_listed(struct inet_object *o)
{
	u64 lists = inet_lists(o);

	return (ts_read(o->listed) & lists) == lists;
}

static __always_inline void inet_count_off(void)
{
	ts_add(&on_list, (1ULL << INET_LEFT_SHIFT) - 1);
}

/* The socket is closed, or there is no memory for its lists. */
static __always_inline void inet_list_off(struct inet_object *o)
{
	if (host_swap(&o->listed, 0) & INET_ON_LIST)
		inet_count_off();
}

/*
 * Put the socket on its lists, or leave it there. `listed` is written before the storages: then inet_unlist() adds a storage
 * again, if needed.
 */
static __noinline int inet_list(struct sock *sk, struct tcp_sock *tp, struct inet_object *o)
{
	u64 lists = inet_lists(o);

	ts_add(&on_list, 1); /* IL1 */
	if (host_swap(&o->listed, lists | (u32)host_jiffies()) & INET_ON_LIST)
		ts_add(&on_list, -1ULL);
	if (!host_make(active, sk, sk) || (lists & INET_GUEST_LISTED && !host_make(guests, sk, sk))) {
		inet_list_off(o);
		host_call(inet_no_memory(sk, tp, o));
	} else if (inet_is_dead(o)) { /* the socket was closed since: the closing program or this one finds it on the list */
		inet_list_off(o);
	}
	return host_nothing();
}

/* Take the socket off the list. Returns the number of sockets that have left it. */
static __always_inline u32 inet_unlist(struct sock *sk, struct inet_object *o)
{
	if (!inet_leaves(o, INET_LISTED, INET_LEAVING))
		return 0;
	inet_count_off();
	bpf_sk_storage_delete(&active, sk);
	if (ts_read(o->listed) & INET_ON_LIST)
		host_make(active, sk, sk);
	return 1;
}

/* Begin the connection's object, if it has no id yet. */
static __always_inline void inet_begin(struct sock *sk, struct inet_object *o)
{
	o->sample = inet_sample_of_sock(sk);
	if (inet_object_begin(o, o->sample, bpf_get_socket_cookie(sk)) && !o->sure)
		ts_add(&unsure, 1);
}

#endif /* TOPSTAT_INET_LIST_H */
