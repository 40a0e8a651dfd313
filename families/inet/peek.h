/* SPDX-License-Identifier: GPL-2.0-only */
/* The windows of a socket, made of its records and its counters. Addresses may be stale. */
#ifndef TOPSTAT_INET_PEEK_H
#define TOPSTAT_INET_PEEK_H

#include "counted.h"
#include "observe/tcp.h"

/* Further rings of connections: see struct inet_rings. */
HOST_STORAGE(rings, sk, struct inet_rings);

HOST_SHARED(struct inet_since, since);
HOST_SCRATCH(scratch, struct inet_scratches);

TS_INLINE struct inet_scratch *inet_scratch(u32 sample)
{
#ifdef INET_READER
	struct inet_scratches *s = host_on(scratch, 0);
#else
	struct inet_scratches *s = host_on(scratch, host_cpu());
#endif

	return s ? &s->of[sample & (INET_COUNTED - 1)] : NULL;
}

/* Memory for a reader, which may have no claim. */
#ifdef HOST_STACK
#define INET_SCRATCH(s, sample) struct inet_scratch memory_ TS_UNINITIALIZED, *s = &memory_
#else
#define INET_SCRATCH(s, sample) struct inet_scratch *s = inet_scratch(sample)
#endif

TS_INLINE struct ts_config *inet_config(u32 sample)
{
	return settings.config[ts_bound(sample, INET_SAMPLES - 1)];
}

/* The tag of a table's rings (R4). */
TS_INLINE u64 inet_tag(const struct ts_config *c, u32 sample)
{
	return records_tag(c, ts_read(since.at[ts_bound(sample, INET_SAMPLES - 1)][INET_BYTES]));
}

/* A connection's last activity, in ticks; 0: jiffies are too coarse for the table's clock. */
TS_INLINE u64 inet_active(const struct ts_config *c, u32 last)
{
	u64 now = host_jiffies();

	return c->precise ? 0 : now - (u32)((u32)now - last);
}

/* The counters of a UDP socket. Other CPUs may add to them. */
TS_INLINE void inet_counts_of(struct records_counts *now, const struct inet_own *own)
{
	now->bytes[0] = ts_read(own->bytes[0]);
	now->bytes[1] = ts_read(own->bytes[1]);
	now->packets[0] = ts_read(own->packets[0]);
	now->packets[1] = ts_read(own->packets[1]);
	now->resent = 0;
	now->pad = 0;
}

/*
 * The counters of the connection whose object is at this address, which may be stale, and the time of its last activity, in
 * jiffies. False: no object is there.
 */
TS_INLINE int inet_peek_counts(struct records_counts *now, u32 *last, u64 obj)
{
	u64 sock = 0, bytes, flags;
	struct tcp_sock *tp;
	u32 locked, data, sent, jiffies;
	struct sock *sk;
	u8 life = 0;

	if (ts_peek(&sock, sizeof(sock), obj + offsetof(struct inet_object, sock)))
		return 0;
	ts_peek(&life, sizeof(life), obj + offsetof(struct inet_object, life));
	tp = (void *)(unsigned long)sock;
	sk = (void *)tp;
	bytes = host_field(tp, bytes_received);
	locked = !(life & 1) && host_is_locked(sk); /* the counters of a closed connection no longer change */
	flags = host_field(sk, __sk_common.skc_flags);
	now->bytes[0] = bytes - (bytes && (locked || flags >> host_enum(enum sock_flags, SOCK_DONE) & 1));
	now->bytes[1] = host_field(tp, bytes_sent);
	now->packets[0] = host_field(tp, segs_in);
	now->packets[1] = host_field(tp, segs_out);
	now->resent = host_field(tp, total_retrans);
	now->pad = 0;
	data = host_field((struct inet_connection_sock *)tp, icsk_ack.lrcvtime);
	sent = host_field(tp, lsndtime);
	jiffies = host_jiffies();
	*last = stamp_later(stamp_later(host_field(tp, rcv_tstamp), data, jiffies), sent, jiffies);
	return 1;
}

/* As inet_peek_counts(), of a UDP socket. */
TS_INLINE int inet_peek_own(struct records_counts *now, u32 *last, u64 obj)
{
	if (ts_peek(now, sizeof(*now), obj + offsetof(struct inet_object, counted.own)))
		return 0;
	*last = now->resent;
	now->resent = 0;
	return 1;
}

/* The address of the ring with the records of this table; 0: the connection has no ring for it. */
TS_INLINE u64 inet_ring_at(u64 obj, u32 sample, u32 table)
{
	u32 which = records_ring(inet_config(sample), table);
	u64 rings = 0;

	if (!which)
		return obj + offsetof(struct inet_object, counted.ring);
	if (ts_peek(&rings, sizeof(rings), obj + offsetof(struct inet_object, counted.rings)) || !rings)
		return 0;
	return rings + (which - 1) * sizeof(struct record_ring);
}

/* The window of a table (`at`: INET_RECORDS_AT()) of the connection whose object is at this address. Returns an enum ts_copy. */
TS_GLOBAL_FN int inet_peek(struct ts_window *w, u64 obj, u32 at)
{
	u32 sample = INET_RECORDS_SAMPLE(at), table = INET_RECORDS_TABLE(at), last;
	INET_SCRATCH(s, sample);
	struct ts_config *c;
	u64 ring, head[2];

	if (!w || !s || table >= RECORDS_TABLES)
		return TS_COPY_GONE;
	c = &inet_config(sample)[table];
	w->slide = 0;
	ring = inet_ring_at(obj, sample, table);
	if (!ring)
		return TS_COPY_OK;
	if (ts_peek(&s->ring, sizeof(s->ring), ring))
		return TS_COPY_GONE;
	ts_rmb(); /* pairs with records_add() */
	if (ts_peek(head, sizeof(head), ring))
		return TS_COPY_GONE;
	if (head[0] != s->ring.slide || head[1] != s->ring.done)
		return TS_COPY_BUSY;
	if (!(inet_is_tcp(sample) ? inet_peek_counts(&s->now, &last, obj) : inet_peek_own(&s->now, &last, obj))) /* R3 */
		return TS_COPY_GONE;
	return records_window(w, &s->ring, &s->now, table, c, inet_tag(c, sample), since.at[sample][table],
			      inet_active(c, last));
}

/* The most that the window of a table can be worth. Without scratch memory: the caller has no claim. */
TS_GLOBAL_FN u64 inet_most(u64 obj, u32 at)
{
	u32 sample = INET_RECORDS_SAMPLE(at), table = INET_RECORDS_TABLE(at), last;
	u64 ring, head[2];
	struct records_counts now;
	struct record oldest;

	if (table >= RECORDS_TABLES)
		return 0;
	ring = inet_ring_at(obj, sample, table);
	if (!ring || ts_peek(head, sizeof(head), ring) || !head[0])
		return 0;
	ring += offsetof(struct record_ring, record) + records_oldest(head[0], head[1]) * sizeof(struct record);
	if (ts_peek(&oldest, sizeof(oldest), ring))
		return 0;
	if (!(inet_is_tcp(sample) ? inet_peek_counts(&now, &last, obj) : inet_peek_own(&now, &last, obj)))
		return 0;
	return records_since(&oldest, &now, table, 0) + records_since(&oldest, &now, table, 1);
}

#endif /* TOPSTAT_INET_PEEK_H */
