/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What is in memory of objects that are keyed by value: see keyed.h. */
#ifndef TOPSTAT_KEYED_OBJECT_H
#define TOPSTAT_KEYED_OBJECT_H

#include "topstat/abi.h"

/* With the lock, a bucket is one cache line. */
#define KEYED_WAYS 7

struct keyed_bucket {
	u64 lock; /* of makers of an object whose first bucket it is */
	u64 tag[KEYED_WAYS]; /* the id of the object in each place, or of enum keyed_tag */
};

enum keyed_tag {
	KEYED_FREE,
	KEYED_ENDED, /* free once KEYED_GRACE_MS have passed */
	KEYED_BUSY, /* some CPU makes an object there */
};

/* What such an object begins with; its key is in `key`, behind it. */
struct keyed_object {
	struct ts_object object;
	u64 held; /* events that have begun and not ended: it is kept for them */
	u64 ended; /* jiffies, when its owner ended (K8), or else the object itself; 0: neither has */
	u32 sample;
	u32 incarnation; /* how many objects have been in this place, with this one */
};

#endif /* TOPSTAT_KEYED_OBJECT_H */
