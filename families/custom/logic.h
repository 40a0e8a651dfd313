/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A table of the user's own: keys of events, in a bounded set of objects. When all places of a key are taken, a large key
 * displaces a small one.
 *
 *	custom_push      an event adds an amount to its key
 *	custom_begin     a span begins: the first of two events
 *	custom_finish    a span ends, and its time is added to the key of its first event
 *
 *   U1  Every amount is in the total. Amounts without an object are refused (K4 of keyed.h), so rows + other = total.
 *   U2  Each bucket has a window of the amounts that were refused to keys whose first bucket it is. These are the amounts of
 *       keys without a place, and the values of displaced objects. So no key has lost more in the period than its first bucket
 *       has refused.
 *   U3  An object takes over, when it begins, the value of that window as `missing`. So a key is worth at least its object's
 *       value, and at most that value and `missing`, which no longer counts a period later: the row is exact then.
 *   U4  A CPU that refuses an amount first adds to the window, then looks at the tags, and adds to the `missing` of each object
 *       whose tag has the key's hash. A CPU that makes an object makes the tag visible first, and then reads the window. So at
 *       least one of them sees the other. (The id does not matter: a CPU may take it away for a moment, K6. An object of another
 *       key with these 16 bits of the hash gets a bound that is larger than needed.) Pushes find the object only after that.
 *   U5  Each bucket has a credit: the amounts refused since its last displacement. A key wins when its amount brings the credit
 *       above two limits: the smallest value of the bucket's objects, and the amount that the bucket refuses in KEYED_GRACE_MS. So
 *       of the refused amounts about one in each limit wins, wherever in the stream it is: as with randomized admission (Basat
 *       et al., "Randomized admission policy for efficient top-k and frequency estimation", INFOCOM 2017) a key wins in
 *       proportion to its amounts, but no random number is needed. A flood of small keys displaces little: all of them together
 *       have to outweigh the object.
 *   U6  The key that wins has to get a place at once: a key with few large amounts does not come again soon. A place can't be
 *       used at once (K7), so a bucket in which keys contend has CUSTOM_SPARES spare places, whose objects have ended before. The
 *       key that wins gets a spare place, and the smallest object ends, so that its place is the next spare one. While no
 *       spare place can be used, no key wins, and the credit begins again. A place that has been spare for CUSTOM_SPARE_MS is
 *       free for all keys.
 *   U7  The key of a span is not known at its end, so the span keeps the key's hash. A key that wins at the end of a span gets the
 *       place when its next span begins.
 *   U8  An object that a span holds is not displaced until CUSTOM_LOST_MS after the latest beginning of a span. Ends can be
 *       missing: a task that exits ends no system call. If a span ends after that, its time is refused.
 */
#ifndef TOPSTAT_CUSTOM_LOGIC_H
#define TOPSTAT_CUSTOM_LOGIC_H

#include "observe/host.h"
#include "custom.h"

HOST_STATE(custom, CUSTOM_SAMPLES, CUSTOM_SAMPLES);

/* U6. With one, keys with few large amounts are found less often; with three, hardly more often. */
#define CUSTOM_SPARES 2
/* As long as ten uses of a spare place by keys that win. */
#define CUSTOM_SPARE_MS 1000
/* U8. The 3,584 places are enough for the lost spans of 350 tasks that exit in each second. */
#define CUSTOM_LOST_MS 10000

TS_INLINE u32 obs_at(u32 number, u32 table)
{
	return offsetof(struct custom_object, window);
}

TS_INLINE u32 obs_type(u32 number, u32 table)
{
	return TS_DYNAMIC;
}

TS_INLINE void custom_missing(struct custom_object *o, u64 hash);
TS_INLINE int custom_may_take(struct custom_object *o, u64 hash);

#define KEYED_BUCKETS 512
#define KEYED_MASK constants.buckets_mask
#define KEYED_WORDS constants.table.words
#define KEYED_KEY struct custom_key
#define KEYED_OBJECT struct custom_object
#define KEYED_BEGUN(o, hash) custom_missing(o, hash)
#define KEYED_MAY_TAKE(o, hash) custom_may_take(o, hash)
#include "observe/keyed.h"

