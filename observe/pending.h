/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What is known at the beginning of an event and needed at its end, such as the process that has issued a
 * request to a disk: kept by the event's key, which is mostly an address of the kernel's and never 0.
 *
 *	pending_put(key, who, when)      false: there is no place, and the end will find nothing
 *	pending_take(key, &p)            false: nothing was put, or it was taken by somebody else
 *
 * A family defines PENDING_BUCKETS before, a power of two. Memory is fixed: there are PENDING_WAYS places to
 * each bucket, and a key has two buckets. What has no end (it was not seen) is replaced, in a bucket that is full, once it
 * is older than PENDING_AGE_NS: one that has an end after all is then not found.
 */
#ifndef TOPSTAT_PENDING_H
#define TOPSTAT_PENDING_H

#include "observe/host.h"

#define PENDING_WAYS 5
/* No disk takes so long but for one that is gone: the kernel gives up after 30 s, mostly. */
#define PENDING_AGE_NS 600000000000ULL
#define PENDING_BUSY 1

struct pending {
	u64 key; /* 0: free; PENDING_BUSY: it is being written */
	u64 who;
	u64 when; /* nanoseconds of host_clock() */
};

struct pending_bucket {
	struct pending place[PENDING_WAYS];
	u64 pad; /* two cache lines */
};

_Static_assert(!(PENDING_BUCKETS & (PENDING_BUCKETS - 1)), "hashes are cut by a mask");
HOST_ARRAY(pending, PENDING_BUCKETS, struct pending_bucket);

/* Fibonacci's, as in ts_bucket(); the second bucket is by other bits of it. */
TS_INLINE struct pending_bucket *pending_bucket(u64 key, u32 second)
{
	u64 hash = key * 0x9E3779B97F4A7C15ULL;

	return host_item(pending, (u32)(hash >> (second ? 20 : 40)) & (PENDING_BUCKETS - 1));
}

TS_INLINE int pending_put_in(struct pending_bucket *b, u64 key, u64 who, u64 when)
{
	u32 way;

	if (!b)
		return 0;
	for (way = 0; way < PENDING_WAYS; way++) {
		struct pending *p = &b->place[way];
		u64 now = ts_read(p->key);

		if (now == PENDING_BUSY || (now && when - ts_read(p->when) < PENDING_AGE_NS))
			continue;
		if (!ts_cas(&p->key, now, PENDING_BUSY))
			continue;
		ts_write(p->who, who);
		ts_write(p->when, when);
		ts_wmb(); /* pairs with pending_take_from(): whoever sees the key sees the rest */
		ts_write(p->key, key);
		return 1;
	}
	return 0;
}

TS_INLINE int pending_take_from(struct pending_bucket *b, u64 key, struct pending *taken)
{
	u32 way;

	if (!b)
		return 0;
	for (way = 0; way < PENDING_WAYS; way++) {
		struct pending *p = &b->place[way];

		if (ts_read(p->key) != key)
			continue;
		ts_rmb();
		taken->key = key;
		taken->who = ts_read(p->who);
		taken->when = ts_read(p->when);
		if (ts_cas(&p->key, key, 0))
			return 1;
	}
	return 0;
}

TS_NOINLINE int pending_put(u64 key, u64 who, u64 when)
{
	return pending_put_in(pending_bucket(key, 0), key, who, when) ||
	       pending_put_in(pending_bucket(key, 1), key, who, when);
}

TS_NOINLINE int pending_take(u64 key, struct pending *taken)
{
	if (!taken)
		return 0;
	return pending_take_from(pending_bucket(key, 0), key, taken) ||
	       pending_take_from(pending_bucket(key, 1), key, taken);
}

#endif /* TOPSTAT_PENDING_H */
