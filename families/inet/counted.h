/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What is counted of sockets: TCP counts its connections itself, and UDP sockets have counters of their own. Hooks only make
 * records of these counters (records.h), and readers do the rest. A reader takes the growth of the counters since the last
 * reader, and adds it to the totals, by the slides of the records, and to the connection's running total. Then it orders the
 * connection by the values that records and counters give. When the connection ends, a hook takes the rest. So the totals
 * contain all traffic of a connection, once.
 */
#ifndef TOPSTAT_INET_COUNTED_H
#define TOPSTAT_INET_COUNTED_H

#include "logic.h"

/* Tries of a reader, while another reader takes the same difference or a hook makes a record. */
#define INET_TRIES 4

/*
 * Move a word forward. `was`: its value before the counters were read. Returns the difference, which belongs to the caller; 0:
 * the counters have not moved, or another reader has taken the difference.
 */
TS_INLINE u64 inet_take_bytes(u64 *word, u64 was, u64 now)
{
	u64 more = records_more(was, now, RECORDS_BYTES);

	return more && ts_cas(word, was, was + more) ? more : 0;
}

/* All tables: a bit for each. */
#define INET_ALL ((1U << RECORDS_TABLES) - 1)

/*
 * Take the difference between `was` (the words, read first) and the counters `now` into `more`. `tables`: take these tables'
 * counters, by bit.
 */
TS_INLINE void inet_take(struct inet_object *o, const struct records_counts *was, const struct records_counts *now,
			 struct records_counts *more, u32 tables)
{
	u64 in = records_more(was->packets[0], now->packets[0], RECORDS_PACKETS);
	u64 out = records_more(was->packets[1], now->packets[1], RECORDS_PACKETS);
	u64 resent = records_more(was->resent, now->resent, RECORDS_RESENT);
	u64 word = (u64)was->packets[1] << 32 | was->packets[0];

	more->bytes[0] = more->bytes[1] = 0;
	if (tables & 1U << INET_BPS) {
		more->bytes[0] = inet_take_bytes(&o->counted.taken[0], was->bytes[0], now->bytes[0]);
		more->bytes[1] = inet_take_bytes(&o->counted.taken[1], was->bytes[1], now->bytes[1]);
	}
	if (!(tables & 1U << INET_PPS) || !(in | out) ||
	    !ts_cas(&o->counted.taken_segments, word, (u64)(u32)(was->packets[1] + out) << 32 | (u32)(was->packets[0] + in)))
		in = out = 0;
	more->packets[0] = in;
	more->packets[1] = out;
	if (!(tables & 1U << INET_RETRANS) || !resent || !ts_cas32(&o->counted.taken_resent, was->resent, was->resent + resent))
		resent = 0;
	more->resent = resent;
}

/* Read the words. Before the counters are read. */
TS_INLINE void inet_taken(struct records_counts *was, struct inet_object *o)
{
	u64 segments = ts_read(o->counted.taken_segments);

	was->bytes[0] = ts_read(o->counted.taken[0]);
	was->bytes[1] = ts_read(o->counted.taken[1]);
	was->packets[0] = segments;
	was->packets[1] = segments >> 32;
	was->resent = ts_read(o->counted.taken_resent);
	ts_rmb();
}

/* The amount for one part of a table. */
TS_INLINE u64 inet_more_of(const struct records_counts *more, u32 table, u32 part)
{
	if (table == INET_BPS)
		return more->bytes[part & 1];
	if (table == INET_PPS)
		return more->packets[part & 1];
	return part ? more->resent : 0;
}

/*
 * There is no memory for the connection's object or list entry: its growth since the last reader is unknown, but at most its
 * counters (T6).
 */
TS_INLINE void inet_refuse(u32 sample, const struct records_counts *all)
{
	u64 bytes = all->bytes[0] + all->bytes[1];
	struct obs x;

	if (sample >= INET_SAMPLES || !obs_begin_total(&x, sample, 1))
		return;
	obs_refuse(&x, INET_PPS, (u64)all->packets[0] + all->packets[1]);
	obs_refuse(&x, INET_BPS, bytes);
	obs_refuse(&x, INET_BYTES, bytes);
	obs_refuse(&x, INET_RETRANS, all->resent);
	obs_end(&x);
}

/* Add the difference to the running total, and to the connection's: total before object (P1). */
TS_INLINE void inet_count_bytes(struct obs *x, struct inet_object *o, const struct records_counts *more)
{
	if (!x->config[INET_BYTES].enabled)
		return;
	if (more->bytes[0])
		ts_push_static_quiet(obs_table(x->bank, INET_BYTES), &o->counted.bytes, 0, more->bytes[0]);
	if (more->bytes[1])
		ts_push_static_quiet(obs_table(x->bank, INET_BYTES), &o->counted.bytes, 1, more->bytes[1]);
}

/* Order the object by its running total, if it has one. */
TS_INLINE void inet_order_bytes(struct obs *x, const struct inet_object *o)
{
	if (x->config[INET_BYTES].enabled && (o->counted.bytes.sum[0] | o->counted.bytes.sum[1]))
		obs_order(x, INET_BYTES);
}

#endif /* TOPSTAT_INET_COUNTED_H */