/* 20,480 spans that have begun, 512 KiB. */
#define PENDING_BUCKETS 4096
#define PENDING_AGE_NS (CUSTOM_LOST_MS * 1000000ULL)
#include "observe/pending.h"

HOST_MAPPED_ARRAY(refused, KEYED_BUCKETS, struct custom_refused);

/* Spans that found no place in pending.h: their time is not known, and in no total. */
HOST_WORD(unkept);
/* Amounts below 0, which are not counted. */
HOST_WORD(negative);
/* Texts of events that were not in memory when they were read. Their amounts count to the empty text. */
HOST_WORD(faulted);

/*
 * `who` of a span. The bits of the key's hash that its two buckets follow from; in four bits between them, the place of the object
 * in these buckets, from 1, or 0, if the key had no object; and above them the low bits of the object's incarnation, or otherwise
 * the rest of the hash.
 */
#define CUSTOM_WHO_PLACE 20
#define CUSTOM_WHO_ABOVE 44

_Static_assert(KEYED_BUCKETS <= 1 << CUSTOM_WHO_PLACE, "no bucket depends on the bits of the place");

/* This CPU's bank, with ticks of the present moment. */
TS_INLINE struct ts_bank *custom_bank(void)
{
	struct ts_bank *bank = host_bank(host_cpu(), CUSTOM_SAMPLE);

	if (bank)
		ts_bank_to(bank, constants.shape.table_stride, settings.config[CUSTOM_SAMPLE], settings.all.generation,
			   host_jiffies());
	return bank;
}

/* An upper bound of the window's value, in the slide of the tick. In the order of W6 and W8. */
TS_INLINE u64 custom_most(struct ts_window *w, const struct ts_tick *tick)
{
	u64 base, fading;

	if (ts_read(w->slide) != tick->slide)
		ts_window_begin(w, tick);
	base = ts_read(w->base);
	ts_rmb(); /* W8: pairs with ts_window_begin() */
	fading = ts_read(w->fading);
	ts_rmb(); /* W6 */
	return ((ts_read(w->sum[0]) + ts_read(w->sum[1]) - base) << 8 >> 8) + fading;
}

TS_INLINE void custom_add_to(struct ts_window *w, const struct ts_tick *tick, u64 amount)
{
	if (ts_read(w->slide) != tick->slide)
		ts_window_begin(w, tick);
	ts_window_add(w, tick, 0, amount);
}

/* U3: whether amounts of this slide have left the period. One slide more is for CPUs whose clock is behind. */
TS_INLINE int custom_is_over(u64 born, u64 slide)
{
	return !ts_same_epoch(born, slide) || slide > born + TS_SLIDES + 1;
}

/* An amount of the object's key is refused in this slide. The CPU that swaps an old `born` removes the amounts of that time. If
 * another CPU adds at that moment, they stay for another period. */
TS_INLINE void custom_add_missing(struct custom_object *o, u64 slide, u64 amount)
{
	u64 missing = ts_read(o->missing), born;

	ts_rmb(); /* `missing` is not newer than `born` */
	born = ts_read(o->born);
	if (custom_is_over(born, slide)) {
		if (ts_cas(&o->born, born, slide) && ts_cas(&o->missing, missing, amount))
			return;
	} else if (slide > born) {
		(void)ts_cas(&o->born, born, slide);
	}
	ts_add(&o->missing, amount);
}

/* U3, U4: the tag is visible. */
TS_INLINE void custom_missing(struct custom_object *o, u64 hash)
{
	struct custom_refused *r = host_item(refused, keyed_first(hash));
	struct ts_bank *bank = custom_bank();

	if (!r || !bank)
		return;
	(void)ts_cas(&o->born, 0, bank->tick[CUSTOM_TABLE].slide); /* U4: a full barrier between the tag and the window */
	ts_add(&o->missing, custom_most(&r->window, &bank->tick[CUSTOM_TABLE]));
}

