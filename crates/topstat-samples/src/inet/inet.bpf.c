// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observer of sockets: samples tcp_v4, tcp_v6, udp_v4 and udp_v6.
 *
 * Where it counts: at the cgroup ingress and egress hooks of the root cgroup. There a
 * packet passes once per socket that sends or receives it, whatever devices, bridges,
 * tunnels and namespaces it crosses, and before GSO has cut or after GRO has joined it.
 *
 * What it counts: packets as on the wire (a GSO/GRO packet counts its segments), and
 * bytes of payload: for TCP the same as TCP_INFO's segs_in + segs_out and
 * bytes_received + bytes_sent.
 *
 * Objects are in socket-local storage. One is made when the process makes the socket
 * (which tells whose it is), or copied from the listener's on accept, or else made with
 * the socket's first packet; it gets its id, and its place in a sample, with that packet.
 */
#include "count.bpf.h"
#include "../bpf/gate.bpf.h"

char LICENSE[] SEC("license") = "GPL";

SEC("cgroup_skb/ingress")
int inet_ingress(struct __sk_buff *skb)
{
	return inet_packet(skb, skb->sk, INET_RX);
}

SEC("cgroup_skb/egress")
int inet_egress(struct __sk_buff *skb)
{
	return inet_packet(skb, skb->sk, INET_TX);
}

/* A process makes a socket: it is that process's. */
SEC("cgroup/sock_create")
int inet_create(struct bpf_sock *sk)
{
	struct inet_object *o;

	if (sk->protocol != IPPROTO_TCP && sk->protocol != IPPROTO_UDP)
		return 1;
	o = bpf_sk_storage_get(&objects, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!o)
		return 1; /* the first packet tries again, and counts it */
	inet_owner(o, (void *)bpf_get_current_task());
	return 1;
}

/* The last descriptor of a socket is closed. A UDP socket ends with that; a TCP
 * connection has its say (inet_state). */
SEC("cgroup/sock_release")
int inet_release(struct bpf_sock *sk)
{
	struct inet_object *o;

	if (sk->protocol != IPPROTO_UDP)
		return 1;
	o = bpf_sk_storage_get(&objects, sk, NULL, 0);
	if (o)
		inet_object_end(o);
	return 1;
}

TS_GATE("tp_btf/inet_sock_set_state", inet_state)

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(inet_state, struct sock *sk, int from, int to)
{
	struct inet_object *o;

	if (to != TCP_CLOSE && from != TCP_CLOSE)
		return 0;
	o = bpf_sk_storage_get(&objects, sk, NULL, 0);
	if (!o || o->self != (u64)o)
		return 0;
	if (to == TCP_CLOSE)
		inet_object_end(o);
	else if (o->dead) /* the socket is used for another connection, which begins at 0 */
		inet_object_reset(o);
	return 0;
}

TS_GATE("tp_btf/tcp_retransmit_skb", inet_retransmit)

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(inet_retransmit, struct sock *sk, struct sk_buff *skb)
{
	struct tcp_skb_cb *cb = (void *)skb->cb;
	struct inet_object *o;
	struct ts_config *c;
	struct ts_bank *bank;
	u32 sample, segments;
	int claimed;

	o = bpf_sk_storage_get(&objects, sk, NULL, 0);
	if (!o || o->self != (u64)o || !o->id)
		return 0;
	sample = o->sample;
	if (sample >= INET_SAMPLES)
		return 0;
	c = &settings.config[sample][INET_RETRANS];
	if (!c->enabled)
		return 0;
	bank = inet_bank(bpf_get_smp_processor_id(), sample);
	if (!bank)
		return 0;
	segments = BPF_CORE_READ(cb, tcp_gso_segs);
	ts_bank_to(bank, constants.shape.table_stride, settings.config[sample], settings.all.generation, bpf_jiffies64());
	claimed = ts_bank_enter(bank);
	ts_push(inet_table(bank, INET_RETRANS), &bank->tick[INET_RETRANS], c, inet_view(INET_RETRANS), claimed,
		o->self, o->id, &o->window[INET_RETRANS], INET_TX, segments ? segments : 1);
	ts_bank_leave(bank, claimed);
	return 0;
}

/* Once the hooks are attached: sockets that were there already, and whose they are. A
 * socket of several processes is the first one's. */
SEC("iter/task_file")
int inet_adopt(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct inet_object *o;
	struct socket *socket;
	struct sock *sk;
	u16 family, protocol;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk)
		return 0;
	family = sk->__sk_common.skc_family;
	protocol = sk->sk_protocol;
	if ((family != AF_INET && family != AF_INET6) || (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP))
		return 0;
	o = bpf_sk_storage_get(&objects, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!o)
		return 0;
	if (!o->owner.pid)
		inet_owner(o, task);
	return 0;
}
