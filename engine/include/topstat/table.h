/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A table ranks objects by value, on one CPU.
 *
 * It is an array of entries, a power of two of them, twice the rows it is to show:
 * an entry that fades must not hold back a larger newcomer, so there is room for both.
 * Three structures share the array, each using its own fields of entry i:
 *
 *      heap node i   key, order      a min-heap by key; order names a slot
 *      slot i        obj, id, pos …  one object; pos is its node in the heap
 *      buckets 4i … 4i+3  head[]     hash of obj -> slot, chained by next
 *
 *      head[hash(obj)] --> slot --next--> slot
 *                           | ^
 *                       pos v | order
 *                         heap node            node 0: the smallest key
 *
 * Slots and their links are numbered from 1; 0 is none.
 *
 * Invariants, where n objects are in the table:
 *
 *   T1  order of the nodes 0 … slots-1 is a permutation of the slots; those of
 *       nodes n … are free. (Slot s of node p has pos p.)
 *   T2  key(parent) <= key(child) for all nodes < n.
 *   T3  an object is in at most one slot; it is found by hash(obj) within
 *       TS_CHAIN steps, or else it is not put in.
 *   T4  key is the object's value when it was last looked at: pushed on this CPU,
 *       or re-evaluated, which happens to every entry at most once a slide. It may
 *       be too large for a slide, when the object fades, but never too small.
 *   T5  missed[] bounds the value of every object that is not in the table and was
 *       pushed on this CPU: no such object was larger, when last pushed, than the
 *       greatest missed[] of the last period. Hence the proof: rows that are at
 *       least that large are the true top.
 *   T6  refused is the window of all that was pushed on this CPU to the total alone though
 *       it should have had an object, and of all that was not pushed at all, since how much it
 *       was could not be told: there, of the most that it can have been. So what is not known of an object, which may be all
 *       of it, is never more than the sum of all CPUs' refused: within the period in a
 *       dynamic table, ever in a static one. Hence the proof where something was refused:
 *       rows that are larger by that sum than whatever has no row.
 *
 * Cost: the object is found in O(1); its key moves in O(log n), mostly O(1); a push
 * that does not make it into the table is O(1) plus looking at two entries again.
 *
 * Concurrency: only this CPU writes its tables, and only under their bank's claim. A push
 * that interrupts the holder does not get it; it has been summed, its ordering is
 * skipped and counted in `contended`. Others read at any time.
 */
#ifndef TOPSTAT_TABLE_H
#define TOPSTAT_TABLE_H

#include "window.h"

/* The rows a table can be created for, and how many entries it has for each. */
#define TS_TOP_MIN 1
#define TS_TOP_MAX 1024
#define TS_TOP_DEFAULT 128
#define TS_SPARE 2
#define TS_ENTRIES_MAX (TS_TOP_MAX * TS_SPARE)
/* The heap has at most this many levels: log2(TS_ENTRIES_MAX) + 1. */
#define TS_LEVELS 12
/* The longest hash chain: with four buckets to an entry, a longer one does not occur
 * (probability below 1e-15 for a full table). */
#define TS_CHAIN 12

enum ts_type {
	TS_DYNAMIC = 1,
	TS_STATIC = 2,
};

/*
 * What a table is set to. Written by user space at any time, the epoch last; read on
 * every push. Times are in ticks of the table's clock: jiffies where a slide is
 * long enough, else nanoseconds (`precise`).
 */
struct ts_config {
	u32 enabled; /* root, sample and table together */
	u32 type; /* enum ts_type */
	u32 epoch; /* 16 bit, never 0; another one starts windows afresh */
	u32 precise; /* the clock: 0 jiffies, 1 nanoseconds */
	u64 slide; /* ticks in a slide */
	u64 fraction; /* 2^56 / slide: ticks to fractions without dividing */
	u32 delay; /* in units of 2^delay_shift ticks; 0: order every push */
	u32 delay_shift;
	u32 period_ms; /* as set by the user */
	u32 delay_ms;
	u32 switches; /* of enum ts_switch; `enabled` is the first three together */
	u32 quiet; /* every table of the sample that is on has a delay */
	u32 raised_ms; /* the delay that a budget asks for; `delay` is the longer one */
	u32 pad;
};

enum ts_switch {
	TS_SWITCH_TABLE = 1,
	TS_SWITCH_SAMPLE = 2,
	TS_SWITCH_ROOT = 4,
	TS_SWITCH_ALL = 7,
	TS_SWITCH_SYNC = 8, /* for readers: see topstat/section.h */
};

