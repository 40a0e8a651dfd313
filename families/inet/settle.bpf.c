// SPDX-License-Identifier: GPL-2.0-only
/* Pushes what connections have counted and was not pushed yet. It is run before a snapshot is taken, so that rows are what TCP has
 * counted at that moment. */
#define INET_READER /* see inet.bpf.h */
#include "inet.bpf.h"
#include "logic.h"
#include "look.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* Until the hook that is at work on the connection, if there is one, has pushed what it has taken. */
static __noinline int inet_await_hook(struct inet_object *o)
{
	u8 looking;
	u32 i;

	if (!o)
		return 0;
	ts_rmb(); /* what was taken before `looking` */
	looking = ts_read(o->looking);
	if (!(looking & 1))
		return 1;
	for (i = 0; i < INET_AWAIT; i++) {
		if (ts_read(o->looking) != looking)
			return 1;
	}
	return 0;
}

/* Take it off the list, in two steps. A hook that looks meanwhile puts it there again, and then it has to be there. One that
 * is at work since before the first step may have seen it listed. */
static __always_inline void inet_unlist(struct sock *sk, struct inet_object *o)
{
	u64 looked = ts_read(o->looked);
	u32 now = host_jiffies();

	if (looked & INET_LISTED) {
		ts_cas(&o->looked, looked, inet_look_word(looked, INET_LEAVING, inet_left(looked)));
		return;
	}
	if (now - (u32)looked < inet_look_jiffies() || inet_left(looked) || ts_read(o->looking) & 1 ||
	    !ts_cas(&o->looked, looked, inet_look_word(looked, 0, 0)))
		return;
	bpf_sk_storage_delete(&active, sk);
	if (ts_read(o->looked) & INET_ON_LIST)
		host_make(active, sk, sk);
}

/*
 * It was looked at, `looked` was what was known of it before, and these tables are left. What somebody who has looked
 * meanwhile has left stays so, and these with it.
 */
static __always_inline void inet_settled(struct sock *sk, struct tcp_sock *tp, struct inet_object *o, u64 looked,
					 u32 left)
{
	u32 i;

	if (!(looked & INET_ON_LIST)) {
		inet_list(sk, tp, o, left);
		return;
	}
	if (ts_cas(&o->looked, looked, inet_look_word(looked, INET_LISTED, left)))
		return;
	for (i = 0; left && i < INET_LOOK_TRIES; i++) {
		looked = ts_read(o->looked);
		if (ts_cas(&o->looked, looked, inet_look_word(looked, looked & INET_ON_LIST, inet_left(looked) | left)))
			return;
	}
}

/* Apart, for the stack: who pushes needs nearly all of it. */
static __noinline int inet_difference_since(struct inet_difference *d, struct sock *sk, struct tcp_sock *tp,
					    struct inet_object *o)
{
	if (!d || !sk || !tp || !o)
		return 0;
	inet_difference(d, sk, tp, o, 0);
	return !inet_is_none(d);
}

/* Writes a byte for each connection of which another has taken what it has not pushed yet, and does not go on. */
SEC("iter/bpf_sk_storage_map")
int inet_settle(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct inet_difference d;
	struct inet_object *o;
	struct sock *sk = ctx->sk;
	struct tcp_sock *tp;
	u32 left, pushed, settled;
	u8 waits = 1;
	u64 looked;

	if (!sk || !ctx->value)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	o = host_of(objects, sk, sk);
	if (!o || !inet_object_is_own(o) || inet_is_dead(o))
		return 0;
	ts_add(&o->readers, 1);
	pushed = inet_difference_since(&d, sk, tp, o);
	settled = inet_await_hook(o);
	looked = ts_read(o->looked);
	left = inet_left(looked);
	if (pushed) {
		if (!o->object.id)
			inet_begin(sk, o);
		left |= inet_push_difference(o, &d, 0, INET_LEFT_ALL);
	}
	if (left && inet_order(o, left))
		left = 0;
	if (pushed || left != inet_left(looked))
		inet_settled(sk, tp, o, looked, left);
	else if (!left && inet_is_silent(sk, tp))
		inet_unlist(sk, o);
	ts_add(&o->readers, -1U);
	if (ts_unlikely(!inet_await_readers(o) || !settled))
		bpf_seq_write(ctx->meta->seq, &waits, sizeof(waits));
	return 0;
}
