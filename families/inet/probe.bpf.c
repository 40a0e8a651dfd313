// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each of these programs needs one feature that a kernel may lack, and is loaded to test for it. Programs at functions are also
 * attached for a moment, and change nothing. See udp.rs of topstat-kernel.
 */
#include "observe/sock.bpf.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} stored SEC(".maps");

/* The functions of observe/datagram.bpf.h. */
SEC("fentry/__udp_enqueue_schedule_skb")
int BPF_PROG(probe_received, struct sock *sk)
{
	bpf_sk_storage_get(&stored, sk, NULL, 0);
	return 0;
}

SEC("fentry/ip_send_skb")
int BPF_PROG(probe_sent, struct net *net, struct sk_buff *skb)
{
	if (skb->sk)
		bpf_sk_storage_get(&stored, skb->sk, NULL, 0);
	return 0;
}

SEC("fentry/ip6_send_skb")
int BPF_PROG(probe_sent6, struct sk_buff *skb)
{
	if (skb->sk)
		bpf_sk_storage_get(&stored, skb->sk, NULL, 0);
	return 0;
}
