/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A socket's records, made by one hook at a time; and its end. The host has functions that begin an object (inet_begin()) and
 * that list a connection as active (inet_list(), inet_is_listed()).
 */
#ifndef TOPSTAT_INET_RECORD_H
#define TOPSTAT_INET_RECORD_H

#include "cell.h"

/* `last`: the time of the event before this one, in jiffies. */
TS_INLINE void inet_record_in(struct record_ring *g, struct ts_config *c, u64 tag, const struct records_counts *counts, u32 last)
{
	u64 jiffies = host_jiffies(), now = ts_unlikely(c->precise) ? ts_precise() : jiffies;
	u64 active = ts_unlikely(c->precise) ? now : jiffies - (u32)((u32)jiffies - last);

	records_add(g, c, tag, counts, now, active, host_cpu());
}

/* Make a record in a ring of other slides. */
TS_NOINLINE int inet_record_other(struct record_ring *g, u32 last, struct inet_object *o,
				  const struct records_counts *counts, u32 ring)
{
	struct records_counts taken;
	struct ts_config *c;
	u64 tag;

	if (!g || !o || !counts || ring >= INET_RINGS)
		return 0;
	if (ring < RECORDS_TABLES)
		c = &inet_config(o->sample)[ring];
	else
		c = &settings.guest[ts_bound(ring - RECORDS_TABLES, INET_GUESTS - 1)];
	tag = inet_tag(c, o->sample);
	if (inet_goes_on(g, tag, o)) {
		inet_record_in(g, c, tag, counts, last);
	} else {
		inet_taken(&taken, o);
		inet_record_in(g, c, tag, &taken, last);
	}
	return host_nothing();
}

/* Make records in all rings but the first. Without memory they get no records. */
TS_NOINLINE int inet_record_apart(struct sock *sk, u32 last, struct inet_object *o, const struct records_counts *counts)
{
	struct inet_rings *r;
	u32 sample, ring;

	if (!sk || !o || !counts)
		return 0;
	sample = o->sample;
	r = host_make(rings, sk, sk);
	o->no_rings = !r;
	if (!r || sample >= INET_COUNTED)
		return 0;
	ts_write(o->counted.rings, (u64)(unsigned long)r);
	for (ring = RECORDS_BYTES; ring < INET_RINGS; ring++)
		if (ts_read(apart) & INET_APART(sample, ring))
			host_call(inet_record_other(&r->ring[ring - 1], last, o, counts, ring));
	return host_nothing();
}

/* Make a record in each ring, unless the slide has one. `tp`: NULL for a UDP socket. `counts` may change. */
TS_INLINE void inet_record_counts(struct sock *sk, struct tcp_sock *tp, struct inet_object *o,
				  struct records_counts *counts, u32 last)
{
	struct ts_config *c = &inet_config(o->sample)[INET_PPS];
	u64 tag = inet_tag(c, o->sample);

	if (ts_unlikely(ts_read(apart)))
		host_call(inet_record_apart(sk, last, o, counts));
	if (ts_unlikely(!inet_goes_on(&o->counted.ring, tag, o)))
		inet_taken(counts, o);
	inet_record_in(&o->counted.ring, c, tag, counts, last);
	if (ts_unlikely(!inet_is_listed(o)) && !inet_id_is_kernels(o->object.id)) /* IU3 */
		host_call(inet_list(sk, tp, o));
}

/*
 * Make a connection's record. `newest`, `resent`: the number of segments that were just received, or sent again, and are in the
 * counters already (R1).
 */
TS_NOINLINE int inet_record(struct sock *sk, struct tcp_sock *tp, struct inet_object *o, u32 newest, u32 resent)
{
	struct records_counts counts;

	if (ts_unlikely(!o->object.id))
		inet_begin(sk, o);
	tcp_counts(&counts, sk, tp, 1);
	counts.packets[INET_RX] -= newest;
	counts.packets[INET_TX] -= resent;
	counts.resent -= resent;
	inet_record_counts(sk, tp, o, &counts, tcp_last_active(tp));
	return host_nothing();
}

/* Add the last difference of a socket that ends to the total of one table, by slides. */
TS_GLOBAL_FN int inet_finish_in(u32 sample, u32 table)
{
	struct inet_scratch *s = inet_scratch(sample);
	struct ts_bank *bank = host_bank(host_cpu(), sample);
	u64 given[TS_PARTS] = {}, untaken[TS_PARTS], share[TS_PARTS];
	struct ts_table *t;
	struct ts_tick *tick;
	u64 behind;
	u32 age;

	if (!bank || !s || sample >= INET_COUNTED || table >= RECORDS_TABLES || !settings.config[sample][table].enabled)
		return 0;
	t = obs_table(bank, ts_bound(table, TS_BANK_TABLES - 1));
	tick = &bank->tick[ts_bound(table, TS_BANK_TABLES - 1)];
	untaken[0] = inet_more_of(&s->more, table, 0);
	untaken[1] = inet_more_of(&s->more, table, 1);
	if (!(untaken[0] | untaken[1]) || !ts_same_epoch(s->window.slide, tick->slide))
		return 0;
	behind = tick->slide > s->window.slide ? tick->slide - s->window.slide : 0;
	for (age = 0; age <= TS_SLIDES; age++) {
		share[0] = records_share(&s->window, age, 0, untaken[0], &given[0]);
		share[1] = records_share(&s->window, age, 1, untaken[1], &given[1]);
		if (share[0] | share[1])
			ts_window_add_ago(&t->total, tick, behind + age, share[0], share[1]);
	}
	ts_window_add_ago(&t->total, tick, TS_SLIDES + 1, untaken[0] - given[0], untaken[1] - given[1]);
	return 0;
}

/* The socket is closed: add the rest of its counters to the totals. `tp`: NULL for a UDP socket. */
TS_NOINLINE int inet_finish(struct sock *sk, struct tcp_sock *tp, struct inet_object *o)
{
	struct inet_scratch *s;
	struct records_counts was, now, more;
	struct obs x;
	u32 sample, table;

	if (!sk || !o)
		return 0;
	inet_taken(&was, o);
	if (tp)
		tcp_counts(&now, sk, tp, 1);
	else
		inet_counts_of(&now, &o->counted.own);
	inet_take(o, &was, &now, &more, INET_ALL);
	sample = o->sample;
	if (sample >= INET_COUNTED || !obs_begin(&x, sample, &o->object))
		return 0;
	inet_count_bytes(&x, o, &more);
	s = x.claimed ? inet_scratch(sample) : NULL;
	for (table = INET_PPS; table < RECORDS_TABLES; table++) {
		if (s) {
			s->more = more;
			inet_peek(&s->window, (u64)(unsigned long)o->object.self, INET_RECORDS_AT(sample, table));
			inet_finish_in(sample, table);
		} else if (settings.config[sample][table].enabled) {
			/* This has interrupted the holder of the claim: the difference counts to now. */
			ts_window_add_parts(&obs_table(x.bank, table)->total, &x.bank->tick[table],
					    inet_more_of(&more, table, 0), inet_more_of(&more, table, 1));
		}
	}
	obs_end(&x);
	return host_nothing();
}

#endif /* TOPSTAT_INET_RECORD_H */
