// SPDX-License-Identifier: GPL-2.0-only
/*
 * Events of TCP connections. The storage of the socket keeps the state between a connection's events:
 *
 *   N1  An object is its socket's own if `self` is the socket's address. An accepted socket has a copy of the listener's object,
 *       which contains the listening process. connection_open() makes the copy its own when the connection is established.
 *   N2  A connection is OPEN from its open event, or from the start of the programs if it is older, until its close event. If a
 *       socket is destroyed with an OPEN connection, the kernel has skipped the close event at inet_sock_set_state's program,
 *       which was running on the CPU; then the program at tcp_destroy_sock emits it.
 */
#include "observe/host.h"
#include "observe/process.bpf.h"
#include "observe/sock.bpf.h"
#include "observe/stream.bpf.h"
#include "observe/tcp.h"
#include "families/connections/connections.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct connections_constants constants SEC(".rodata.constants") = {};

/* From asm-generic/errno.h. */
enum { EPIPE_ = 32, ECONNRESET_ = 104, ETIMEDOUT_ = 110, ECONNREFUSED_ = 111 };

struct sock___error {
	int sk_err;
} CORE;

struct minmax_sample {
	u32 v;
} CORE;

struct minmax {
	struct minmax_sample s[3];
} CORE;

struct tcp_sock___resent {
	u64 bytes_retrans;
	u32 srtt_us;
	struct minmax rtt_min;
} CORE;

enum connection_phase {
	CONNECTION_NONE,
	CONNECTION_BEGUN,
	CONNECTION_IS_OPEN,
};

struct connection {
	u64 self; /* N1 */
	u64 since_ns; /* 0: unknown */
	struct process_who who;
	u32 phase; /* enum connection_phase */
	u32 side; /* enum connections_side */
};

HOST_STORAGE(connections, sk, struct connection);