/* Whether an object that was displaced has been spare for this time. */
TS_INLINE int custom_is_spare_for(struct custom_object *o, u32 ms)
{
	return host_jiffies() - ts_read(o->keyed.ended) >= host_jiffies_of_ms(ms);
}

/* The hash without the bits that custom_who() has for a place: the buckets do not depend on them. */
TS_INLINE u64 custom_without_place(u64 hash)
{
	return hash & ~(15ULL << CUSTOM_WHO_PLACE);
}

TS_INLINE u64 custom_reserved_for(u64 hash)
{
	return custom_without_place(hash) | 1;
}

/* U6. The object has ended, and its place was not used again. */
TS_INLINE int custom_may_take(struct custom_object *o, u64 hash)
{
	u64 reserved = ts_read(o->reserved);

	return reserved == CUSTOM_FOR_ALL || reserved == custom_reserved_for(hash) || custom_is_spare_for(o, CUSTOM_SPARE_MS);
}

/* U8 */
TS_INLINE int custom_is_held(struct custom_object *o)
{
	return ts_read(o->keyed.held) && host_jiffies() - ts_read(o->begun) < host_jiffies_of_ms(CUSTOM_LOST_MS);
}

/* The places of a bucket, when a key contends for one. */
struct custom_look {
	u64 least; /* the smallest value … */
	u32 smallest; /* … and its place, from 1; 0: no object can end */
	u32 spare; /* a spare place that can be used, from 1 */
	u32 ended; /* places without an object */
	u32 pad;
	u64 ready; /* jiffies, when the first of them can be used */
};

/* A place without an object. */
TS_INLINE void custom_look_at_ended(struct custom_look *look, KEYED_OBJECT *o, u32 place)
{
	u64 ready = ts_read(o->keyed.ended) + host_jiffies_of_ms(KEYED_GRACE_MS);

	look->ended++;
	if (ready < look->ready)
		look->ready = ready;
	if (ts_read(o->reserved) != CUSTOM_FOR_ALL && custom_is_spare_for(o, KEYED_GRACE_MS))
		look->spare = place;
}

/* A place with an object. Does not begin a slide in its window: without pushes it falls silent (K5). */
TS_GLOBAL_FN int custom_look_at(struct custom_look *look, u32 place)
{
	struct ts_bank *bank = custom_bank();
	KEYED_OBJECT *o = place ? host_item(objects, place - 1) : NULL;
	struct ts_value v;

	if (!look || !bank || !o || custom_is_held(o))
		return 0;
	/* Not a copy (W9): a value that is wrong for a moment only ends another object. */
	if (ts_window_eval(&o->window[CUSTOM_TABLE], &bank->tick[CUSTOM_TABLE], &v))
		return 0;
	if (look->smallest && v.value >= look->least)
		return 0;
	look->least = v.value;
	look->smallest = place;
	return 0;
}

TS_GLOBAL_FN int custom_look_in(u32 bucket, struct custom_look *look)
{
	struct keyed_bucket *b = host_item(buckets, bucket);
	u32 way;

	if (!b || !look)
		return 0;
	look->ready = ~0ULL;
	for (way = 0; way < KEYED_WAYS; way++) {
		u32 place = bucket * KEYED_WAYS + way + 1;
		KEYED_OBJECT *o = host_item(objects, place - 1);
		u64 tag = ts_read(b->tag[way]);

		if (tag > KEYED_BUSY)
			custom_look_at(look, place);
		else if (o && tag != KEYED_BUSY)
			custom_look_at_ended(look, o, place);
	}
	return 0;
}

