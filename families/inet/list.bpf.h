/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The connections that are active: those that may have counted what no reader has taken yet. They are in a storage, `active`,
 * which readers go through. A hook puts a connection there when it makes a record; a reader takes it off when it has been silent
 * for a while: in two steps (INET_LEAVING), INET_CELL_MS apart, so that no hook is still at work then that has seen it listed.
 */
#ifndef TOPSTAT_INET_LIST_H
#define TOPSTAT_INET_LIST_H

#include "inet.bpf.h"

HOST_STORAGE(active, sk, u64);
/* Connections whose owner is their listener's, until they show their own. */
HOST_WORD(unsure);
/*
 * The cell that is now, in jiffies: until then, and since when << 32. In one word, so that all CPUs see both. A connection is due for
 * a record at the first segment that it receives in a cell.
 */
HOST_WORD(cell);

/*
 * Runs of readers, in which something was taken that is in no total yet: how many, and until when (jiffies << 16) they are believed
 * to go on. Others wait for them. A run is one read of an iterator, which no signal ends.
 */
HOST_WORD(running);

/* Of `listed`, besides the jiffies (low 32 bits) of when that was last changed: whether the connection is in the storage. */
#define INET_LISTED (1ULL << 32)
#define INET_LEAVING (2ULL << 32) /* a reader has found it silent, and takes it off unless it speaks */
#define INET_ON_LIST (INET_LISTED | INET_LEAVING)

static __always_inline u32 inet_sample_of_sock(struct sock *sk)
{
	if (sk->__sk_common.skc_family != AF_INET6)
		return INET_TCP_V4;
	return sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[2] == bpf_htonl(0xffff) ? INET_TCP_V4 : INET_TCP_V6;
}

/* There is no memory for something of the connection. */
static __noinline int inet_no_memory(struct sock *sk, struct tcp_sock *tp)
{
	struct records_counts all;

	if (!sk || !tp)
		return 0;
	inet_counts(&all, sk, tp, 1);
	inet_refuse(inet_sample_of_sock(sk), &all);
	return host_nothing();
}

static __always_inline u64 inet_list_word(u64 listed)
{
	return listed | (u32)host_jiffies();
}

/* Put it on the list, or leave it there. Said before it is done: then inet_unlist() does it again, if need be. */
static __noinline int inet_list(struct sock *sk, struct tcp_sock *tp, struct inet_object *o)
{
	u64 listed = ts_read(o->listed);

	if (listed & INET_LEAVING && ts_cas(&o->listed, listed, inet_list_word(INET_LISTED)))
		return 0;
	ts_write(o->listed, inet_list_word(INET_LISTED));
	if (!host_make(active, sk, sk)) {
		ts_write(o->listed, 0);
		host_call(inet_no_memory(sk, tp));
	}
	return host_nothing();
}

/*
 * It has been silent for a while, and is due when it receives something again: what it received last was before this cell. In
 * other states than this one no hook sees what it receives.
 */
static __always_inline int inet_is_silent(struct sock *sk, struct tcp_sock *tp)
{
	u32 start = ts_read(cell) >> 32;

	return sk->__sk_common.skc_state == TCP_ESTABLISHED && (s32)(tp->rcv_tstamp - start) < 0 &&
	       (s32)(tcp_data_time(tp) - start) < 0 &&
	       (s32)((u32)host_jiffies() - tcp_last_active(tp)) > (s32)host_jiffies_of_ms(INET_SILENT_MS);
}

/* It is an object from now on, where it was none. */
static __always_inline void inet_begin(struct sock *sk, struct inet_object *o)
{
	o->sample = inet_sample_of_sock(sk);
	if (inet_object_begin(o, o->sample, bpf_get_socket_cookie(sk)) && !o->sure)
		ts_add(&unsure, 1);
}

#endif /* TOPSTAT_INET_LIST_H */
