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
#include "packet.bpf.h"
#include "object.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* See ts_order_apart(). Under the bank's claim. */
__noinline int inet_order_slow(u32 where, u64 obj, u64 id, u64 value)
{
	u32 bank_index = where >> 8, table = where & (INET_TABLES - 1);
	struct ts_bank *bank;

	bank = bpf_map_lookup_elem(&banks, &bank_index);
	if (!bank)
		return 0;
	ts_order_slow(inet_table(bank, table), &bank->tick[table], obj, id, value, inet_view(table));
	return 0;
}

static __always_inline void inet_count(struct ts_bank *bank, u32 table, u32 part, u64 amount)
{
	struct ts_table *t = inet_table(bank, table);

	ts_add(&t->unobjected, 1);
	ts_push_total(t, &bank->tick[table], part, amount);
}

/* Count a packet that has no object to the totals alone. */
static __noinline int inet_unobjected(struct __sk_buff *skb, u32 sample, u32 part)
{
	u32 packets = skb->gso_segs, bytes;
	struct ts_config *c;
	struct ts_bank *bank;

	if (sample >= INET_SAMPLES)
		return 0;
	bank = inet_bank(bpf_get_smp_processor_id(), sample);
	if (!bank)
		return 0;
	packets = packets ? packets : 1;
	bytes = inet_payload(skb, sample);
	c = settings.config[sample];
	ts_bank_to(bank, constants.table_stride, c, settings.generation, bpf_jiffies64());
	if (c[INET_PPS].enabled)
		inet_count(bank, INET_PPS, part, packets);
	if (bytes && c[INET_BPS].enabled)
		inet_count(bank, INET_BPS, part, bytes);
	if (bytes && c[INET_BYTES].enabled)
		inet_count(bank, INET_BYTES, part, bytes);
	return 0;
}

/*
 * The packet's socket has no object yet, or one without a place or a sure owner. Gives
 * the object, ready to be pushed to, or NULL (which has been counted).
 */
static __noinline struct inet_object *inet_object_make(struct __sk_buff *skb, u32 part)
{
	struct bpf_sock *sk = skb->sk;
	struct inet_object *o;
	u32 sample;

	if (!sk)
		return NULL;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return NULL;
	sample = inet_sample_of(skb, sk);
	if (sample >= INET_SAMPLES)
		return NULL;
	o = bpf_sk_storage_get(&objects, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!o) {
		inet_unobjected(skb, sample, part);
		return NULL;
	}
	if (o->self != (u64)o && !inet_object_init(o, sk)) {
		inet_unobjected(skb, sample, part);
		return NULL;
	}
	if (part == INET_TX && !o->owner.sure) {
		struct sock *kernel_sk = (void *)ts_read(o->sock);

		/*
		 * A packet sent while the socket is locked by its user is sent by its
		 * user: softirqs leave a locked socket alone.
		 */
		if (BPF_CORE_READ(kernel_sk, sk_lock.owned))
			inet_owner(&o->owner, (void *)bpf_get_current_task());
	}
	if (o->dead) {
		inet_unobjected(skb, sample, part);
		return NULL;
	}
	if (!o->id) {
		o->sample = sample;
		if (ts_cas(&o->id, 0, bpf_get_socket_cookie(skb)))
			ts_add(&census.begun[sample], 1);
	}
	return o;
}

static __always_inline int inet_packet(struct __sk_buff *skb, u32 part)
{
	struct bpf_sock *sk = skb->sk;
	u32 sample, packets, bytes;
	struct inet_object *o;
	struct ts_config *c;
	struct ts_bank *bank;
	u64 self, id, now, quiet;
	u32 generation;
	int claimed;

	if (!sk)
		return 1;
	o = bpf_sk_storage_get(&objects, sk, NULL, 0);
	if (ts_unlikely(!o || o->self != (u64)o || !o->id ||
			(part == INET_TX && !o->owner.sure))) {
		o = inet_object_make(skb, part);
		if (!o)
			return 1;
	}
	sample = o->sample;
	if (sample >= INET_SAMPLES)
		return 1;
	bank = inet_bank(bpf_get_smp_processor_id(), sample);
	if (!bank)
		return 1;
	c = settings.config[sample];
	id = o->id;
	self = o->self;
	packets = skb->gso_segs;
	packets = packets ? packets : 1;
	bytes = inet_payload(skb, sample);

	now = bpf_jiffies64();
	generation = settings.generation;
	ts_bank_to(bank, constants.table_stride, c, generation, now);

	if (now < o->quiet && o->generation == generation) {
		if (c[INET_PPS].enabled)
			ts_push_quiet(inet_table(bank, INET_PPS), &bank->tick[INET_PPS], &o->window[INET_PPS], part, packets);
		if (bytes && c[INET_BPS].enabled)
			ts_push_quiet(inet_table(bank, INET_BPS), &bank->tick[INET_BPS], &o->window[INET_BPS], part, bytes);
		if (bytes && c[INET_BYTES].enabled)
			ts_push_static_quiet(inet_table(bank, INET_BYTES), &o->bytes, part, bytes);
		return 1;
	}

	claimed = ts_bank_enter(bank);
	if (c[INET_PPS].enabled)
		ts_push(inet_table(bank, INET_PPS), &bank->tick[INET_PPS], &c[INET_PPS], inet_view(INET_PPS),
			claimed, self, id, &o->window[INET_PPS], part, packets);
	if (bytes && c[INET_BPS].enabled)
		ts_push(inet_table(bank, INET_BPS), &bank->tick[INET_BPS], &c[INET_BPS], inet_view(INET_BPS),
			claimed, self, id, &o->window[INET_BPS], part, bytes);
	if (bytes && c[INET_BYTES].enabled)
		ts_push_static(inet_table(bank, INET_BYTES), &bank->tick[INET_BYTES], &c[INET_BYTES],
			       inet_view(INET_BYTES), claimed, self, id, &o->bytes, part, bytes);
	ts_bank_leave(bank, claimed);

	if (c[INET_PPS].delay) {
		quiet = ts_quiet_until(~0ULL, &bank->tick[INET_PPS], &c[INET_PPS], o->window[INET_PPS].ordered);
		quiet = ts_quiet_until(quiet, &bank->tick[INET_BPS], &c[INET_BPS], o->window[INET_BPS].ordered);
		o->quiet = ts_quiet_until(quiet, &bank->tick[INET_BYTES], &c[INET_BYTES], o->bytes.ordered);
		o->generation = generation;
	}
	return 1;
}

SEC("cgroup_skb/ingress")
int inet_ingress(struct __sk_buff *skb)
{
	return inet_packet(skb, INET_RX);
}

SEC("cgroup_skb/egress")
int inet_egress(struct __sk_buff *skb)
{
	return inet_packet(skb, INET_TX);
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
	inet_owner(&o->owner, (void *)bpf_get_current_task());
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
	else
		o->dead = 0; /* the socket is used for another connection */
	return 0;
}

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
	ts_bank_to(bank, constants.table_stride, settings.config[sample], settings.generation, bpf_jiffies64());
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
	if (!o->owner.sure)
		inet_owner(&o->owner, task);
	return 0;
}