/* U4, in one of a key's buckets. `all`: of the hash only the buckets are known. */
TS_GLOBAL_FN int custom_refuse_in(u32 bucket, u64 hash, u64 amount, u32 all)
{
	struct keyed_bucket *b = host_item(buckets, bucket);
	struct ts_bank *bank = custom_bank();
	u32 way;

	if (!b || !bank)
		return 0;
	for (way = 0; way < KEYED_WAYS; way++) {
		KEYED_OBJECT *o = host_item(objects, bucket * KEYED_WAYS + way);
		u64 tag = ts_read(b->tag[way]);

		if (o && tag > KEYED_BUSY && (all || !((tag ^ hash) >> 48)))
			custom_add_missing(o, bank->tick[CUSTOM_TABLE].slide, amount);
	}
	return 0;
}

/* U2, U4: an amount is refused that the total has. */
TS_GLOBAL_FN int custom_refuse(u64 hash, u64 amount, u32 all)
{
	struct custom_refused *r = host_item(refused, keyed_first(hash));
	struct ts_bank *bank = custom_bank();

	if (!r || !bank || !amount)
		return 0;
	custom_add_to(&r->window, &bank->tick[CUSTOM_TABLE], amount);
	custom_refuse_in(keyed_first(hash), hash, amount, all);
	if (keyed_second(hash) != keyed_first(hash))
		custom_refuse_in(keyed_second(hash), hash, amount, all);
	return 0;
}

/* End the object in this place. */
TS_GLOBAL_FN int custom_displace(u32 place)
{
	struct keyed_bucket *b = host_item(buckets, place / KEYED_WAYS);
	struct ts_bank *bank = custom_bank();
	KEYED_OBJECT *o = host_item(objects, place);
	u32 way = place % KEYED_WAYS;
	struct obs x;
	u64 id, value;

	if (!b || !o || !bank)
		return 0;
	id = ts_read(o->keyed.object.id);
	if (!id || custom_is_held(o) || !ts_cas(&o->keyed.object.id, id, 0))
		return 0;
	if (custom_is_held(o)) { /* K6 */
		ts_write(o->keyed.object.id, id);
		return 0;
	}
	/* After the swap: a CPU that pushes later sees it, and refuses its amount itself. */
	value = custom_most(&o->window[CUSTOM_TABLE], &bank->tick[CUSTOM_TABLE]);
	keyed_off_census(o, CUSTOM_SAMPLE);
	custom_refuse(keyed_hash(&o->key, CUSTOM_SAMPLE), value, 0);
	if (obs_begin_total(&x, CUSTOM_SAMPLE, 0))
		obs_refuse_for(&x, CUSTOM_TABLE, TS_FULL, value);
	obs_forget(CUSTOM_SAMPLE, o->keyed.object.self);
	ts_write(o->reserved, CUSTOM_FOR_WINNERS);
	ts_write(o->keyed.ended, host_jiffies());
	/* pairs with the swap of the tag in keyed_take_free() */
	ts_publish((&b->lock)[ts_bound(way + 1, KEYED_WAYS)], KEYED_ENDED);
	return 1;
}

/* U5: the amount that the bucket refuses in KEYED_GRACE_MS. */
TS_INLINE u64 custom_pace(struct custom_refused *r, u64 amount)
{
	u64 over = host_jiffies() - ts_read(r->since), grace = host_jiffies_of_ms(KEYED_GRACE_MS);

	ts_add(&r->amount, amount);
	if (over >= grace) {
		u64 refused = ts_read(r->amount);

		ts_write(r->pace, over < 2 * grace ? refused : refused / (over / (grace ?: 1) ?: 1));
		ts_write(r->amount, 0);
		ts_write(r->since, host_jiffies());
	}
	return ts_read(r->pace);
}

