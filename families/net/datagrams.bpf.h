/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * UDP: hooks of the making, adoption and closing of sockets, and of their datagrams (udp.h). Datagrams are counted in UDP's own
 * functions (observe/datagram.bpf.h) or by packets. families/udp.rs chooses.
 */
#ifndef TOPSTAT_NET_DATAGRAMS_H
#define TOPSTAT_NET_DATAGRAMS_H

#include "observe/datagram.bpf.h"
#include "observe/gate.bpf.h"
#include "observe/packet.bpf.h"

struct sock___bound {
	u8 sk_kern_sock : 1;
	u8 sk_userlocks : 4;
} CORE;

/* Bits of sk_userlocks, SOCK_BINDADDR_LOCK and SOCK_BINDPORT_LOCK: the user has bound the socket. */
#define NET_BOUND (4 | 8)

/*
 * The first datagram decides whether a socket serves: it serves if the datagram is received and the socket is not connected. For
 * a socket that is older than topstat, the first datagram is not known: it serves if it was bound.
 */
static __always_inline u32 net_udp_side_of(struct net_udp *u, struct sock *sk, u32 part)
{
	if (part == NET_TX || BPF_CORE_READ(sk, __sk_common.skc_dport))
		return NET_CLIENT;
	if (u->made || BPF_CORE_READ_BITFIELD_PROBED((struct sock___bound *)sk, sk_userlocks) & NET_BOUND)
		return NET_SERVER;
	return NET_CLIENT;
}

/* The first datagram of the socket at this address. */
static __noinline int net_udp_first(struct net_udp *u, u64 sock, u32 part)
{
	struct sock *sk = (void *)sock;
	u32 netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	u16 local = BPF_CORE_READ(sk, __sk_common.skc_num);

	if (!u)
		return 0;
	net_udp_begin(u, net_udp_side_of(u, sk, part), local, netns,
		      BPF_CORE_READ_BITFIELD_PROBED((struct sock___bound *)sk, sk_kern_sock));
	return 0;
}

/* Whether the sending process is another one than the socket's known user. Under the claim. */
static __noinline int net_udp_is_anothers(struct net_udp *u)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!u || task->flags & PF_KTHREAD)
		return 0;
	if (process_id(task->group_leader) != u->flow.process)
		return 1;
	u->flow.sure = 1;
	return 0;
}

/* The socket's storage, with a side; NULL: there is no memory. */
static __always_inline struct net_udp *net_udp_of(void *sk, u32 part)
{
	struct net_udp *u = host_of(datagrams, sk, sk);

	if (ts_unlikely(!u))
		u = host_make(datagrams, sk, sk);
	if (u && ts_unlikely(!ts_read(u->side)))
		net_udp_first(u, host_address(sk), part);
	return u;
}

/* Claim a level to push a datagram by itself; NULL: all are taken, or there is no storage of the socket. */
static __always_inline struct net_batches *net_level_for(struct net_udp *u)
{
	struct net_cpu *cpu = u ? host_on(batches, host_cpu()) : NULL;

	return cpu ? net_claim(cpu) : NULL;
}

/* Set the remote host from an IPv4 or IPv6 address. */
static __always_inline void net_host(struct net_datagram *d, const u32 *address, u32 is_v4)
{
	union {
		u32 word[4];
		u64 half[2];
	} host;

	host.word[0] = is_v4 ? 0 : address[0];
	host.word[1] = is_v4 ? 0 : address[1];
	host.word[2] = is_v4 ? bpf_htonl(0xffff) : address[2];
	host.word[3] = is_v4 ? address[0] : address[3];
	d->host[0] = host.half[0];
	d->host[1] = host.half[1];
}

/* Offsets of the addresses in an IP header: the sender's comes first. In a UDP header the sender's port comes first. */
#define NET_V4_ADDRESSES 12
#define NET_V6_ADDRESSES 8

/* Read a datagram at the hook of a function of UDP. */
static __noinline int net_read_datagram(struct sk_buff *skb, struct net_datagram *d, u32 part)
{
	u64 network = (u64)skb->head + skb->network_header, transport = (u64)skb->head + skb->transport_header;
	u32 address[4] = {}, is_sent = part == NET_TX, is_v4;
	u16 port = 0;
	u8 first = 0;

	if (!d)
		return 0;
	ts_peek(&first, sizeof(first), network);
	is_v4 = first >> 4 == 4;
	if (is_v4)
		ts_peek(address, 4, network + NET_V4_ADDRESSES + (is_sent ? 4 : 0));
	else
		ts_peek(address, 16, network + NET_V6_ADDRESSES + (is_sent ? 16 : 0));
	ts_peek(&port, sizeof(port), transport + (is_sent ? sizeof(port) : 0));
	d->part = part;
	d->port = bpf_ntohs(port);
	d->packets = host_number(datagram_segments(skb));
	d->bytes = is_sent ? datagram_sent_bytes(skb) : skb->len;
	net_host(d, address, is_v4);
	return 0;
}

