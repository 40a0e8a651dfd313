/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts the use of the network, on any host. A look takes the growth of a connection's own counters since the look before, and
 * pushes it to the connection's process, control group, remote host and port, in the slides of its records (records.h), which the
 * family inet makes. Readers look at connections before a snapshot, and a hook looks when the connection ends. The kernel has no
 * counters for a UDP socket: there each datagram is counted (udp.h), and pushed once a slide.
 *
 * The hook looks under a socket's lock, and readers (who settle) look without it. A reader may be preempted in the midst of a look,
 * for longer than the socket lives. So no CPU waits for another one:
 *
 *   NU1 A compare-and-swap updates each counter of `seen`. The CPU whose swap succeeds pushes the difference, so each difference
 *       is pushed once.
 *   NU2 The looks of one CPU add their amounts to a batch while object, grid and slide stay the same. The batch is pushed when
 *       one of them changes, or by a reader. So thousands of connections of one server cost a few pushes. If the object can't be made
 *       at once, its place is looked for once more when the batch is pushed; without a place the batch is refused (K4).
 *   NU3 Counters only grow. A look that finds a smaller value has read the counter before another look wrote `seen`, or has seen
 *       one part of a change before the other. It takes the counter as unchanged.
 *
 * For UDP, whose senders do not hold the socket's lock:
 *
 *   NU4 The traffic of a socket with a peer stays in the socket's storage (struct net_udp) until it is pushed: at the socket's
 *       first datagram in another cell of time, when another peer needs the place, when the socket's user changes, when the
 *       socket ends, and by readers. So each place holds the traffic of one cell, one peer and one user.
 *   NU5 Only the holder of the socket's `claim` reads and writes its peers. A CPU that finds the claim taken (several threads
 *       send by the socket, or a datagram arrives at the same time) does not wait: it pushes its datagram by itself. So each
 *       datagram is either added once or pushed once.
 *   NU6 The end of the socket is swapped into the claim. If no CPU holds the claim, the ending CPU thereby takes it, and pushes
 *       all peers. Otherwise the holder gives the claim back by a compare-and-swap, finds the end there, and pushes then. After
 *       the end nothing is added: later datagrams are pushed by themselves.
 *   NU7 A socket with amounts to push is in `active`, which readers go through. The holder of the claim puts the socket there,
 *       and takes it off.
 *   NU8 A compare-and-swap sets the socket's side once. The fields that depend on the side are written before.
 *   NU9 While NET_LEVELS looks are under way on a CPU, no further look can run there. A datagram that needs a push first then
 *       goes to the totals alone, as refused (K4). The same applies to the peers of a socket that ends then. A reader reports
 *       that it has not pushed everything.
 */
#ifndef TOPSTAT_NET_LOGIC_H
#define TOPSTAT_NET_LOGIC_H

#include "observe/host.h"
#include "observe/records.h"
#include "net.h"

HOST_STATE(net, NET_SAMPLES, NET_BANKS);
HOST_STORAGE(flows, sk, struct net_flow); /* of TCP */
HOST_STORAGE(datagrams, sk, struct net_udp);
/*
 * Maps of the family inet, by their names here: sockets that have been active since a reader last found them silent, which readers go
 * through (connections, that inet's hooks list, and UDP sockets); its objects, with the records of connections; its settings; and the
 * times of its tables, for tags of rings; and the word that it computes from its settings, which user space sets to 0 after a change.
 */
HOST_STORAGE(active, sk, u64);
HOST_STORAGE(conns, sk, struct inet_object);
HOST_SHARED(struct inet_settings, lender);
HOST_SHARED(struct inet_since, lent_since);
HOST_SHARED(u64, lent_cell);
HOST_PER_CPU(batches, struct net_cpu);

/* Connections whose last look failed because NET_LEVELS other looks were under way on that CPU. */
HOST_WORD(unseen);

/* The current cell, in jiffies: its end, and its beginning << 32. In one word, so that a CPU never sees one without the other. */
HOST_WORD(cell);

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

/* The least time between two looks at a connection, except for its beginning and end: a slide of the default period. */
#define NET_LOOK_MS 100

