/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sockets as objects, on any host: the beginning and end of an object, and amounts without an object. Hooks assign packets to
 * sockets, and measure them.
 */
#ifndef TOPSTAT_INET_LOGIC_H
#define TOPSTAT_INET_LOGIC_H

#include "observe/records.h"
#include "inet.h"

HOST_STATE(inet, INET_SAMPLES, INET_SAMPLES);
HOST_STORAGE(objects, sk, struct inet_object);
#include "guest.h"
#ifdef TS_KEEPS
HOST_KEPT(struct inet_kept, INET_KEPT_SAMPLES, INET_KEPT_TABLES);
#endif

/*
 * A dynamic table has no window at an offset: its window is made of records (peek.h). The number in place of the offset encodes
 * sample and table, and is no multiple of 8, unlike an offset.
 */
#define INET_RECORDS_AT(sample, table) ((sample) << 3 | ((table) + 1))
#define INET_RECORDS_SAMPLE(at) ((at) >> 3 & (INET_SAMPLES - 1))
#define INET_RECORDS_TABLE(at) (((at) & 7) - 1)

/* All samples have the same tables. */
TS_INLINE u32 obs_at(u32 sample, u32 table)
{
	return table == INET_BYTES ? offsetof(struct inet_object, counted.bytes) : INET_RECORDS_AT(sample, table);
}

TS_INLINE u32 obs_type(u32 sample, u32 table)
{
	return table == INET_BYTES ? TS_STATIC : TS_DYNAMIC;
}

#include "observe/obs.h"

/* Clear all that is counted. For an object that is in no table, and has no id. */
TS_INLINE void inet_object_reset(struct inet_object *o)
{
	ts_write(o->life, (o->life + 1) & ~1);
	o->listed = 0;
	o->cell = 0;
	__builtin_memset(&o->counted, 0, sizeof(o->counted));
}

/* Exclude the counters `now`: they were counted before the object was known, or were taken. */
TS_INLINE void inet_taken_from(struct inet_object *o, const struct records_counts *now)
{
	o->counted.taken[0] = now->bytes[0];
	o->counted.taken[1] = now->bytes[1];
	o->counted.taken_segments = (u64)now->packets[1] << 32 | now->packets[0];
	o->counted.taken_resent = now->resent;
}

/*
 * The storage is new, or a copy of the listener's: initialise it as the object of the socket at this address. `now`: TCP's
 * counters (NULL: they are not read). They are excluded for a connection that is seen for the first time, unless the connection
 * is known since it was made, adopted or copied from its listener. False if another CPU has initialised it, or is doing so.
 */
TS_INLINE int inet_object_init(struct inet_object *o, u64 sock, const struct records_counts *now)
{
	u64 self = ts_read(o->object.self);

	if (self == INET_INIT || self == (u64)(unsigned long)o || !ts_cas(&o->object.self, self, INET_INIT))
		return 0;
	if (self) { /* a copy has the listener's amounts, and its user until the new one is known */
		o->object.id = 0;
		o->sure = 0;
		inet_object_reset(o);
	} else if (!o->pid && now) {
		inet_taken_from(o, now);
	}
	o->sock = sock;
	ts_wmb(); /* a CPU that sees `self` sees the whole object */
	ts_write(o->object.self, (u64)(unsigned long)o);
	return 1;
}

/*
 * Tries while another CPU does a step that takes less than a microsecond: initialises an object, or pushes taken amounts. If the
 * tries do not suffice, that CPU does not run: it is a virtual one, or it is this CPU, interrupted.
 */
#define INET_AWAIT 2000

TS_GLOBAL_FN int inet_object_await(struct inet_object *o)
{
	u32 i;

	if (!o)
		return 0;
	for (i = 0; i < INET_AWAIT; i++) {
		if (inet_object_is_own(o))
			return 1;
	}
	return 0;
}

