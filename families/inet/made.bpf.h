/* SPDX-License-Identifier: GPL-2.0-only */
/* A process makes and closes a socket. */
#ifndef TOPSTAT_INET_MADE_H
#define TOPSTAT_INET_MADE_H

#include "list.bpf.h"
#include "object.bpf.h"
#include "record.h"

/* A process makes a socket, and owns it. */
SEC("cgroup/sock_create")
int inet_create(struct bpf_sock *sk)
{
	struct inet_object *o;

	if (sk->protocol != IPPROTO_TCP && sk->protocol != IPPROTO_UDP)
		return 1;
	o = host_make(objects, sk, sk);
	if (!o)
		return 1; /* the first packet tries again, and counts it */
	inet_owner(o, (void *)bpf_get_current_task());
	return 1;
}

/* The last descriptor of a socket is closed. This ends a UDP socket; the end of a TCP connection is in inet_state(). */
SEC("cgroup/sock_release")
int inet_release(struct bpf_sock *sk)
{
	struct inet_object *o;

	if (sk->protocol != IPPROTO_UDP)
		return 1;
	o = host_of(objects, sk, sk);
	if (!o)
		return 1;
	ts_write(o->life, o->life | 1);
	if (inet_object_is_own(o) && o->object.id)
		host_call(inet_finish((void *)sk, NULL, o));
	inet_object_end(o);
	inet_list_off(o);
	return 1;
}

#endif /* TOPSTAT_INET_MADE_H */
