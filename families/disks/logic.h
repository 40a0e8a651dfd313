/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts the use of disks by process and control group, on any host. A request counts to the process and the group that it was
 * made for, when it is completed: /proc/diskstats counts the same amounts.
 *
 *	disks_begin      a request is made; an earlier request of this key has ended unseen
 *	disks_knows      whether the request is known, where more than one hook may be the first to see it
 *	disks_done       a part of the request, or all of it, is completed
 *	disks_ended      the request is completed, and disks_done() has missed it
 *	disks_gone       the request ends without completion: it was joined to another one
 */
#ifndef TOPSTAT_DISKS_LOGIC_H
#define TOPSTAT_DISKS_LOGIC_H

#include "observe/host.h"
#include "disks.h"

HOST_STATE(disks, DISKS_SAMPLES, DISKS_BANKS);

TS_INLINE u32 obs_at(u32 number, u32 table)
{
	table += number % DISKS_SAMPLE_BANKS * TS_BANK_TABLES;
	return offsetof(struct disks_object, window) + host_item_at(table, DISKS_TABLES, sizeof(struct ts_window));
}

TS_INLINE u32 obs_type(u32 number, u32 table)
{
	return TS_DYNAMIC;
}

/* 3584 objects, 4.8 MiB: the pairs of a disk and its user within a period. */
#define KEYED_BUCKETS 512
#define KEYED_KEY struct disks_key
#define KEYED_OBJECT struct disks_object
#include "observe/keyed.h"

/* 10240 requests in flight, 256 KiB; a disk has some hundreds. Further requests count as TS_FULL. */
#define PENDING_BUCKETS 2048
#include "observe/pending.h"

/* The used disks, in the order of their first use; 0 behind the last one. */
HOST_ARRAY(devices, DISKS_DEVICES, u64);

/* Requests in flight that found no place in pending.h. */
HOST_WORD(unkept);

/*
 * A pending request has 32 bits for each sample: the place of the object from 1, or DISKS_NO_PLACE; 0: the sample was off. The
 * highest bit of the first 32 marks a flush: at the end, a flush and a write with a flush look alike.
 */
#define DISKS_NO_PLACE (1U << 30)
#define DISKS_FLUSH (1ULL << 31)

TS_INLINE u32 disks_bank(u32 sample, u32 table)
{
	return sample * DISKS_SAMPLE_BANKS + table / TS_BANK_TABLES;
}

/* Whether any table of the sample is on. */
TS_INLINE int disks_is_on(u32 sample)
{
	u32 table;

	for (table = 0; table < DISKS_TABLES; table++)
		if (obs_is_on(disks_bank(sample, table), table % TS_BANK_TABLES))
			return 1;
	return 0;
}

TS_INLINE u32 disks_place_of(u64 places, u32 sample)
{
	return places >> 32 * sample & ~(u32)DISKS_FLUSH;
}

TS_INLINE struct disks_object *disks_object_of(u64 places, u32 sample)
{
	u32 place = disks_place_of(places, sample);

	return place && place != DISKS_NO_PLACE ? host_item(objects, place - 1) : NULL;
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

/*
 * Register a disk when it gets its first object. If there is no entry left for the disk, its objects stay in the census until
 * they end.
 */
TS_GLOBAL_FN int disks_use(u64 device)
{
	u64 *entry;
	u32 i;

	for (i = 0; i < DISKS_DEVICES; i++) {
		entry = host_item(devices, i);
		if (!entry || ts_read(*entry) == device || ts_cas(entry, 0, device) || ts_read(*entry) == device)
			break;
	}
	return 0;
}

/* The owner of this id has ended: K8, on the disk of this entry. 0: the entry is empty. */
TS_INLINE int disks_close(u32 sample, u64 id, u32 i)
{
	u64 *entry = host_item(devices, i);
	struct disks_key key = { .device = entry ? ts_read(*entry) : 0, .id = id };

	if (!key.device)
		return 0;
	keyed_close(&key, sample);
	return 1;
}

/* Hold the object of a user. Returns its place. */
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
		return (u64)DISKS_NO_PLACE << 32 * sample;
	if (!o->who.device[0]) {
		disks_use(device);
		o->who = *who;
	}
	return (u64)place << 32 * sample;
}

TS_INLINE void disks_keep(u64 request, u64 places, u64 now)
{
	struct pending old = {};

	if (!pending_put(request, places, now, &old)) {
		disks_over(places);
		ts_add(&unkept, 1);
	} else if (old.key) {
		disks_over(old.who);
	}
}

/* Take a pending request by its address, or else by its bio's address (0: no bio). */
TS_INLINE int disks_take(u64 request, u64 bio, struct pending *p)
{
	return pending_take(request, p) || (bio && pending_take(bio, p));
}

TS_INLINE void disks_gone(u64 request, u64 bio)
{
	struct pending p;

	if (disks_take(request, bio, &p))
		disks_over(p.who);
}

