/* SPDX-License-Identifier: GPL-2.0-only */
/* For tcp.kmod.c: a look takes the growth of a connection's counters, and pushes it (KC1). */
#ifndef TOPSTAT_INET_LOOK_KMOD_H
#define TOPSTAT_INET_LOOK_KMOD_H

/* The connection's last activity, in jiffies; at tcp_probe: before the segment that has just arrived. */
static u32 tcp_last_active(const struct sock *sk)
{
	u32 last = READ_ONCE(tcp_sk(sk)->rcv_tstamp), data = READ_ONCE(inet_csk(sk)->icsk_ack.lrcvtime);
	u32 sent = READ_ONCE(tcp_sk(sk)->lsndtime), now = (u32)jiffies;

	return stamp_later(stamp_later(last, data, now), sent, now);
}

/*
 * TCP counts a FIN as a byte, and sets SOCK_DONE a moment later, under the same lock of the socket. A reader without the lock
 * reads the count first, then whether the lock is held, and then the flag. If the lock is held and the flag is not set, the last
 * byte may be a FIN, and is left to the next look.
 */
static __always_inline u64 tcp_payload(const struct sock *sk, bool has_lock)
{
	u64 bytes = READ_ONCE(tcp_sk(sk)->bytes_received);
	bool locked = !has_lock && (READ_ONCE(sk->sk_lock.owned) || spin_is_locked((spinlock_t *)&sk->sk_lock.slock));

	smp_rmb(); /* the lock before the flag: TCP sets them in the other order */
	return bytes - (bytes && (locked || sock_flag(sk, SOCK_DONE)));
}

/* `has_lock`: the caller holds the socket's lock. */
static __always_inline void tcp_count(const struct sock *sk, struct tcp_counts *c, bool has_lock)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	c->packets[INET_RX] = READ_ONCE(tp->segs_in);
	c->packets[INET_TX] = READ_ONCE(tp->segs_out);
	c->bytes[INET_RX] = tcp_payload(sk, has_lock);
	c->bytes[INET_TX] = READ_ONCE(tp->bytes_sent);
	c->resent = READ_ONCE(tp->total_retrans);
}

/* Take the growth of a counter. A counter that has gone back was read before another look. */
static u32 take(u32 *seen, u32 now)
{
	u32 more = inet_more(*seen, now);

	*seen += more;
	return more;
}

/* Take the growth of a byte counter. The part that does not fit a difference is left to the next look. */
static u32 take_bytes(u64 *seen, u64 now)
{
	u64 more = now > *seen ? min_t(u64, now - *seen, U32_MAX) : 0;

	*seen += more;
	return more;
}

/*
 * Push the growth, under the claim and with preemption off. `newest`: the number of received segments that belong to the current
 * moment.
 */
static void look_claimed(const struct sock *sk, struct tcp_object *t, u32 newest, bool has_lock)
{
	struct inet_difference d TS_UNINITIALIZED;
	struct tcp_counts now TS_UNINITIALIZED;

	if (!ts_read(t->o.object.id))
		return;
	tcp_count(sk, &now, has_lock);
	d.since = t->looked;
	d.last = tcp_last_active(sk);
	d.segments[INET_RX] = take(&t->seen.packets[INET_RX], now.packets[INET_RX]);
	d.segments[INET_TX] = take(&t->seen.packets[INET_TX], now.packets[INET_TX]);
	d.bytes[INET_RX] = take_bytes(&t->seen.bytes[INET_RX], now.bytes[INET_RX]);
	d.bytes[INET_TX] = take_bytes(&t->seen.bytes[INET_TX], now.bytes[INET_TX]);
	d.resent = take(&t->seen.resent, now.resent);
	if (!inet_is_none(&d))
		t->left |= inet_push_difference(&t->o, &d, newest, t->left);
	t->looked = (u32)jiffies;
}

/* A hook's look, with the socket's lock. */
static void tcp_look(const struct sock *sk, struct tcp_object *t, u32 newest)
{
	if (!ts_claim(&t->claim))
		return;
	look_claimed(sk, t, newest, true);
	ts_release(&t->claim);
}

/* A snapshot's look, without the socket's lock. The holder of the claim runs on another CPU, and releases it after one look. */
static void tcp_settle(const struct sock *sk, struct tcp_object *t)
{
	while (!ts_claim(&t->claim))
		cpu_relax();
	look_claimed(sk, t, 0, false);
	if (t->left && ts_read(t->o.object.id) && inet_order(&t->o, t->left))
		t->left = 0;
	ts_release(&t->claim);
}

#endif /* TOPSTAT_INET_LOOK_KMOD_H */