/* A cell of time has the length of a slide of the default period. Like slides, cells divide time at multiples of their length. */
TS_INLINE u32 net_cell_jiffies(void)
{
	return host_jiffies_of_ms(NET_LOOK_MS) ?: 1;
}

/* The beginning of the cell of a recent moment (jiffies). */
TS_INLINE u32 net_cell_of(u32 jiffies)
{
	u64 now = host_jiffies();

	return host_slide_start(now - (u32)((u32)now - jiffies), net_cell_jiffies());
}

/* The beginning of the current cell. */
TS_INLINE u32 net_cell(u32 now)
{
	u64 word = ts_read(cell);
	u32 start;

	if (ts_unlikely((u32)(now - (word >> 32)) >= (u32)((u32)word - (word >> 32)))) {
		start = net_cell_of(now);
		word = (u64)start << 32 | (start + net_cell_jiffies());
		ts_write(cell, word);
	}
	return word >> 32;
}

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

/* NU1, NU3: the growth of a counter since the last look. */
TS_INLINE u64 net_grown(u64 *seen, u64 now)
{
	u64 was = ts_read(*seen);

	return (long long)(now - was) > 0 && ts_cas(seen, was, now) ? now - was : 0;
}

/* The growth of a counter whose value has 32 bits. */
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
		key->id = f->owner.cgroup;
	} else if (sample == NET_HOSTS) {
		__builtin_memcpy(key->host, f->to.host, sizeof(key->host));
	} else {
		key->netns = f->to.netns;
		key->port = f->to.port;
		key->side = f->to.side;
		key->proto = f->to.proto;
	}
}

/* The process or the control group of this id has ended: K8. */
TS_INLINE void net_close(u32 sample, u64 id)
{
	struct net_key key = { .id = id };

	keyed_close(&key, sample);
}

TS_INLINE struct net_object *net_object_at(u32 place)
{
	return place ? host_item(objects, place - 1) : NULL;
}

/* The slide of a moment (jiffies), by the clock of a grid; the present one if the grid's clock is finer. */
TS_INLINE u64 net_slide_of(const struct ts_config *c, u32 moment)
{
	u64 now = host_jiffies(), length = ts_read(c->slide) ?: 1;

	if (ts_read(c->precise))
		return ts_precise() / length;
	return (now - (u32)((u32)now - moment)) / length;
}

#include "batch.h"

/* Set the place of the connection's object in a sample, from 1; 0: there is no place for it. */
TS_INLINE void net_place(struct net_batches *all, struct net_flow *f, u32 sample)
{
	u32 at = ts_bound(sample, NET_SAMPLES - 1);
	struct net_object *o;

	net_key_of(&all->key, f, sample);
	f->place[at] = keyed_place_of(&all->key, sample);
	o = net_object_at(f->place[at]);
	f->id[at] = o ? ts_read(o->keyed.object.id) : 0;
	if (o && sample != NET_HOSTS && f->owner.pid)
		o->owner = f->owner;
}

/* Whether a batch without a place belongs to another object than the flow's. */
TS_GLOBAL_FN int net_is_anothers(struct net_batches *all, struct net_flow *f, u32 sample)
{
	struct net_key key;
	const u64 *a, *b;
	u32 i;

	if (!all || !f || sample >= NET_SAMPLES)
		return 0;
	net_key_of(&key, f, sample);
	a = (const void *)&key;
	b = (const void *)&net_waiting_of(all, sample)->key;
	for (i = 0; i < sizeof(key) / sizeof(u64); i++)
		if (a[i] != b[i])
			return 1;
	return 0;
}

/* The first batch waits for a place for the flow's object. */
TS_GLOBAL_FN int net_wait(struct net_batches *all, struct net_flow *f, u32 sample)
{
	struct net_waiting *w;

	if (!all || !f || sample >= NET_SAMPLES)
		return 0;
	w = net_waiting_of(all, sample);
	net_key_of(&w->key, f, sample);
	w->owner = f->owner;
	return 0;
}