/* Before the settings of a family's tables: ts_config[samples][TS_BANK_TABLES]. */
struct ts_settings {
	u32 generation; /* another one whenever a setting was changed; written last */
	/* Of readers, who may be killed at any time: odd while one has all objects of a table ordered
	 * again, since nothing can be proven meanwhile (T5); and the table: sample * TS_BANK_TABLES + table. */
	u32 refills;
	u32 refilling;
	u32 pad[13];
};

/* What a family's tables were made for; its constants begin with it. */
struct ts_shape {
	u32 abi; /* of the family: structures that another one can't use */
	u32 top; /* rows of a table */
	u32 entries_mask; /* entries of a table - 1 */
	u32 table_stride; /* bytes from one table of a bank to the next */
};

/* Objects that have been, by sample; begun - ended are there now. */
struct ts_census {
	u64 begun;
	u64 ended;
};

struct ts_entry {
	/* heap node */
	u64 key;
	/* slot */
	u64 obj; /* address of the object */
	u64 id; /* its id, to tell it from a later one at the same address */
	u64 pushed; /* ticks, when last pushed here */
	/* Stamps, for ticks of two clocks or of two periods can't be compared: */
	u32 pushed_in; /* the slide in which last pushed here */
	u32 seen_in; /* the slide in which last evaluated here without a push */
	u32 count; /* how often ordered here; for `dump` */
	u16 order; /* heap node: its slot */
	u16 pos; /* slot: its heap node */
	u16 next; /* slot: next of the chain */
	u16 head[4]; /* buckets */
	u16 pad[3];
};

struct ts_table {
	u32 n; /* entries in use */
	u32 hand; /* the slot to look at again next */
	u64 settled; /* the slide in which the hand has been everywhere */
	u64 round; /* the slide in which the hand set out … */
	u32 round_left; /* … and how many slots it has still to see */
	u32 pad2;
	u32 launder; /* see ts_launder() */
	u32 where; /* bank << 8 | number in the bank: for global functions */
	u64 contended; /* pushes summed but not ordered, for the claim was taken */
	u64 unobjected; /* pushes to the total alone that should have had an object */
	u64 crowded; /* pushes not ordered, for a hash chain was full */
	u64 missed_slide; /* the slide missed[] is up to date for */
	u64 missed[TS_MARKS]; /* T5, by slide; [0] alone in a static table */
	u64 missed_nested[TS_MARKS]; /* the same, by pushes without the claim */
	u64 opaque; /* events that were not pushed, for the observer could not tell how much they are */
	struct ts_window total __attribute__((aligned(64))); /* all pushes on this CPU */
	struct ts_window refused; /* T6; the slide begins when something is refused in it */
	struct ts_window scratch; /* a copy to evaluate; under the claim */
	struct ts_entry entry[] __attribute__((aligned(64)));
};

/* The tables of a sample, which are pushed to together, on one CPU. They stand behind
 * their bank, each `stride` bytes after the one before. */
#define TS_BANK_TABLES 4

struct ts_bank {
	u64 claim;
	u64 now; /* the ticks are up to date for this, and for this `generation` */
	u32 generation;
	u32 pad[11];
	struct ts_tick tick[TS_BANK_TABLES];
} __attribute__((aligned(64)));

/*
 * How many entries a table has and how it finds its window inside an object. One
 * word, so that it stays in a register, where the verifier knows its value.
 */
typedef u64 ts_view;

/* window, id: offsets from the object's address, below 2^16. The id is 0 once the
 * object is gone. */
TS_INLINE ts_view ts_view_of(u32 mask, u32 type, u32 window, u32 id)
{
	return (u64)mask | (u64)type << 16 | (u64)window << 32 | (u64)id << 48;
}

/* entries - 1 */
TS_INLINE u32 ts_view_mask(ts_view view)
{
	return view & 0xffff;
}

TS_INLINE u32 ts_view_type(ts_view view)
{
	return view >> 16 & 0xffff;
}

TS_INLINE u32 ts_view_window(ts_view view)
{
	return view >> 32 & 0xffff;
}

TS_INLINE u32 ts_view_id(ts_view view)
{
	return view >> 48;
}

TS_INLINE u64 ts_table_size(u32 entries)
{
	return sizeof(struct ts_table) + (u64)entries * sizeof(struct ts_entry);
}

