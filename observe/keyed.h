/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Objects that are keyed by value: no structure of the kernel stands for them. Examples are a process on a device, and the fields
 * of a tracepoint. They are in an array of fixed size, and the key's hash finds their places.
 *
 *	struct keyed k;
 *
 *	if (keyed_begin(&k, SAMPLE, &key)) {
 *		keyed_add(&k, BYTES, READ, n);
 *		keyed_end(&k);
 *	}
 *
 * Before this header, and after HOST_STATE(), obs_at() and obs_type(), a family defines
 *
 *	KEYED_KEY        the type of a key: whole u64, without undefined bytes between fields
 *	KEYED_OBJECT     the type of an object, which begins with a struct keyed_object called `keyed`, and
 *	                 has a KEYED_KEY called `key`
 *	KEYED_BUCKETS    a power of two, up to 2^20; each bucket has KEYED_WAYS objects
 *
 * and optionally
 *
 *	KEYED_MASK       the number of buckets, less one, where user space sizes the maps
 *	KEYED_WORDS      the words of a key that are in use; the remaining ones are not looked at
 *	KEYED_BEGUN      called as KEYED_BEGUN(object, hash) once other CPUs see the tag of a new object, and before they can push
 *	                 to it
 *	KEYED_MAY_TAKE   KEYED_MAY_TAKE(object, hash): whether a key with this hash may have the place of an object that has ended
 *
 * A sample may have several banks: an object is found once, and keyed_begin_of() pushes to it in each bank.
 *
 *   K1  A key has two buckets. Its object is in a place of the first bucket, or otherwise of the second. (With one bucket for
 *       each key, a fortieth of the buckets would be full when half of all places are used; with two, hardly any.)
 *   K2  The tag of a place is the id of its object. The id contains the place, the incarnation and 16 bits of the hash. A CPU
 *       that pushes finds the object by tags and the key, and takes no lock.
 *   K3  A CPU makes an object under the lock of the key's first bucket, and looks for the object once more under the lock. So a
 *       key has at most one object. A CPU that finds the lock taken tries KEYED_TRIES times, and waits no longer.
 *   K4  An amount whose key has no object and finds no place is refused (T6): it goes to the total, and is counted as `full`. So
 *       rows + other = total, memory is bounded, and rows are proven if the refused amounts can't have changed them.
 *   K5  An object ends when its place is needed and it is silent: no event holds it, and all its windows have the value 0. In a
 *       static table its count is then refused, because the count begins at 0 if the key comes again. Objects without a count
 *       end as soon as a CPU makes an object in their bucket.
 *   K6  A CPU may push to an object while another CPU ends it. The ending CPU swaps the id to 0 and then reads the windows again.
 *       The pushing CPU adds to the window (or holds the object) and then reads the id again. So at least one of them sees the
 *       other: the object stays, or the push is refused. (An atomic addition is a full barrier on the CPUs that eBPF is built
 *       for.)
 *   K7  A place is used again KEYED_GRACE_MS after its object ended. Only a CPU that was stopped for longer in the middle of a
 *       push may add to the next object there.
 *   K8  An object can outlive its owner, a process or a control group. keyed_close() reports the end of the owner. From then on
 *       the object is no longer counted in the census, and its row is marked as closed. One swap of `ended` decides whether
 *       keyed_close() or the end of the object takes it off the census.
 */
#ifndef TOPSTAT_KEYED_H
#define TOPSTAT_KEYED_H

#include "observe/keyed_object.h"
#include "observe/obs.h"

#define KEYED_GRACE_MS 100
#define KEYED_PLACES (KEYED_BUCKETS * KEYED_WAYS)
#ifndef KEYED_MASK
#define KEYED_MASK (KEYED_BUCKETS - 1)
#endif
#define KEYED_WORDS_MAX (sizeof(KEYED_KEY) / sizeof(u64))
#ifndef KEYED_WORDS
#define KEYED_WORDS KEYED_WORDS_MAX
#endif
#ifndef KEYED_BEGUN
#define KEYED_BEGUN(o, hash) ((void)(hash))
#endif
#ifndef KEYED_MAY_TAKE
#define KEYED_MAY_TAKE(o, hash) 1
#endif