static __noinline int net_refuse_function(struct sk_buff *skb, u32 part)
{
	struct net_datagram d = {};

	net_read_datagram(skb, &d, part);
	return net_refuse_datagram(&d);
}

/*
 * All functions of a call chain share 512 bytes of stack, and a push needs nearly all of them. So a program keeps nothing on the
 * stack, and a separate function reads the datagram into the storage.
 */
static __always_inline int net_by_function(struct sock *sk, struct sk_buff *skb, u32 part)
{
	struct net_udp *u = net_udp_of(sk, part);
	struct net_batches *all;

	if (u && ts_likely(net_udp_hold(u))) {
		net_read_datagram(skb, &u->now, part);
		if (part == NET_TX && ts_unlikely(!u->flow.sure) && net_udp_is_anothers(u) && net_udp_leave_user(u))
			net_own(&u->flow);
		if (ts_unlikely(!u->listed) && host_make(active, sk, sk))
			u->listed = 1;
		net_udp_count(u);
		return 0;
	}
	all = net_level_for(u);
	if (!all) {
		net_refuse_function(skb, part);
		return 0;
	}
	net_read_datagram(skb, &all->datagram, part);
	net_udp_alone(u, all);
	return 0;
}

TS_GATE("fentry/__udp_enqueue_schedule_skb", net_received)

SEC("fentry/__udp_enqueue_schedule_skb")
int BPF_PROG(net_received, struct sock *sk, struct sk_buff *skb)
{
	return datagram_is_of(sk) ? net_by_function(sk, skb, NET_RX) : 0;
}

TS_GATE("fentry/ip_send_skb", net_sent)

SEC("fentry/ip_send_skb")
int BPF_PROG(net_sent, struct net *net, struct sk_buff *skb)
{
	return datagram_is_of(skb->sk) ? net_by_function(skb->sk, skb, NET_TX) : 0;
}

TS_GATE("fentry/ip6_send_skb", net_sent6)

SEC("fentry/ip6_send_skb")
int BPF_PROG(net_sent6, struct sk_buff *skb)
{
	return datagram_is_of(skb->sk) ? net_by_function(skb->sk, skb, NET_TX) : 0;
}

/* IPsec has wrapped the packet. 1: the packet counts, to the address that the socket is connected to. 0: it does not count. */
static __noinline int net_wrapped(struct __sk_buff *skb, struct bpf_sock *sk, struct net_datagram *d)
{
	u32 wrapped = packet_wrapped(skb, host_address(sk)), address[4], v4, is_v4 = sk->family != AF_INET6;

	if (!d || wrapped == PACKET_AGAIN)
		return 0;
	/* A packet's payload is shorter than the packet. */
	net_opaque(wrapped == PACKET_ITSELF ? 0 : d->packets, skb->len);
	if (wrapped != PACKET_ITSELF)
		return 0;
	address[0] = sk->dst_ip6[0];
	address[1] = sk->dst_ip6[1];
	address[2] = sk->dst_ip6[2];
	address[3] = sk->dst_ip6[3];
	v4 = sk->dst_ip4;
	barrier_var(v4); /* else the compiler adds an offset to sk to read either field, which the verifier refuses */
	if (is_v4)
		address[0] = v4;
	d->port = bpf_ntohs(sk->dst_port);
	net_host(d, address, is_v4);
	return 1;
}

