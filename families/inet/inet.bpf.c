// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observer of sockets: samples tcp_v4, tcp_v6, udp_v4 and udp_v6.
 *
 * TCP counts segments and bytes itself, and its counters are read. A connection is looked at when it is due: once a cell of the
 * delay, at the first segment that it receives in it. That tells the connection itself, by when it received the last one; until
 * it is due, nothing else is read.
 *
 * UDP is counted by its own functions (functions.bpf.h), or by its packets (packet.bpf.h): builds.rs chooses.
 *
 * Objects are in the storage of sockets. One is made when a process makes the socket, which tells whose it is, or copied from the
 * listener's on accept, or else made when the socket is first active; then it gets its id, and its place in a sample.
 */
#include "functions.bpf.h"
#include "look.bpf.h"
#include "made.bpf.h"
#include "observe/gate.bpf.h"
#include "observe/sock.bpf.h"
#include "packet.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* The cell that is now, in jiffies: until then, and since when << 32. In one word, so that all CPUs see both. */
HOST_WORD(cell);

/* Further away than any time of a connection, so that all of them are before it. */
#define INET_ALWAYS_DUE 0x40000000

static __noinline u64 inet_cell(u32 now)
{
	u32 length = inet_look_jiffies(), start, until, sample, table;
	u64 word;

	for (sample = INET_TCP_V4; sample <= INET_TCP_V6; sample++) {
		for (table = 0; table < INET_TABLES; table++) {
			struct ts_config *c = &settings.config[sample][table];
			/* Only a precise clock tells the order of two segments in one jiffy. */
			u64 delay = c->precise ? 0 : ((u64)c->delay << (c->delay_shift & 31)) ?: 1;

			if (c->enabled && delay < length)
				length = delay;
		}
	}
	if (length) {
		start = now - now % length;
		until = start + length;
	} else {
		start = now + INET_ALWAYS_DUE;
		until = now + inet_look_jiffies();
	}
	word = (u64)start << 32 | until;
	ts_write(cell, word);
	return word;
}

/* Whether it has received nothing in this cell before. */
static __always_inline int inet_is_due(struct tcp_sock *tp)
{
	u32 now = host_jiffies(), start;
	u64 word = ts_read(cell);

	if (ts_unlikely(!word || (s32)(now - (u32)word) >= 0))
		word = inet_cell(now);
	start = word >> 32;
	return (s32)(tp->rcv_tstamp - start) < 0 && (s32)(tcp_data_time(tp) - start) < 0;
}

/* The connection's object; NULL: there is no memory, which is counted, or it has ended. */
static __noinline struct inet_object *inet_counted(struct sock *sk, struct tcp_sock *tp)
{
	struct inet_object *o = host_of(objects, sk, sk);
	struct inet_seen now;

	if (ts_likely(o && inet_object_is_own(o)))
		return inet_is_dead(o) ? NULL : o;
	if (!o)
		o = host_make(objects, sk, sk);
	if (!o) {
		inet_no_memory(sk, tp);
		return NULL;
	}
	inet_counters(&now, sk, tp, 1);
	return inet_object_own(o, (u64)sk, &now) ? o : NULL;
}

/* Look at it. `newest`: a segment has just come, which is all that has since it was last active. */
static __noinline int inet_look(struct sock *sk, struct tcp_sock *tp, struct inet_object *o, u32 newest)
{
	struct inet_difference d;
	u32 left = 0;
	u64 looked;

	ts_write(o->looking, o->looking | 1);
	inet_difference(&d, sk, tp, o, 1);
	if (ts_unlikely(!o->object.id))
		inet_begin(sk, o);
	if (!inet_is_none(&d))
		left = inet_push_difference(o, &d, newest, inet_left(ts_read(o->looked)));
	/* After the push: a reader that reads this word then reads all that was pushed. */
	looked = ts_read(o->looked);
	if (ts_likely(looked & INET_LISTED))
		ts_write(o->looked, inet_look_word(looked, INET_LISTED, inet_left(looked) | left));
	else if (!inet_list(sk, tp, o, left) && left)
		inet_order(o, left);
	ts_wmb();
	ts_write(o->looking, (o->looking | 1) + 1);
	return 0;
}