_Static_assert(sizeof(KEYED_KEY) % sizeof(u64) == 0, "keys are hashed and compared by words");
_Static_assert(!(KEYED_BUCKETS & (KEYED_BUCKETS - 1)) && KEYED_BUCKETS <= 1 << 20, "a place has 24 bits in an id");

HOST_ARRAY(objects, KEYED_PLACES, KEYED_OBJECT);
HOST_ARRAY(buckets, KEYED_BUCKETS, struct keyed_bucket);

struct keyed {
	struct obs obs;
};

/* Fibonacci's hash, as in ts_bucket(), of all words. */
TS_INLINE u64 keyed_hash(const KEYED_KEY *key, u32 sample)
{
	const u64 *words = (const void *)key;
	u64 hash = sample + 1;
	u32 i;

	for (i = 0; i < KEYED_WORDS_MAX && i < KEYED_WORDS; i++) {
		hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15ULL;
		hash ^= hash >> 29;
	}
	return hash;
}

TS_INLINE u32 keyed_first(u64 hash)
{
	return hash & KEYED_MASK;
}

TS_INLINE u32 keyed_second(u64 hash)
{
	return hash >> 24 & KEYED_MASK;
}

/* K2 */
TS_INLINE u64 keyed_id(u64 hash, u32 incarnation, u32 place)
{
	return hash >> 48 << 48 | (u64)(incarnation & 0xffffff) << 24 | place;
}

TS_INLINE int keyed_is_of(const KEYED_OBJECT *o, const KEYED_KEY *key, u32 sample)
{
	const u64 *a = (const void *)&o->key, *b = (const void *)key;
	u32 i;

	for (i = 0; i < KEYED_WORDS_MAX && i < KEYED_WORDS; i++)
		if (a[i] != b[i])
			return 0;
	return o->keyed.sample == sample;
}

/* The place of the key's object in this bucket, from 1; 0: it is not there. */
TS_INLINE u32 keyed_find_in(u32 bucket, u64 hash, const KEYED_KEY *key, u32 sample)
{
	struct keyed_bucket *b = host_item(buckets, bucket);
	u32 way;

	if (!b)
		return 0;
	for (way = 0; way < KEYED_WAYS; way++) {
		u64 tag = ts_read(b->tag[way]);
		KEYED_OBJECT *o;

		if (tag <= KEYED_BUSY || (tag ^ hash) >> 48)
			continue;
		o = host_item(objects, bucket * KEYED_WAYS + way);
		if (o && ts_read(o->keyed.object.id) == tag && keyed_is_of(o, key, sample))
			return bucket * KEYED_WAYS + way + 1;
	}
	return 0;
}

/* K1 */
TS_GLOBAL_FN int keyed_find(const KEYED_KEY *key, u32 sample)
{
	u64 hash;
	u32 place;

	if (!key)
		return 0;
	hash = keyed_hash(key, sample);
	place = keyed_find_in(keyed_first(hash), hash, key, sample);
	return place ? place : keyed_find_in(keyed_second(hash), hash, key, sample);
}

/* K5, without `held`: whether the object has the value 0 in all dynamic tables of the bank. */
TS_INLINE int keyed_is_silent_in(struct obs *x, KEYED_OBJECT *o)
{
	u32 table;

	for (table = 0; table < TS_BANK_TABLES; table++) {
		u64 now = x->bank->tick[table].slide, slide;
		struct ts_window *w;

		if (!x->config[table].epoch || obs_type(x->number, table) == TS_STATIC)
			continue;
		w = (void *)((char *)o + obs_at(x->number, table));
		slide = ts_read(w->slide);
		if (!ts_is_done(ts_read(w->done), slide))
			return 0;
		if (slide && ts_same_epoch(slide, now) && slide + TS_SLIDES >= now)
			return 0;
	}
	return 1;
}