TS_INLINE struct ts_entry *ts_entry(struct ts_table *t, u32 i, u32 mask)
{
	return &t->entry[ts_bound(i, mask)];
}

/* Fill in a table that is all zeroes: every slot free (T1). */
TS_INLINE void ts_table_init(struct ts_table *t, u32 entries, u32 where)
{
	u32 i;

	t->where = where;
	for (i = 0; i < entries; i++)
		t->entry[i].order = i;
}

/* Where `now` lies. At most one division, once a slide. */
TS_INLINE void ts_tick_to(struct ts_tick *tick, const struct ts_config *c, u64 now)
{
	u32 epoch = ts_read(c->epoch);

	if (now >= tick->end || now < tick->start || tick->epoch != epoch) {
		u64 length = ts_read(c->slide), slide;

		if (!length)
			length = 1;
		slide = now / length;
		tick->slide = ((u64)epoch << TS_EPOCH_SHIFT) | slide;
		tick->start = slide * length;
		tick->end = tick->start + length;
		tick->epoch = epoch;
		tick->mark = slide % TS_MARKS;
		tick->stamp = (u32)slide ^ (epoch << 16);
	}
	tick->now = now;
	tick->fraction = (((now - tick->start) * ts_read(c->fraction)) >> 48) & 255;
}

/* The hash is Fibonacci's (Knuth 6.4); the low bits of an address carry nothing. */
TS_INLINE u32 ts_bucket(u64 obj, u32 mask)
{
	return (u32)((obj * 0x9E3779B97F4A7C15ULL) >> 32) & (4 * mask + 3);
}

TS_INLINE void ts_node_set(struct ts_table *t, u32 pos, u64 key, u32 slot, u32 mask)
{
	struct ts_entry *node = ts_entry(t, pos, mask);

	node->key = key;
	node->order = slot;
	ts_entry(t, slot, mask)->pos = pos;
}

/* Node `pos` has a new key that may be too large for its place: T2 downwards. */
TS_INLINE void ts_sift_down(struct ts_table *t, u32 pos, u64 key, u32 slot, u32 n, u32 mask)
{
	u32 level;

	for (level = 0; level < TS_LEVELS; level++) {
		u32 child = 2 * pos + 1;
		struct ts_entry *c;

		if (child >= n)
			break;
		c = ts_entry(t, child, mask);
		if (child + 1 < n) {
			struct ts_entry *right = ts_entry(t, child + 1, mask);

			if (right->key < c->key) {
				c = right;
				child++;
			}
		}
		if (c->key >= key)
			break;
		ts_node_set(t, pos, c->key, c->order, mask);
		pos = ts_launder(&t->launder, child);
	}
	ts_node_set(t, pos, key, slot, mask);
}

/* Node `pos` has a new key that may be too small for its place: T2 upwards. */
TS_INLINE void ts_sift_up(struct ts_table *t, u32 pos, u64 key, u32 slot, u32 mask)
{
	u32 level;

	for (level = 0; level < TS_LEVELS; level++) {
		u32 parent = (pos - 1) >> 1;
		struct ts_entry *p;

		if (!pos)
			break;
		p = ts_entry(t, parent, mask);
		if (p->key <= key)
			break;
		ts_node_set(t, pos, p->key, p->order, mask);
		pos = ts_launder(&t->launder, parent);
	}
	ts_node_set(t, pos, key, slot, mask);
}

/* Put a key and its slot where they belong: at node `pos`, or above or below it (T2). */
TS_INLINE void ts_settle(struct ts_table *t, u32 pos, u64 key, u32 slot, u32 mask)
{
	if (pos && ts_entry(t, (pos - 1) >> 1, mask)->key > key)
		ts_sift_up(t, pos, key, slot, mask);
	else
		ts_sift_down(t, pos, key, slot, t->n, mask);
}

/*
 * Much code that rarely runs is kept apart: an eBPF program may define these as calls of
 * global functions, which are verified once and not wherever they are called.
 */
#ifndef ts_settle_apart
#define ts_settle_apart ts_settle
#endif
#ifndef ts_look_apart
#define ts_look_apart ts_look_again
#endif
#ifndef ts_order_apart
#define ts_order_apart ts_order_slow
#endif
#ifndef ts_roll_apart
#define ts_roll_apart ts_bank_roll
#endif

/* Give the entry at node `pos` its new key. */
TS_INLINE void ts_rekey(struct ts_table *t, u32 pos, u64 key, u32 mask)
{
	struct ts_entry *node = ts_entry(t, pos, mask);

	if (key != node->key)
		ts_settle_apart(t, pos, key, node->order, mask);
}

