/* SPDX-License-Identifier: GPL-2.0-only */
/* The traffic of UDP sockets, which the kernel does not count: see NU4 … NU9 of logic.h. The second half of logic.h. */
#ifndef TOPSTAT_NET_UDP_H
#define TOPSTAT_NET_UDP_H

TS_INLINE struct net_peer *net_peer_at(struct net_udp *u, u32 i)
{
	return (void *)((char *)u->peer + host_item_at(i, NET_PEERS, sizeof(struct net_peer)));
}

TS_INLINE int net_udp_serves(struct net_udp *u)
{
	return ts_read(u->side) == NET_SERVER + 1;
}

/*
 * NU8. The first datagram of the socket; several CPUs may call this at once. No hook sees the end of a socket of the kernel
 * itself.
 */
TS_INLINE void net_udp_begin(struct net_udp *u, u32 side, u16 local, u32 netns, u32 is_kernels)
{
	ts_write(u->local, local);
	ts_write(u->netns, netns);
	if (is_kernels)
		(void)ts_cas(&u->claim, 0, NET_OVER);
	(void)ts_cas(&u->side, 0, side + 1); /* a CPU that sees `side` sees the other fields */
}

TS_INLINE void net_add(struct net_counters *used, const struct net_datagram *d)
{
	if (d->part == NET_RX) {
		used->rx += d->bytes;
		used->in += d->packets;
	} else {
		used->tx += d->bytes;
		used->out += d->packets;
	}
}

/* NU9: add to the totals alone. Also used where there is no memory for an object. */
TS_GLOBAL_FN int net_refuse_used(struct net_counters *used)
{
	const u32 bytes = NET_BYTES % TS_BANK_TABLES;
	struct obs x;
	u32 sample;

	if (!used)
		return 0;
	for (sample = 0; sample < NET_SAMPLES; sample++) {
		if (obs_begin_total(&x, net_bank(sample, NET_PPS), 1)) {
			obs_add_any(&x, NET_PPS, NET_RX, used->in);
			obs_add_any(&x, NET_PPS, NET_TX, used->out);
			obs_add_any(&x, NET_BPS, NET_RX, used->rx);
			obs_add_any(&x, NET_BPS, NET_TX, used->tx);
			obs_end(&x);
		}
		if (obs_begin_total(&x, net_bank(sample, NET_BYTES), 1)) {
			obs_add_any(&x, bytes, NET_RX, used->rx);
			obs_add_any(&x, bytes, NET_TX, used->tx);
			obs_end(&x);
		}
	}
	return 0;
}

TS_GLOBAL_FN int net_refuse_datagram(struct net_datagram *d)
{
	struct net_counters used = {};

	if (!d)
		return 0;
	net_add(&used, d);
	return net_refuse_used(&used);
}

/* IPsec has wrapped these packets before a hook saw them. The amount that belongs to the socket is unknown, but at most this. */
TS_GLOBAL_FN int net_opaque(u32 packets, u32 bytes)
{
	struct obs x;
	u32 sample;

	for (sample = 0; sample < NET_SAMPLES; sample++) {
		if (obs_begin_total(&x, net_bank(sample, NET_PPS), 0)) {
			obs_opaque(&x, NET_PPS, packets);
			obs_opaque(&x, NET_BPS, bytes);
			obs_end(&x);
		}
		if (obs_begin_total(&x, net_bank(sample, NET_BYTES), 0)) {
			obs_opaque(&x, NET_BYTES % TS_BANK_TABLES, bytes);
			obs_end(&x);
		}
	}
	return 0;
}

/* Set the flow's remote host and port, for a socket whose side is known. */
TS_INLINE void net_flow_to(struct net_flow *f, struct net_udp *u, const u64 *host, u16 port)
{
	u32 serves = net_udp_serves(u);

	__builtin_memcpy(f->to.host, host, sizeof(f->to.host));
	f->to.netns = u->netns;
	f->to.port = serves ? u->local : port;
	f->to.side = serves ? NET_SERVER : NET_CLIENT;
	f->to.proto = NET_UDP;
}

/*
 * Take a peer's amounts into `found`, and set the socket's flow to the peer. 0: the peer has no amounts. Out of line, to save
 * stack.
 */
