// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where TCP's own counters are read (counters.bpf.c): pushes what connections have counted and was not pushed yet. It is
 * run before a snapshot is taken, so that rows are what TCP has counted at that moment.
 */
#define INET_READER /* see fallbacks.bpf.h */
#include "fallbacks.bpf.h"
#include "logic.h"
#include "look.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* It has been silent for a while, and is due when it speaks again, which in other states than this one no hook sees. */
static __always_inline int inet_is_silent(struct sock *sk, struct tcp_sock *tp)
{
	return sk->__sk_common.skc_state == TCP_ESTABLISHED &&
	       (s32)((u32)host_jiffies() - tcp_last_active(tp)) > (s32)(INET_SILENT * inet_look_jiffies());
}

/* Take it off the list, in two steps. A hook that looks meanwhile puts it there again, and then it has to be there. */
static __always_inline void inet_unlist(struct sock *sk, struct inet_object *o)
{
	u64 looked = ts_read(o->looked), now = (u32)host_jiffies();

	if (looked & INET_LISTED) {
		ts_cas(&o->looked, looked, now | INET_LEAVING);
		return;
	}
	if ((u32)now - (u32)looked < inet_look_jiffies() || !ts_cas(&o->looked, looked, now))
		return;
	bpf_sk_storage_delete(&active, sk);
	if (ts_read(o->looked) & INET_ON_LIST)
		host_make(active, sk, sk);
}

SEC("iter/bpf_sk_storage_map")
int inet_settle(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct inet_difference d;
	struct inet_object *o;
	struct sock *sk = ctx->sk;
	struct tcp_sock *tp;

	if (!sk || !ctx->value)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	o = host_of(objects, sk, sk);
	if (!o || !inet_object_is_own(o) || o->dead)
		return 0;
	inet_difference(&d, sk, tp, o, 0);
	if (!inet_is_none(&d)) {
		if (!o->object.id)
			inet_begin(sk, o);
		inet_push_difference(o, &d, 0);
		inet_looked(sk, tp, o);
	} else if (inet_is_silent(sk, tp)) {
		inet_unlist(sk, o);
	}
	return 0;
}
