/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Settling: before a snapshot a reader goes through the active sockets, takes the growth of their counters, and orders them. The
 * host has a function that takes a connection off its list (inet_unlist()).
 */
#ifndef TOPSTAT_INET_SETTLE_H
#define TOPSTAT_INET_SETTLE_H

#include "cell.h"

HOST_SCRATCH(shares, struct inet_shares);

struct inet_settling {
	struct ts_window window;
	struct records_counts now, more; /* of the connection that is being settled */
	u64 value[RECORDS_TABLES];
	u64 untaken[TS_PARTS], given[TS_PARTS]; /* the difference in one table, and what of it has been added to slides */
	u32 last; /* its last activity, in jiffies */
	u32 cpu; /* the CPU that has made its newest record */
	u32 known; /* tables, by bit, whose value is known */
	u32 claimed;
	u32 has_lock; /* the connection's */
	u32 generation; /* of the settings, and in jiffies the time: of `tick` */
	u64 jiffies; /* ~0: the clock of a table is finer */
	u64 waits; /* amounts are outstanding: run the program again */
	u64 run; /* the iterator's session; its seq_num at the end is 0 after no object and after one */
	u64 left; /* sockets that this run has taken off the list */
	struct ts_tick tick[INET_COUNTED][RECORDS_TABLES]; /* current */
	u64 at[INET_COUNTED][RECORDS_TABLES]; /* the slides, with their epochs, that the ages of shares count from */
};

HOST_ARRAY(settling, 1, struct inet_settling);

/* The moment of the latest run, in both clocks: earlier amounts were taken under the settings of that moment. */
HOST_SHARED(struct inet_moment, moment);

TS_INLINE struct inet_settling *inet_settling(void)
{
	return host_item(settling, 0);
}

/* Add a CPU's shares of one table to the total. */
TS_GLOBAL_FN int inet_flush_table(u32 cpu, u32 sample, u32 table)
{
	struct inet_shares *h = host_on(shares, cpu);
	struct ts_bank *bank = host_bank(cpu, sample);
	struct inet_settling *s = inet_settling();
	struct ts_tick *tick;
	u64 behind, *share;
	struct ts_table *t;
	u32 age;

	if (!h || !s || !bank || sample >= INET_COUNTED || table >= RECORDS_TABLES)
		return 0;
	t = obs_table(bank, ts_bound(table, TS_BANK_TABLES - 1));
	tick = &s->tick[sample][table];
	if (ts_read(t->total.slide) != tick->slide)
		ts_window_begin(&t->total, tick);
	behind = tick->slide - s->at[sample][table];
	for (age = 0; age <= TS_SLIDES + 1; age++) {
		share = h->share[sample][table][age];
		if (!(share[0] | share[1]))
			continue;
		if (ts_same_epoch(tick->slide, s->at[sample][table]))
			ts_window_add_ago(&t->total, tick, behind + age, share[0], share[1]);
		share[0] = share[1] = 0;
	}
	return 0;
}

static int inet_flush_cpu(u32 cpu, void *context)
{
	struct inet_shares *h = host_on(shares, cpu);
	u32 sample, table;

	if (!h)
		return 1;
	if (!h->used)
		return 0;
	h->used = 0;
	for (sample = 0; sample < INET_COUNTED; sample++)
		for (table = 0; table < RECORDS_TABLES; table++)
			inet_flush_table(cpu, sample, table);
	return 0;
}

TS_INLINE void inet_flush(struct inet_settling *s)
{
	u32 sample, table;

	host_each_cpu(inet_flush_cpu, NULL);
	for (sample = 0; sample < INET_COUNTED; sample++)
		for (table = 0; table < RECORDS_TABLES; table++)
			s->at[sample][table] = s->tick[sample][table].slide;
}

/* Compute the current ticks. Shares whose ages count from an earlier slide are added to the totals first. */
TS_NOINLINE int inet_now(struct inet_settling *s)
{
	u64 jiffies = host_jiffies();
	u32 sample, table, moved = 0, precise = 0;

	if (!s)
		return 0;
	s->generation = ts_read(settings.all.generation);
	ts_rmb(); /* pairs with the writer of settings, which writes the generation last */
	for (sample = 0; sample < INET_COUNTED; sample++) {
		for (table = 0; table < RECORDS_TABLES; table++) {
			ts_tick_now(&s->tick[sample][table], &settings.config[sample][table], jiffies, 0);
			moved |= s->tick[sample][table].slide != s->at[sample][table];
			precise |= settings.config[sample][table].precise;
		}
	}
	s->jiffies = precise ? ~0ULL : jiffies;
	if (moved)
		inet_flush(s);
	return 0;
}

/* As inet_now(), unless the ticks are of this jiffy and of these settings. */
TS_INLINE void inet_keep_time(struct inet_settling *s)
{
	if (ts_unlikely(s->jiffies != host_jiffies() || s->generation != ts_read(settings.all.generation)))
		inet_now(s);
}

