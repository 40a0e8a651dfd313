/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who uses the network, on any host: what a connection's own counters have counted since it was last looked at is pushed
 * to its process, its control group, the host at its other end, and the port that is served. Connections are looked at
 * once a slide, so what a look costs does not depend on how many packets there are.
 *
 * Hooks look under a socket's lock, and readers (who settle) without it; a reader may be kept from running in the midst of a
 * look, for as long as the socket lives and longer. So nobody waits for anybody:
 *
 *   F1  A counter's part of `seen` is brought up to date by a swap. Who has swapped pushes the difference, so that each is
 *       pushed once.
 *   F2  What looks on one CPU find is added up while it is of the same object and of the same cell of time, and pushed when
 *       it is not any more, or when somebody reads. So thousands of connections of one server cost a few pushes.
 *   F3  Counters only grow. What has gone back was read before `seen` was written, or one part of a change was seen before
 *       the other: it counts as unchanged.
 */
#ifndef TOPSTAT_NET_LOGIC_H
#define TOPSTAT_NET_LOGIC_H

#include "observe/host.h"
#include "net.h"

HOST_STATE(net, NET_SAMPLES, NET_BANKS);
HOST_STORAGE(flows, sk, struct net_flow);
HOST_PER_CPU(batches, struct net_cpu);

/* Connections that could not be looked at when they ended, for NET_LEVELS other looks were under way on that CPU. */
HOST_WORD(unseen);

TS_INLINE u32 obs_at(u32 number, u32 table)
{
	if (number % NET_SAMPLE_BANKS)
		return offsetof(struct net_object, bytes);
	return offsetof(struct net_object, window) + host_item_at(table, NET_BYTES, sizeof(struct ts_window));
}

TS_INLINE u32 obs_type(u32 number, u32 table)
{
	return number % NET_SAMPLE_BANKS ? TS_STATIC : TS_DYNAMIC;
}

/* 14,336 objects of all samples together, within a period. */
#define KEYED_BUCKETS 2048
#define KEYED_KEY struct net_key
#define KEYED_OBJECT struct net_object
#include "observe/keyed.h"

/* A connection is looked at no more often than this, but for its beginning and its end: a slide of the default period. */
#define NET_LOOK_MS 100

TS_INLINE u32 net_bank(u32 sample, u32 table)
{
	return sample * NET_SAMPLE_BANKS + table / TS_BANK_TABLES;
}

/* Whether any table of the sample is on. */
TS_INLINE int net_is_on(u32 sample)
{
	u32 table;

	for (table = 0; table < NET_TABLES; table++)
		if (obs_is_on(net_bank(sample, table), table % TS_BANK_TABLES))
			return 1;
	return 0;
}

/* F1, F3: by how much a counter has grown since somebody looked at it. */
TS_INLINE u64 net_grown(u64 *seen, u64 now)
{
	u64 was = ts_read(*seen);

	return (long long)(now - was) > 0 && ts_cas(seen, was, now) ? now - was : 0;
}

/* The same of a counter that has 32 bits, which were read. */
TS_INLINE u64 net_grown_32(u64 *seen, u32 now)
{
	u64 was = ts_read(*seen);
	int grown = now - (u32)was;

	return grown > 0 && ts_cas(seen, was, was + grown) ? grown : 0;
}

TS_INLINE void net_key_of(struct net_key *key, const struct net_flow *f, u32 sample)
{
	__builtin_memset(key, 0, sizeof(*key));
	if (sample == NET_PROCS) {
		key->id = f->process;
	} else if (sample == NET_CGROUPS) {
		key->id = process_group_id(&f->owner);
	} else if (sample == NET_HOSTS) {
		__builtin_memcpy(key->host, f->to.host, sizeof(key->host));
	} else {
		key->netns = f->to.netns;
		key->port = f->to.port;
		key->side = f->to.side;
		key->is_port = 1;
	}
}

TS_INLINE struct net_object *net_object_at(u32 place)
{
	return place ? host_item(objects, place - 1) : NULL;
}

/* The object of a batch; NULL: there was no place for it, or it has ended. */
TS_INLINE struct net_object *net_object_of(const struct net_batch *b)
{
	struct net_object *o = net_object_at(b->place);

	return o && ts_read(o->keyed.object.id) == b->id ? o : NULL;
}

