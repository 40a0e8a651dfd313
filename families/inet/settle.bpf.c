// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs before each snapshot: it goes through the active sockets, takes the growth of their counters, and orders them. So rows
 * are equal to these counters at that moment.
 */
#define INET_READER /* see inet.bpf.h */
#include "inet.bpf.h"
#include "list.bpf.h"
#include "observe/sock.bpf.h"
#include "settle.h"

char LICENSE[] SEC("license") = "GPL";

/* Shares are added to the totals after this many connections, for a run is cut off after a million. */
#define INET_FLUSH 4096

/* The time for which a run of readers is believed to go on (see list.bpf.h). */
#define INET_RUN_MS 1000

static __always_inline void inet_run(s64 more)
{
	u64 now = host_jiffies(), word, next;
	u32 i;

	for (i = 0; i < 2 * INET_TRIES; i++) {
		word = ts_read(running);
		next = word & 0xffff;
		if (now > word >> 16)
			next = 0;
		next = more < 0 ? next - !!next : next + 1;
		if (ts_cas(&running, word, next ? (now + host_jiffies_of_ms(INET_RUN_MS)) << 16 | next : 0))
			return;
	}
}

static __always_inline int inet_others_run(void)
{
	u64 word = ts_read(running);

	return word & 0xffff && host_jiffies() <= word >> 16;
}

/* The end of a run. Writes a byte if amounts are outstanding that another reader has taken, or that a hook is writing. */
static __always_inline void inet_settle_end(struct inet_settling *s, struct bpf_iter_meta *meta)
{
	u8 waits = 1;

	moment.jiffies = host_jiffies();
	moment.ns = ts_precise();
	if (s->run != meta->session_id)
		return; /* no object: nothing has begun */
	inet_now(s);
	inet_flush(s);
	inet_run(-1);
	if (s->waits || inet_others_run())
		bpf_seq_write(meta->seq, &waits, sizeof(waits));
}

/* Before each object. */
static __always_inline void inet_settle_begin(struct inet_settling *s, struct bpf_iter_meta *meta)
{
	s->has_lock = 0;
	if (s->run != meta->session_id) {
		s->run = meta->session_id;
		s->waits = 0;
		inet_run(1);
	}
	if (meta->seq_num % INET_FLUSH == INET_FLUSH - 1)
		inet_flush(s);
}

SEC("iter/bpf_sk_storage_map")
int inet_settle(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct inet_settling *s = inet_settling();
	struct sock *sk = ctx->sk;
	struct inet_object *o;
	struct tcp_sock *tp;

	if (!s)
		return 0;
	if (!sk || !ctx->value) { /* the end of the iteration */
		inet_settle_end(s, ctx->meta);
		return 0;
	}
	inet_settle_begin(s, ctx->meta);
	o = host_of(objects, sk, sk);
	tp = bpf_skc_to_tcp_sock(sk);
	if (o && inet_object_is_own(o) && !inet_is_dead(o))
		inet_settle_one(s, sk, tp, o);
	return 0;
}

/* A socket that may not be on the list. */
static __always_inline void inet_settle_found(struct inet_settling *s, struct sock *sk)
{
	struct inet_object *o = sk ? host_of(objects, sk, sk) : NULL;
	struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;

	if (o && inet_object_is_own(o) && !inet_is_dead(o) && ts_read(o->listed) & INET_ON_LIST)
		inet_settle_one(s, sk, tp, o);
}

/* As inet_settle(), by the files of all processes. */
SEC("iter/task_file")
int inet_settle_files(struct bpf_iter__task_file *ctx)
{
	struct inet_settling *s = inet_settling();

	if (!s)
		return 0;
	if (!ctx->task || !ctx->file) {
		inet_settle_end(s, ctx->meta);
		return 0;
	}
	inet_settle_begin(s, ctx->meta);
	inet_settle_found(s, sock_of_file(ctx->file));
	return 0;
}

/* As inet_settle(), over the connections of this network namespace, also those that no process has open. The iterator holds the
 * lock of each. */
SEC("iter/tcp")
int inet_settle_hashed(struct bpf_iter__tcp *ctx)
{
	struct inet_settling *s = inet_settling();
	struct sock_common *found = ctx->sk_common;

	if (!s)
		return 0;
	if (!found) {
		inet_settle_end(s, ctx->meta);
		return 0;
	}
	inet_settle_begin(s, ctx->meta);
	s->has_lock = 1;
	inet_settle_found(s, (struct sock *)bpf_skc_to_tcp_sock(found));
	return 0;
}

/* As inet_settle(), over the UDP sockets of this network namespace: also the kernel's own, which no process has open. */
SEC("iter/udp")
int inet_settle_datagrams(struct bpf_iter__udp *ctx)
{
	struct inet_settling *s = inet_settling();
	struct inet_object *o;
	struct sock *sk = (struct sock *)ctx->udp_sk;

	if (!s)
		return 0;
	if (!sk) {
		inet_settle_end(s, ctx->meta);
		return 0;
	}
	inet_settle_begin(s, ctx->meta);
	o = host_of(objects, sk, sk);
	if (o && inet_object_is_own(o) && !inet_is_dead(o) && ts_read(o->listed) & INET_ON_LIST)
		inet_settle_one(s, sk, NULL, o);
	return 0;
}