/* The shares of an age in a table. */
TS_INLINE u64 *inet_share_at(struct inet_shares *h, u32 sample, u32 table, u32 age)
{
	u32 at = host_item_at(table, RECORDS_TABLES, sizeof(h->share[0][0])) +
		 host_item_at(age, TS_SLIDES + 2, sizeof(h->share[0][0][0]));

	return (void *)((char *)h->share[ts_bound(sample, INET_COUNTED - 1)] + at);
}

/*
 * Add the share of the slide of this age in the difference to the amounts `ago` slides before the present one. (A function, for
 * inlined in a loop it would be half of all that the verifier has to process.)
 */
TS_GLOBAL_FN int inet_share(struct inet_settling *s, struct inet_shares *h, u32 of, u32 age, u32 ago)
{
	u64 rx, tx, *share;

	if (!s || !h)
		return 0;
	rx = records_share(&s->window, age, 0, s->untaken[0], &s->given[0]);
	tx = records_share(&s->window, age, 1, s->untaken[1], &s->given[1]);
	if (ago > TS_SLIDES)
		return 0;
	share = inet_share_at(h, of / TS_BANK_TABLES, of % TS_BANK_TABLES, ago);
	share[0] += rx;
	share[1] += tx;
	return 0;
}

/* The value in one table, and the shares of its slides in the difference. */
TS_GLOBAL_FN int inet_value(struct record_ring *g, u32 sample, u32 table)
{
	struct inet_settling *s = inet_settling();
	u64 *share, behind;
	struct inet_shares *h;
	struct ts_value value;
	struct ts_config *c;
	struct ts_tick *tick;
	u32 cpu, age, marks, i;

	if (!g || !s || sample >= INET_COUNTED || table >= RECORDS_TABLES)
		return 0;
	/* Once more, for the verifier: clang may use the numbers before it has compared them. */
	sample = ts_bound(sample, INET_COUNTED - 1);
	table = ts_bound(table, TS_BANK_TABLES - 1);
	c = &settings.config[sample][table];
	tick = &s->tick[sample][table];
	s->untaken[0] = inet_more_of(&s->more, table, 0);
	s->untaken[1] = inet_more_of(&s->more, table, 1);
	/* Most connections send nothing again: their window in that table need not be made. */
	if (!(s->untaken[0] | s->untaken[1]) && records_are_still(g, &s->now, table, inet_tag(c, sample))) {
		s->value[table] = 0;
		s->known |= 1U << table;
		return 0;
	}
	for (i = 0; i < INET_TRIES; i++) {
		if (records_window(&s->window, g, &s->now, table, c, inet_tag(c, sample), since.at[sample][table],
				   inet_active(c, s->last)) == TS_COPY_OK)
			break;
	}
	if (i == INET_TRIES || ts_window_eval(&s->window, tick, &value)) {
		s->waits = 1;
		return 0;
	}
	s->value[table] = value.value;
	s->known |= 1U << table;
	if (!(s->untaken[0] | s->untaken[1]) || !c->enabled || !ts_same_epoch(s->window.slide, tick->slide))
		return 0;
	cpu = s->cpu;
	h = host_on(shares, cpu);
	if (!h)
		return 0;
	h->used = 1;
	behind = tick->slide > s->window.slide ? tick->slide - s->window.slide : 0;
	s->given[0] = s->given[1] = 0;
	marks = ts_done_marks(s->window.done);
	for (age = 0; age <= TS_SLIDES; age++)
		if (marks >> age & 1)
			inet_share(s, h, sample * TS_BANK_TABLES + table, age, behind > TS_SLIDES ? TS_SLIDES + 1 : behind + age);
	/* Older amounts count to the sums alone. */
	share = inet_share_at(h, sample, table, TS_SLIDES + 1);
	share[0] += s->untaken[0] - s->given[0];
	share[1] += s->untaken[1] - s->given[1];
	return 0;
}

/* Add the difference to the running totals, and order the object in each table. */
TS_GLOBAL_FN int inet_order_all(struct inet_object *o)
{
	struct inet_settling *s = inet_settling();
	u32 sample, table;
	struct obs x;

	if (!o || !s)
		return 0;
	sample = o->sample;
	if (sample >= INET_COUNTED || !obs_begin(&x, sample, &o->object))
		return 0;
	s->claimed = x.claimed;
	inet_count_bytes(&x, o, &s->more);
	for (table = 0; table < RECORDS_TABLES; table++) {
		struct ts_table *t = obs_table(x.bank, table);
		struct ts_tick *tick = &x.bank->tick[table];

		if (!x.config[table].enabled || !(s->known >> table & 1) || !s->value[table])
			continue;
		if (ts_likely(s->claimed)) /* as x.claimed, which would be on the stack: Linux 6.1 allows 512 bytes for all calls */
			ts_order(t, tick, o->object.self, x.id, s->value[table], obs_view(sample, table), NULL);
		else
			ts_contended(t, tick, s->value[table], obs_view(sample, table));
	}
	x.claimed = s->claimed;
	inet_order_bytes(&x, o);
	obs_end(&x);
	return 0;
}

