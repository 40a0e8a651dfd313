// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cost of a hook itself, and of the minimal useful work in it: an empty program, and a program that counts packets and
 * bytes in the socket's storage. Two pairs of hooks see each packet of an established TCP connection over IPv4 exactly once in
 * each direction:
 *
 *   cgroup_skb ingress and egress at the root cgroup, where topstat counts packets;
 *   fentry of tcp_v4_do_rcv() and __ip_queue_xmit().
 *
 * A third pair sees calls, not packets: fentry of tcp_sendmsg() and tcp_cleanup_rbuf(), where tcptop has its kprobes.
 *
 * On kernels whose TCP counters topstat reads, topstat has two tracepoints on the path of a request and its response:
 * tcp_probe, once for each received segment, and tcp_rcv_space_adjust, once for each receiving call.
 *
 * A table of the user's own of calls of write(2) has the tracepoint of that call.
 */
#include "observe/kernel.h"

char LICENSE[] SEC("license") = "GPL";

struct msghdr;

struct sk_buff___len {
	unsigned int len;
} CORE;

struct count {
	u64 packets[2];
	u64 bytes[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct count);
} counts SEC(".maps");

static __always_inline void count(struct count *c, u32 part, u32 bytes)
{
	if (!c)
		return;
	__sync_fetch_and_add(&c->packets[part], 1);
	__sync_fetch_and_add(&c->bytes[part], bytes);
}

static __always_inline int of_packet(struct __sk_buff *skb, u32 part)
{
	struct bpf_sock *sk = skb->sk;
	struct count *c;

	if (!sk)
		return 1;
	c = bpf_sk_storage_get(&counts, sk, NULL, 0);
	if (!c) {
		sk = bpf_sk_fullsock(sk);
		if (!sk)
			return 1;
		c = bpf_sk_storage_get(&counts, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	}
	count(c, part, skb->len);
	return 1;
}

static __always_inline int of_socket(struct sock *sk, u32 part, u32 bytes)
{
	count(bpf_sk_storage_get(&counts, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE), part, bytes);
	return 0;
}

SEC("cgroup_skb/ingress")
int empty_cgroup_rx(struct __sk_buff *skb)
{
	return 1;
}

SEC("cgroup_skb/egress")
int empty_cgroup_tx(struct __sk_buff *skb)
{
	return 1;
}

SEC("cgroup_skb/ingress")
int count_cgroup_rx(struct __sk_buff *skb)
{
	return of_packet(skb, 0);
}

SEC("cgroup_skb/egress")
int count_cgroup_tx(struct __sk_buff *skb)
{
	return of_packet(skb, 1);
}

SEC("fentry/tcp_v4_do_rcv")
int BPF_PROG(empty_packet_rx, struct sock *sk, struct sk_buff *skb)
{
	return 0;
}

SEC("fentry/__ip_queue_xmit")
int BPF_PROG(empty_packet_tx, struct sock *sk, struct sk_buff *skb)
{
	return 0;
}

SEC("fentry/tcp_v4_do_rcv")
int BPF_PROG(count_packet_rx, struct sock *sk, struct sk_buff___len *skb)
{
	return of_socket(sk, 0, skb->len);
}

SEC("fentry/__ip_queue_xmit")
int BPF_PROG(count_packet_tx, struct sock *sk, struct sk_buff___len *skb)
{
	return of_socket(sk, 1, skb->len);
}

SEC("fentry/tcp_cleanup_rbuf")
int BPF_PROG(empty_call_rx, struct sock *sk, int copied)
{
	return 0;
}

SEC("fentry/tcp_sendmsg")
int BPF_PROG(empty_call_tx, struct sock *sk, struct msghdr *msg, u64 size)
{
	return 0;
}

SEC("fentry/tcp_cleanup_rbuf")
int BPF_PROG(count_call_rx, struct sock *sk, int copied)
{
	return copied > 0 ? of_socket(sk, 0, copied) : 0;
}

SEC("fentry/tcp_sendmsg")
int BPF_PROG(count_call_tx, struct sock *sk, struct msghdr *msg, u64 size)
{
	return of_socket(sk, 1, size);
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(empty_probe_rx, struct sock *sk)
{
	return 0;
}

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(empty_read_rx, struct sock *sk)
{
	return 0;
}

SEC("tp/syscalls/sys_enter_write")
int empty_write(void *ctx)
{
	return 0;
}