/* NU2: add the amounts of `all->found` to a batch. */
TS_GLOBAL_FN int net_batch_add(struct net_batches *all, u32 sample)
{
	struct net_amounts *to, *from;
	struct net_batch *b;
	u32 age;

	if (!all)
		return 0;
	b = net_batch_of(all, sample, all->found.place);
	for (age = 0; age < NET_AGES; age++) {
		if (!(all->found.any >> age & 1))
			continue;
		to = net_used(b, age);
		from = net_used(&all->found, age);
		if (!(b->any >> age & 1)) {
			*to = *from;
			continue;
		}
		to->rx += from->rx;
		to->tx += from->tx;
		to->in += from->in;
		to->out += from->out;
		to->resent += from->resent;
		to->opened[NET_RX] += from->opened[NET_RX];
		to->opened[NET_TX] += from->opened[NET_TX];
	}
	b->any |= all->found.any;
	return 0;
}

/* NU2: add `all->found` to the batch of the connection's object in a sample. */
TS_GLOBAL_FN int net_batch(struct net_batches *all, struct net_flow *f, u32 sample)
{
	u32 at = ts_bound(sample, NET_SAMPLES - 1);
	struct net_batch *b, *found;
	struct net_object *o;

	if (!all || !f)
		return 0;
	o = net_object_at(f->place[at]);
	found = &all->found;
	if (!o || ts_read(o->keyed.object.id) != f->id[at])
		net_place(all, f, sample);
	found->id = f->id[at];
	found->place = f->place[at];
	b = net_batch_of(all, sample, found->place);
	if (b->any && (b->id != found->id || b->when != found->when || b->grid != found->grid ||
		       (ts_unlikely(!found->place) && net_is_anothers(all, f, sample))))
		net_flush(all, b, sample);
	if (!b->any) {
		b->id = found->id;
		b->when = found->when;
		b->place = found->place;
		b->grid = found->grid;
		if (ts_unlikely(!found->place))
			net_wait(all, f, sample);
	}
	net_batch_add(all, sample);
	return 0;
}

/* NU2: add `all->found` to the flow's objects, in all samples. */
TS_INLINE void net_spend(struct net_batches *all, struct net_flow *f)
{
	u32 sample;

	for (sample = 0; sample < NET_SAMPLES; sample++)
		if (net_is_on(sample))
			net_batch(all, f, sample);
}

/* Find datagrams of one moment (jiffies), for all tables. */
TS_INLINE void net_find_datagrams(struct net_batches *all, const struct net_counters *used, u32 when)
{
	struct net_amounts *found = &all->found.used[0];

	__builtin_memset(found, 0, sizeof(*found));
	found->rx = used->rx;
	found->tx = used->tx;
	found->in = used->in;
	found->out = used->out;
	all->found.grid = NET_NO_GRID;
	all->found.when = when;
	all->found.any = 1;
}

/* NU1, NU3. Take the growth of the counters `all->now` since the last look into `all->grown`. 0: no counter has grown. */
TS_INLINE int net_take(struct net_flow *f, struct net_batches *all)
{
	const struct records_counts *now = &all->now;
	struct net_counters *grown = &all->grown;

	grown->in = net_grown_32(&f->seen.in, now->packets[NET_RX]);
	grown->out = net_grown_32(&f->seen.out, now->packets[NET_TX]);
	grown->resent = net_grown_32(&f->seen.resent, now->resent);
	grown->opened = net_grown(&f->seen.opened, ts_read(f->begun));
	grown->rx = net_grown(&f->seen.rx, now->bytes[NET_RX]);
	grown->tx = net_grown(&f->seen.tx, now->bytes[NET_TX]);
	return !!(grown->in | grown->out | grown->resent | grown->opened | grown->rx | grown->tx);
}

/* The part of a counter's growth that belongs to one slide: of the growth since the slide's record, what no younger slide has. */
TS_INLINE u64 net_part(u64 since, u64 grown, u64 *given)
{
	u64 all = since < grown ? since : grown, part = all > *given ? all - *given : 0;

	*given += part;
	return part;
}

/* Add `part` to the amounts of `all->found` with an age. */
TS_INLINE void net_found(struct net_batches *all, u32 age, const struct net_counters *part)
{
	struct net_amounts *used = net_used(&all->found, age);

	if (!(part->in | part->out | part->resent | part->rx | part->tx))
		return;
	used->in += part->in;
	used->out += part->out;
	used->resent += part->resent;
	used->rx += part->rx;
	used->tx += part->tx;
	all->found.any |= 1U << (age % NET_AGES);
}