/*
 * Whether this request is pending. It was made at `start_ns`; a joined request has the earlier time of the two. An entry of an
 * earlier request of the key was put before that time. 0 is no key.
 */
TS_INLINE int disks_knows(u64 request, u64 start_ns)
{
	struct pending p;

	return request && pending_find(request, &p) && p.when >= start_ns;
}

TS_INLINE void disks_begin(u64 request, u64 device, u64 process, u64 group, u32 kind, const struct disks_who *who)
{
	u64 places = disks_hold(DISKS_PROCS, device, process, who) | disks_hold(DISKS_CGROUPS, device, group, who);

	disks_gone(request, 0);
	disks_keep(request, places | (kind == DISKS_IS_FLUSH ? DISKS_FLUSH : 0), host_clock());
}

struct disks_amount {
	u64 bytes;
	u64 wait_ns; /* 0: the request is not completed */
	u32 kind; /* enum disks_kind */
	u32 cause; /* enum ts_cause, for an unknown request */
};

TS_INLINE int disks_count_begin(struct keyed *k, u64 places, u32 sample, u32 table, u32 cause)
{
	struct disks_object *o = disks_object_of(places, sample);

	if (disks_place_of(places, sample))
		cause = TS_FULL;
	return o ? keyed_begin_of(k, disks_bank(sample, table), o) :
		   keyed_begin_lost(k, disks_bank(sample, table), cause);
}

TS_GLOBAL_FN int disks_count(u32 sample, u64 places, const struct disks_amount *a)
{
	struct keyed k;
	u32 part;

	if (!a || sample >= DISKS_SAMPLES || !disks_is_on(sample))
		return 0;
	part = a->kind == DISKS_IS_READ ? DISKS_READ : DISKS_WRITE;
	if (a->kind == DISKS_IS_DISCARD) {
		if (disks_count_begin(&k, places, sample, DISKS_DISCARDS, a->cause)) {
			keyed_add(&k, DISKS_DISCARDS % TS_BANK_TABLES, part, a->bytes);
			keyed_end(&k);
		}
		return 0;
	}
	if (!disks_count_begin(&k, places, sample, DISKS_BYTES, a->cause))
		return 0;
	keyed_add(&k, DISKS_BYTES, part, a->bytes);
	if (a->wait_ns) {
		keyed_add(&k, a->kind == DISKS_IS_FLUSH ? DISKS_FLUSHES : DISKS_OPS, part, 1);
		keyed_add_since(&k, DISKS_WAIT, part, a->wait_ns, obs_since_ns(&k.obs, DISKS_WAIT, a->wait_ns));
	}
	keyed_end(&k);
	return 0;
}

/* The cause why a request is not pending. While requests without a place are in flight, it is taken for one of them. */
TS_INLINE u32 disks_why_unknown(u32 whole)
{
	u64 left = ts_read(unkept);

	if (!left)
		return TS_UNMATCHED;
	if (whole)
		(void)ts_cas(&unkept, left, left - 1);
	return TS_FULL;
}

TS_INLINE void disks_count_both(const struct pending *p, struct disks_amount *a)
{
	if (p->key && (a->kind == DISKS_IS_WRITE || a->kind == DISKS_IS_FLUSH))
		a->kind = p->who & DISKS_FLUSH ? DISKS_IS_FLUSH : DISKS_IS_WRITE;
	disks_count(DISKS_PROCS, p->who, a);
	disks_count(DISKS_CGROUPS, p->who, a);
}

/* The time since the request was made. Never 0, which means "not completed". */
TS_INLINE u64 disks_wait(u64 start_ns)
{
	return (host_clock() - start_ns) | 1;
}

/* Count a completed part; `whole`: the last part. `kind` is used if the request is not pending. */
TS_INLINE void disks_done(u64 request, u64 bio, u64 start_ns, u32 kind, u64 bytes, u32 whole)
{
	struct disks_amount a = { .bytes = bytes, .kind = kind, .wait_ns = whole ? disks_wait(start_ns) : 0 };
	struct pending p = {};

	if (!disks_take(request, bio, &p)) {
		p.key = p.who = 0;
		a.cause = disks_why_unknown(whole);
	} else {
		a.cause = TS_UNMATCHED; /* the sample was off when the request was made */
	}
	disks_count_both(&p, &a);
	if (!p.key)
		return;
	if (whole)
		disks_over(p.who);
	else
		disks_keep(p.key, p.who, p.when);
}

/* Count a missed completion, without its bytes, which are unknown. */
TS_INLINE void disks_ended(u64 request, u64 start_ns, u32 kind)
{
	struct disks_amount a = { .kind = kind, .cause = TS_UNMATCHED, .wait_ns = disks_wait(start_ns) };
	struct pending p = {};

	if (!pending_take(request, &p))
		return;
	disks_count_both(&p, &a);
	disks_over(p.who);
}

#endif /* TOPSTAT_DISKS_LOGIC_H */
