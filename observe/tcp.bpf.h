/* SPDX-License-Identifier: GPL-2.0-only */
/* What TCP has counted of a connection itself, with the connection's lock or without. */
#ifndef TOPSTAT_TCP_BPF_H
#define TOPSTAT_TCP_BPF_H

#include "observe/host.h"

/* When it has received data last, in jiffies. */
static __always_inline u32 tcp_data_time(struct tcp_sock *tp)
{
	return ((struct inet_connection_sock *)tp)->icsk_ack.lrcvtime;
}

/* When it was last active, in jiffies; at tcp_probe: before the segment that has just come. */
static __always_inline u32 tcp_last_active(struct tcp_sock *tp)
{
	u32 last = tp->rcv_tstamp, data = tcp_data_time(tp), sent = tp->lsndtime;

	if ((s32)(data - last) > 0)
		last = data;
	return (s32)(sent - last) > 0 ? sent : last;
}

/* Whether somebody may be changing what the socket has. */
static __always_inline int tcp_is_locked(struct sock *sk)
{
	if (!bpf_core_field_exists(sk->sk_lock.slock.rlock.raw_lock.val))
		return 1;
	return BPF_CORE_READ(sk, sk_lock.slock.rlock.raw_lock.val.counter) || BPF_CORE_READ(sk, sk_lock.owned);
}

/*
 * TCP counts a FIN as a byte, and says a moment later, under the same lock, that there was one. So who reads without the
 * lock reads the count first, then whether the lock is held, and then what was said: if the lock is held and nothing was
 * said, the last byte may be a FIN, and is left to the next look.
 */
static __always_inline u64 tcp_received(struct sock *sk, struct tcp_sock *tp, u32 has_lock)
{
	u64 bytes = ts_read(tp->bytes_received), flags;
	u32 locked = !has_lock && tcp_is_locked(sk);

	ts_rmb();
	flags = ts_read(sk->__sk_common.skc_flags);
	return bytes - (bytes && (locked || flags >> bpf_core_enum_value(enum sock_flags, SOCK_DONE) & 1));
}

#endif /* TOPSTAT_TCP_BPF_H */
