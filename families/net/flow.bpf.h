/* SPDX-License-Identifier: GPL-2.0-only */
/* Looks at connections: hooks look under the connection's lock, readers without it. See NU1 … NU3 of logic.h. */
#ifndef TOPSTAT_NET_FLOW_H
#define TOPSTAT_NET_FLOW_H

#include "logic.h"
#include "observe/process.bpf.h"
#include "observe/tcp.bpf.h"

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
	NET_BY_SEGMENT, /* a segment has just arrived */
	NET_BY_EVENT, /* another event has just happened */
	NET_BY_READER, /* a snapshot settles */
	NET_BY_HOLDER, /* a snapshot settles, and holds the connection's lock */
};

/* Read the current counters. Returns the time of the last activity (jiffies), before a segment that has just arrived. */
static __always_inline u32 net_find(struct net_counters *now, struct sock *sk, struct tcp_sock *tp, struct net_flow *f,
				    u32 how)
{
	now->rx = tcp_received(sk, tp, how != NET_BY_READER);
	/* The segment that has just arrived belongs to the current cell, the growth to a past one. */
	now->in = tp->segs_in - (how == NET_BY_SEGMENT);
	now->out = tp->segs_out;
	now->tx = tp->bytes_sent;
	now->resent = tp->total_retrans;
	now->opened = f->begun;
	return tcp_last_active(tp);
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


/*
 * The beginning of the cell that the growth since the last look belongs to. `last`: the last activity. A connection that sends may
 * have sent in the current cell before it receives anything there. Then most of the growth is of the cell before, if the connection
 * was active in that cell: counted to the current cell, each cell would count for one cell longer, and a steady flow would be up to
 * a tenth too large.
 */
static __always_inline u32 net_growth_cell(struct tcp_sock *tp, u32 last)
{
	u32 now = host_jiffies(), received = tcp_last_received(tp);
	u32 current = net_cell(now), before = current - net_cell_jiffies();

	if (!stamp_is_before(last, current, now) && stamp_is_before(received, current, now) &&
	    !stamp_is_before(received, before, now))
		return before;
	return net_cell_of(last);
}

/* A silent connection is due when it speaks again. A hook sees this in the state ESTABLISHED alone. */
static __always_inline int net_is_silent(struct sock *sk, u32 last)
{
	u32 now = host_jiffies();

	return sk->__sk_common.skc_state == TCP_ESTABLISHED &&
	       stamp_is_before(last, now - NET_SILENT * net_cell_jiffies(), now);
}

/* Put the connection into `active`, where readers find it, and note the time of the look. */
static __always_inline void net_list(struct net_flow *f, struct sock *sk)
{
	u64 listed = ts_read(f->looked) & NET_LISTED;

	if (!listed && host_make(active, sk, sk))
		listed = NET_LISTED;
	ts_write(f->looked, listed | (u32)host_jiffies());
}

/*
 * A hook that looks at the same time either sees that the connection is not listed, or lists it again, which the second check
 * here sees.
 */
static __always_inline void net_unlist(struct net_flow *f, struct sock *sk, u64 looked)
{
	if (!ts_cas(&f->looked, looked, looked & ~NET_LISTED))
		return;
	bpf_sk_storage_delete(&active, sk);
	if (ts_read(f->looked) & NET_LISTED)
		net_list(f, sk);
}

/*
 * Push the growth of the counters since the last look. False: NET_LEVELS other looks are under way on this CPU; the next look at
 * this connection finds the growth.
 */
static __noinline int net_look(struct sock *sk, struct tcp_sock *tp, struct net_flow *f, u32 how)
{
	struct net_cpu *cpu = host_on(batches, host_cpu());
	struct net_batches *all = cpu ? net_claim(cpu) : NULL;
	u64 looked = ts_read(f->looked);
	u32 last;

	if (!all)
		return 0;
	last = net_find(&all->found.used, sk, tp, f, how);
	all->found.when = net_growth_cell(tp, last);
	net_count(f, all);
	ts_release(&all->claim);
	if (how < NET_BY_READER)
		net_list(f, sk);
	else if (net_is_silent(sk, last))
		net_unlist(f, sk, looked);
	return 1;
}

#endif /* TOPSTAT_NET_FLOW_H */