/* Read a datagram at the hook of a packet. 0: the packet does not count. */
static __noinline int net_read_packet(struct __sk_buff *skb, struct bpf_sock *sk, struct net_datagram *d, u32 part)
{
	u32 address[4] = {}, is_sent = part == NET_TX, header, is_v4;
	u16 port = 0;
	u8 first = 0;

	if (!d)
		return 0;
	d->part = part;
	d->bytes = 0;
	d->packets = host_number(packet_segments(skb));
	bpf_skb_load_bytes(skb, 0, &first, sizeof(first));
	is_v4 = first >> 4 == 4;
	header = packet_headers(skb, IPPROTO_UDP, !is_v4, is_sent);
	if (ts_unlikely(header == PACKET_OPAQUE))
		return net_wrapped(skb, sk, d);
	d->bytes = skb->len > header ? host_number(skb->len - header) : 0;
	if (is_v4)
		bpf_skb_load_bytes(skb, NET_V4_ADDRESSES + (is_sent ? 4 : 0), address, 4);
	else
		bpf_skb_load_bytes(skb, NET_V6_ADDRESSES + (is_sent ? 16 : 0), address, 16);
	bpf_skb_load_bytes(skb, header - PACKET_UDP_HEADER + (is_sent ? sizeof(port) : 0), &port, sizeof(port));
	d->port = bpf_ntohs(port);
	net_host(d, address, is_v4);
	return 1;
}

static __noinline int net_refuse_packet(struct __sk_buff *skb, struct bpf_sock *sk, u32 part)
{
	struct net_datagram d = {};

	return net_read_packet(skb, sk, &d, part) ? net_refuse_datagram(&d) : 0;
}

/*
 * Packets of TCP are recognised without access to the socket. The current task may be one that the packet has interrupted, or one
 * that let the packet through, and not the sender. Always 1: the packet passes. For the stack see net_by_function().
 */
static __always_inline int net_packet(struct __sk_buff *skb, u32 part)
{
	u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct net_batches *all;
	struct bpf_sock *sk;
	struct net_udp *u;

	if (data + 20 <= end && data[data[0] >> 4 == 4 ? 9 : 6] == IPPROTO_TCP)
		return 1;
	sk = skb->sk;
	sk = sk ? bpf_sk_fullsock(sk) : NULL;
	if (!sk || sk->protocol != IPPROTO_UDP || sk->type == SOCK_RAW)
		return 1;
	u = net_udp_of(sk, part);
	if (u && ts_likely(net_udp_hold(u))) {
		if (!net_read_packet(skb, sk, &u->now, part)) {
			net_udp_let_go(u);
			return 1;
		}
		if (ts_unlikely(!u->listed) && host_make(active, sk, sk))
			u->listed = 1;
		net_udp_count(u);
		return 1;
	}
	all = net_level_for(u);
	if (!all) {
		net_refuse_packet(skb, sk, part);
		return 1;
	}
	if (net_read_packet(skb, sk, &all->datagram, part))
		net_udp_alone(u, all);
	else
		ts_release(&all->claim);
	return 1;
}

SEC("cgroup_skb/ingress")
int net_ingress(struct __sk_buff *skb)
{
	return net_packet(skb, NET_RX);
}

SEC("cgroup_skb/egress")
int net_egress(struct __sk_buff *skb)
{
	return net_packet(skb, NET_TX);
}

/* A process makes a socket and owns it, until another process sends by it. */
SEC("cgroup/sock_create")
int net_create(struct bpf_sock *sk)
{
	struct net_udp *u;

	if (sk->protocol != IPPROTO_UDP || sk->type == SOCK_RAW)
		return 1;
	u = host_make(datagrams, sk, sk);
	if (!u)
		return 1; /* the first datagram tries again, and counts the failure */
	net_owner(&u->flow, (void *)bpf_get_current_task());
	u->made = 1;
	return 1;
}

/* The last descriptor of a socket is closed. */
SEC("cgroup/sock_release")
int net_release(struct bpf_sock *sk)
{
	struct net_udp *u;

	if (sk->protocol != IPPROTO_UDP || sk->type == SOCK_RAW)
		return 1;
	u = host_of(datagrams, sk, sk);
	if (u)
		net_udp_end(u);
	return 1;
}

static __always_inline int net_udp_is_socket(struct sock *sk)
{
	u16 family = sk->__sk_common.skc_family;

	return (family == AF_INET || family == AF_INET6) && datagram_is_of(sk);
}

/* A socket that already exists. A socket of several processes belongs to the first of them. */
static __always_inline int net_udp_adopt(struct sock *sk, struct task_struct *task)
{
	struct net_udp *u = constants.build == NET_TCP_AND_UDP ? host_make(datagrams, sk, sk) : NULL;

	if (!u || u->flow.process)
		return 0;
	net_owner(&u->flow, task);
	u->flow.sure = 1;
	return 0;
}

#endif /* TOPSTAT_NET_DATAGRAMS_H */
