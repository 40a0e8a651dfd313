/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Events begin and end in any order; some never end. Every event that was put is found once, and no other event is found. */
#include <setjmp.h>
#include <stdio.h>
#define PENDING_BUCKETS 8
#include "observe/pending.h"

#define KEYS 100

static u64 put_when[KEYS]; /* 0: it was not put */
static u64 state;

static u32 chance(u32 n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (u32)(state >> 33) % n;
}

int pending_test(u64 seed, char *why, size_t bytes);
int pending_test(u64 seed, char *why, size_t bytes)
{
	u64 now = 1 + PENDING_AGE_NS, when, full = 0;
	u32 i, steps = 400, most;
	struct pending p, old;

	state = seed * 0x9E3779B97F4A7C15ULL + 1;
	most = 1 + chance(KEYS);
	memset(pending, 0, sizeof(pending));
	memset(put_when, 0, sizeof(put_when));
	for (i = 0; i < steps; i++) {
		u32 k = chance(most);
		u64 key = 0xffff888000000000ULL + k * 256;

		now += chance(1000) ? chance(1000000) : PENDING_AGE_NS;
		if (!put_when[k]) {
			when = now - chance(10000000); /* CPUs put in another order than events begin in */
			if (!pending_put(key, k, when, &old)) {
				full++;
				continue;
			}
			put_when[k] = when;
			if (!old.key)
				continue;
			if (old.who >= KEYS || !put_when[old.who] || old.when != put_when[old.who])
				return snprintf(why, bytes, "what was replaced is not told");
			if (when < old.when || when - old.when < PENDING_AGE_NS)
				return snprintf(why, bytes, "key %llu is replaced, which is not old",
						(unsigned long long)old.who);
			put_when[old.who] = 0;
			continue;
		}
		if (!pending_find(key, &p) || !pending_take(key, &p))
			return snprintf(why, bytes, "what was put is not found: key %u", k);
		if (p.who != k || p.when != put_when[k])
			return snprintf(why, bytes, "key %u is told of %llu", k, (unsigned long long)p.who);
		put_when[k] = 0;
		if (pending_find(key, &p) || pending_take(key, &p))
			return snprintf(why, bytes, "key %u is found twice", k);
	}
	/* With two buckets to a key, hardly any is refused while half of the places are free. */
	if (most <= PENDING_BUCKETS * PENDING_WAYS / 3 && full)
		return snprintf(why, bytes, "%llu were refused, of %u keys", (unsigned long long)full, most);
	return 0;
}
