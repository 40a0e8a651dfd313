/* SPDX-License-Identifier: GPL-2.0-only */
/* What sockets tell of themselves: whose they are, where they send, what was sent again. */
#ifndef TOPSTAT_INET_OBJECT_H
#define TOPSTAT_INET_OBJECT_H

#include "fallbacks.bpf.h"
#include "logic.h"
#include "observe/process.bpf.h"

struct sock___kernels {
	u8 sk_kern_sock : 1;
} CORE;

/* Whether it is a UDP socket of the kernel's own: hooks tell of others' end. */
static __always_inline int inet_is_kernels(void *sock, u32 sample)
{
	return (sample == INET_UDP_V4 || sample == INET_UDP_V6) &&
	       BPF_CORE_READ_BITFIELD_PROBED((struct sock___kernels *)sock, sk_kern_sock);
}

/* The task's process is the socket's user. Apart, for the stack of who calls it. */
static __noinline int inet_owner(struct inet_object *o, struct task_struct *task)
{
	struct process_who who;

	if (!o || !task)
		return 0;
	process_describe(&who, task, 0, constants.v1_controller);
	inet_set_owner(o, &who);
	return 0;
}

/* What a connection has counted so far; where packets are seen. */
static __always_inline u32 inet_resent_now(struct bpf_sock *sk)
{
	struct bpf_tcp_sock *tp = bpf_tcp_sock(sk);

	return tp ? tp->total_retrans : 0;
}

#ifdef TOPSTAT_PLAIN

/* By each packet that is sent: TCP counts segments before it sends them again, with the socket
 * locked, so they are seen with the packet itself. */
static __always_inline u32 inet_resent_by_packet(struct inet_object *o, struct bpf_sock *sk)
{
	if (!inet_is_tcp(o->sample))
		return 0;
	return inet_resent_since(o, inet_resent_now(sk));
}

/* Such as a SYN-ACK, before there was a socket: the next packet tells. */
static __always_inline void inet_resent_before(struct inet_object *o, struct bpf_sock *sk)
{
}

#else

/* Such as a SYN-ACK, before there was a socket. */
static __always_inline void inet_resent_before(struct inet_object *o, struct bpf_sock *sk)
{
	inet_push_resent(o, inet_resent_since(o, inet_resent_now(sk)));
}

/* The tracepoint tells. */
static __always_inline u32 inet_resent_by_packet(struct inet_object *o, struct bpf_sock *sk)
{
	return 0;
}

#endif

#endif /* TOPSTAT_INET_OBJECT_H */