/* The slot of the object, from 1; 0: not in the table; -1: it may not be put in. */
TS_INLINE int ts_find(struct ts_table *t, u64 obj, u32 bucket, u32 mask)
{
	u32 slot = ts_entry(t, bucket >> 2, mask)->head[bucket & 3];
	u32 i;

	for (i = 0; i < TS_CHAIN; i++) {
		struct ts_entry *e;

		if (!slot)
			return 0;
		e = ts_entry(t, slot - 1, mask);
		if (e->obj == obj)
			return ts_bound(slot - 1, mask) + 1;
		slot = e->next;
	}
	return -1;
}

/*
 * The same for who is pushed again and again: `at` is where it was found last, on whatever CPU. That is
 * right if the slot there is the object's (T3: no other is), and takes one cache line to see instead
 * of two. A byte has room for the slots of a table of the default size; in larger ones objects in the
 * slots beyond are always looked up.
 *
 * Where objects are mostly pushed on the CPU on which they were last, as tasks are, a family defines
 * ts_find_pushed as this. Where CPUs take turns, as with packets, it would mostly look in vain.
 */
TS_INLINE int ts_find_again(struct ts_table *t, u64 obj, u8 *at, u32 mask)
{
	u32 slot = ts_read(*at);
	int found;

	if (ts_likely(ts_entry(t, slot, mask)->obj == obj))
		return ts_bound(slot, mask) + 1;
	found = ts_find(t, obj, ts_bucket(obj, mask), mask);
	if (found > 0)
		ts_write(*at, found - 1);
	return found;
}

#ifndef ts_find_pushed
#define ts_find_pushed(t, obj, at, mask) ts_find(t, obj, ts_bucket(obj, mask), mask)
#endif

/* Take the slot out of its hash chain. */
TS_INLINE void ts_unlink(struct ts_table *t, u32 slot, u32 mask)
{
	struct ts_entry *e = ts_entry(t, slot, mask);
	u32 bucket = ts_bucket(e->obj, mask);
	struct ts_entry *b = ts_entry(t, bucket >> 2, mask);
	u16 *link = &b->head[bucket & 3];
	u32 i;

	for (i = 0; i < TS_CHAIN; i++) {
		if (!*link)
			break;
		if (*link == slot + 1) {
			*link = e->next;
			break;
		}
		link = &ts_entry(t, *link - 1, mask)->next;
	}
	e->obj = 0;
	e->id = 0;
	e->next = 0;
}

/* Put the object into a free slot. */
TS_INLINE void ts_link(struct ts_table *t, u32 slot, u64 obj, u64 id, u32 bucket, u32 mask)
{
	struct ts_entry *e = ts_entry(t, slot, mask);
	u16 *head = &ts_entry(t, bucket >> 2, mask)->head[bucket & 3];

	e->obj = obj;
	e->id = id;
	e->count = 0;
	e->next = *head;
	*head = slot + 1;
}

/* Take the entry at node `pos` out; the last node takes its place. */
TS_NOINLINE int ts_remove_node(struct ts_table *t, u32 pos, u32 mask)
{
	struct ts_entry *last;
	u32 slot, last_slot, n;
	u64 last_key;

	if (!t || !t->n)
		return 0;
	n = t->n - 1;
	slot = ts_entry(t, pos, mask)->order;
	ts_unlink(t, slot, mask);
	t->n = n;
	last = ts_entry(t, n, mask);
	last_slot = last->order;
	last_key = last->key;
	/* The freed slot goes behind the others (T1). */
	ts_node_set(t, n, 0, slot, mask);
	if (pos != n)
		ts_settle_apart(t, pos, last_key, last_slot, mask);
	return 0;
}

/* T5: an object of this value is not in the table. */
TS_INLINE void ts_miss(u64 *missed, const struct ts_tick *tick, u64 value, u32 type)
{
	u32 i = type == TS_STATIC ? 0 : ts_mark_index(tick, 0);

	if (value > missed[i])
		missed[i] = value;
}

/* Forget what was missed in slides that the period has left behind. */
TS_INLINE void ts_miss_begin(struct ts_table *t, const struct ts_tick *tick)
{
	u64 slide = tick->slide, old = t->missed_slide, gap = TS_MARKS;
	u32 i;

	if (ts_same_epoch(old, slide)) {
		if (slide <= old)
			return;
		gap = slide - old;
	}
	t->missed_slide = slide;
	for (i = 0; i < TS_MARKS; i++) {
		u32 k = ts_mark_index(tick, i);

		if (i >= gap)
			break;
		t->missed[k] = 0;
		t->missed_nested[k] = 0;
	}
}