/*
 * As inet_object_init(). If several CPUs have the socket's first packets at once, one initialises the object, and the others wait
 * for it. False: the object is not ready.
 */
TS_INLINE int inet_object_own(struct inet_object *o, u64 sock, const struct records_counts *now)
{
	return inet_object_is_own(o) || inet_object_init(o, sock, now) || inet_object_await(o);
}

/* The object at this address has ended; the memory may belong to another socket now. */
TS_INLINE void inet_forget(u64 obj, u32 sample)
{
	ts_add(&obs_census(sample)->ended, 1);
	obs_forget(sample, obj);
}

/* The object leaves all tables, and no closed row is kept: it has ended before, or has no pushed amounts. */
TS_INLINE void inet_object_drop(struct inet_object *o, u32 sample, u64 id)
{
	if (!ts_cas(&o->object.id, id, 0))
		return;
	if (inet_id_is_kernels(id)) /* never counted as begun */
		obs_forget(sample, o->object.self);
	else
		inet_forget(o->object.self, sample);
}

/*
 * The socket is closed: its object leaves all tables, and its amounts stay in the totals. A connection's row stays in dynamic
 * tables until it has aged out, in programs that keep closed connections. A second call does nothing.
 */
TS_INLINE void inet_object_end(struct inet_object *o)
{
	u32 sample;
	u64 id;

	ts_write(o->life, o->life | 1);
	if (!inet_object_is_own(o))
		return;
	/*
	 * A full barrier, which pairs with the swap in inet_object_begin(): if another CPU has just given the object an id,
	 * either this CPU sees the id, or that CPU sees `life`.
	 */
	if (ts_cas(&o->object.id, 0, 0))
		return;
	id = o->object.id;
	sample = o->sample;
	if (!id || sample >= INET_SAMPLES)
		return;
#ifdef TS_KEEPS
	if (sample < INET_KEPT_SAMPLES) {
		obs_keep(sample, o->object.self, id);
		if (ts_cas(&o->object.id, id, 0)) /* T9 */
			ts_add(&obs_census(sample)->ended, 1);
		return;
	}
#endif
	inet_object_drop(o, sample, id);
}

/*
 * The object begins in a sample. True: with this call. (The socket may be closed by then.) `id`: the socket's cookie, or the
 * result of inet_kernels_id().
 */
TS_INLINE int inet_object_begin(struct inet_object *o, u32 sample, u64 id)
{
	o->sample = sample;
	if (!inet_id_is_kernels(id))
		id = inet_connection_id(id, ts_read(o->life));
	if (!ts_cas(&o->object.id, 0, id))
		return 0;
	if (!inet_id_is_kernels(id))
		ts_add(&obs_census(sample)->begun, 1);
	/* Another CPU has closed the socket before the object had an id. */
	if (inet_is_dead(o))
		inet_object_drop(o, sample, id);
	return 1;
}

/* Count to the totals alone: there is no memory for an object (`refused`), or the socket is closed already. */
TS_INLINE void inet_count_total(u32 sample, u32 part, u32 packets, u32 bytes, u32 refused)
{
	struct obs x;

	if (sample >= INET_SAMPLES || !obs_begin_total(&x, sample, refused))
		return;
	obs_add(&x, INET_PPS, part, packets);
	obs_add_any(&x, INET_BPS, part, bytes);
	obs_add_any(&x, INET_BYTES, part, bytes);
	obs_end(&x);
}

/* Count packets and bytes as opaque: their true amounts are unknown, but no larger. */
TS_INLINE void inet_count_opaque(u32 sample, u32 packets, u32 bytes)
{
	struct obs x;

	if (sample < INET_SAMPLES && obs_begin_total(&x, sample, 0)) {
		obs_opaque(&x, INET_PPS, packets);
		obs_opaque(&x, INET_BPS, bytes);
		obs_opaque(&x, INET_BYTES, bytes);
		obs_end(&x);
	}
}

#endif /* TOPSTAT_INET_LOGIC_H */