/* Set the addresses of both ends. `inet_sport` keeps this side's port after its release. */
static __always_inline void connection_name(struct connections_event *e, struct sock *sk)
{
	u16 family = sk->__sk_common.skc_family;

	__builtin_memset(e->local, 0, sizeof(e->local));
	__builtin_memset(e->remote, 0, sizeof(e->remote));
	if (family == AF_INET6) {
		BPF_CORE_READ_INTO(&e->local, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&e->remote, sk, __sk_common.skc_v6_daddr);
	} else {
		BPF_CORE_READ_INTO((u32 *)e->local, sk, __sk_common.skc_rcv_saddr);
		BPF_CORE_READ_INTO((u32 *)e->remote, sk, __sk_common.skc_daddr);
	}
	e->family = family;
	e->sport = bpf_ntohs(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
	e->dport = bpf_ntohs(sk->__sk_common.skc_dport);
	e->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
}

/* Set TCP's counters. With the connection's lock. */
static __always_inline void connection_totals(struct connections_event *e, struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct tcp_sock___resent *more = (void *)tp;

	e->rx_bytes = 0;
	e->tx_bytes = 0;
	e->resent_bytes = 0;
	e->rx_segments = 0;
	e->tx_segments = 0;
	e->resent_segments = 0;
	e->rtt_us = 0;
	e->rtt_min_us = 0;
	if (!tp)
		return;
	e->rx_bytes = tcp_payload(sk, tp, 1);
	e->resent_bytes = more->bytes_retrans;
	e->tx_bytes = tp->bytes_sent - e->resent_bytes;
	e->rx_segments = tp->segs_in;
	e->tx_segments = tp->segs_out;
	e->resent_segments = tp->total_retrans;
	e->rtt_us = more->srtt_us >> 3;
	/* Before the first measurement all bits are set. */
	e->rtt_min_us = e->rtt_us ? more->rtt_min.s[0].v : 0;
}

static __always_inline u32 connection_reason(u32 from, u32 error)
{
	switch (error) {
	case 0:
		break;
	case EPIPE_:
	case ECONNRESET_:
		return CONNECTIONS_RESET;
	case ECONNREFUSED_:
		return CONNECTIONS_REFUSED;
	case ETIMEDOUT_:
		return CONNECTIONS_TIMEOUT;
	default:
		return CONNECTIONS_ERROR;
	}
	switch (from) {
	case TCP_LAST_ACK:
		return CONNECTIONS_REMOTE;
	case TCP_FIN_WAIT2:
	case TCP_TIME_WAIT:
	case TCP_CLOSING:
		return CONNECTIONS_LOCAL;
	case TCP_SYN_SENT:
		return CONNECTIONS_ABANDONED;
	case TCP_CLOSE:
		return CONNECTIONS_UNKNOWN;
	default:
		return CONNECTIONS_ABORTED;
	}
}

/* Emit an event with all known values. */
static __always_inline void connection_tell(struct sock *sk, struct connection *c, u32 kind, u32 from)
{
	struct connections_event *e;
	struct stream s;

	if (!stream_begin(&s))
		return;
	e = stream_reserve(&s, sizeof(*e));
	if (!e)
		return;
	connection_name(e, sk);
	connection_totals(e, sk);
	e->state = from;
	e->error = kind == CONNECTIONS_OPEN ? 0 : BPF_CORE_READ((struct sock___error *)sk, sk_err);
	e->reason = kind == CONNECTIONS_OPEN ? CONNECTIONS_UNKNOWN : connection_reason(from, e->error);
	if (c) {
		e->who = c->who;
		e->side = c->side;
		e->lived_ns = c->since_ns && kind != CONNECTIONS_OPEN ? s.time - c->since_ns : 0;
	} else {
		__builtin_memset(&e->who, 0, sizeof(e->who));
		e->side = CONNECTIONS_SIDE_UNKNOWN;
		e->lived_ns = 0;
	}
	stream_submit(&s, &e->head, kind);
}

/* The calling process begins the connection, to connect or to listen. */
static __always_inline void connection_begin(struct sock *sk)
{
	struct connection *c = host_make(connections, sk, sk);

	if (!c)
		return;
	process_describe(&c->who, bpf_get_current_task_btf(), 0, constants.v1_controller);
	c->self = host_address(sk);
	c->since_ns = bpf_ktime_get_ns();
	c->phase = CONNECTION_BEGUN;
	c->side = CONNECTIONS_CONNECTED;
}

/* The side, by the state before ESTABLISHED. */
static __always_inline u32 connection_side(u32 from)
{
	switch (from) {
	case TCP_SYN_SENT:
		return CONNECTIONS_CONNECTED;
	case TCP_SYN_RECV:
		return CONNECTIONS_ACCEPTED;
	default:
		return CONNECTIONS_SIDE_UNKNOWN;
	}
}

static __always_inline void connection_open(struct sock *sk, u32 from)
{
	struct connection *c = host_make(connections, sk, sk);
	u64 self = host_address(sk);

	if (c) {
		/* A side that is known from the beginning stays, whatever the state: both sides may connect at once. */
		if (c->self != self || c->side == CONNECTIONS_SIDE_UNKNOWN)
			c->side = connection_side(from);
		c->self = self;
		c->since_ns = bpf_ktime_get_ns();
		c->phase = CONNECTION_IS_OPEN;
	}
	connection_tell(sk, c, CONNECTIONS_OPEN, from);
}

static __always_inline void connection_end(struct sock *sk, u32 from)
{
	struct connection *c = host_of(connections, sk, sk);
	u32 kind = CONNECTIONS_CLOSE;

	if (c && c->self != host_address(sk))
		c = NULL;
	if (from == TCP_SYN_SENT)
		kind = CONNECTIONS_FAIL;
	/* Never established: this is no connection, and no process here has requested it. */
	if (from == TCP_LISTEN || from == TCP_SYN_RECV) {
		if (c)
			c->phase = CONNECTION_NONE;
		return;
	}
	connection_tell(sk, c, kind, from);
	if (c)
		c->phase = CONNECTION_NONE;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(connections_state, struct sock *sk, int from, int to)
{
	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	switch (to) {
	case TCP_SYN_SENT:
	case TCP_LISTEN:
		connection_begin(sk);
		break;
	case TCP_ESTABLISHED:
		connection_open(sk, from);
		break;
	case TCP_CLOSE:
		connection_end(sk, from);
		break;
	}
	return 0;
}

/* N2 */
SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(connections_destroy, struct sock *sk)
{
	struct connection *c = host_of(connections, sk, sk);

	if (c && c->self == host_address(sk) && c->phase == CONNECTION_IS_OPEN) {
		connection_tell(sk, c, CONNECTIONS_CLOSE, TCP_CLOSE);
		c->phase = CONNECTION_NONE;
	}
	return 0;
}

/* Adopt existing connections and listeners. A socket of several processes belongs to the first of them. */
SEC("iter/task_file")
int connections_adopt(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct sock *sk = sock_of_file(ctx->file);
	struct connection *c;
	u32 state;

	if (!task || !sk)
		return 0;
	if (sk->sk_protocol != IPPROTO_TCP ||
	    (sk->__sk_common.skc_family != AF_INET && sk->__sk_common.skc_family != AF_INET6))
		return 0;
	state = sk->__sk_common.skc_state;
	if (state == TCP_CLOSE)
		return 0;
	c = host_make(connections, sk, sk);
	if (!c || c->self == host_address(sk))
		return 0;
	process_describe(&c->who, task, 0, constants.v1_controller);
	c->self = host_address(sk);
	c->side = CONNECTIONS_SIDE_UNKNOWN;
	c->since_ns = 0;
	c->phase = state == TCP_LISTEN || state == TCP_SYN_SENT || state == TCP_SYN_RECV ? CONNECTION_BEGUN : CONNECTION_IS_OPEN;
	return 0;
}