/*
 * Whether the socket has received a segment or datagram since it was found silent, or is in a state in which no hook sees its
 * segments.
 */
TS_INLINE int inet_has_received(struct sock *sk, struct tcp_sock *tp, const struct inet_object *o)
{
	u32 silent = ts_read(o->listed), now = host_jiffies();

	if (!tp)
		return !stamp_is_before(ts_read(o->counted.own.last), silent + 1, now);
	return sk->__sk_common.skc_state != TCP_ESTABLISHED || !tcp_has_not_received(tp, silent + 1, now);
}

/* The ring of a table, if the socket has it. */
TS_INLINE struct record_ring *inet_ring_of(struct sock *sk, struct inet_object *o, u32 sample, u32 table)
{
	u32 which = records_ring(inet_config(sample), table);
	struct inet_rings *r;

	if (!which)
		return &o->counted.ring;
	r = host_of(rings, sk, sk);
	if (!r)
		return NULL;
	return which == INET_BPS ? &r->ring[INET_BPS - 1] : &r->ring[INET_RETRANS - 1];
}

/*
 * The table, by bit, if a reader takes its counters. If the ring does not continue, its next record begins with the taken
 * counters, so amounts that a reader took before this record would be in no window: they stay until the record. A connection that
 * is not established, or has no memory for the ring, may get no record, and is taken anyway.
 */
TS_INLINE u32 inet_takes(struct sock *sk, struct tcp_sock *tp, struct inet_object *o, u32 sample, u32 table)
{
	struct ts_config *c = &inet_config(sample)[table];
	struct record_ring *g = inet_ring_of(sk, o, sample, table);
	u32 takes = !c->enabled || (tp && sk->__sk_common.skc_state != TCP_ESTABLISHED) ||
		    (g ? inet_goes_on(g, inet_tag(c, sample), o) : o->no_rings);

	return takes << table;
}

/* Take the growth of the socket's counters since the last reader. `tp`: NULL for a UDP socket. */
TS_NOINLINE int inet_take_all(struct sock *sk, struct tcp_sock *tp, struct inet_object *o, struct inet_settling *s)
{
	struct records_counts was, now;
	u32 sample, tables;

	if (!sk || !o || !s)
		return 0;
	sample = ts_bound(o->sample, INET_COUNTED - 1);
	s->cpu = records_at(&o->counted.ring, (o->counted.ring.slide & TS_SLIDE_NUMBER) % TS_MARKS)->cpu;
	s->known = s->claimed = 0;
	inet_taken(&was, o);
	tables = inet_takes(sk, tp, o, sample, INET_PPS) | inet_takes(sk, tp, o, sample, INET_BPS) |
		 inet_takes(sk, tp, o, sample, INET_RETRANS);
	if (tp) {
		tcp_counts(&now, sk, tp, s->has_lock);
		s->last = tcp_last_active(tp);
	} else {
		inet_counts_of(&now, &o->counted.own);
		s->last = ts_read(o->counted.own.last);
	}
	s->now = now;
	ts_rmb(); /* pairs with the end of the connection, which is marked before the socket's memory is used again */
	inet_take(o, &was, &now, &s->more, inet_is_dead(o) ? 0 : tables);
	return 0;
}

TS_INLINE void inet_value_in(struct sock *sk, struct inet_object *o, u32 sample, u32 table)
{
	struct record_ring *g = inet_config(sample)[table].enabled ? inet_ring_of(sk, o, sample, table) : NULL;

	if (g)
		inet_value(g, sample, table);
}

/* The values in all tables. (A function, since Linux 6.1 allows 512 bytes of stack for all calls.) */
TS_NOINLINE int inet_values(struct sock *sk, struct inet_object *o)
{
	u32 sample;

	if (!sk || !o)
		return 0;
	sample = ts_bound(o->sample, INET_COUNTED - 1);
	inet_value_in(sk, o, sample, INET_PPS);
	inet_value_in(sk, o, sample, INET_BPS);
	inet_value_in(sk, o, sample, INET_RETRANS);
	return host_nothing();
}

/* A socket on the list. `tp`: NULL for a UDP socket. */
TS_INLINE void inet_settle_one(struct inet_settling *s, struct sock *sk, struct tcp_sock *tp, struct inet_object *o)
{
	inet_keep_time(s);
	if (tp && !o->object.id)
		inet_begin(sk, o);
	inet_take_all(sk, tp, o, s);
	inet_values(sk, o);
	inet_order_all(o);
	if (s->claimed && inet_is_silent(sk, tp, o))
		s->left += inet_unlist(sk, o);
	else if (ts_read(o->listed) & INET_LEAVING && inet_has_received(sk, tp, o))
		inet_list(sk, tp, o); /* the hook was skipped, or the connection is in another state */
}

#endif /* TOPSTAT_INET_SETTLE_H */
