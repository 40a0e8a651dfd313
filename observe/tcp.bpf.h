/* SPDX-License-Identifier: GPL-2.0-only */
/* TCP's own counters of a connection, read with the connection's lock or without. */
#ifndef TOPSTAT_TCP_BPF_H
#define TOPSTAT_TCP_BPF_H

#include "observe/record_ring.h"
#include "observe/stamp.h"

/* When the connection last received data, in jiffies. */
static __always_inline u32 tcp_data_time(struct tcp_sock *tp)
{
	return ((struct inet_connection_sock *)tp)->icsk_ack.lrcvtime;
}

/* Whether the connection has received no segment since a moment, in jiffies: see stamp_is_before(). */
static __always_inline int tcp_has_not_received(struct tcp_sock *tp, u32 since, u32 now)
{
	return stamp_is_before(tp->rcv_tstamp, since, now) && stamp_is_before(tcp_data_time(tp), since, now);
}

/* When the connection last received a segment, in jiffies; at tcp_probe: before the segment that has just come. */
static __always_inline u32 tcp_last_received(struct tcp_sock *tp)
{
	u32 last = tp->rcv_tstamp, data = tcp_data_time(tp);

	return stamp_later(last, data, host_jiffies());
}

/* When the connection was last active, in jiffies; at tcp_probe: before the segment that has just come. */
static __always_inline u32 tcp_last_active(struct tcp_sock *tp)
{
	u32 last = tcp_last_received(tp), sent = tp->lsndtime;

	return stamp_later(last, sent, host_jiffies());
}

/* Whether another CPU may be changing the socket. */
static __always_inline int tcp_is_locked(struct sock *sk)
{
	if (!bpf_core_field_exists(sk->sk_lock.slock.rlock.raw_lock.val))
		return 1;
	return BPF_CORE_READ(sk, sk_lock.slock.rlock.raw_lock.val.counter) || BPF_CORE_READ(sk, sk_lock.owned);
}

/*
 * TCP counts a FIN as a byte, and sets SOCK_DONE a moment later, under the same lock. So a reader without the lock reads the
 * count first, then whether the lock is held, and then the flag. If the lock is held and the flag is not set, the last byte may
 * be a FIN: it is left to the next read.
 */
static __always_inline u64 tcp_received(struct sock *sk, struct tcp_sock *tp, u32 has_lock)
{
	u64 bytes = ts_read(tp->bytes_received), flags;
	u32 locked = !has_lock && tcp_is_locked(sk);

	ts_rmb();
	flags = ts_read(sk->__sk_common.skc_flags);
	return bytes - (bytes && (locked || flags >> bpf_core_enum_value(enum sock_flags, SOCK_DONE) & 1));
}

/* `has_lock`: the caller holds the connection's lock. */
static __always_inline void tcp_counts(struct records_counts *now, struct sock *sk, struct tcp_sock *tp, u32 has_lock)
{
	now->bytes[0] = tcp_received(sk, tp, has_lock);
	now->bytes[1] = tp->bytes_sent;
	now->packets[0] = tp->segs_in;
	now->packets[1] = tp->segs_out;
	now->resent = tp->total_retrans;
	now->pad = 0;
}

#endif /* TOPSTAT_TCP_BPF_H */