/*
 * The id that the object at this address has now; 0: it is gone, or there is none. Where an object's
 * end can't be written into it, whoever owns it may define how to tell.
 */
#ifndef ts_id_now
#define ts_id_now ts_peek_id
#endif

TS_INLINE u64 ts_peek_id(u64 obj, ts_view view)
{
	u64 id = 0;

	return ts_peek(&id, sizeof(id), obj + ts_view_id(view)) ? 0 : id;
}

/*
 * Look at the object in the slot again: its value at the table's moment, into *v, by
 * way of a copy in *w.
 */
enum ts_look {
	TS_LOOK_OK = 0,
	TS_LOOK_GONE = 1, /* another object is there, or none */
	TS_LOOK_BUSY = 2, /* it is being written just now: nothing is known */
};

TS_INLINE int ts_evaluate(struct ts_table *t, const struct ts_tick *tick, u32 slot, ts_view view,
			  struct ts_window *w, struct ts_value *v)
{
	struct ts_entry *e = ts_entry(t, slot, ts_view_mask(view));
	u64 id;
	int copy;

	v->value = v->part[0] = v->part[1] = 0;
	if (ts_view_type(view) == TS_STATIC)
		copy = ts_peek(w, sizeof(struct ts_count), e->obj + ts_view_window(view)) ? TS_COPY_GONE : TS_COPY_OK;
	else
		copy = ts_window_peek(w, e->obj + ts_view_window(view));
	/* The id after the copy: if it is the same object now, it was then. */
	id = copy == TS_COPY_GONE ? 0 : ts_id_now(e->obj, view);
	if (!id || id != e->id)
		return TS_LOOK_GONE;
	if (copy == TS_COPY_BUSY)
		return TS_LOOK_BUSY;
	if (ts_view_type(view) == TS_STATIC) {
		v->part[0] = w->sum[0];
		v->part[1] = w->sum[1];
		v->value = v->part[0] + v->part[1];
		return TS_LOOK_OK;
	}
	if (ts_window_eval(w, tick, v))
		return TS_LOOK_BUSY;
	return TS_LOOK_OK;
}

/* T4: the slot's key is brought up to date, or it leaves, being gone or aged. */
TS_INLINE int ts_refresh(struct ts_table *t, const struct ts_tick *tick, u32 slot, ts_view view,
			 struct ts_value *v)
{
	struct ts_entry *e = ts_entry(t, slot, ts_view_mask(view));
	int look;

	look = ts_evaluate(t, tick, slot, view, &t->scratch, v);
	if (look == TS_LOOK_OK && !v->value && ts_view_type(view) != TS_STATIC)
		look = TS_LOOK_GONE;
	if (look == TS_LOOK_OK) {
		e->seen_in = tick->stamp;
		ts_rekey(t, e->pos, v->value, ts_view_mask(view));
	} else if (look == TS_LOOK_GONE) {
		ts_remove_node(t, e->pos, ts_view_mask(view));
	}
	return look;
}

/* The same on a push, where every slot gets its turn once a slide. */
TS_INLINE void ts_look_again(struct ts_table *t, const struct ts_tick *tick, u32 slot, ts_view view)
{
	struct ts_entry *e;
	struct ts_value v;

	e = ts_entry(t, slot, ts_view_mask(view));
	if (e->obj && e->pushed_in != tick->stamp && e->seen_in != tick->stamp)
		ts_refresh(t, tick, slot, view, &v);
}