/* Order the object, whatever the delay: batches are rare enough, and later there may be no connection left to do it. */
TS_INLINE void net_order(struct keyed *k, u32 table)
{
	if (k->id)
		obs_order_next(&k->obs, table);
}

/* How many slides of the table ago that was. */
TS_INLINE u32 net_age(const struct obs *x, u32 table, u32 when)
{
	const struct ts_tick *tick = &x->bank->tick[table];
	u64 ago = (u32)((u32)x->now - when), length = tick->end - tick->start;

	if (x->config[table].precise)
		ago *= constants.jiffy_ns;
	if (ago <= tick->now - tick->start || !length)
		return 0;
	ago = (ago - (tick->now - tick->start) - 1) / length + 1;
	return ago < TS_SLIDES ? ago : TS_SLIDES;
}

/* Push to a dynamic table. What is older than the period is not in it. (One table a call, for stack is scarce.) */
TS_APART int net_push_to(struct net_batch *b, u32 sample, u32 table, u64 rx, u64 tx)
{
	struct keyed k;
	u32 age;

	if (!b || sample >= NET_SAMPLES || table >= NET_BYTES || !(rx | tx) ||
	    !keyed_begin_of(&k, net_bank(sample, NET_PPS), net_object_of(b)))
		return 0;
	table = ts_bound(table, TS_BANK_TABLES - 1);
	age = net_age(&k.obs, table, b->when);
	if (age < TS_SLIDES) {
		net_order(&k, table);
		keyed_add_ago(&k, table, rx, tx, age);
	}
	keyed_end(&k);
	return 0;
}

/* The same to the static one. */
TS_APART int net_push_bytes(struct net_batch *b, u32 sample)
{
	const u32 table = NET_BYTES % TS_BANK_TABLES;
	struct keyed k;

	if (!b || sample >= NET_SAMPLES || !(b->used.rx | b->used.tx) ||
	    !keyed_begin_of(&k, net_bank(sample, NET_BYTES), net_object_of(b)))
		return 0;
	net_order(&k, table);
	if (b->used.rx)
		keyed_add(&k, table, NET_RX, b->used.rx);
	net_order(&k, table);
	if (b->used.tx)
		keyed_add(&k, table, NET_TX, b->used.tx);
	keyed_end(&k);
	return 0;
}

TS_INLINE void net_push(struct net_batch *b, u32 sample)
{
	u32 server = b->side == NET_SERVER;

	net_push_to(b, sample, NET_PPS, b->used.in, b->used.out);
	net_push_to(b, sample, NET_BPS, b->used.rx, b->used.tx);
	net_push_to(b, sample, NET_RETRANS, 0, b->used.resent);
	net_push_to(b, sample, NET_OPENED, server ? b->used.opened : 0, server ? 0 : b->used.opened);
	net_push_bytes(b, sample);
}

TS_INLINE struct net_batches *net_level(struct net_cpu *cpu, u32 i)
{
	return (void *)((char *)cpu->level + host_item_at(i, NET_LEVELS, sizeof(struct net_batches)));
}

/* The batch that an object in this place may have. */
TS_INLINE struct net_batch *net_batch_of(struct net_batches *all, u32 sample, u32 place)
{
	u32 i = ts_bound(sample, NET_SAMPLES - 1) * NET_BATCHES + ts_bound(place, NET_BATCHES - 1);

	return (void *)((char *)all->of + host_item_at(i, NET_SAMPLES * NET_BATCHES, sizeof(struct net_batch)));
}

/* F2. Push what a batch has. Under its claim. */
TS_INLINE void net_flush(struct net_batch *b, u32 sample)
{
	if (!b->any)
		return;
	net_push(b, sample);
	b->any = 0;
}

/* The claim of one of this CPU's levels. NULL: all are taken. */
TS_INLINE struct net_batches *net_claim(struct net_cpu *cpu)
{
	struct net_batches *all;
	u32 i;

	for (i = 0; i < NET_LEVELS; i++) {
		all = net_level(cpu, i);
		if (ts_claim(&all->claim))
			return all;
	}
	return NULL;
}

/* How often a reader tries to get a claim: for longer than a look takes that is running on another CPU. */
#define NET_TRIES 512

/*
 * F2. What a CPU has of all samples, pushed on this CPU: a reader does so for all of them before the first section is
 * taken. What is left is what looks have found that are under way and don't run. 0: there is no such CPU.
 */
