/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * TCP counts itself, and here it is asked: what a connection's own counters have counted since the last look is a
 * difference (inet_difference()), which is pushed (inet_push_difference() of logic.h).
 *
 * Who looks: the connection's own hooks, under its lock (inet.bpf.c), and readers before they take a snapshot
 * (settle.bpf.c), without it. None waits for another: see inet_take().
 *
 * A connection may count on after a look: until the delay is over, or for good where it then falls silent. So one that
 * was pushed is listed in the storage `active`, through which readers go, and which they take it off when it has been
 * silent for a while: in two steps (INET_LEAVING), INET_LOOK_MS apart, so that no hook is still at work then that has
 * seen it listed.
 *
 * Since readers see all that are listed before they read any table, a hook leaves ordering to them wherever an entry would
 * have to move, or of a full table to make way: among connections that are about as busy each push would move some, of which
 * the next snapshot would show nothing. What is left once is not ordered by a hook again until a reader has done so.
 */
#ifndef TOPSTAT_INET_LOOK_H
#define TOPSTAT_INET_LOOK_H

#include "inet.bpf.h"
#include "logic.h"
#include "observe/tcp.bpf.h"

/* The connections that may have counted what was not pushed yet. */
HOST_STORAGE(active, sk, u64);
/* Connections whose owner is their listener's, until they show their own. */
HOST_WORD(unsure);

/* Of `looked`, besides the jiffies (low 32 bits) of the last look: whether the connection is in the storage `active`, ... */
#define INET_LISTED (1ULL << 32)
#define INET_LEAVING (2ULL << 32) /* a reader has found it silent, and takes it off unless it speaks */
#define INET_ON_LIST (INET_LISTED | INET_LEAVING)
/* ... the tables in which it is not ordered since it was pushed, by bit, which the next reader does, ... */
#define INET_LEFT_SHIFT 36
#define INET_LEFT_ALL ((1U << INET_TABLES) - 1)
/* ... and the number of the look, so that a reader who has ordered it sees whether it was pushed meanwhile. */
#define INET_LOOK (1ULL << 48)
#define INET_LOOKS_ALL (-INET_LOOK)
/* How long a connection is silent before it is taken off the list, in INET_LOOK_MS. */
#define INET_SILENT 10
/* Who looks tries again when another has looked at the same moment: which has pushed, so each try brings it forward. */
#define INET_LOOK_TRIES 4

/* INET_LOOK_MS in jiffies. */
static __always_inline u32 inet_look_jiffies(void)
{
	return INET_LOOK_MS * 1000000ULL / (constants.jiffy_ns | 1);
}

/* `has_lock`: of the connection. */
static __always_inline void inet_counters(struct inet_seen *now, struct sock *sk, struct tcp_sock *tp, u32 has_lock)
{
	now->segments = (u64)tp->segs_out << 32 | tp->segs_in;
	now->bytes = tp->bytes_sent << 32 | (u32)tcp_received(sk, tp, has_lock);
	now->resent = tp->total_retrans;
}

/*
 * What the connection has exchanged since the last look, and the time that it has taken: the one place that both hooks
 * and readers have it from, and that nothing goes by. The connection is the object's: `o->pid` is its user's. It takes
 * the difference, so the caller must push it.
 */
static __always_inline void inet_difference(struct inet_difference *d, struct sock *sk, struct tcp_sock *tp,
					    struct inet_object *o, u32 has_lock)
{
	struct inet_seen was, now;
	u32 i;

	__builtin_memset(d, 0, sizeof(*d));
	d->since = ts_read(o->looked);
	for (i = 0; i < INET_LOOK_TRIES; i++) {
		inet_seen_read(&was, o);
		ts_rmb(); /* inet_take(): the words before the counters */
		inet_counters(&now, sk, tp, has_lock);
		d->last = tcp_last_active(tp);
		if (ts_likely(inet_take_all(o, &was, &now, d)))
			break;
	}
}

/* Until all readers have pushed what they have taken. */
static __noinline int inet_await_readers(struct inet_object *o)
{
	u32 i;

	if (!o)
		return 0;
	for (i = 0; i < INET_AWAIT; i++) {
		if (!ts_read(o->readers))
			return 1;
	}
	return 0;
}

static __always_inline u32 inet_sample_of_sock(struct sock *sk)
{
	if (sk->__sk_common.skc_family != AF_INET6)
		return INET_TCP_V4;
	return sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[2] == bpf_htonl(0xffff) ? INET_TCP_V4 : INET_TCP_V6;
}

/* There is no memory for something of the connection. */
static __noinline int inet_no_memory(struct sock *sk, struct tcp_sock *tp)
{
	struct inet_seen all;

	if (!sk || !tp)
		return 0;
	inet_counters(&all, sk, tp, 1);
	inet_refuse(inet_sample_of_sock(sk), &all);
	return 0;
}

/* After one more look, with these tables left. */
static __always_inline u64 inet_look_word(u64 looked, u64 listed, u32 left)
{
	return ((looked + INET_LOOK) & INET_LOOKS_ALL) | (u64)left << INET_LEFT_SHIFT | listed | (u32)host_jiffies();
}

static __always_inline u32 inet_left(u64 looked)
{
	return looked >> INET_LEFT_SHIFT & INET_LEFT_ALL;
}

/* Put it on the list, or leave it there. Said before it is done: then inet_unlist() does it again, if need be. False: there
 * is no memory. */
static __noinline int inet_list(struct sock *sk, struct tcp_sock *tp, struct inet_object *o, u32 left)
{
	u64 looked = ts_read(o->looked), listed;

	listed = inet_look_word(looked, INET_LISTED, inet_left(looked) | left);
	if (looked & INET_LEAVING && ts_cas(&o->looked, looked, listed))
		return 1;
	ts_write(o->looked, listed);
	if (host_make(active, sk, sk))
		return 1;
	/* What is not there may have counted what no snapshot has settled. */
	ts_write(o->looked, inet_look_word(listed, 0, 0));
	inet_no_memory(sk, tp);
	return 0;
}

/* It has been silent for a while, and is due when it speaks again, which in other states than this one no hook sees. */
static __always_inline int inet_is_silent(struct sock *sk, struct tcp_sock *tp)
{
	return sk->__sk_common.skc_state == TCP_ESTABLISHED &&
	       (s32)((u32)host_jiffies() - tcp_last_active(tp)) > (s32)(INET_SILENT * inet_look_jiffies());
}

/* It is an object from now on, where it was none. */
static __always_inline void inet_begin(struct sock *sk, struct inet_object *o)
{
	o->sample = inet_sample_of_sock(sk);
	if (inet_object_begin(o, o->sample, bpf_get_socket_cookie(sk)) && !o->sure)
		ts_add(&unsure, 1);
}

#endif /* TOPSTAT_INET_LOOK_H */
