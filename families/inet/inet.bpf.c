// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observer of the samples tcp_v4, tcp_v6, udp_v4 and udp_v6.
 *
 * TCP counts segments and bytes itself. A hook copies the counters into the connection's ring of records at the first segment
 * that the connection receives in a cell, and does nothing else; readers do the rest (counted.h). The connection's stamp of the
 * last received segment shows whether a segment is the first; other segments read nothing else.
 *
 * UDP is counted in its own functions (functions.bpf.h), or by its packets (packet.bpf.h): builds.rs chooses.
 *
 * Objects are in the storage of sockets. An object is made when a process makes the socket, and this process is its owner; or it
 * is copied from the listener's on accept; or else it is made when the socket is first active. With the first activity it gets
 * its id, and its place in a sample.
 */
#include "functions.bpf.h"
#include "list.bpf.h"
#include "made.bpf.h"
#include "observe/gate.bpf.h"
#include "observe/sock.bpf.h"
#include "packet.bpf.h"
#include "record.h"

char LICENSE[] SEC("license") = "GPL";

/* The connection's object. NULL: the connection has ended, or there is no memory, which is counted. */
static __noinline struct inet_object *inet_counted(struct sock *sk, struct tcp_sock *tp)
{
	struct inet_object *o = host_of(objects, sk, sk);
	struct records_counts now;

	if (ts_likely(o && inet_object_is_own(o)))
		return inet_is_dead(o) ? NULL : o;
	if (!o)
		o = host_make(objects, sk, sk);
	if (!o) {
		host_call(inet_no_memory(sk, tp, NULL));
		return NULL;
	}
	tcp_counts(&now, sk, tp, 1);
	return inet_object_own(o, (u64)sk, &now) ? o : NULL;
}

static __always_inline void inet_own(struct inet_object *o, struct task_struct *task)
{
	if (o->object.id)
		ts_add(&unsure, -1ULL);
	inet_owner(o, task);
}

/* The connection is over. Two hooks see the end, and the second finds nothing left to do. */
static __always_inline void inet_over(struct sock *sk, struct tcp_sock *tp, struct inet_object *o)
{
	ts_write(o->life, o->life | 1);
	if (tp && o->object.id)
		host_call(inet_finish(sk, tp, o));
	if (o->object.id && !o->sure) {
		o->sure = 1;
		ts_add(&unsure, -1ULL);
	}
	inet_object_end(o);
	inet_list_off(o);
}

TS_GATE("tp_btf/tcp_probe", inet_probe)

SEC("tp_btf/tcp_probe")
int BPF_PROG(inet_probe, struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct inet_object *o;

	if (!tp || !inet_is_due(tp))
		return 0;
	o = inet_counted(sk, tp);
	if (o)
		host_call(inet_record(sk, tp, o, 1, 0));
	return 0;
}

TS_GATE("tp_btf/inet_sock_set_state", inet_state)

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(inet_state, struct sock *sk, int from, int to)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct inet_object *o;

	if (!tp)
		return 0;
	o = host_of(objects, sk, sk);
	if (from == TCP_CLOSE) {
		/* The socket is used for another connection, which begins at 0. */
		if (o && inet_object_is_own(o) && (inet_is_dead(o) || o->object.id)) {
			inet_over(sk, NULL, o); /* its counters are 0 by now */
			inet_object_reset(o);
		}
	}
	/* A connection that a listener has made has its addresses only when it is established. */
	if (to == TCP_SYN_RECV)
		return 0;
	if (to == TCP_CLOSE) {
		if (o && inet_object_is_own(o) && !inet_is_dead(o))
			inet_over(sk, tp, o);
		return 0;
	}
	o = inet_counted(sk, tp);
	if (!o || to == TCP_LISTEN)
		return 0;
	if (!o->sure && BPF_CORE_READ(sk, sk_lock.owned))
		inet_own(o, (void *)bpf_get_current_task());
	host_call(inet_record(sk, tp, o, 0, 0));
	return 0;
}

