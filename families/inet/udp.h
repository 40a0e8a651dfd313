/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * UDP sockets: hooks add each datagram to the socket's own counters, and before that, at the first datagram in a cell, make
 * records of these (R1). No lock of the kernel covers both directions of a socket, so:
 *
 *   IU1 The CPU that swaps `cell` to INET_RECORDING makes the records (R2), and then writes the cell. Other CPUs do not wait: their
 *       datagrams count to the slide before, if they come before the record.
 *   IU2 A datagram that is added while the socket is closed is in a total all the same: its hook finds the socket closed after the
 *       addition, or the end of the socket finds the addition. Both take the rest then, and a swap decides which of them (inet_take()).
 *   IU3 No hook sees the end of a socket of the kernel itself, and readers do not find it everywhere: no process has it open. So it
 *       is never listed: each datagram's hook takes the amounts, and orders the socket.
 */
#ifndef TOPSTAT_INET_UDP_H
#define TOPSTAT_INET_UDP_H

#include "record.h"

/* Make the records of this cell. */
TS_NOINLINE int inet_udp_record(struct sock *sk, struct inet_object *o, u32 cell)
{
	struct records_counts counts;
	u32 was;

	if (!sk || !o)
		return 0;
	was = ts_read(o->cell);
	if (was == INET_RECORDING || !ts_cas32(&o->cell, was, INET_RECORDING)) /* IU1 */
		return host_nothing();
	inet_counts_of(&counts, &o->counted.own);
	inet_record_counts(sk, NULL, o, &counts, ts_read(o->counted.own.last));
	/* In a cell that begins in the future, each datagram may be the first one in a slide. */
	ts_publish(o->cell, (s32)(cell - (u32)host_jiffies()) > 0 ? 0 : cell);
	return host_nothing();
}

/* Order the object with this id in one table, by its present window. */
TS_GLOBAL_FN int inet_order_in(struct inet_object *o, u64 id, u32 table, u32 claimed)
{
	struct ts_bank *bank;
	struct inet_scratch *s;
	struct ts_value value;
	struct ts_tick *tick;
	struct ts_table *t;
	u32 sample, at;
	ts_view view;
	u64 self;

	if (!o || table >= RECORDS_TABLES)
		return 0;
	sample = ts_bound(o->sample, INET_COUNTED - 1);
	bank = host_bank(host_cpu(), sample);
	if (!bank || !settings.config[sample][table].enabled)
		return 0;
	table = ts_bound(table, TS_BANK_TABLES - 1);
	t = obs_table(bank, table);
	tick = &bank->tick[table];
	view = obs_view(sample, table);
	self = o->object.self;
	at = INET_RECORDS_AT(sample, table);
	s = claimed ? inet_scratch(sample) : NULL;
	/* Without the claim there is no scratch memory; and another CPU may be making the record. */
	if (!s || inet_peek(&s->window, self, at) != TS_COPY_OK || ts_window_eval(&s->window, tick, &value))
		ts_contended(t, tick, inet_most(self, at), view);
	else if (value.value)
		ts_order(t, tick, self, id, value.value, view, NULL);
	return 0;
}

/* IU3 */
TS_NOINLINE int inet_order_kernels(struct inet_object *o)
{
	struct obs x;
	u32 table;

	if (!o || o->sample >= INET_COUNTED || !obs_begin(&x, o->sample, &o->object))
		return 0;
	for (table = INET_PPS; table < RECORDS_TABLES; table++)
		inet_order_in(o, x.id, table, x.claimed);
	inet_order_bytes(&x, o);
	obs_end(&x);
	return host_nothing();
}

/* Count a datagram of a socket whose object has an id. */
TS_INLINE void inet_udp_count(struct sock *sk, struct inet_object *o, u32 part, u32 packets, u32 bytes)
{
	u64 now = host_jiffies();
	u32 cell = inet_cell(now) >> 32;

	if (ts_unlikely(ts_read(o->cell) != cell))
		host_call(inet_udp_record(sk, o, cell));
	part &= 1;
	ts_write(o->counted.own.last, (u32)now);
	ts_add32(&o->counted.own.packets[part], packets);
	ts_fetch_add(&o->counted.own.bytes[part], bytes); /* before `life` is read: IU2 */
	if (ts_unlikely(inet_is_dead(o) || inet_id_is_kernels(o->object.id))) {
		host_call(inet_finish(sk, NULL, o));
		if (inet_id_is_kernels(o->object.id))
			host_call(inet_order_kernels(o));
	}
}

#endif /* TOPSTAT_INET_UDP_H */
