/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* For the programs of inet and of its guest, the family net: rings of connections, and how readers take these off their lists. */
#ifndef TOPSTAT_INET_GUEST_H
#define TOPSTAT_INET_GUEST_H

#include "observe/records.h"
#include "inet.h"

/* The number of the ring with records for a guest. */
TS_INLINE u32 inet_guest_ring(const struct inet_settings *s, u32 sample, u32 guest)
{
	const struct ts_config *c = s->config[sample & (INET_TCP_SAMPLES - 1)];
	u32 table;

	for (table = 0; table < RECORDS_TABLES; table++)
		if (records_are_alike(&c[table], &s->guest[guest & (INET_GUESTS - 1)]))
			return table;
	return RECORDS_TABLES + guest;
}

/* Whether the storage is this socket's own object, and not a copy. */
TS_INLINE int inet_object_is_own(const struct inet_object *o)
{
	return ts_read(o->object.self) == (u64)(unsigned long)o;
}

/*
 * A reader has found the connection silent: take one step to take it off a list. Returns whether that was the last step, after
 * which the reader deletes the storage, and makes it again if the connection is listed by then. The steps are INET_CELL_MS
 * apart: a hook that makes a record in between lists the connection again, and no hook is still running that has seen it listed
 * before the first step.
 */
TS_INLINE int inet_leaves(struct inet_object *o, u64 listed, u64 leaving)
{
	u64 was = ts_read(o->listed), others = was & ~(listed | leaving) & ~(u64)~0U;
	u32 now = host_jiffies();

	if (was & listed) {
		(void)ts_cas(&o->listed, was, others | leaving | now);
		return 0;
	}
	return now - (u32)was >= host_jiffies_of_ms(INET_CELL_MS) && ts_cas(&o->listed, was, others | now);
}

#endif /* TOPSTAT_INET_GUEST_H */
