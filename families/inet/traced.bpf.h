/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The programs outside of a packet's way, where tracing programs and iterators have socket
 * storage. Elsewhere untraced.bpf.h stands for them.
 */
#ifndef TOPSTAT_INET_TRACED_H
#define TOPSTAT_INET_TRACED_H

#include "count.bpf.h"
#include "observe/gate.bpf.h"

/* Segments sent again that were not pushed yet. */
static __always_inline void inet_resent_by_count(struct inet_object *o, struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	if (tp)
		inet_push_resent(o, inet_resent_since(o, tp->total_retrans));
}

TS_GATE("tp_btf/inet_sock_set_state", inet_state)

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(inet_state, struct sock *sk, int from, int to)
{
	struct inet_object *o;

	if (to != TCP_CLOSE && from != TCP_CLOSE)
		return 0;
	o = host_of(objects, sk, sk);
	if (!o || !inet_object_is_own(o))
		return 0;
	if (to == TCP_CLOSE) {
		if (o->object.id)
			inet_resent_by_count(o, sk);
		inet_object_end(o);
	} else if (inet_is_dead(o) || o->object.id) { /* the socket is used for another connection, which begins at 0 */
		inet_object_end(o);
		inet_object_reset(o);
	}
	return 0;
}

/*
 * The socket goes, closed: once for each, after inet_state() was to be told. Each program is left out
 * of what would interrupt it on its CPU, so what one of the two has missed the other sees.
 */
TS_GATE("tp_btf/tcp_destroy_sock", inet_destroy)

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(inet_destroy, struct sock *sk)
{
	struct inet_object *o;

	o = host_of(objects, sk, sk);
	if (!o || !inet_object_is_own(o))
		return 0;
	if (o->object.id)
		inet_resent_by_count(o, sk);
	inet_object_end(o);
	return 0;
}

TS_GATE("tp_btf/tcp_retransmit_skb", inet_retransmit)

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(inet_retransmit, struct sock *sk)
{
	struct inet_object *o;

	o = host_of(objects, sk, sk);
	if (o && inet_object_is_own(o) && o->object.id)
		inet_resent_by_count(o, sk);
	return 0;
}

static __always_inline void inet_adopted(struct inet_object *o, struct sock *sk, struct task_struct *task)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	if (tp && !o->object.self)
		o->resent = tp->total_retrans;
	inet_owner(o, task);
}

#include "adopt.bpf.h"

#endif /* TOPSTAT_INET_TRACED_H */
