/* SPDX-License-Identifier: GPL-2.0-only */
/* For logic.h: spans, the time between two events (U7, U8). */
#ifndef TOPSTAT_CUSTOM_SPANS_H
#define TOPSTAT_CUSTOM_SPANS_H

TS_INLINE u64 custom_who(u64 hash, u32 place, u32 incarnation)
{
	u64 way = place % KEYED_WAYS + 1;

	if (place / KEYED_WAYS != keyed_first(hash))
		way += KEYED_WAYS;
	return (u64)incarnation << CUSTOM_WHO_ABOVE | way << CUSTOM_WHO_PLACE |
	       (custom_without_place(hash) & ((1ULL << CUSTOM_WHO_ABOVE) - 1));
}

TS_INLINE u32 custom_way_of(u64 who)
{
	return who >> CUSTOM_WHO_PLACE & 15;
}

/* The object that a span holds. NULL: it holds none, or another object is there now (U8). */
TS_INLINE KEYED_OBJECT *custom_held_by(u64 who)
{
	u32 way = custom_way_of(who), bucket = way > KEYED_WAYS ? keyed_second(who) : keyed_first(who);
	KEYED_OBJECT *o;

	if (!way)
		return NULL;
	o = host_item(objects, bucket * KEYED_WAYS + (way - 1) % KEYED_WAYS);
	return o && !(((u64)ts_read(o->keyed.incarnation) ^ who >> CUSTOM_WHO_ABOVE) << CUSTOM_WHO_ABOVE) ? o : NULL;
}

TS_INLINE void custom_over(u64 who)
{
	KEYED_OBJECT *o = custom_held_by(who);

	if (o)
		keyed_release(o);
}

/* `common`: of the fields that both events have, never 0 or 1. A span that has not ended begins anew. */
TS_INLINE void custom_begin(const struct custom_key *key, u64 common)
{
	struct pending old = {};
	KEYED_OBJECT *o;
	u64 who, hash;
	u32 place;

	if (pending_take(common, &old))
		custom_over(old.who);
	if (!obs_is_on(CUSTOM_SAMPLE, CUSTOM_TABLE))
		return;
	hash = keyed_hash(key, CUSTOM_SAMPLE);
	who = custom_without_place(hash);
	place = keyed_place_of(key, CUSTOM_SAMPLE);
	o = place ? host_item(objects, place - 1) : NULL;
	if (o) {
		ts_write(o->begun, host_jiffies()); /* before the hold: U8 */
		if (keyed_hold(o))
			who = custom_who(hash, place - 1, o->keyed.incarnation);
	}
	if (!pending_put(common, who, host_clock(), &old)) {
		custom_over(who);
		ts_add(&unkept, 1);
	} else if (old.key) {
		custom_over(old.who);
	}
}

TS_INLINE void custom_finish(u64 common)
{
	struct pending p = {};
	KEYED_OBJECT *o;
	struct keyed k;
	u64 ns;

	if (!pending_take(common, &p))
		return;
	ns = host_clock() - p.when;
	if ((s64)ns < 0) /* the clocks of two CPUs may differ by a moment */
		ns = 0;
	o = custom_held_by(p.who);
	if (obs_is_on(CUSTOM_SAMPLE, CUSTOM_TABLE) && keyed_begin_of(&k, CUSTOM_SAMPLE, o)) {
		keyed_add_since(&k, CUSTOM_TABLE, 0, ns, obs_since_ns(&k.obs, CUSTOM_TABLE, ns));
		if (o && k.obs.id)
			custom_count(&k.obs, o, ns);
		keyed_end(&k);
		if (ts_unlikely(custom_is_late(&k)))
			custom_refuse(p.who, ns, custom_way_of(p.who));
		if (!custom_way_of(p.who))
			custom_contend(p.who, ns);
	}
	if (o)
		keyed_release(o);
}

#endif /* TOPSTAT_CUSTOM_SPANS_H */
