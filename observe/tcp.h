/* SPDX-License-Identifier: GPL-2.0-only */
/* TCP's own counters of a connection, read with the connection's lock or without. */
#ifndef TOPSTAT_TCP_H
#define TOPSTAT_TCP_H

#include "observe/record_ring.h"
#include "observe/stamp.h"

/* When the connection last received data, in jiffies. */
TS_INLINE u32 tcp_data_time(struct tcp_sock *tp)
{
	return ((struct inet_connection_sock *)tp)->icsk_ack.lrcvtime;
}

/* Whether the connection has received no segment since a moment, in jiffies: see stamp_is_before(). */
TS_INLINE int tcp_has_not_received(struct tcp_sock *tp, u32 since, u32 now)
{
	return stamp_is_before(tp->rcv_tstamp, since, now) && stamp_is_before(tcp_data_time(tp), since, now);
}

/* When the connection last received a segment, in jiffies; at tcp_probe: before the segment that has just come. */
TS_INLINE u32 tcp_last_received(struct tcp_sock *tp)
{
	u32 last = ts_read(tp->rcv_tstamp), data = tcp_data_time(tp);

	return stamp_later(last, data, host_jiffies());
}

/* When the connection was last active, in jiffies; at tcp_probe: before the segment that has just come. */
TS_INLINE u32 tcp_last_active(struct tcp_sock *tp)
{
	u32 last = tcp_last_received(tp), sent = ts_read(tp->lsndtime);

	return stamp_later(last, sent, host_jiffies());
}

/*
 * TCP counts a FIN as a byte, and sets SOCK_DONE a moment later, under the same lock. So a reader without the lock reads the
 * count first, then whether the lock is held, and then the flag. If the lock is held and the flag is not set, the last byte may
 * be a FIN: it is left to the next read.
 */
TS_INLINE u64 tcp_payload(struct sock *sk, struct tcp_sock *tp, u32 has_lock)
{
	u64 bytes = ts_read(tp->bytes_received), flags;
	u32 locked = !has_lock && host_is_locked(sk);

	ts_rmb();
	flags = ts_read(sk->__sk_common.skc_flags);
	return bytes - (bytes && (locked || flags >> host_enum(enum sock_flags, SOCK_DONE) & 1));
}

/* `has_lock`: the caller holds the connection's lock. */
TS_INLINE void tcp_counts(struct records_counts *now, struct sock *sk, struct tcp_sock *tp, u32 has_lock)
{
	now->bytes[0] = tcp_payload(sk, tp, has_lock);
	now->bytes[1] = ts_read(tp->bytes_sent);
	now->packets[0] = ts_read(tp->segs_in);
	now->packets[1] = ts_read(tp->segs_out);
	now->resent = ts_read(tp->total_retrans);
	now->pad = 0;
}

#endif /* TOPSTAT_TCP_H */