TS_GLOBAL_FN int net_peer_find(struct net_batches *all, struct net_udp *u, u32 i)
{
	struct net_flow *f;
	struct net_peer *p;

	if (!all || !u)
		return 0;
	f = &u->flow;
	p = net_peer_at(u, i);
	if (!(p->used.in | p->used.out))
		return 0;
	net_find_datagrams(all, &p->used, u->cell);
	__builtin_memset(&p->used, 0, sizeof(p->used));
	net_flow_to(f, u, p->host, p->port);
	f->id[NET_HOSTS] = p->id[0];
	f->place[NET_HOSTS] = p->place[0];
	if (!net_udp_serves(u)) {
		f->id[NET_PORTS] = p->id[1];
		f->place[NET_PORTS] = p->place[1];
	}
	return 1;
}

/* Keep the objects of the push in the peer. */
TS_GLOBAL_FN int net_peer_keep(struct net_udp *u, u32 i)
{
	struct net_peer *p;

	if (!u)
		return 0;
	p = net_peer_at(u, i);
	p->id[0] = u->flow.id[NET_HOSTS];
	p->place[0] = u->flow.place[NET_HOSTS];
	p->id[1] = u->flow.id[NET_PORTS];
	p->place[1] = u->flow.place[NET_PORTS];
	return 1;
}

/* NU4. Push the amounts of a peer, or (NET_PEERS) of all peers. Under the claim. 0: all levels of this CPU are taken (NU9). */
TS_GLOBAL_FN int net_udp_push(struct net_udp *u, u32 which)
{
	struct net_cpu *cpu = host_on(batches, host_cpu());
	struct net_batches *all;
	u32 i;

	if (!u || !cpu)
		return 0;
	all = net_claim(cpu);
	if (!all)
		return 0;
	for (i = which % NET_PEERS; i < NET_PEERS; i++) {
		if (net_peer_find(all, u, i)) {
			net_spend(all, &u->flow);
			net_peer_keep(u, i);
		}
		if (which < NET_PEERS)
			break;
	}
	ts_release(&all->claim);
	return 1;
}

/* NU5. 0: the claim is taken, and the caller must push its datagram by itself: net_udp_alone(). */
TS_INLINE int net_udp_hold(struct net_udp *u)
{
	return ts_cas(&u->claim, 0, NET_HELD);
}

/* Push all peers. Under the claim. 0: they were refused. */
TS_INLINE int net_udp_push_all(struct net_udp *u)
{
	u32 i;

	if (ts_likely(net_udp_push(u, NET_PEERS)))
		return 1;
	for (i = 0; i < NET_PEERS; i++) {
		net_refuse_used(&net_peer_at(u, i)->used);
		__builtin_memset(&net_peer_at(u, i)->used, 0, sizeof(struct net_counters));
	}
	return 0;
}

/* NU6. The holder of the claim has found the end. */
TS_INLINE void net_udp_over(struct net_udp *u)
{
	net_udp_push_all(u);
	ts_publish(u->claim, NET_OVER);
}

TS_INLINE void net_udp_let_go(struct net_udp *u)
{
	if (ts_unlikely(!ts_cas(&u->claim, NET_HELD, 0)))
		net_udp_over(u);
}

/* NU6. The socket is closed. A second call does nothing. */
TS_INLINE void net_udp_end(struct net_udp *u)
{
	if (!(host_swap(&u->claim, NET_HELD | NET_OVER) & NET_HELD))
		net_udp_over(u);
}

/* Instead of an argument of net_udp_push(): there is nothing to push. */
#define NET_NOTHING (NET_PEERS + 1)

/*
 * NU4. The peers to push before `now` can be added, as an argument of net_udp_push(), or NET_NOTHING. Sets the place of the peer
 * of `now`: a new peer gets the least recently used place. Under the claim, for a socket that has a side.
 */
TS_GLOBAL_FN int net_udp_due(struct net_udp *u)
{
	u32 i, known = 0, ago = 0;
	struct net_datagram *d;
	struct net_peer *p;

	if (!u)
		return NET_NOTHING;
	d = &u->now;
	d->when = net_cell(host_jiffies());
	if (net_udp_serves(u))
		d->port = 0;
	u->at = 0;
	for (i = 0; i < NET_PEERS && !known; i++) {
		p = net_peer_at(u, i);
		known = p->host[0] == d->host[0] && p->host[1] == d->host[1] && p->port == d->port;
		if (known || u->turn - p->turn >= ago) {
			ago = u->turn - p->turn;
			u->at = i;
		}
	}
	if (u->cell != d->when)
		return NET_PEERS;
	return known ? NET_NOTHING : u->at;
}

