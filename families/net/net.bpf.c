// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observer of the samples net_procs, net_cgroups, net_hosts and net_ports.
 *
 * TCP counts segments and bytes itself. A connection is looked at once a slide, at the first segment that it receives in the
 * slide: the times of its last segments show which segment is the first, without access to the storage. A connection is also
 * looked at when its state changes, when it retransmits, and when it ends. Readers settle the rest (settle.bpf.c). UDP is counted
 * by its own hooks (datagrams.bpf.h).
 */
#include "flow.bpf.h"
#include "observe/gate.bpf.h"
#include "observe/owners.bpf.h"
#include "observe/sock.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* The owner of the connection is known, or the connection is over: `unsure` no longer counts it. */
static __always_inline void net_leave_unsure(struct net_flow *f)
{
	if (!f->unsure)
		return;
	f->unsure = 0;
	ts_add(&unsure, -1ULL);
}

/* Set the owner of the connection. In the context of its user. */
static __noinline int net_own(struct net_flow *f)
{
	net_owner(f, bpf_get_current_task_btf());
	f->sure = 1;
	net_owned(f);
	net_leave_unsure(f);
	return 0;
}

static __always_inline void net_own_if_users(struct net_flow *f, struct sock *sk)
{
	if (!f->sure && BPF_CORE_READ(sk, sk_lock.owned))
		net_own(f);
}

/* The last look at the connection. */
static __always_inline void net_end(struct sock *sk, struct tcp_sock *tp, struct net_flow *f)
{
	if (!net_look(sk, tp, f, NET_BY_EVENT))
		ts_add(&unseen, 1);
	f->over = 1;
	net_leave_unsure(f);
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

/* Exclude the counters so far. Before the first look at the connection. */
static __always_inline void net_see(struct net_flow *f, struct sock *sk, struct tcp_sock *tp)
{
	net_find(&f->seen, sk, tp, f, NET_BY_EVENT);
}

/*
 * The storage of the connection, initialised; `begun`: its counters were 0 before. An older connection counts from its first
 * look.
 */
static __noinline struct net_flow *net_flow_of(struct sock *sk, struct tcp_sock *tp, u32 begun, u32 side)
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
		net_see(f, sk, tp);
	return f;
}

/* Count the connection from its beginning, and list it for readers. Before the first look at it. */
static __always_inline void net_begin(struct net_flow *f, struct sock *sk)
{
	f->begun = 1;
	net_list(f, sk);
}

/* The side of a connection whose opening no hook has seen: mostly the smaller port is the served one. See net_adopt(). */
static __always_inline u32 net_likely_side(struct sock *sk)
{
	return sk->__sk_common.skc_num <= bpf_ntohs(sk->__sk_common.skc_dport) ? NET_SERVER : NET_CLIENT;
}

TS_GATE("tp_btf/tcp_probe", net_segment)

SEC("tp_btf/tcp_probe")
int BPF_PROG(net_segment, struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct net_flow *f;
	u32 now = host_jiffies(), cell_start;

	if (!tp)
		return 0;
	cell_start = net_cell(now);
	if (!tcp_has_not_received(tp, cell_start, now))
		return 0;
	f = net_flow_of(sk, tp, 0, net_likely_side(sk));
	/* If the owner is not known yet, its user reads soon, most likely, and the owner is known then. */
	if (f && (f->sure || stamp_is_before(ts_read(f->looked), cell_start, now)))
		net_look(sk, tp, f, NET_BY_SEGMENT);
	return 0;
}

