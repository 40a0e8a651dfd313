/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Moments of which the kernel keeps the low 32 bits of jiffies, for instance a connection's last reception. They wrap around after
 * 2^32 jiffies, 50 days at 1,000 Hz. A stamp may be older than half of that: a connection that only sends keeps the stamp of the
 * last data that it received. The sign of the difference of two stamps would take it for a moment of the future, so ages are
 * compared.
 *
 * A stamp that is a multiple of 2^32 jiffies old is taken for one of this moment.
 */
#ifndef TOPSTAT_STAMP_H
#define TOPSTAT_STAMP_H

#include "observe/host.h"

/* The most jiffies by which a stamp may be after the reader's `now`: another CPU has written it since. */
#define STAMP_AHEAD 255

/* A stamp's age in jiffies, plus STAMP_AHEAD. */
TS_INLINE u32 stamp_age(u32 stamp, u32 now)
{
	return now + STAMP_AHEAD - stamp;
}

/* Whether the stamp is from before a moment, which is less than 2^31 jiffies away from now. All stamps are before the future. */
TS_INLINE int stamp_is_before(u32 stamp, u32 moment, u32 now)
{
	u32 age = stamp_age(moment, now);

	return age >> 31 || stamp_age(stamp, now) > age;
}

/* The later one of two stamps. */
TS_INLINE u32 stamp_later(u32 a, u32 b, u32 now)
{
	return stamp_age(a, now) < stamp_age(b, now) ? a : b;
}

#endif /* TOPSTAT_STAMP_H */
