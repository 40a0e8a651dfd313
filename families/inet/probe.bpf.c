// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each of these programs needs one thing that a kernel may lack, and is loaded to find out whether it does; those of
 * functions are attached for a moment, too, and change nothing. See fallbacks.rs, and udp.rs of topstat-kernel.
 */
#include "observe/sock.bpf.h"

char LICENSE[] SEC("license") = "GPL";

u64 word SEC(".data.probe");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} stored SEC(".maps");

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(probe_traced, struct sock *sk)
{
	bpf_sk_storage_get(&stored, sk, NULL, 0);
	return 0;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(probe_counters, struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	if (tp)
		word = tp->segs_in + bpf_get_socket_cookie(sk);
	bpf_sk_storage_get(&stored, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	return 0;
}

SEC("iter/task_file")
int probe_files(struct bpf_iter__task_file *ctx)
{
	struct sock *sk = sock_of_file(ctx->file);

	if (sk)
		bpf_sk_storage_get(&stored, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	return 0;
}

/* Those of observe/datagram.bpf.h. */
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