TS_APART int net_flush_of(u32 number)
{
	struct net_cpu *cpu = host_on(batches, number);
	u32 i, batch;

	if (!cpu)
		return 0;
	for (i = 0; i < NET_LEVELS; i++) {
		struct net_batches *all = net_level(cpu, i);

		if (!obs_claim_soon(&all->claim, NET_TRIES))
			continue;
		for (batch = 0; batch < NET_SAMPLES * NET_BATCHES; batch++)
			net_flush(net_batch_of(all, batch / NET_BATCHES, batch), batch / NET_BATCHES);
		ts_release(&all->claim);
	}
	return 1;
}

/* The place of the connection's object in one of the samples, from 1; 0: there is none for it. */
TS_APART int net_place(struct net_flow *f, u32 sample)
{
	struct net_object *o;
	struct net_key key;
	u32 place;

	if (!f || sample >= NET_SAMPLES)
		return 0;
	net_key_of(&key, f, sample);
	place = keyed_place_of(&key, sample);
	o = net_object_at(place);
	f->place[ts_bound(sample, NET_SAMPLES - 1)] = place;
	f->id[ts_bound(sample, NET_SAMPLES - 1)] = o ? ts_read(o->keyed.object.id) : 0;
	if (o && sample != NET_HOSTS && f->owner.pid)
		o->owner = f->owner;
	return 0;
}

/* F2: what was found is the connection's object's of a sample. */
TS_INLINE void net_batch(struct net_batches *all, struct net_flow *f, u32 sample)
{
	u32 at = ts_bound(sample, NET_SAMPLES - 1);
	struct net_object *o = net_object_at(f->place[at]);
	struct net_batch *b, *found = &all->found;

	if (!o || ts_read(o->keyed.object.id) != f->id[at])
		net_place(f, sample);
	found->id = f->id[at];
	found->place = f->place[at];
	b = net_batch_of(all, sample, found->place);
	if (b->any && (b->id != found->id || b->when != found->when || b->side != found->side))
		net_flush(b, sample);
	if (!b->any) {
		*b = *found;
		return;
	}
	b->used.rx += found->used.rx;
	b->used.tx += found->used.tx;
	b->used.in += found->used.in;
	b->used.out += found->used.out;
	b->used.resent += found->used.resent;
	b->used.opened += found->used.opened;
}

/*
 * What the connection has counted since it was looked at, in the cell in which it was last active: `all->found` has the
 * counters as they are.
 */
TS_INLINE void net_count(struct net_flow *f, struct net_batches *all)
{
	struct net_counters *used = &all->found.used;
	u32 sample;

	used->in = net_grown_32(&f->seen.in, used->in);
	used->out = net_grown_32(&f->seen.out, used->out);
	used->resent = net_grown_32(&f->seen.resent, used->resent);
	used->opened = net_grown(&f->seen.opened, used->opened);
	used->rx = net_grown(&f->seen.rx, used->rx);
	used->tx = net_grown(&f->seen.tx, used->tx);
	if (!(used->in | used->out | used->resent | used->opened | used->rx | used->tx))
		return;
	all->found.side = f->to.side;
	all->found.any = 1;
	for (sample = 0; sample < NET_SAMPLES; sample++)
		if (net_is_on(sample))
			net_batch(all, f, sample);
}

/* The connection's user is another one than was known. */
TS_INLINE void net_owned(struct net_flow *f)
{
	f->id[NET_PROCS] = 0;
	f->id[NET_CGROUPS] = 0;
	f->id[NET_PORTS] = 0;
}

/*
 * The socket's storage is new, or a copy of its listener's: make it a connection of its own, which is its listener's owner's
 * until its user is known. Under the socket's lock, or before any hook is attached.
 */
TS_INLINE void net_flow_init(struct net_flow *f)
{
	u64 self = (u64)(unsigned long)f;

	__builtin_memset(&f->seen, 0, sizeof(f->seen));
	__builtin_memset(&f->to, 0, sizeof(f->to));
	__builtin_memset(&f->id, 0, sizeof(f->id));
	f->sure = 0;
	f->unsure = 0;
	f->begun = 0;
	f->over = 0;
	ts_write(f->looked, (u32)host_jiffies());
	ts_wmb(); /* whoever sees that it is its own sees all of it */
	ts_write(f->self, self);
}

TS_INLINE int net_flow_is_own(const struct net_flow *f)
{
	return ts_read(f->self) == (u64)(unsigned long)f;
}

#endif /* TOPSTAT_NET_LOGIC_H */