/* Add the growth of the slide that has the record of this age to the amounts `ago` slides before the present one. */
TS_GLOBAL_FN int net_spread_to(struct net_batches *all, u32 age, u32 ago)
{
	const struct records_counts *now;
	struct net_counters part;
	struct record *r;

	if (!all)
		return 0;
	now = &all->now;
	r = records_at(&all->ring, ts_mark_index((all->ring.slide & TS_SLIDE_NUMBER) % TS_MARKS, age));
	part.in = net_part(records_since(r, now, RECORDS_PACKETS, 0), all->grown.in, &all->given.in);
	part.out = net_part(records_since(r, now, RECORDS_PACKETS, 1), all->grown.out, &all->given.out);
	part.resent = net_part(records_since(r, now, RECORDS_RESENT, 1), all->grown.resent, &all->given.resent);
	part.rx = net_part(records_since(r, now, RECORDS_BYTES, 0), all->grown.rx, &all->given.rx);
	part.tx = net_part(records_since(r, now, RECORDS_BYTES, 1), all->grown.tx, &all->given.tx);
	net_found(all, ago, &part);
	return 0;
}

/* Add the growth that is in no slide yet to the amounts `ago` slides before the present one. */
TS_GLOBAL_FN int net_spread_rest(struct net_batches *all, u32 ago)
{
	struct net_counters part;

	if (!all)
		return 0;
	part.in = all->grown.in - all->given.in;
	part.out = all->grown.out - all->given.out;
	part.resent = all->grown.resent - all->given.resent;
	part.rx = all->grown.rx - all->given.rx;
	part.tx = all->grown.tx - all->given.tx;
	net_found(all, ago, &part);
	return 0;
}

/* Slides from an earlier one to a later one, as an index of amounts. */
TS_INLINE u32 net_ago(u64 earlier, u64 later)
{
	return later - earlier < NET_AGES ? later - earlier : later < earlier ? 0 : NET_AGES - 1;
}

/*
 * Distribute `all->grown` over the slides of a grid, by the records in `all->ring`. Growth from before the oldest record is older than
 * these slides; without records, growth belongs to the slide of the last activity (`last`, jiffies).
 */
TS_GLOBAL_FN int net_spread(struct net_batches *all, struct net_flow *f, u32 grid, u32 last)
{
	const struct ts_config *c = &lender.guest[ts_bound(grid, INET_GUESTS - 1)];
	u64 present = net_slide_of(c, host_jiffies()), newest;
	u32 age, marks;

	if (!all || !f)
		return 0;
	newest = all->ring.slide & TS_SLIDE_NUMBER;
	marks = all->ring.slide ? ts_done_marks(all->ring.done) & TS_MARKS_ALL : 0;
	__builtin_memset(&all->given, 0, sizeof(all->given));
	__builtin_memset(&all->found.used, 0, sizeof(all->found.used));
	all->found.any = 0;
	all->found.grid = grid;
	all->found.when = present;
	for (age = 0; age < TS_MARKS; age++)
		if (marks >> age & 1)
			net_spread_to(all, age, net_ago(newest - age, present));
	net_spread_rest(all, marks ? NET_AGES - 1 : net_ago(net_slide_of(c, last), present));
	if (all->grown.opened) {
		age = net_ago(net_slide_of(c, f->opened), present);
		net_used(&all->found, age)->opened[f->to.side == NET_SERVER ? NET_RX : NET_TX] += all->grown.opened;
		all->found.any |= 1U << (age % NET_AGES);
	}
	return 1;
}

/* The socket's user has changed: the objects that depend on it are looked for again. */
TS_INLINE void net_owned(struct net_flow *f)
{
	f->id[NET_PROCS] = 0;
	f->id[NET_CGROUPS] = 0;
	f->id[NET_PORTS] = 0;
}

/*
 * The socket's storage is new, or a copy of its listener's: initialise it for this connection. Its owner stays the listener's
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
	ts_wmb(); /* a CPU that sees `self` sees all of it */
	ts_write(f->self, self);
}

TS_INLINE int net_flow_is_own(const struct net_flow *f)
{
	return ts_read(f->self) == (u64)(unsigned long)f;
}

#include "udp.h"

#endif /* TOPSTAT_NET_LOGIC_H */
