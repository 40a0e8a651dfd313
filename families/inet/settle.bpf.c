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

/* A walk over the files of all processes. In the reader's memory. */
struct inet_walk {
	u64 before; /* `on_list` at its beginning */
	u64 found; /* sockets on the list */
	u32 number;
	u32 alone; /* no other reader has taken amounts at its beginning */
};
HOST_ARRAY(walk, 1, struct inet_walk);

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

static __always_inline void inet_keep_moment(u64 all_found)
{
	moment.jiffies = host_jiffies();
	moment.ns = ts_precise();
	moment.all_found = all_found;
}

/* The end of a run. Writes a byte if amounts are outstanding that another reader has taken, or that a hook is writing. */
static __noinline int inet_settle_end(struct inet_settling *s, struct bpf_iter_meta *meta, u64 all_found)
{
	u8 waits = 1;

	if (!s || !meta)
		return 0;
	inet_keep_moment(all_found);
	if (s->run != meta->session_id)
		return 0; /* no object: nothing has begun */
	inet_now(s);
	inet_flush(s);
	inet_run(-1);
	if (s->waits || inet_others_run())
		bpf_seq_write(meta->seq, &waits, sizeof(waits));
	return host_nothing();
}

/* Before each object. Returns whether it is the first one. */
static __always_inline int inet_settle_begin(struct inet_settling *s, struct bpf_iter_meta *meta)
{
	int is_first = s->run != meta->session_id;

	s->has_lock = 0;
	if (is_first) {
		s->run = meta->session_id;
		s->waits = s->left = 0;
		inet_run(1);
	}
	if (meta->seq_num % INET_FLUSH == INET_FLUSH - 1)
		inet_flush(s);
	return is_first;
}

/* No socket is on the list. Returns whether amounts are outstanding. */
SEC("raw_tp")
int inet_settle_none(struct bpf_raw_tracepoint_args *ctx)
{
	inet_keep_moment(0);
	return inet_others_run();
}

SEC("iter/bpf_sk_storage_map")
int inet_settle(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct inet_settling *s = inet_settling();
	struct sock *sk = ctx->sk;
	struct inet_object *o;

	if (!s)
		return 0;
	if (!sk || !ctx->value) { /* the end of the iteration */
		inet_settle_end(s, ctx->meta, 0);
		return 0;
	}
	inet_settle_begin(s, ctx->meta);
	o = host_of(objects, sk, sk);
	if (o && inet_object_is_own(o) && !inet_is_dead(o))
		inet_settle_one(s, sk, bpf_skc_to_tcp_sock(sk), o);
	return 0;
}

/*
 * A socket that may not be on the list, or that this walk may have found before: several descriptors may be open for it. (Another
 * reader that walks at the same time may write another number. Then the socket is settled twice, and the walk proves nothing.)
 */
static __always_inline void inet_settle_found(struct inet_settling *s, struct inet_walk *w, struct sock *sk,
					      struct tcp_sock *tp)
{
	struct inet_object *o = sk ? host_of(objects, sk, sk) : NULL;

	if (!o || !inet_object_is_own(o) || inet_is_dead(o) || !(ts_read(o->listed) & INET_ON_LIST))
		return;
	if (ts_read(o->counted.seen) == w->number)
		return;
	ts_write(o->counted.seen, w->number);
	w->found++;
	inet_settle_one(s, sk, tp, o);
}

static __always_inline void inet_walk_begin(struct inet_walk *w)
{
	w->number = ts_fetch_add(&walks, 1) + 1;
	w->found = 0;
	w->before = ts_read(on_list);
	w->alone = (ts_read(running) & 0xffff) == 1;
}

/*
 * Whether the walk has found all sockets on the list: as many as are on it now (IL1), less those that the walk itself has taken
 * off, while no other has left it, and no other reader was walking.
 */
static __always_inline int inet_walk_is_whole(const struct inet_walk *w, const struct inet_settling *s)
{
	u64 now = ts_read(on_list);

	return w->alone && (u32)ts_read(walks) == w->number && (now - w->before) >> INET_LEFT_SHIFT == s->left &&
	       (u32)now == w->found - s->left;
}

/* As inet_settle(), by the files of all processes. */
SEC("iter/task_file")
int inet_settle_files(struct bpf_iter__task_file *ctx)
{
	struct inet_settling *s = inet_settling();
	struct inet_walk *w = host_item(walk, 0);
	struct sock *sk;

	if (!s || !w)
		return 0;
	if (!ctx->task || !ctx->file) {
		inet_settle_end(s, ctx->meta, s->run == ctx->meta->session_id && inet_walk_is_whole(w, s));
		return 0;
	}
	if (inet_settle_begin(s, ctx->meta))
		inet_walk_begin(w);
	sk = sock_of_file(ctx->file);
	inet_settle_found(s, w, sk, sk ? bpf_skc_to_tcp_sock(sk) : NULL);
	return 0;
}

/*
 * As inet_settle(), over the connections of this network namespace, also those that no process has open. After a walk that was not
 * whole. The iterator holds the lock of each.
 */
SEC("iter/tcp")
int inet_settle_hashed(struct bpf_iter__tcp *ctx)
{
	struct inet_settling *s = inet_settling();
	struct inet_walk *w = host_item(walk, 0);
	struct sock_common *found = ctx->sk_common;
	struct tcp_sock *tp;

	if (!s || !w)
		return 0;
	if (!found) {
		inet_settle_end(s, ctx->meta, 0);
		return 0;
	}
	inet_settle_begin(s, ctx->meta);
	s->has_lock = 1;
	tp = bpf_skc_to_tcp_sock(found);
	inet_settle_found(s, w, (struct sock *)tp, tp);
	return 0;
}

/* As inet_settle_hashed(), over the UDP sockets of this network namespace. (The kernel's own are on no list: IU3.) */
SEC("iter/udp")
int inet_settle_datagrams(struct bpf_iter__udp *ctx)
{
	struct inet_settling *s = inet_settling();
	struct inet_walk *w = host_item(walk, 0);
	struct sock *sk = (struct sock *)ctx->udp_sk;

	if (!s || !w)
		return 0;
	if (!sk) {
		inet_settle_end(s, ctx->meta, 0);
		return 0;
	}
	inet_settle_begin(s, ctx->meta);
	inet_settle_found(s, w, sk, NULL);
	return 0;
}
