/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Stamps of up to 2^32 jiffies ago are compared at any time of the host's life, and the full times say what is right. */
#include <stdio.h>
#include "observe/stamp.h"

typedef unsigned long long ull;

static u64 state;

static u64 chance(u64 n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (state >> 20) % n;
}

/* A time before now: near, or far back, but not further than stamps tell apart. */
static u64 past(u64 now)
{
	return now - chance(1ULL << chance(33)) % ((1ULL << 32) - 2 * STAMP_AHEAD);
}

int stamp_test(u64 seed, char *why, size_t bytes);
int stamp_test(u64 seed, char *why, size_t bytes)
{
	u32 i;

	state = seed * 0x9E3779B97F4A7C15ULL + 1;
	for (i = 0; i < 1000; i++) {
		/* The low 32 bits of jiffies are just below 2^32 when a host boots. */
		u64 now = (1ULL << 33) + (chance(2) ? chance(1ULL << 33) : (1ULL << 32) - chance(1000));
		u64 a = past(now), b = past(now), moment = now - chance(1ULL << chance(31));
		int before;

		if (!chance(8))
			a = now + chance(STAMP_AHEAD + 1);
		if (!chance(8))
			moment = now + 1 + chance(1 << 30);
		/* A stamp of another CPU may be after a moment of the near future, or before: either is right. */
		before = stamp_is_before(a, moment, now);
		if (a <= now && before != (a < moment))
			return snprintf(why, bytes, "now %llu: %llu is%s before %llu", (ull)now, (ull)a, before ? "" : " not",
					(ull)moment);
		if (a > now && moment <= now && before)
			return snprintf(why, bytes, "now %llu: %llu, of another CPU, is before %llu", (ull)now, (ull)a,
					(ull)moment);
		if (stamp_later(a, b, now) != (u32)(a > b ? a : b))
			return snprintf(why, bytes, "now %llu: the later of %llu and %llu is another", (ull)now, (ull)a, (ull)b);
	}
	return 0;
}
