/* SPDX-License-Identifier: GPL-2.0-only */
/* UDP sockets of the kernel itself, and the owners of sockets. */
#ifndef TOPSTAT_INET_OBJECT_H
#define TOPSTAT_INET_OBJECT_H

#include "inet.bpf.h"
#include "logic.h"
#include "observe/process.bpf.h"

struct sock___kernels {
	u8 sk_kern_sock : 1;
} CORE;

/* Whether it is a UDP socket of the kernel itself. Hooks see the end of all other sockets. */
static __always_inline int inet_is_kernels(void *sock, u32 sample)
{
	return (sample == INET_UDP_V4 || sample == INET_UDP_V6) &&
	       BPF_CORE_READ_BITFIELD_PROBED((struct sock___kernels *)sock, sk_kern_sock);
}

/* Set the socket's user to the task's process. Out of line, for the caller's stack. */
TS_NOINLINE int inet_owner(struct inet_object *o, struct task_struct *task)
{
	struct process_who who;

	if (!o || !task)
		return 0;
	process_describe(&who, task, 0, constants.v1_controller);
	inet_set_owner(o, &who);
	return 0;
}

#endif /* TOPSTAT_INET_OBJECT_H */
