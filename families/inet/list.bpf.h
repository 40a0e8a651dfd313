/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The connections that are active: those that may have counted what no reader has taken yet. They are in a storage, `active`,
 * which readers go through. A hook puts a connection there when it makes a record; a reader takes it off when it has been silent
 * for a while: in two steps (INET_LEAVING), INET_CELL_MS apart, so that no hook is still at work then that has seen it listed.
 */
#ifndef TOPSTAT_INET_LIST_H
#define TOPSTAT_INET_LIST_H

#include "inet.bpf.h"

HOST_STORAGE(active, sk, u64);
/* Connections whose owner is their listener's, until they show their own. */
HOST_WORD(unsure);
/*
 * The cell that is now, in jiffies: until then, and since when << 32. In one word, so that all CPUs see both. A connection is due for
 * a record at the first segment that it receives in a cell. 0: settings have changed, compute it again.
 */
HOST_WORD(cell);
/* The jiffy after settings or the length of a cell have changed last, << 32, and that length, in jiffies. Cells begin no earlier: so
 * each segment that comes after a change and before that jiffy is due, and a connection that has been taken off the list is due when
 * it speaks again. */
HOST_WORD(cell_changed);
/* The tables with a separate ring, a bit for each table of each sample: INET_APART(). */
HOST_WORD(apart);

#define INET_APART(sample, ring) (1U << ((sample) * RECORDS_TABLES + (ring)))

/* Further away than any time of a connection, so that all of them are before it. */
#define INET_ALWAYS_DUE 0x40000000

/* From the settings, which may have changed at any time without a word: so a cell lasts INET_CELL_MS at most. */
static __noinline u64 inet_next_cell(u32 now)
{
	u64 length = ~0ULL, old = ts_read(cell), word = ts_read(cell_changed);
	u32 start, until, sample, table, rings = 0;

	for (sample = INET_TCP_V4; sample <= INET_TCP_V6; sample++) {
		for (table = INET_PPS; table < RECORDS_TABLES; table++) {
			struct ts_config *c = &settings.config[sample][table];
			u64 slide = c->precise ? 0 : c->slide; /* shorter than a jiffy: any segment may be the first */

			if (!c->enabled)
				continue;
			length = slide < length ? slide : length;
			rings |= INET_APART(sample, records_ring(settings.config[sample], table));
		}
	}
	length = length < INET_ALWAYS_DUE ? length : INET_ALWAYS_DUE;
	ts_write(apart, rings & ~(INET_APART(INET_TCP_V4, INET_PPS) | INET_APART(INET_TCP_V6, INET_PPS)));
	if (!old || (u32)word != (u32)length) {
		word = (u64)(now + 1) << 32 | (u32)length;
		ts_write(cell_changed, word);
	}
	if (length) {
		start = now - now % (u32)length;
		if ((s32)((u32)(word >> 32) - start) > 0)
			start = word >> 32;
	} else {
		start = now + INET_ALWAYS_DUE;
	}
	until = now - now % (u32)(length ?: 1) + length;
	if (!length || (s32)(until - now) > (s32)host_jiffies_of_ms(INET_CELL_MS))
		until = now + host_jiffies_of_ms(INET_CELL_MS);
	word = (u64)start << 32 | until;
	ts_cas(&cell, old, word); /* user space may have made it 0 meanwhile */
	return word;
}

/* The cell that is now. */
static __always_inline u64 inet_cell(u32 now)
{
	u64 word = ts_read(cell);

	return ts_unlikely(!word || (s32)(now - (u32)word) >= 0) ? inet_next_cell(now) : word;
}

/*
 * Runs of readers, in which something was taken that is in no total yet: how many, and until when (jiffies << 16) they are believed
 * to go on. Others wait for them. A run is one read of an iterator, which no signal ends.
 */
HOST_WORD(running);

/* Of `listed`, besides the jiffies (low 32 bits) of when that was last changed: whether the connection is in the storage. */
#define INET_LISTED (1ULL << 32)
#define INET_LEAVING (2ULL << 32) /* a reader has found it silent, and takes it off unless it speaks */
#define INET_ON_LIST (INET_LISTED | INET_LEAVING)

static __always_inline u32 inet_sample_of_sock(struct sock *sk)
{
	if (sk->__sk_common.skc_family != AF_INET6)
		return INET_TCP_V4;
	return sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[2] == bpf_htonl(0xffff) ? INET_TCP_V4 : INET_TCP_V6;
}

/* There is no memory for something of the connection. */
static __noinline int inet_no_memory(struct sock *sk, struct tcp_sock *tp)
{
	struct records_counts all;

	if (!sk || !tp)
		return 0;
	inet_counts(&all, sk, tp, 1);
	inet_refuse(inet_sample_of_sock(sk), &all);
	return host_nothing();
}

static __always_inline u64 inet_list_word(u64 listed)
{
	return listed | (u32)host_jiffies();
}

/* Put it on the list, or leave it there. Said before it is done: then inet_unlist() does it again, if need be. */
static __noinline int inet_list(struct sock *sk, struct tcp_sock *tp, struct inet_object *o)
{
	u64 listed = ts_read(o->listed);

	if (listed & INET_LEAVING && ts_cas(&o->listed, listed, inet_list_word(INET_LISTED)))
		return 0;
	ts_write(o->listed, inet_list_word(INET_LISTED));
	if (!host_make(active, sk, sk)) {
		ts_write(o->listed, 0);
		host_call(inet_no_memory(sk, tp));
	}
	return host_nothing();
}

/* Whether the next segment that it receives is due for a record: what it received last was before this cell. In other states than
 * this one no hook sees what it receives. */
static __always_inline int inet_will_be_due(struct sock *sk, struct tcp_sock *tp)
{
	u32 start = inet_cell(host_jiffies()) >> 32;

	return sk->__sk_common.skc_state == TCP_ESTABLISHED && (s32)(tp->rcv_tstamp - start) < 0 &&
	       (s32)(tcp_data_time(tp) - start) < 0;
}

/* It has been silent for a while, and will be due. */
static __always_inline int inet_is_silent(struct sock *sk, struct tcp_sock *tp)
{
	return inet_will_be_due(sk, tp) &&
	       (s32)((u32)host_jiffies() - tcp_last_active(tp)) > (s32)host_jiffies_of_ms(INET_SILENT_MS);
}

/*
 * Whether the ring goes on with the counters of now. A ring that begins anew, and a connection that readers have found silent, begin
 * with what readers have taken: so the request that was sent before the first response counts to the slide of both.
 */
static __always_inline int inet_goes_on(const struct record_ring *g, const struct ts_config *c, const struct inet_object *o)
{
	return ts_read(o->listed) & INET_LISTED && ts_read(g->slide) >> TS_EPOCH_SHIFT == records_tag(c);
}

/* It is an object from now on, where it was none. */
static __always_inline void inet_begin(struct sock *sk, struct inet_object *o)
{
	o->sample = inet_sample_of_sock(sk);
	if (inet_object_begin(o, o->sample, bpf_get_socket_cookie(sk)) && !o->sure)
		ts_add(&unsure, 1);
}

#endif /* TOPSTAT_INET_LIST_H */
