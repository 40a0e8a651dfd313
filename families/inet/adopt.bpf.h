/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finds the sockets that are there already. Whoever includes it has
 *
 *	void inet_adopted(struct inet_object *o, struct sock *sk, struct task_struct *task)
 *		the socket, which was nobody's, is the task's
 */
#ifndef TOPSTAT_INET_ADOPT_H
#define TOPSTAT_INET_ADOPT_H

#include "observe/sock.bpf.h"

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
		inet_adopted(o, sk, task);
	return 0;
}

#endif /* TOPSTAT_INET_ADOPT_H */
