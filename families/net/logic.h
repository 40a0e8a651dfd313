/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts the use of the network, on any host. A look takes the growth of a connection's own counters since the look before, and
 * pushes it to the connection's process, control group, remote host and port. Connections are looked at once a slide, so the cost
 * of looks does not depend on the number of packets. The kernel has no counters for a UDP socket: there each datagram is counted
 * (udp.h), and pushed as rarely.
 *
 * Hooks look under a socket's lock, and readers (who settle) look without it. A reader may be preempted in the midst of a look,
 * for longer than the socket lives. So no CPU waits for another one:
 *
 *   NU1 A compare-and-swap updates each counter of `seen`. The CPU whose swap succeeds pushes the difference, so each difference
 *       is pushed once.
 *   NU2 The looks of one CPU add their amounts to a batch while object and cell of time stay the same. The batch is pushed when
 *       either changes, or by a reader. So thousands of connections of one server cost a few pushes. If the object can't be made
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
#include "net.h"

HOST_STATE(net, NET_SAMPLES, NET_BANKS);
HOST_STORAGE(flows, sk, struct net_flow); /* of TCP */
HOST_STORAGE(datagrams, sk, struct net_udp);
/* Sockets that have been active since a reader last found them silent. Readers go through these alone. */
HOST_STORAGE(active, sk, u32);
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

#include "batch.h"

/* Set the place of the connection's object in a sample, from 1; 0: there is no place for it. */
TS_GLOBAL_FN int net_place(struct net_flow *f, u32 sample)
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

/* NU2: add `all->found` to the batch of the connection's object in a sample. */
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
	if (b->any && (b->id != found->id || b->when != found->when || b->side != found->side ||
		       (ts_unlikely(!found->place) && net_is_anothers(all, f, sample))))
		net_flush(all, b, sample);
	if (!b->any) {
		*b = *found;
		if (ts_unlikely(!found->place))
			net_wait(all, f, sample);
		return;
	}
	b->used.rx += found->used.rx;
	b->used.tx += found->used.tx;
	b->used.in += found->used.in;
	b->used.out += found->used.out;
	b->used.resent += found->used.resent;
	b->used.opened += found->used.opened;
}

/* NU2: add `all->found` to the flow's objects, in all samples. */
TS_INLINE void net_spend(struct net_batches *all, struct net_flow *f)
{
	u32 sample;

	all->found.side = f->to.side;
	all->found.any = 1;
	for (sample = 0; sample < NET_SAMPLES; sample++)
		if (net_is_on(sample))
			net_batch(all, f, sample);
}

/*
 * Push the growth of the connection's counters since the last look, in the cell in which the connection was last active.
 * `all->found` has the current counters.
 */
TS_INLINE void net_count(struct net_flow *f, struct net_batches *all)
{
	struct net_counters *used = &all->found.used;

	used->in = net_grown_32(&f->seen.in, used->in);
	used->out = net_grown_32(&f->seen.out, used->out);
	used->resent = net_grown_32(&f->seen.resent, used->resent);
	used->opened = net_grown(&f->seen.opened, used->opened);
	used->rx = net_grown(&f->seen.rx, used->rx);
	used->tx = net_grown(&f->seen.tx, used->tx);
	if (!(used->in | used->out | used->resent | used->opened | used->rx | used->tx))
		return;
	net_spend(all, f);
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
	ts_write(f->looked, (u32)host_jiffies());
	ts_wmb(); /* a CPU that sees `self` sees all of it */
	ts_write(f->self, self);
}

TS_INLINE int net_flow_is_own(const struct net_flow *f)
{
	return ts_read(f->self) == (u64)(unsigned long)f;
}

#include "udp.h"

#endif /* TOPSTAT_NET_LOGIC_H */