/* As keyed_is_silent_in(), for all banks. */
TS_INLINE int keyed_is_silent(KEYED_OBJECT *o)
{
	struct obs x;
	u32 bank;

	for (bank = 0; bank < HOST_SAMPLE_BANKS; bank++)
		if (!obs_begin_total(&x, o->keyed.sample * HOST_SAMPLE_BANKS + bank, 0) || !keyed_is_silent_in(&x, o))
			return 0;
	return 1;
}

/* K5: whether a table of this bank has counts. */
TS_INLINE int keyed_counts_in(u32 number)
{
	struct ts_config *c = settings.config[ts_bound(number, HOST_BANKS - 1)];
	u32 table;

	for (table = 0; table < TS_BANK_TABLES; table++)
		if (c[table].epoch && obs_type(number, table) == TS_STATIC)
			return 1;
	return 0;
}

/* K5: the count that a new object of the same key would lack. */
TS_INLINE u64 keyed_counted(struct obs *x, KEYED_OBJECT *o, u32 table)
{
	struct ts_count *count;

	if (!x->config[table].epoch || obs_type(x->number, table) != TS_STATIC)
		return 0;
	count = (void *)((char *)o + obs_at(x->number, table));
	return ts_read(count->sum[0]) + ts_read(count->sum[1]);
}

TS_INLINE void keyed_refuse_counts(KEYED_OBJECT *o, u32 number)
{
	struct obs x;
	u32 table;

	if (!keyed_counts_in(number) || !obs_begin_total(&x, number, 0))
		return;
	for (table = 0; table < TS_BANK_TABLES; table++)
		obs_refuse_for(&x, table, TS_FULL, keyed_counted(&x, o, table));
}

/* K8 */
TS_INLINE void keyed_off_census(KEYED_OBJECT *o, u32 sample)
{
	if (ts_cas(&o->keyed.ended, 0, host_jiffies() ?: 1))
		ts_add(&obs_census(sample)->ended, 1);
}

/* End the object (K6). False: it stays. */
TS_INLINE int keyed_object_end(KEYED_OBJECT *o, u64 id)
{
	u32 sample = o->keyed.sample, bank;

	if (ts_read(o->keyed.held) || !keyed_is_silent(o) || !ts_cas(&o->keyed.object.id, id, 0))
		return 0;
	if (ts_read(o->keyed.held) || !keyed_is_silent(o)) {
		ts_write(o->keyed.object.id, id);
		return 0;
	}
	keyed_off_census(o, sample);
	for (bank = 0; bank < HOST_SAMPLE_BANKS; bank++) {
		obs_forget(sample * HOST_SAMPLE_BANKS + bank, o->keyed.object.self);
		keyed_refuse_counts(o, sample * HOST_SAMPLE_BANKS + bank);
	}
	ts_write(o->keyed.ended, host_jiffies());
	return 1;
}

/* End the object in this place, if it is silent. An object with a count ends only when a place is needed. True: it has ended. */
TS_GLOBAL_FN int keyed_age(u32 place, u64 id, u32 wanted)
{
	KEYED_OBJECT *o = host_item(objects, place);
	u32 bank, counts = 0;

	if (!o || o->keyed.sample >= HOST_SAMPLES)
		return 0;
	for (bank = 0; bank < HOST_SAMPLE_BANKS; bank++)
		counts |= keyed_counts_in(o->keyed.sample * HOST_SAMPLE_BANKS + bank);
	return (!counts || wanted) && keyed_object_end(o, id);
}

