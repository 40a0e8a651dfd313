/* SPDX-License-Identifier: GPL-2.0-only */
/* Looks at connections: by a hook under the connection's lock, by readers without it. See NU1 … NU3 of logic.h. */
#ifndef TOPSTAT_NET_FLOW_H
#define TOPSTAT_NET_FLOW_H

#include "logic.h"
#include "../inet/guest.h"
#include "observe/process.bpf.h"
#include "observe/tcp.h"

/* Tries of a reader, while a hook makes a record. */
#define NET_READS 4

/* Connections whose owner is not known yet. */
HOST_WORD(unsure);

/* The storage of the socket's connection or listener; NULL: it is unknown, or the connection is over. */
static __always_inline struct net_flow *net_known(struct sock *sk)
{
	struct net_flow *f = host_of(flows, sk, sk);

	return f && net_flow_is_own(f) && !f->over ? f : NULL;
}

/* Set the flow's owner to the task's process. */
static __always_inline void net_owner(struct net_flow *f, struct task_struct *task)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	process_describe(&f->owner, task, 0, constants.v1_controller);
	f->process = process_id_of(BPF_CORE_READ(leader, start_boottime), BPF_CORE_READ(leader, pid));
}

enum net_looks {
	NET_BY_HOOK, /* with the connection's lock */
	NET_BY_HOLDER, /* a snapshot settles, with the lock */
	NET_BY_READER, /* a snapshot settles, without the lock */
};

/* Exclude the counters so far. Before the first look at the connection. */
static __noinline int net_see(struct net_flow *f, struct sock *sk, struct tcp_sock *tp, u32 how)
{
	struct records_counts now;

	if (!f || !sk || !tp)
		return 0;
	tcp_counts(&now, sk, tp, how != NET_BY_READER);
	f->seen.rx = now.bytes[NET_RX];
	f->seen.tx = now.bytes[NET_TX];
	f->seen.in = now.packets[NET_RX];
	f->seen.out = now.packets[NET_TX];
	f->seen.resent = now.resent;
	return 0;
}

/* Set the connection's remote host and its port. Once, when the connection has its addresses. */
static __always_inline void net_direct(struct net_flow *f, struct sock *sk, u32 side)
{
	struct sock_common *c = &sk->__sk_common;
	u32 *host = (u32 *)f->to.host;

	if (c->skc_family == AF_INET6) {
		host[0] = c->skc_v6_daddr.in6_u.u6_addr32[0];
		host[1] = c->skc_v6_daddr.in6_u.u6_addr32[1];
		host[2] = c->skc_v6_daddr.in6_u.u6_addr32[2];
		host[3] = c->skc_v6_daddr.in6_u.u6_addr32[3];
	} else {
		host[0] = 0;
		host[1] = 0;
		host[2] = bpf_htonl(0xffff);
		host[3] = c->skc_daddr;
	}
	f->to.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	f->to.port = side == NET_SERVER ? c->skc_num : bpf_ntohs(c->skc_dport);
	f->to.side = side;
	f->to.proto = NET_TCP;
}

/* Count the connection as refused, up to its counters: there is no memory for its storage. */
static __noinline int net_refuse(struct tcp_sock *tp)
{
	u32 sample;
	struct obs x;

	for (sample = 0; sample < NET_SAMPLES; sample++) {
		if (obs_begin_total(&x, net_bank(sample, NET_PPS), 1)) {
			obs_refuse(&x, NET_PPS, (u64)tp->segs_in + tp->segs_out);
			obs_refuse(&x, NET_BPS, tp->bytes_received + tp->bytes_sent);
			obs_refuse(&x, NET_RETRANS, tp->total_retrans);
			obs_refuse(&x, NET_OPENED, 1);
			obs_end(&x);
		}
		if (obs_begin_total(&x, net_bank(sample, NET_BYTES), 1)) {
			obs_refuse(&x, NET_BYTES % TS_BANK_TABLES, tp->bytes_received + tp->bytes_sent);
			obs_end(&x);
		}
	}
	return 0;
}

/*
 * The storage of the connection, initialised; `begun`: its counters were 0 before. An older connection counts from its first
 * look.
 */
static __noinline struct net_flow *net_flow_of(struct sock *sk, struct tcp_sock *tp, u32 begun, u32 side, u32 how)
{
	struct net_flow *f = host_of(flows, sk, sk);

	if (ts_likely(f && net_flow_is_own(f) && !begun))
		return f->over ? NULL : f;
	if (!f)
		f = host_make(flows, sk, sk);
	if (!f) {
		net_refuse(tp);
		return NULL;
	}
	if (!net_flow_is_own(f))
		net_flow_init(f);
	if (f->to.proto)
		return f;
	net_direct(f, sk, side);
	if (!f->sure) {
		f->unsure = 1;
		ts_add(&unsure, 1);
	}
	if (!begun)
		net_see(f, sk, tp, how);
	return f;
}

/* The side of a connection whose opening no hook has seen: mostly the smaller port is the served one. See net_adopt(). */
static __always_inline u32 net_likely_side(struct sock *sk)
{
	return sk->__sk_common.skc_num <= bpf_ntohs(sk->__sk_common.skc_dport) ? NET_SERVER : NET_CLIENT;
}