/* Add `now` to its peer, after the due push. */
TS_GLOBAL_FN int net_udp_put(struct net_udp *u)
{
	struct net_datagram *d;
	struct net_peer *p;

	if (!u)
		return 0;
	d = &u->now;
	p = net_peer_at(u, u->at);
	u->cell = d->when;
	if (p->host[0] != d->host[0] || p->host[1] != d->host[1] || p->port != d->port) {
		p->host[0] = d->host[0];
		p->host[1] = d->host[1];
		p->port = d->port;
		p->id[0] = 0;
		p->id[1] = 0;
	}
	p->turn = ++u->turn;
	net_add(&p->used, d);
	return 1;
}

/*
 * NU5. Push the datagram of a level by itself. Under the level's claim, which is released. (A CPU that changes the
 * socket's user at the same time may have written part of it: then the row of a port shows the name of one process and the pid of
 * another until its next push. Keys are not torn, for each field is one word.)
 */
TS_GLOBAL_FN int net_udp_alone(struct net_udp *u, struct net_batches *all)
{
	struct net_flow *f;

	if (!u || !all)
		return 0;
	f = &all->alone;
	f->process = ts_read(u->flow.process);
	f->owner = u->flow.owner;
	__builtin_memset(f->id, 0, sizeof(f->id));
	__builtin_memset(f->place, 0, sizeof(f->place));
	net_flow_to(f, u, all->datagram.host, all->datagram.port);
	__builtin_memset(&all->grown, 0, sizeof(all->grown));
	net_add(&all->grown, &all->datagram);
	net_find_datagrams(all, &all->grown, net_cell(host_jiffies()));
	net_spend(all, f);
	ts_release(&all->claim);
	return 1;
}

/*
 * NU4, NU5, NU7. Count the datagram in `now` of a socket. Under the claim, which is released. 0: the datagram was refused. (Inlined,
 * and without variables on the stack: the functions that it calls need most of the stack.)
 */
TS_INLINE int net_udp_count(struct net_udp *u)
{
	u32 due = net_udp_due(u), added = 1;

	if (due != NET_NOTHING && ts_unlikely(!net_udp_push(u, due))) {
		net_refuse_datagram(&u->now);
		added = 0;
	} else {
		net_udp_put(u);
		if (ts_unlikely(!u->listed)) /* not in `active`: no reader would find it */
			added = net_udp_push_all(u);
	}
	net_udp_let_go(u);
	return added;
}

/* NU4. Under the claim, before the socket's user changes: push all peers. 0: all levels are taken. */
TS_INLINE int net_udp_leave_user(struct net_udp *u)
{
	u32 i;

	if (!net_udp_push(u, NET_PEERS))
		return 0;
	for (i = 0; i < NET_PEERS; i++)
		net_peer_at(u, i)->id[1] = 0;
	net_owned(&u->flow);
	return 1;
}

/* The state of a socket after a reader. */
enum net_left {
	NET_LEFT, /* a preempted CPU holds the claim, or there is no level: some amounts are not pushed */
	NET_PUSHED,
	NET_SILENT_NOW, /* pushed, and silent for a while; the reader holds the claim */
};

/* A socket is taken off `active` after a silence of this many times NET_LOOK_MS. */
#define NET_SILENT 10

/* NU4, NU6, NU7. Settle a socket, for a reader. */
TS_INLINE u32 net_udp_settle(struct net_udp *u)
{
	u32 i, pushed;

	for (i = 0; i < NET_TRIES; i++) {
		u64 claim = ts_read(u->claim);

		if (claim == NET_OVER)
			return NET_PUSHED;
		if (!claim && net_udp_hold(u))
			break;
	}
	if (i == NET_TRIES)
		return NET_LEFT;
	pushed = net_udp_push(u, NET_PEERS);
	if (pushed && (u32)host_jiffies() - u->cell > NET_SILENT * net_cell_jiffies()) {
		u->listed = 0;
		return NET_SILENT_NOW;
	}
	net_udp_let_go(u);
	return pushed ? NET_PUSHED : NET_LEFT;
}

#endif /* TOPSTAT_NET_UDP_H */
