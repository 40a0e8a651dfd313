/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* How readers take connections off the lists of active ones: see `listed` of struct inet_object. */
#ifndef TOPSTAT_INET_LISTED_H
#define TOPSTAT_INET_LISTED_H

#include "observe/host.h"
#include "inet.h"

/*
 * A reader has found the connection silent: take one step to take it off a list. Returns whether that was the last step, after which
 * the reader deletes the storage, and makes it again if the connection is listed by then. The steps are INET_CELL_MS apart: a hook that
 * makes a record in between lists the connection again, and no hook is still running that has seen it listed before the first step.
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

#endif /* TOPSTAT_INET_LISTED_H */
