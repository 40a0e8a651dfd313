/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Segments that TCP sends again, by its own count: a connection's total_retrans, which TCP_INFO
 * has, too. An object knows how much of that was pushed. So an event that a program was not run
 * for (the kernel leaves out one that would interrupt itself) is made up for by the next one, or
 * by the connection's end.
 */
#ifndef TOPSTAT_INET_RESENT_H
#define TOPSTAT_INET_RESENT_H

#include "maps.bpf.h"

/* What a connection has counted so far; where packets are seen. */
static __always_inline u32 inet_resent_now(struct bpf_sock *sk)
{
	struct bpf_tcp_sock *tp = bpf_tcp_sock(sk);

	return tp ? tp->total_retrans : 0;
}

/* What a socket has sent again before it is seen first is none of ours; unless it is known since
 * it was made, adopted or (`self`) copied from its listener. */
static __always_inline void inet_resent_begin(struct inet_object *o, struct bpf_sock *sk, u64 self)
{
	if (!self && !o->owner.pid)
		o->resent = inet_resent_now(sk);
}

/* How much of the count is new. Only who has the connection's lock asks. */
static __always_inline u32 inet_resent_since(struct inet_object *o, u32 now)
{
	u32 since = now - o->resent;

	if (!since)
		return 0;
	o->resent = now;
	return (s32)since > 0 ? since : 0;
}

#ifdef TOPSTAT_PLAIN

/* By each packet that is sent: TCP counts segments before it sends them again, with the socket
 * locked, so they are seen with the packet itself. */
static __always_inline u32 inet_resent_by_packet(struct inet_object *o, struct bpf_sock *sk)
{
	if (!inet_is_tcp(o->sample))
		return 0;
	return inet_resent_since(o, inet_resent_now(sk));
}

#else

/* The tracepoint tells. */
static __always_inline u32 inet_resent_by_packet(struct inet_object *o, struct bpf_sock *sk)
{
	return 0;
}

#endif

#endif /* TOPSTAT_INET_RESENT_H */
