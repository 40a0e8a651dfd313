// SPDX-License-Identifier: GPL-2.0-only
/* Runs before each snapshot, so that rows are equal to TCP's counters at that moment. */
#include "flow.bpf.h"
#include "observe/sock.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* The most CPUs that a kernel is built for (CONFIG_NR_CPUS of x86). */
#define NET_CPUS 8192

/* Not 0: there is no such CPU, and the loop ends. */
static int net_settle_batches(u32 cpu, void *context)
{
	return !net_flush_of(cpu);
}

/* Settle a UDP socket. Writes a byte for the reader if some amounts could not be pushed. */
static __always_inline void net_settle_datagrams(struct seq_file *seq, struct sock *sk)
{
	struct net_udp *u = host_of(datagrams, sk, sk);
	u32 left = u ? net_udp_settle(u) : NET_PUSHED;
	u8 waits = 1;

	if (left == NET_SILENT_NOW) {
		bpf_sk_storage_delete(&active, sk);
		net_udp_let_go(u);
	} else if (left == NET_LEFT) {
		bpf_seq_write(seq, &waits, sizeof(waits));
	}
}

static __always_inline void net_settle_one(struct seq_file *seq, struct sock *sk, u32 how)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct net_flow *f;

	if (!tp) {
		net_settle_datagrams(seq, sk);
		return;
	}
	f = net_flow_for_reader(sk, tp, how);
	if (f)
		net_look(sk, tp, f, how);
}

/*
 * Before a snapshot: push the growth of connections and the amounts of UDP sockets. Called once more at the end, without a
 * socket, to flush the batches.
 */
SEC("iter/bpf_sk_storage_map")
int net_settle(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;

	if (!sk || !ctx->value)
		bpf_loop(NET_CPUS, net_settle_batches, NULL, 0);
	else
		net_settle_one(ctx->meta->seq, sk, NET_BY_READER);
	return 0;
}

/* As net_settle(), by the files of all processes. */
SEC("iter/task_file")
int net_settle_files(struct bpf_iter__task_file *ctx)
{
	struct sock *sk;

	if (!ctx->task || !ctx->file) {
		bpf_loop(NET_CPUS, net_settle_batches, NULL, 0);
		return 0;
	}
	sk = sock_of_file(ctx->file);
	if (sk && host_of(active, sk, sk))
		net_settle_one(ctx->meta->seq, sk, NET_BY_READER);
	return 0;
}

/* As net_settle(), over the connections of this network namespace, also those that no process has open. The
 * iterator holds the lock of each. */
SEC("iter/tcp")
int net_settle_hashed(struct bpf_iter__tcp *ctx)
{
	struct sock_common *found = ctx->sk_common;
	struct sock *sk;

	if (!found) {
		bpf_loop(NET_CPUS, net_settle_batches, NULL, 0);
		return 0;
	}
	sk = (struct sock *)bpf_skc_to_tcp_sock(found);
	if (sk && host_of(active, sk, sk))
		net_settle_one(ctx->meta->seq, sk, NET_BY_HOLDER);
	return 0;
}