static __always_inline void inet_own(struct inet_object *o, struct task_struct *task)
{
	if (o->object.id)
		ts_add(&unsure, -1ULL);
	inet_owner(o, task);
}

/* It is closed while a reader has taken a difference and does not go on: this has interrupted the reader, or its CPU does not run. */
static __noinline int inet_closed_amid_reader(struct sock *sk, struct tcp_sock *tp)
{
	struct inet_seen all;

	if (!sk || !tp)
		return 0;
	inet_counters(&all, sk, tp, 1);
	inet_closed_amid(inet_sample_of_sock(sk), &all);
	return 0;
}

/* The connection is over, and has counted all. A row that is kept of it includes a difference that a reader has taken and not yet pushed. */
static __always_inline void inet_over(struct sock *sk, struct tcp_sock *tp, struct inet_object *o)
{
	if (o->object.id && ts_read(o->readers) && !inet_await_readers(o) && tp)
		inet_closed_amid_reader(sk, tp);
	if (o->object.id && !o->sure) {
		o->sure = 1;
		ts_add(&unsure, -1ULL);
	}
	inet_object_end(o);
}

/* The last look. Two hooks tell the end, and the second has nothing left to do. */
static __always_inline void inet_last_look(struct sock *sk, struct tcp_sock *tp, struct inet_object *o)
{
	if (tp && o->object.id)
		inet_look(sk, tp, o, 0);
	inet_over(sk, tp, o);
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
		inet_look(sk, tp, o, 1);
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
			inet_over(sk, tp, o);
			inet_object_reset(o);
		}
	}
	/* A connection that a listener has made has its addresses only when it is established. */
	if (to == TCP_SYN_RECV)
		return 0;
	if (to == TCP_CLOSE) {
		if (o && inet_object_is_own(o) && !inet_is_dead(o))
			inet_last_look(sk, tp, o);
		return 0;
	}
	o = inet_counted(sk, tp);
	if (!o || to == TCP_LISTEN)
		return 0;
	if (!o->sure && BPF_CORE_READ(sk, sk_lock.owned))
		inet_own(o, (void *)bpf_get_current_task());
	inet_look(sk, tp, o, 0);
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
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct inet_object *o;

	o = host_of(objects, sk, sk);
	if (o && inet_object_is_own(o))
		inet_last_look(sk, tp, o);
	return 0;
}

TS_GATE("tp_btf/tcp_retransmit_skb", inet_retransmit)

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(inet_retransmit, struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct inet_object *o;

	o = tp ? inet_counted(sk, tp) : NULL;
	if (o)
		inet_look(sk, tp, o, 0);
	return 0;
}

/* Its user reads from a connection that was accepted: in the user's own context, with the lock. */
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

/* UDP's alone: whether a packet is TCP's can be seen without looking for its socket. */
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

/* The socket was there already, and is the task's. Writes a byte, by which user space counts them. */
static __always_inline void inet_adopted(struct inet_object *o, struct sock *sk, struct task_struct *task,
					 struct seq_file *seq)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct inet_seen now;
	u8 state, found = 1;

	bpf_seq_write(seq, &found, sizeof(found));
	/* Also of a listener: its address tells a copy from it. */
	if (tp && !o->object.self) {
		inet_counters(&now, sk, tp, 1);
		inet_object_init(o, (u64)sk, &now);
	}
	inet_owner(o, task);
	if (!tp)
		return;
	state = sk->__sk_common.skc_state;
	/* A silent one is due when it speaks again. */
	if (state != TCP_LISTEN && state != TCP_CLOSE && !ts_read(o->looked) && !inet_is_silent(sk, tp))
		inet_list(sk, tp, o, 0);
}

/* Once the hooks are attached: sockets that were there already, and whose they are. A
 * socket of several processes is the first one's. */
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