/* A push of an object that is not in the table. */
TS_INLINE void ts_admit(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 id, u64 value,
			ts_view view)
{
	u32 mask = ts_view_mask(view), entries = mask + 1, pos = t->n, bucket, slot;
	struct ts_entry *e;
	u64 root;

	if (pos >= entries) {
		if (value <= t->entry[0].key && t->settled != tick->slide) {
			/* The smallest may have faded since; so may any other. */
			ts_look_apart(t, tick, t->entry[0].order, view);
			t->hand = ts_bound(t->hand + 1, mask);
			ts_look_apart(t, tick, t->hand, view);
			if (t->round != tick->slide) {
				t->round = tick->slide;
				t->round_left = entries;
			}
			if (!--t->round_left)
				t->settled = tick->slide;
		}
		pos = t->n;
	}
	root = t->entry[0].key;
	if (pos >= entries && value <= root) {
		ts_miss(t->missed, tick, value, ts_view_type(view));
		return;
	}
	bucket = ts_bucket(obj, mask);
	/* The way to it may be full of others (T3). */
	if (ts_find(t, obj, bucket, mask)) {
		t->crowded++;
		ts_miss(t->missed, tick, value, ts_view_type(view));
		return;
	}
	if (pos >= entries) {
		pos = 0;
		slot = t->entry[0].order;
		ts_miss(t->missed, tick, root, ts_view_type(view));
		ts_unlink(t, slot, mask);
	} else {
		slot = ts_entry(t, pos, mask)->order;
		t->n = pos + 1;
	}
	ts_link(t, slot, obj, id, bucket, mask);
	e = ts_entry(t, slot, mask);
	e->pushed = tick->now;
	e->pushed_in = tick->stamp;
	e->seen_in = 0;
	e->count = 1;
	ts_settle_apart(t, pos, value, slot, mask);
}

/* What is left of ordering when the object is not in the table or must move in it. */
TS_INLINE void ts_order_slow(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 id, u64 value,
			     ts_view view)
{
	u32 mask = ts_view_mask(view);
	int slot = ts_find(t, obj, ts_bucket(obj, mask), mask);

	if (slot > 0) {
		ts_rekey(t, ts_entry(t, slot - 1, mask)->pos, value, mask);
	} else if (!slot) {
		ts_admit(t, tick, obj, id, value, view);
	} else {
		t->crowded++;
		ts_miss(t->missed, tick, value, ts_view_type(view));
	}
}

/* Order the object by its value; `at`: see ts_find_again(). The caller has the bank's claim. */
TS_INLINE void ts_order(struct ts_table *t, const struct ts_tick *tick, u64 obj, u64 id, u64 value,
			ts_view view, u8 *at)
{
	u32 mask = ts_view_mask(view), pos;
	struct ts_entry *e, *node;
	u64 least;
	int slot;

	slot = ts_find_pushed(t, obj, at, mask);
	if (slot > 0) {
		e = ts_entry(t, slot - 1, mask);
		e->id = id; /* a successor at the same address, perhaps */
		e->pushed = tick->now;
		e->pushed_in = tick->stamp;
		e->count++;
		pos = e->pos;
		node = ts_entry(t, pos, mask);
		/* Mostly the key grows or fades a little and stays between its parent and its
		 * children. */
		if (value >= node->key) {
			least = ~0ULL;
			if (2 * pos + 1 < t->n)
				least = ts_entry(t, 2 * pos + 1, mask)->key;
			if (2 * pos + 2 < t->n && ts_entry(t, 2 * pos + 2, mask)->key < least)
				least = ts_entry(t, 2 * pos + 2, mask)->key;
			if (value <= least) {
				node->key = value;
				return;
			}
		} else if (!pos || ts_entry(t, (pos - 1) >> 1, mask)->key <= value) {
			node->key = value;
			return;
		} else if (e->seen_in == tick->stamp) {
			/* It has faded since this slide began: once a slide is enough (T4). */
			return;
		} else {
			e->seen_in = tick->stamp;
		}
		ts_settle_apart(t, pos, value, node->order, mask);
		return;
	}
	if (!slot && t->n > mask && value <= t->entry[0].key && t->settled == tick->slide) {
		/* Too small, and nothing in the table can have faded unseen. */
		ts_miss(t->missed, tick, value, ts_view_type(view));
		return;
	}
	ts_order_apart(t, tick, obj, id, value, view);
}

/* The claim was taken: the push is summed, its ordering is skipped. */
TS_NOINLINE int ts_contended(struct ts_table *t, const struct ts_tick *tick, u64 value, ts_view view)
{
	if (!t || !tick)
		return 0;
	ts_add(&t->contended, 1);
	ts_miss(t->missed_nested, tick, value, ts_view_type(view));
	return 0;
}

/* The object is gone: out of this CPU's table at once (under the claim). Elsewhere, and
 * where the claim can't be had, its id, which is 0 by now, tells. */
TS_INLINE void ts_forget(struct ts_table *t, u64 obj, u32 mask)
{
	int slot = ts_find(t, obj, ts_bucket(obj, mask), mask);

	if (slot > 0)
		ts_remove_node(t, ts_entry(t, slot - 1, mask)->pos, mask);
}

#endif /* TOPSTAT_TABLE_H */