/* U5, U6: an amount of a key without a place. Returns the spare place that the key has won, from 1; 0: it has won none. */
TS_GLOBAL_FN int custom_contend(u64 hash, u64 amount)
{
	struct ts_bank *bank = custom_bank();
	struct custom_refused *r = host_item(refused, keyed_first(hash));
	struct custom_look look = {};
	u64 credit, ready, pace, reserved;
	KEYED_OBJECT *o;

	if (!r || !bank)
		return 0;
	pace = custom_pace(r, amount);
	ts_add(&r->credit, amount);
	ready = ts_read(r->ready);
	if (ready && host_jiffies() >= ready) {
		ts_write(r->ready, 0);
		ts_write(r->crowded, 0);
		ts_write(r->credit, amount);
	}
	credit = ts_read(r->credit);
	if (ts_read(r->crowded) || credit <= pace)
		return 0;
	if (ts_read(r->looked) == bank->tick[CUSTOM_TABLE].slide && credit <= ts_read(r->least))
		return 0;
	custom_look_in(keyed_first(hash), &look);
	ts_write(r->looked, bank->tick[CUSTOM_TABLE].slide);
	ts_write(r->least, look.least);
	if (!look.spare && look.ended) {
		ts_write(r->ready, look.ready);
		ts_write(r->crowded, look.ended >= CUSTOM_SPARES);
	}
	if (credit <= look.least || (!look.spare && look.ended >= CUSTOM_SPARES) || !ts_cas(&r->credit, credit, 0))
		return 0;
	if (look.smallest && look.ended <= CUSTOM_SPARES)
		custom_displace(look.smallest - 1);
	o = look.spare ? host_item(objects, look.spare - 1) : NULL;
	reserved = o ? ts_read(o->reserved) : CUSTOM_FOR_ALL;
	if (!o || reserved == CUSTOM_FOR_ALL || !ts_cas(&o->reserved, reserved, custom_reserved_for(hash)))
		return 0;
	return look.spare;
}

/* Count the event beside its amount. */
TS_INLINE void custom_count(struct obs *x, struct custom_object *o, u64 amount)
{
	u64 longest;
	u32 i;

	custom_add_to(&o->times, &x->bank->tick[CUSTOM_TABLE], 1);
	for (i = 0; i < 4; i++) { /* other CPUs may do it at the same time */
		longest = ts_read(o->longest);
		if (amount <= longest || ts_cas(&o->longest, longest, amount))
			break;
	}
}

/* Whether the object has ended amid a push to it (K6): then its amount is refused. */
TS_INLINE int custom_is_late(const struct keyed *k)
{
	return !k->obs.id || ts_unlikely(ts_read(k->obs.object->id) != k->obs.id);
}

/* A key without a place contends for one. Returns the place that it has got, from 1. */
TS_GLOBAL_FN int custom_win(const struct custom_key *key, u64 amount)
{
	KEYED_OBJECT *o;
	u32 spare, place;
	u64 hash;

	if (!key)
		return 0;
	hash = keyed_hash(key, CUSTOM_SAMPLE);
	spare = custom_contend(hash, amount);
	if (!spare)
		return 0;
	place = keyed_make(key, CUSTOM_SAMPLE);
	o = place != spare ? host_item(objects, spare - 1) : NULL;
	if (o)
		(void)ts_cas(&o->reserved, custom_reserved_for(hash), CUSTOM_FOR_WINNERS);
	return place;
}

TS_INLINE void custom_push(const struct custom_key *key, u64 amount)
{
	KEYED_OBJECT *o;
	struct keyed k;
	u32 place;

	if (!obs_is_on(CUSTOM_SAMPLE, CUSTOM_TABLE))
		return;
	place = keyed_place_of(key, CUSTOM_SAMPLE);
	if (ts_unlikely(!place))
		place = custom_win(key, amount);
	o = place ? host_item(objects, place - 1) : NULL;
	if (!keyed_begin_of(&k, CUSTOM_SAMPLE, o))
		return;
	keyed_add(&k, CUSTOM_TABLE, 0, amount);
	if (o && k.obs.id)
		custom_count(&k.obs, o, amount);
	keyed_end(&k);
	if (ts_unlikely(custom_is_late(&k)))
		custom_refuse(keyed_hash(key, CUSTOM_SAMPLE), amount, 0);
}

#include "spans.h"

#endif /* TOPSTAT_CUSTOM_LOGIC_H */
