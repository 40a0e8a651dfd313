// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observer of the samples net_procs, net_cgroups, net_hosts and net_ports.
 *
 * TCP counts segments and bytes itself, and the family inet records the counters. Readers take the growth of a connection's counters
 * (settle.bpf.c); a hook takes the rest when the connection ends. UDP is counted by its own hooks (datagrams.bpf.h).
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
	if (!net_look(sk, tp, f, NET_BY_HOOK))
		ts_add(&unseen, 1);
	f->over = 1;
	net_leave_unsure(f);
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
		bpf_sk_storage_delete(&flows, sk);
		f = host_make(flows, sk, sk);
		if (!f)
			return 0; /* its connection is refused when it is established */
		net_flow_init(f);
		net_own(f);
		return 0;
	}
	if (to == TCP_ESTABLISHED) {
		f = net_flow_of(sk, tp, 1, from == TCP_SYN_RECV ? NET_SERVER : NET_CLIENT, NET_BY_HOOK);
		if (f) {
			f->opened = host_jiffies();
			ts_wmb(); /* a reader that sees `begun` sees `opened` */
			ts_write(f->begun, 1);
		}
	} else {
		f = net_flow_of(sk, tp, 0, from == TCP_SYN_SENT ? NET_CLIENT : net_likely_side(sk), NET_BY_HOOK);
	}
	if (!f)
		return 0;
	net_own_if_users(f, sk);
	if (to == TCP_CLOSE)
		net_end(sk, tp, f);
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
	net_see(f, sk, tp, NET_BY_READER);
	return 0;
}