TS_GATE("tp_btf/inet_sock_set_state", net_state)

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(net_state, struct sock *sk, int from, int to)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct net_flow *f;

	/* A connection that a listener has made has its addresses only when it is established. */
	if (!tp || to == TCP_SYN_RECV)
		return 0;
	if (to == TCP_LISTEN || from == TCP_CLOSE) {
		/* The socket's earlier use is over. Readers that look at it just now have the old storage. */
		bpf_sk_storage_delete(&active, sk);
		bpf_sk_storage_delete(&flows, sk);
		f = host_make(flows, sk, sk);
		if (!f)
			return 0; /* its connection is refused when it is established */
		net_flow_init(f);
		net_own(f);
		return 0;
	}
	if (to == TCP_ESTABLISHED) {
		f = net_flow_of(sk, tp, 1, from == TCP_SYN_RECV ? NET_SERVER : NET_CLIENT);
		if (f)
			net_begin(f, sk);
	} else {
		f = net_flow_of(sk, tp, 0, from == TCP_SYN_SENT ? NET_CLIENT : net_likely_side(sk));
	}
	if (!f)
		return 0;
	net_own_if_users(f, sk);
	if (to == TCP_CLOSE)
		net_end(sk, tp, f);
	else if (to != TCP_ESTABLISHED)
		net_look(sk, tp, f, NET_BY_EVENT);
	return 0;
}

/* The closed socket is destroyed: for a close that net_state() has missed. */
TS_GATE("tp_btf/tcp_destroy_sock", net_destroy)

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(net_destroy, struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct net_flow *f = net_known(sk);

	if (tp && f && f->to.proto)
		net_end(sk, tp, f);
	return 0;
}

TS_GATE("tp_btf/tcp_retransmit_skb", net_retransmit)

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(net_retransmit, struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct net_flow *f = net_known(sk);
	u32 now = host_jiffies();

	if (tp && f && f->to.proto && stamp_is_before(ts_read(f->looked), net_cell(now), now))
		net_look(sk, tp, f, NET_BY_EVENT);
	return 0;
}

/* The user of an accepted connection reads: in the user's own context, with the lock. */
TS_GATE("tp_btf/tcp_rcv_space_adjust", net_user)

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(net_user, struct sock *sk)
{
	struct net_flow *f;

	if (!ts_read(unsure))
		return 0;
	f = net_known(sk);
	if (f && !f->sure)
		net_own(f);
	return 0;
}

KEYED_OWNERS(net, net_close, NET_PROCS, NET_CGROUPS)

#include "datagrams.bpf.h"

/* Ports that had a listener before topstat: connections accepted there are served. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u64); /* network namespace << 32 | port */
	__type(value, u32);
} listened SEC(".maps");

static __always_inline u64 net_listened_key(struct sock *sk)
{
	return (u64)BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) << 32 | sk->__sk_common.skc_num;
}

/*
 * A new storage for a TCP socket that already exists, with the task's process as owner; NULL: the socket has a storage already,
 * or there is no memory.
 */
static __always_inline struct net_flow *net_adopted(struct sock *sk, struct task_struct *task)
{
	struct net_flow *f = host_make(flows, sk, sk);

	if (!f || net_flow_is_own(f))
		return NULL;
	net_flow_init(f);
	net_owner(f, task);
	f->sure = 1;
	return f;
}

/*
 * Sockets that listen. Before hooks are attached, and before net_adopt(). A socket of several processes belongs to the first of
 * them.
 */
SEC("iter/task_file")
int net_adopt_listeners(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct sock *sk = sock_of_file(ctx->file);
	u32 one = 1;
	u64 key;

	if (!task || !sk || !bpf_skc_to_tcp_sock(sk) || sk->__sk_common.skc_state != TCP_LISTEN)
		return 0;
	key = net_listened_key(sk);
	bpf_map_update_elem(&listened, &key, &one, BPF_ANY);
	net_adopted(sk, task);
	return 0;
}

/* Connections, whose counters count from now on, and UDP sockets. */
SEC("iter/task_file")
int net_adopt(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct sock *sk = sock_of_file(ctx->file);
	struct tcp_sock *tp;
	struct net_flow *f;
	u64 key;
	u8 state;

	if (!task || !sk)
		return 0;
	if (net_udp_is_socket(sk))
		return net_udp_adopt(sk, task);
	tp = bpf_skc_to_tcp_sock(sk);
	state = sk->__sk_common.skc_state;
	if (!tp || state == TCP_LISTEN || state == TCP_CLOSE)
		return 0;
	f = net_adopted(sk, task);
	if (!f)
		return 0;
	key = net_listened_key(sk);
	net_direct(f, sk, bpf_map_lookup_elem(&listened, &key) ? NET_SERVER : NET_CLIENT);
	net_see(f, sk, tp);
	return 0;
}
