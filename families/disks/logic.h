/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which processes and which control groups use a disk, on any host. A request counts to whom it was made for, and when
 * it is done: so the amounts are those of /proc/diskstats.
 */
#ifndef TOPSTAT_DISKS_LOGIC_H
#define TOPSTAT_DISKS_LOGIC_H

#include "observe/host.h"
#include "disks.h"

HOST_STATE(disks, DISKS_SAMPLES, DISKS_SAMPLES);

TS_INLINE u32 obs_at(u32 number, u32 table)
{
	return offsetof(struct disks_object, window) + host_item_at(table, DISKS_TABLES, sizeof(struct ts_window));
}

TS_INLINE u32 obs_type(u32 number, u32 table)
{
	return TS_DYNAMIC;
}

/* 3584 objects, 3.6 MiB: so many pairs of a disk and its user can be told apart within a period. */
#define KEYED_BUCKETS 512
#define KEYED_KEY struct disks_key
#define KEYED_OBJECT struct disks_object
#include "observe/keyed.h"

/* 10240 requests in flight, 256 KiB; a disk has some hundreds. What more there are is nobody's. */
#define PENDING_BUCKETS 2048
#include "observe/pending.h"

/* Whether any table of the sample is on. */
TS_INLINE int disks_is_on(u32 sample)
{
	return obs_is_on(sample, DISKS_BYTES) || obs_is_on(sample, DISKS_OPS) || obs_is_on(sample, DISKS_WAIT);
}

/* A request is pending with the places of both objects, each from 1; 0: there is none. */
TS_INLINE struct disks_object *disks_object_of(u64 places, u32 sample)
{
	u32 place = places >> 32 * sample;

	return place ? host_item(objects, place - 1) : NULL;
}

TS_INLINE void disks_over(u64 places)
{
	struct disks_object *o;
	u32 sample;

	for (sample = 0; sample < DISKS_SAMPLES; sample++) {
		o = disks_object_of(places, sample);
		if (o)
			keyed_release(o);
	}
}

/* The place of an object, which is held from now on; 0: there is none. */
TS_INLINE u64 disks_hold(u32 sample, u64 device, u64 id, const struct disks_who *who)
{
	struct disks_key key = { .device = device, .id = id };
	struct disks_object *o;
	u32 place;

	if (!disks_is_on(sample))
		return 0;
	place = keyed_place_of(&key, sample);
	o = place ? host_item(objects, place - 1) : NULL;
	if (!o || !keyed_hold(o))
		return 0;
	if (!o->who.device[0])
		o->who = *who;
	return (u64)place << 32 * sample;
}

/* Whether the request, which was made at this moment, is pending already: it goes to a queue first, or is issued again. */
TS_INLINE int disks_knows(u64 request, u64 start_ns)
{
	struct pending before;

	if (!pending_take(request, &before))
		return 0;
	if (before.when == start_ns && pending_put(request, before.who, start_ns))
		return 1;
	disks_over(before.who); /* it has ended unseen, and this is another one */
	return 0;
}

/* It is made for them. */
TS_INLINE void disks_begin(u64 request, u64 start_ns, u64 device, u64 process, u64 group, const struct disks_who *who)
{
	u64 places = disks_hold(DISKS_PROCS, device, process, who) | disks_hold(DISKS_CGROUPS, device, group, who);

	if (places && !pending_put(request, places, start_ns))
		disks_over(places);
}

TS_INLINE void disks_count(u32 sample, u64 places, u32 part, u64 bytes, u64 wait_ns)
{
	struct keyed k;

	if (!disks_is_on(sample) || !keyed_begin_of(&k, sample, disks_object_of(places, sample)))
		return;
	keyed_add(&k, DISKS_BYTES, part, bytes);
	if (wait_ns) {
		keyed_add(&k, DISKS_OPS, part, 1);
		keyed_add_since(&k, DISKS_WAIT, part, wait_ns, obs_since_ns(&k.obs, DISKS_WAIT, wait_ns));
	}
	keyed_end(&k);
}

/* So many bytes of it are done; `whole`: and nothing is left. */
TS_INLINE void disks_done(u64 request, u64 start_ns, u32 part, u64 bytes, u32 whole)
{
	/* Never 0, which says that it is not over. */
	u64 wait_ns = whole ? (host_clock() - start_ns) | 1 : 0;
	struct pending p;

	if (!pending_take(request, &p) || p.when != start_ns)
		p.who = 0;
	disks_count(DISKS_PROCS, p.who, part, bytes, wait_ns);
	disks_count(DISKS_CGROUPS, p.who, part, bytes, wait_ns);
	if (p.who && (whole || !pending_put(request, p.who, start_ns)))
		disks_over(p.who);
}

#endif /* TOPSTAT_DISKS_LOGIC_H */
