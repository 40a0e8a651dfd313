/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * UDP sockets: hooks add each datagram to the socket's own counters, and before that, at the first datagram in a cell, make
 * records of these (R1). No lock of the kernel covers both directions of a socket, so:
 *
 *   IU1 The CPU that swaps `cell` to INET_RECORDING makes the records (R2), and then writes the cell. Other CPUs do not wait: their
 *       datagrams count to the slide before, if they come before the record.
 *   IU2 A datagram that is added while the socket is closed is in a total all the same: its hook finds the socket closed after the
 *       addition, or the end of the socket finds the addition. Both take the rest then, and a swap decides which of them (inet_take()).
 *   IU3 No hook sees the end of a socket of the kernel itself. So its amounts are taken at once, and not by readers.
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
	if (ts_unlikely(inet_is_dead(o) || inet_id_is_kernels(o->object.id)))
		host_call(inet_finish(sk, NULL, o));
}

#endif /* TOPSTAT_INET_UDP_H */
