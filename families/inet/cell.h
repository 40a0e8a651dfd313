/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When a socket is due for a record: a connection at the first segment that it receives in a cell of time, a UDP socket at its
 * first datagram. Within a cell no slide of any table begins (R1).
 */
#ifndef TOPSTAT_INET_CELL_H
#define TOPSTAT_INET_CELL_H

#include "peek.h"

/*
 * The current cell, in jiffies: its end, and its beginning << 32. In one word, so that a CPU never sees one without the other. A
 * connection is due for a record at the first segment that it receives in a cell. 0: settings have changed, compute the cell
 * again.
 */
HOST_WORD(cell);
/*
 * The jiffy after the last change of the settings or of the shortest slide << 32, and its length in jiffies. No cell begins before
 * this jiffy. So each segment between a change and this jiffy is due, and a connection that has been taken off the list is due
 * when it speaks again.
 */
HOST_WORD(cell_changed);
/* The rings in use except the first one, a bit for each ring of each sample: INET_APART(). */
HOST_WORD(apart);

#define INET_APART(sample, ring) (1U << ((sample) * INET_RINGS + (ring)))
/* The first rings of all samples, which are in their objects. */
#define INET_FIRST_RINGS (1U | 1U << INET_RINGS | 1U << 2 * INET_RINGS | 1U << 3 * INET_RINGS)

/* So far in the future begins a cell in which every segment is due (stamp_is_before()). */
#define INET_ALWAYS_DUE 0x40000000

/*
 * Compute the cell from the settings. These may change at any time without notice, so a cell lasts INET_CELL_MS at most. Within
 * a cell no table's slide begins: so the first event in a slide is the first one in a cell, too (R1).
 */
TS_NOINLINE u64 inet_next_cell(u64 jiffies)
{
	struct records_cell all = { INET_ALWAYS_DUE, INET_ALWAYS_DUE, host_jiffies_of_ms(INET_CELL_MS) };
	u64 old = ts_read(cell), word = ts_read(cell_changed);
	u32 now = jiffies, start, sample, table, rings = 0;

	for (sample = 0; sample < INET_COUNTED; sample++) {
		for (table = INET_PPS; table < RECORDS_TABLES; table++) {
			struct ts_config *c = &settings.config[sample][table];

			if (!c->enabled)
				continue;
			records_within(&all, c, jiffies);
			rings |= INET_APART(sample, records_ring(settings.config[sample], table));
		}
	}
	for (table = 0; table < INET_GUESTS; table++) {
		struct ts_config *c = &settings.guest[table];

		if (!c->enabled)
			break;
		records_within(&all, c, jiffies);
		rings |= INET_APART(INET_TCP_V4, inet_guest_ring(&settings, INET_TCP_V4, table)) |
			 INET_APART(INET_TCP_V6, inet_guest_ring(&settings, INET_TCP_V6, table));
	}
	ts_write(apart, rings & ~INET_FIRST_RINGS);
	if (!old || (u32)word != all.slide) {
		word = (u64)(now + 1) << 32 | all.slide;
		ts_write(cell_changed, word);
	}
	start = all.slide ? now - all.ago : now + INET_ALWAYS_DUE;
	if (all.slide && (s32)((u32)(word >> 32) - start) > 0)
		start = word >> 32;
	word = (u64)start << 32 | (now + all.left);
	(void)ts_cas(&cell, old, word); /* user space may have set it to 0 since */
	return word;
}

/* The current cell. */
TS_INLINE u64 inet_cell(u64 jiffies)
{
	u64 word = ts_read(cell);

	return ts_unlikely(!word || (s32)((u32)jiffies - (u32)word) >= 0) ? inet_next_cell(jiffies) : word;
}

/* Whether this is the first segment that the connection receives in this cell. */
TS_INLINE int inet_is_due(struct tcp_sock *tp)
{
	u64 now = host_jiffies();

	return tcp_has_not_received(tp, inet_cell(now) >> 32, now);
}

/* Whether the socket has been silent for a while, and its next event is due. `tp`: NULL for a UDP socket. */
TS_INLINE int inet_is_silent(struct sock *sk, struct tcp_sock *tp, const struct inet_object *o)
{
	u32 now = host_jiffies();

	if (!tp)
		return ts_read(o->cell) != inet_cell(host_jiffies()) >> 32 &&
		       stamp_is_before(ts_read(o->counted.own.last), now - (u32)host_jiffies_of_ms(INET_SILENT_MS), now);
	return sk->__sk_common.skc_state == TCP_ESTABLISHED && inet_is_due(tp) &&
	       stamp_is_before(tcp_last_active(tp), now - (u32)host_jiffies_of_ms(INET_SILENT_MS), now);
}

/*
 * Whether the ring, whose tag is to be this one, continues with the current counters. A new ring, and a connection that readers
 * have found silent, begin with the counters that readers have taken: so a request that was sent before the first response
 * counts to the slide of both.
 */
TS_INLINE int inet_goes_on(const struct record_ring *g, u64 tag, const struct inet_object *o)
{
	return ts_read(o->listed) & INET_LISTED && ts_read(g->slide) >> TS_EPOCH_SHIFT == tag;
}

#endif /* TOPSTAT_INET_CELL_H */
