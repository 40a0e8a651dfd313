/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The structures in memory of objects that are keyed by value: see keyed.h. */
#ifndef TOPSTAT_KEYED_OBJECT_H
#define TOPSTAT_KEYED_OBJECT_H

#include "topstat/abi.h"

/* With the lock, a bucket is one cache line. */
#define KEYED_WAYS 7

struct keyed_bucket {
	u64 lock; /* taken to make an object whose first bucket this is */
	u64 tag[KEYED_WAYS]; /* for each place, the id of its object, or a value of enum keyed_tag */
};

enum keyed_tag {
	KEYED_FREE,
	KEYED_ENDED, /* free once KEYED_GRACE_MS have passed */
	KEYED_BUSY, /* a CPU is making an object there */
};

/* Every object that is keyed by value begins with this structure; its key is in `key`, behind it. */
struct keyed_object {
	struct ts_object object;
	u64 held; /* events that have begun and not ended: the object is kept for them */
	u64 ended; /* jiffies, when its owner ended (K8), or otherwise the object itself; 0: neither has ended */
	u32 sample;
	u32 incarnation; /* the number of objects that have been in this place, with this one */
};

#endif /* TOPSTAT_KEYED_OBJECT_H */