/*
 * The socket is destroyed, closed: once for each socket, after inet_state(). The kernel does not run a program for an event that
 * interrupts the same program on its CPU, so each of the two programs sees the ends that the other has missed.
 */
TS_GATE("tp_btf/tcp_destroy_sock", inet_destroy)

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(inet_destroy, struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct inet_object *o;

	o = host_of(objects, sk, sk);
	if (o && inet_object_is_own(o))
		inet_over(sk, tp, o);
	return 0;
}

TS_GATE("tp_btf/tcp_retransmit_skb", inet_retransmit)

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(inet_retransmit, struct sock *sk, struct sk_buff *skb)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct inet_object *o;

	o = tp ? inet_counted(sk, tp) : NULL;
	if (o)
		host_call(inet_record(sk, tp, o, 0, 1));
	return 0;
}

/* The user of an accepted connection reads: in the user's own context, with the lock. */
TS_GATE("tp_btf/tcp_rcv_space_adjust", inet_user)

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(inet_user, struct sock *sk)
{
	struct inet_object *o;

	if (!ts_read(unsure))
		return 0;
	o = host_of(objects, sk, sk);
	if (o && inet_object_is_own(o) && !o->sure && !inet_is_dead(o))
		inet_own(o, (void *)bpf_get_current_task());
	return 0;
}

/* UDP alone: packets of TCP are recognised without access to the socket. */
static __always_inline int inet_udp_packet(struct __sk_buff *skb, u32 part)
{
	u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct bpf_sock *sk;

	if (data + 20 > end || data[data[0] >> 4 == 4 ? 9 : 6] == IPPROTO_TCP)
		return 1;
	sk = skb->sk;
	sk = sk ? bpf_sk_fullsock(sk) : NULL;
	if (!sk || sk->protocol != IPPROTO_UDP)
		return 1;
	return inet_packet(skb, sk, part);
}

SEC("cgroup_skb/ingress")
int inet_ingress(struct __sk_buff *skb)
{
	return inet_udp_packet(skb, INET_RX);
}

SEC("cgroup_skb/egress")
int inet_egress(struct __sk_buff *skb)
{
	return inet_udp_packet(skb, INET_TX);
}

/* Adopt a socket that already exists, with the task's process as owner. Writes a byte, for user space counts the sockets. */
static __always_inline void inet_adopted(struct inet_object *o, struct sock *sk, struct task_struct *task,
					 struct seq_file *seq)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct records_counts now;
	u8 state, found = 1;

	bpf_seq_write(seq, &found, sizeof(found));
	/* Also for a listener: its own address in `self` tells it from a copy. */
	if (tp && !o->object.self) {
		tcp_counts(&now, sk, tp, 1);
		inet_object_init(o, (u64)sk, &now);
	}
	inet_owner(o, task);
	if (!tp)
		return;
	state = sk->__sk_common.skc_state;
	/* A silent connection is due when it speaks again. */
	if (state != TCP_LISTEN && state != TCP_CLOSE && !(ts_read(o->listed) & INET_ON_LIST) && !inet_is_silent(sk, tp, o))
		host_call(inet_list(sk, tp, o));
}

/* After the hooks are attached: adopt existing sockets. A socket of several processes belongs to the first of them. */
SEC("iter/task_file")
int inet_adopt(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct sock *sk = sock_of_file(ctx->file);
	struct inet_object *o;
	u16 family, protocol;

	if (!task || !sk)
		return 0;
	family = sk->__sk_common.skc_family;
	protocol = sk->sk_protocol;
	if ((family != AF_INET && family != AF_INET6) || (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP))
		return 0;
	o = host_make(objects, sk, sk);
	if (o && !o->pid)
		inet_adopted(o, sk, task, ctx->meta->seq);
	return 0;
}