/* Take a place in this bucket that has no object. Returns the place, from 1; 0: there is no free place at present. */
TS_GLOBAL_FN int keyed_take_free(u32 bucket, u64 hash)
{
	struct keyed_bucket *b = host_item(buckets, bucket);
	u64 now = host_jiffies();
	u32 way;

	if (!b)
		return 0;
	for (way = 0; way < KEYED_WAYS; way++) {
		KEYED_OBJECT *o = host_item(objects, bucket * KEYED_WAYS + way);
		u64 tag = ts_read(b->tag[way]);

		if (!o || tag >= KEYED_BUSY)
			continue;
		if (tag == KEYED_ENDED && now - ts_read(o->keyed.ended) < host_jiffies_of_ms(KEYED_GRACE_MS))
			continue;
		if (tag == KEYED_ENDED && !KEYED_MAY_TAKE(o, hash))
			continue;
		if (ts_cas(&b->tag[way], tag, KEYED_BUSY))
			return bucket * KEYED_WAYS + way + 1;
	}
	return 0;
}

/* As keyed_take_free(), and ends silent objects (K5): of those with a count one at a time, and only where no place is free. */
TS_INLINE u32 keyed_take_in(u32 bucket, u64 hash)
{
	struct keyed_bucket *b = host_item(buckets, bucket);
	u32 place = keyed_take_free(bucket, hash), one = host_jiffies() % KEYED_WAYS, way;

	if (!b)
		return 0;
	for (way = 0; way < KEYED_WAYS; way++) {
		u64 tag = ts_read(b->tag[way]);

		if (tag > KEYED_BUSY && keyed_age(bucket * KEYED_WAYS + way, tag, !place && way == one))
			ts_write(b->tag[way], KEYED_ENDED);
	}
	return place;
}

/* Make an object in a place that the caller has taken. */
TS_GLOBAL_FN int keyed_place(const KEYED_KEY *key, u32 sample, u64 hash, u32 place)
{
	u32 bucket = place / KEYED_WAYS, way = place % KEYED_WAYS, incarnation, i;
	struct keyed_bucket *b = host_item(buckets, bucket);
	KEYED_OBJECT *o = host_item(objects, place);
	u64 id;

	if (!key || sample >= HOST_SAMPLES || !b || !o)
		return 0;
	incarnation = o->keyed.incarnation + 1;
	/* 0 is left to the ids of enum keyed_tag. */
	incarnation += !(incarnation & 0xffffff);
	for (i = 0; i < sizeof(*o) / sizeof(u64); i++)
		ts_write(((u64 *)o)[i], 0); /* eBPF has no memset */
	o->keyed.incarnation = incarnation;
	o->keyed.sample = sample;
	o->key = *key;
	id = keyed_id(hash, incarnation, place);
	/* a CPU that sees the tag sees no field of an earlier object */
	ts_publish((&b->lock)[ts_bound(way + 1, KEYED_WAYS)], id); /* tag[way], in a form that the verifier believes */
	KEYED_BEGUN(o, hash);
	obs_object_begin(&o->keyed.object, sample, id);
	return 1;
}

/* The number of times that a CPU reads whether a lock is free: about as long as another CPU takes to make an object. */
#define KEYED_TRIES 2048

/* K3. Returns the place of the object, from 1; 0: there is no object. */
TS_GLOBAL_FN int keyed_make(const KEYED_KEY *key, u32 sample)
{
	struct keyed_bucket *first;
	u32 place;
	u64 hash;

	if (!key || sample >= HOST_SAMPLES)
		return 0;
	hash = keyed_hash(key, sample);
	first = host_item(buckets, keyed_first(hash));
	if (!first || !obs_claim_soon(&first->lock, KEYED_TRIES))
		return 0;
	place = keyed_find(key, sample);
	if (!place) {
		place = keyed_take_in(keyed_first(hash), hash);
		if (!place)
			place = keyed_take_in(keyed_second(hash), hash);
		if (place)
			keyed_place(key, sample, hash, place - 1);
	}
	ts_release(&first->lock);
	return place;
}

/* The place of the key's object, from 1; makes the object if it does not exist. 0: there is no place for it. */
TS_INLINE u32 keyed_place_of(const KEYED_KEY *key, u32 sample)
{
	u32 place = keyed_find(key, sample);

	if (ts_unlikely(!place))
		place = keyed_make(key, sample);
	return place;
}

