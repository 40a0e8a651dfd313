/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Data that is known at the beginning of an event and needed at its end, such as the process that has issued a request to a disk.
 * It is kept by the event's key, which is mostly an address in the kernel and never 0.
 *
 *	pending_put(key, who, when, &old)    false: there is no place, and the end will find nothing
 *	pending_find(key, &p)                false: nothing was put, or it has already been taken
 *	pending_take(key, &p)                as pending_find(), and removes the event
 *
 * Before this header, a family defines PENDING_BUCKETS, a power of two, and optionally PENDING_AGE_NS. Memory is fixed: each bucket
 * has PENDING_WAYS places, and a key has two buckets. If both are full, an event that is older than PENDING_AGE_NS is replaced and
 * returned in `old`, whose key is otherwise 0: its end was not seen, and the caller has to release the resources held for it.
 *
 * CPUs put events in any order: `when` may be earlier than the `when` of an event that is already there.
 */
#ifndef TOPSTAT_PENDING_H
#define TOPSTAT_PENDING_H

#include "observe/host.h"

#define PENDING_WAYS 5
#ifndef PENDING_AGE_NS
/* No working disk takes this long: the kernel mostly gives up after 30 s. */
#define PENDING_AGE_NS 600000000000ULL
#endif
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

/* Fibonacci's hash, as in ts_bucket(); the second bucket uses other bits of it. */
TS_INLINE struct pending_bucket *pending_bucket(u64 key, u32 second)
{
	u64 hash = key * 0x9E3779B97F4A7C15ULL;

	return host_item(pending, (u32)(hash >> (second ? 20 : 40)) & (PENDING_BUCKETS - 1));
}

/* Whether an event is so much older than one that begins at this moment that its end must have been missed. */
TS_INLINE int pending_is_old(u64 when, u64 now)
{
	return (long long)(now - when) >= (long long)PENDING_AGE_NS;
}

/* Put the event in a free place, or with `aged` in the place of an old event. */
TS_INLINE int pending_put_in(struct pending_bucket *b, const struct pending *put, u32 aged, struct pending *old)
{
	u32 way;

	if (!b)
		return 0;
	for (way = 0; way < PENDING_WAYS; way++) {
		struct pending *p = &b->place[way];
		u64 now = ts_read(p->key);

		if (aged ? now <= PENDING_BUSY || !pending_is_old(ts_read(p->when), put->when) : now != 0)
			continue;
		if (!ts_cas(&p->key, now, PENDING_BUSY))
			continue;
		old->key = now;
		old->who = p->who;
		old->when = p->when;
		ts_write(p->who, put->who);
		ts_write(p->when, put->when);
		ts_publish(p->key, put->key); /* pairs with pending_find_in(): a reader that sees the key sees the other fields */
		return 1;
	}
	return 0;
}

/* `take`: remove the event. */
TS_INLINE int pending_find_in(struct pending_bucket *b, u64 key, u32 take, struct pending *found)
{
	u32 way;

	if (!b)
		return 0;
	for (way = 0; way < PENDING_WAYS; way++) {
		struct pending *p = &b->place[way];

		if (ts_read(p->key) != key)
			continue;
		ts_rmb();
		found->key = key;
		found->who = ts_read(p->who);
		found->when = ts_read(p->when);
		if (!take || ts_cas(&p->key, key, 0))
			return 1;
	}
	return 0;
}

TS_NOINLINE int pending_put(u64 key, u64 who, u64 when, struct pending *old)
{
	struct pending put = { .key = key, .who = who, .when = when };
	struct pending_bucket *first = pending_bucket(key, 0), *second = pending_bucket(key, 1);

	if (!old)
		return 0;
	old->key = 0;
	return pending_put_in(first, &put, 0, old) || pending_put_in(second, &put, 0, old) ||
	       pending_put_in(first, &put, 1, old) || pending_put_in(second, &put, 1, old);
}

TS_NOINLINE int pending_find(u64 key, struct pending *found)
{
	if (!found)
		return 0;
	return pending_find_in(pending_bucket(key, 0), key, 0, found) ||
	       pending_find_in(pending_bucket(key, 1), key, 0, found);
}

TS_NOINLINE int pending_take(u64 key, struct pending *taken)
{
	if (!taken)
		return 0;
	return pending_find_in(pending_bucket(key, 0), key, 1, taken) ||
	       pending_find_in(pending_bucket(key, 1), key, 1, taken);
}

#endif /* TOPSTAT_PENDING_H */