/* The segments of a connection until its hook has surely run that sees it established. */
#define NET_YOUNG 8

/*
 * For a reader: the storage of a connection; NULL: it is over, or it has no remote end yet. A connection that neither a hook nor
 * net_adopt() has seen gets its storage here: it is older than topstat, and no process has it open.
 */
static __always_inline struct net_flow *net_flow_for_reader(struct sock *sk, struct tcp_sock *tp, u32 how)
{
	struct net_flow *f = host_of(flows, sk, sk);

	if (!f && sk->__sk_common.skc_state == TCP_ESTABLISHED && tp->segs_in + tp->segs_out > NET_YOUNG)
		return net_flow_of(sk, tp, 0, net_likely_side(sk), how);
	return f && net_flow_is_own(f) && !f->over && f->to.proto ? f : NULL;
}

/*
 * Whether the connection is silent, and listed again with the next segment that it receives: a hook sees segments in the state
 * ESTABLISHED alone, and the first one in a cell of inet, which is no longer than the slides of the first guest.
 */
static __always_inline int net_is_silent(struct sock *sk, u32 last)
{
	u32 now = host_jiffies(), silent = NET_SILENT * net_cell_jiffies(), slide = lender.guest[0].precise ? 0 : lender.guest[0].slide;

	if (slide >= silent)
		silent = slide + 2;
	return sk->__sk_common.skc_state == TCP_ESTABLISHED && stamp_is_before(last, now - silent, now);
}

/* The object of inet that has the connection's records. */
static __always_inline struct inet_object *net_recorded(struct sock *sk)
{
	struct inet_object *o = host_of(conns, sk, sk);

	return o && inet_object_is_own(o) ? o : NULL;
}

/* Take a silent connection off the list of active ones; or leave it there, if it has spoken since it was found silent. */
static __always_inline void net_leave(struct sock *sk, struct inet_object *o, u32 last)
{
	u64 listed;

	if (net_is_silent(sk, last)) {
		if (!inet_leaves(o, INET_GUEST_LISTED, INET_GUEST_LEAVING))
			return;
		bpf_sk_storage_delete(&active, sk);
		if (ts_read(o->listed) & INET_GUEST_ON_LIST)
			host_make(active, sk, sk);
		return;
	}
	listed = ts_read(o->listed);
	if (listed & INET_GUEST_LEAVING)
		(void)ts_cas(&o->listed, listed, (listed & ~INET_GUEST_LEAVING) | INET_GUEST_LISTED);
}

/* Copy the records of a connection for a grid to `all->ring`. */
static __noinline int net_records(struct net_batches *all, struct inet_object *o, u32 grid)
{
	const struct ts_config *c = &lender.guest[ts_bound(grid, INET_GUESTS - 1)];
	u64 at, rings, head[2], tag;
	u32 ring, sample, i;

	if (!all)
		return 0;
	all->ring.slide = 0;
	if (!o)
		return 0;
	sample = ts_bound(o->sample, INET_TCP_V6);
	ring = inet_guest_ring(&lender, sample, grid);
	tag = records_tag(c, ts_read(lent_since.at[sample][INET_BYTES]));
	at = host_address(&o->counted.ring);
	if (ring) {
		rings = ts_read(o->counted.rings);
		if (!rings)
			return 0;
		at = rings + (ring - 1) * sizeof(struct record_ring);
	}
	for (i = 0; i < NET_READS; i++) {
		if (ts_peek(&all->ring, sizeof(all->ring), at))
			break;
		ts_rmb(); /* pairs with records_add() */
		if (ts_peek(head, sizeof(head), at))
			break;
		if (head[0] == all->ring.slide && head[1] == all->ring.done && ts_is_done(head[1], head[0])) {
			if (head[0] >> TS_EPOCH_SHIFT == tag)
				return 1;
			break;
		}
	}
	all->ring.slide = 0;
	return 0;
}

/*
 * Push the growth of the counters since the last look. False: NET_LEVELS other looks are under way on this CPU; the next look at
 * this connection finds the growth.
 */
static __noinline int net_look(struct sock *sk, struct tcp_sock *tp, struct net_flow *f, u32 how)
{
	struct net_cpu *cpu = host_on(batches, host_cpu());
	struct net_batches *all = cpu ? net_claim(cpu) : NULL;
	struct inet_object *o = net_recorded(sk);
	u32 last, grid;

	if (!all)
		return 0;
	net_records(all, o, 0);
	tcp_counts(&all->now, sk, tp, how != NET_BY_READER); /* R3 */
	last = tcp_last_active(tp);
	if (net_take(f, all)) {
		for (grid = 0; grid < INET_GUESTS; grid++) {
			if (grid) {
				if (!lender.guest[grid].enabled)
					break;
				net_records(all, o, grid);
			}
			net_spread(all, f, grid, last);
			net_spend(all, f);
		}
	}
	ts_release(&all->claim);
	if (o && how != NET_BY_HOOK)
		net_leave(sk, o, last);
	return 1;
}

#endif /* TOPSTAT_NET_FLOW_H */