TS_INLINE KEYED_OBJECT *keyed_get(const KEYED_KEY *key, u32 sample)
{
	u32 place = keyed_place_of(key, sample);

	return place ? host_item(objects, place - 1) : NULL;
}

/* Hold an object for an event that has begun; keyed_release() ends the hold. False: the object has already ended (K6). */
TS_INLINE int keyed_hold(KEYED_OBJECT *o)
{
	u64 id = ts_read(o->keyed.object.id);

	ts_add(&o->keyed.held, 1);
	if (id && ts_read(o->keyed.object.id) == id)
		return 1;
	ts_add(&o->keyed.held, -1ULL);
	return 0;
}

TS_INLINE void keyed_release(KEYED_OBJECT *o)
{
	ts_add(&o->keyed.held, -1ULL);
}

/* The key's owner has ended (K8). The key may have no object. */
TS_GLOBAL_FN int keyed_close(const KEYED_KEY *key, u32 sample)
{
	u32 place = keyed_find(key, sample);
	KEYED_OBJECT *o = place ? host_item(objects, place - 1) : NULL;

	if (o && sample < HOST_SAMPLES)
		keyed_off_census(o, sample);
	return 0;
}

/* For readers: whether the object at this address, or its owner, has ended (K8). */
TS_INLINE u32 keyed_is_closed(u64 obj)
{
	u64 ended = 0;

	ts_peek(&ended, sizeof(ended), obj + offsetof(KEYED_OBJECT, keyed.ended));
	return ended != 0;
}

/* Begin a push to an existing object, in one bank. NULL: to the total, as refused (K4). */
TS_INLINE int keyed_begin_of(struct keyed *k, u32 number, KEYED_OBJECT *o)
{
	u64 id = o ? ts_read(o->keyed.object.id) : 0;

	if (!id)
		return obs_begin_total(&k->obs, number, TS_FULL);
	if (!obs_begin(&k->obs, number, &o->keyed.object))
		return 0;
	k->obs.id = id; /* and not what a CPU that ends the object has left there since (K6) */
	return 1;
}

/* Begin a push to the total alone, because the owner is not known, for this cause (K4). */
TS_INLINE int keyed_begin_lost(struct keyed *k, u32 number, u32 cause)
{
	return obs_begin_total(&k->obs, number, cause);
}

/* For a family with one bank to a sample. */
TS_INLINE int keyed_begin(struct keyed *k, u32 sample, const KEYED_KEY *key)
{
	return keyed_begin_of(k, sample, keyed_get(key, sample));
}

TS_INLINE void keyed_add(struct keyed *k, u32 table, u32 part, u64 amount)
{
	obs_add_any(&k->obs, table, part, amount);
	if (k->obs.id && ts_unlikely(ts_read(k->obs.object->id) != k->obs.id)) /* K6 */
		obs_refuse_for(&k->obs, table, TS_FULL, amount);
}

/* As keyed_add(), for an amount that was used evenly since a moment: see obs_add_since(). */
TS_INLINE void keyed_add_since(struct keyed *k, u32 table, u32 part, u64 amount, u64 since)
{
	obs_add_since(&k->obs, table, part, amount, since);
	if (k->obs.id && ts_unlikely(ts_read(k->obs.object->id) != k->obs.id)) /* K6 */
		obs_refuse_for(&k->obs, table, TS_FULL, amount);
}

/* As keyed_add(), for both parts of an amount that was used `ago` slides ago: see obs_add_ago(). */
TS_INLINE void keyed_add_ago(struct keyed *k, u32 table, u64 amount0, u64 amount1, u32 ago)
{
	obs_add_ago(&k->obs, table, amount0, amount1, ago);
	if (k->obs.id && ts_unlikely(ts_read(k->obs.object->id) != k->obs.id)) /* K6 */
		obs_refuse_for(&k->obs, table, TS_FULL, amount0 + amount1);
}

TS_INLINE void keyed_end(struct keyed *k)
{
	obs_end(&k->obs);
}

#endif /* TOPSTAT_KEYED_H */
