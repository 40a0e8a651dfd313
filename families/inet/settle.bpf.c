// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs before each snapshot: it goes through the active connections, takes the growth of their counters, and orders them. So rows
 * are equal to TCP's counters at that moment.
 */
#define INET_READER /* see inet.bpf.h */
#include "inet.bpf.h"
#include "list.bpf.h"
#include "observe/sock.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* By CPU. User space resizes it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct inet_shares);
} shares SEC(".maps");

struct inet_settling {
	struct ts_window window;
	struct records_counts now, more; /* of the connection that is being settled */
	u64 value[RECORDS_TABLES];
	u64 untaken[TS_PARTS], given[TS_PARTS]; /* the difference in one table, and what of it has been added to slides */
	u32 last; /* its last activity, in jiffies */
	u32 cpu; /* the CPU that has made its newest record */
	u32 known; /* tables, by bit, whose value is known */
	u32 claimed;
	u32 has_lock; /* the connection's */
	u32 generation; /* of the settings, and in jiffies the time: of `tick` */
	u64 jiffies; /* ~0: the clock of a table is finer */
	u64 waits; /* amounts are outstanding: run the program again */
	u64 run; /* the iterator's session; its seq_num at the end is 0 after no object and after one */
	struct ts_tick tick[INET_TCP_SAMPLES][RECORDS_TABLES]; /* current */
	u64 at[INET_TCP_SAMPLES][RECORDS_TABLES]; /* the slides, with their epochs, that the ages of shares count from */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct inet_settling);
} settling SEC(".maps");

/* The moment of the latest run, in both clocks: earlier amounts were taken under the settings of that moment. */
struct inet_moment moment SEC(".data.moment");

/* A bound on the number of CPUs' shares: more than a host has CPUs. */
#define INET_CPUS 8192
/* Shares are added to the totals after this many connections, for a run is cut off after a million. */
#define INET_FLUSH 4096

static __always_inline struct inet_settling *inet_settling(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&settling, &zero);
}

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

/* Add a CPU's shares of one table to the total. */
TS_GLOBAL_FN int inet_flush_table(u32 cpu, u32 sample, u32 table)
{
	struct inet_shares *h = bpf_map_lookup_elem(&shares, &cpu);
	struct ts_bank *bank = host_bank(cpu, sample);
	struct inet_settling *s = inet_settling();
	struct ts_tick *tick;
	u64 behind, *share;
	struct ts_table *t;
	u32 age;

	if (!h || !s || !bank || sample >= INET_TCP_SAMPLES || table >= RECORDS_TABLES)
		return 0;
	t = obs_table(bank, ts_bound(table, TS_BANK_TABLES - 1));
	tick = &s->tick[sample][table];
	if (ts_read(t->total.slide) != tick->slide)
		ts_window_begin(&t->total, tick);
	behind = tick->slide - s->at[sample][table];
	for (age = 0; age <= TS_SLIDES + 1; age++) {
		share = h->share[sample][table][age];
		if (!(share[0] | share[1]))
			continue;
		if (ts_same_epoch(tick->slide, s->at[sample][table]))
			ts_window_add_ago(&t->total, tick, behind + age, share[0], share[1]);
		share[0] = share[1] = 0;
	}
	return 0;
}

static int inet_flush_cpu(u32 cpu, void *context)
{
	struct inet_shares *h = bpf_map_lookup_elem(&shares, &cpu);
	u32 table;

	if (!h)
		return 1;
	if (!h->used)
		return 0;
	h->used = 0;
	for (table = 0; table < RECORDS_TABLES; table++) {
		inet_flush_table(cpu, INET_TCP_V4, table);
		inet_flush_table(cpu, INET_TCP_V6, table);
	}
	return 0;
}

static __always_inline void inet_flush(struct inet_settling *s)
{
	u32 table;

	bpf_loop(INET_CPUS, inet_flush_cpu, NULL, 0);
	for (table = 0; table < RECORDS_TABLES; table++) {
		s->at[INET_TCP_V4][table] = s->tick[INET_TCP_V4][table].slide;
		s->at[INET_TCP_V6][table] = s->tick[INET_TCP_V6][table].slide;
	}
}

/* Compute the current ticks. Shares whose ages count from an earlier slide are added to the totals first. */
static __noinline int inet_now(struct inet_settling *s)
{
	u64 jiffies = host_jiffies();
	u32 sample, table, moved = 0, precise = 0;

	if (!s)
		return 0;
	s->generation = ts_read(settings.all.generation);
	ts_rmb(); /* pairs with the writer of settings, which writes the generation last */
	for (sample = 0; sample < INET_TCP_SAMPLES; sample++) {
		for (table = 0; table < RECORDS_TABLES; table++) {
			ts_tick_now(&s->tick[sample][table], &settings.config[sample][table], jiffies, 0);
			moved |= s->tick[sample][table].slide != s->at[sample][table];
			precise |= settings.config[sample][table].precise;
		}
	}
	s->jiffies = precise ? ~0ULL : jiffies;
	if (moved)
		inet_flush(s);
	return 0;
}

/* As inet_now(), unless the ticks are of this jiffy and of these settings. */
static __always_inline void inet_keep_time(struct inet_settling *s)
{
	if (ts_unlikely(s->jiffies != host_jiffies() || s->generation != ts_read(settings.all.generation)))
		inet_now(s);
}

/* The shares of an age in a table. */
static __always_inline u64 *inet_share_at(struct inet_shares *h, u32 sample, u32 table, u32 age)
{
	u32 at = host_item_at(table, RECORDS_TABLES, sizeof(h->share[0][0])) + host_item_at(age, TS_SLIDES + 2, sizeof(h->share[0][0][0]));

	return (void *)((char *)h->share[ts_bound(sample, INET_TCP_V6)] + at);
}

/*
 * Add the share of the slide of this age in the difference to the amounts `ago` slides before the present one. (A function, for inlined
 * in a loop it would be half of all that the verifier has to process.)
 */
TS_GLOBAL_FN int inet_share(struct inet_settling *s, struct inet_shares *h, u32 of, u32 age, u32 ago)
{
	u64 rx, tx, *share;

	if (!s || !h)
		return 0;
	rx = records_share(&s->window, age, 0, s->untaken[0], &s->given[0]);
	tx = records_share(&s->window, age, 1, s->untaken[1], &s->given[1]);
	if (ago > TS_SLIDES)
		return 0;
	share = inet_share_at(h, of / TS_BANK_TABLES, of % TS_BANK_TABLES, ago);
	share[0] += rx;
	share[1] += tx;
	return 0;
}

/* The value in one table, and the shares of its slides in the difference. */
TS_GLOBAL_FN int inet_value(struct record_ring *g, u32 sample, u32 table)
{
	struct inet_settling *s = inet_settling();
	u64 *share, behind;
	struct inet_shares *h;
	struct ts_value value;
	struct ts_config *c;
	struct ts_tick *tick;
	u32 cpu, age, marks, i;

	if (!g || !s || sample >= INET_TCP_SAMPLES || table >= RECORDS_TABLES)
		return 0;
	/* Once more, for the verifier: clang may use the numbers before it has compared them. */
	sample = ts_bound(sample, INET_TCP_V6);
	table = ts_bound(table, TS_BANK_TABLES - 1);
	c = &settings.config[sample][table];
	tick = &s->tick[sample][table];
	s->untaken[0] = inet_more_of(&s->more, table, 0);
	s->untaken[1] = inet_more_of(&s->more, table, 1);
	/* Most connections send nothing again: their window in that table need not be made. */
	if (!(s->untaken[0] | s->untaken[1]) && records_are_still(g, &s->now, table, inet_tag(c, sample))) {
		s->value[table] = 0;
		s->known |= 1U << table;
		return 0;
	}
	for (i = 0; i < INET_TRIES; i++) {
		if (records_window(&s->window, g, &s->now, table, c, inet_tag(c, sample), since.at[sample][table],
				   inet_active(c, s->last)) == TS_COPY_OK)
			break;
	}
	if (i == INET_TRIES || ts_window_eval(&s->window, tick, &value)) {
		s->waits = 1;
		return 0;
	}
	s->value[table] = value.value;
	s->known |= 1U << table;
	if (!(s->untaken[0] | s->untaken[1]) || !c->enabled || !ts_same_epoch(s->window.slide, tick->slide))
		return 0;
	cpu = s->cpu;
	h = bpf_map_lookup_elem(&shares, &cpu);
	if (!h)
		return 0;
	h->used = 1;
	behind = tick->slide > s->window.slide ? tick->slide - s->window.slide : 0;
	s->given[0] = s->given[1] = 0;
	marks = ts_done_marks(s->window.done);
	for (age = 0; age <= TS_SLIDES; age++)
		if (marks >> age & 1)
			inet_share(s, h, sample * TS_BANK_TABLES + table, age, behind > TS_SLIDES ? TS_SLIDES + 1 : behind + age);
	/* Older amounts count to the sums alone. */
	share = inet_share_at(h, sample, table, TS_SLIDES + 1);
	share[0] += s->untaken[0] - s->given[0];
	share[1] += s->untaken[1] - s->given[1];
	return 0;
}

/* Add the difference to the running totals, and order the object in each table. */
TS_GLOBAL_FN int inet_order_all(struct inet_object *o)
{
	struct inet_settling *s = inet_settling();
	u32 sample, table;
	struct obs x;

	if (!o || !s)
		return 0;
	sample = o->sample;
	if (sample >= INET_TCP_SAMPLES || !obs_begin(&x, sample, &o->object))
		return 0;
	s->claimed = x.claimed;
	inet_count_bytes(&x, o, &s->more);
	for (table = 0; table < RECORDS_TABLES; table++) {
		struct ts_table *t = obs_table(x.bank, table);
		struct ts_tick *tick = &x.bank->tick[table];

		if (!x.config[table].enabled || !(s->known >> table & 1) || !s->value[table])
			continue;
		if (ts_likely(s->claimed)) /* as x.claimed, which would be on the stack: Linux 6.1 allows 512 bytes for all calls */
			ts_order(t, tick, o->object.self, x.id, s->value[table], obs_view(sample, table), NULL);
		else
			ts_contended(t, tick, s->value[table], obs_view(sample, table));
	}
	x.claimed = s->claimed;
	if (x.config[INET_BYTES].enabled && (o->tcp.bytes.sum[0] | o->tcp.bytes.sum[1]))
		obs_order(&x, INET_BYTES);
	obs_end(&x);
	return 0;
}

/*
 * Whether the connection has received a segment since it was found silent, or is in a state in which no hook sees its segments.
 */
static __always_inline int inet_has_received(struct sock *sk, struct tcp_sock *tp, u32 silent)
{
	return sk->__sk_common.skc_state != TCP_ESTABLISHED || !tcp_has_not_received(tp, silent + 1, host_jiffies());
}

/* Take the connection off the list. */
static __always_inline void inet_unlist(struct sock *sk, struct inet_object *o)
{
	if (!inet_leaves(o, INET_LISTED, INET_LEAVING))
		return;
	bpf_sk_storage_delete(&active, sk);
	if (ts_read(o->listed) & INET_ON_LIST)
		host_make(active, sk, sk);
}

/* The ring of a table, if the connection has it. */
static __always_inline struct record_ring *inet_ring_of(struct sock *sk, struct inet_object *o, u32 sample, u32 table)
{
	u32 which = records_ring(inet_config(sample), table);
	struct inet_rings *r;

	if (!which)
		return &o->tcp.ring;
	r = host_of(rings, sk, sk);
	if (!r)
		return NULL;
	return which == INET_BPS ? &r->ring[INET_BPS - 1] : &r->ring[INET_RETRANS - 1];
}

/*
 * The table, by bit, if a reader takes its counters. If the ring does not continue, its next record begins with the taken
 * counters, so amounts that a reader took before this record would be in no window: they stay until the record. A connection that
 * is not established, or has no memory for the ring, may get no record, and is taken anyway.
 */
static __always_inline u32 inet_takes(struct sock *sk, struct inet_object *o, u32 sample, u32 table)
{
	struct ts_config *c = &inet_config(sample)[table];
	struct record_ring *g = inet_ring_of(sk, o, sample, table);

	return (u32)(!c->enabled || sk->__sk_common.skc_state != TCP_ESTABLISHED || (g ? inet_goes_on(g, inet_tag(c, sample), o) : o->no_rings))
	       << table;
}

/* Take the growth of the connection's counters since the last reader. */
static __noinline int inet_take_all(struct sock *sk, struct tcp_sock *tp, struct inet_object *o, struct inet_settling *s)
{
	struct records_counts was, now;
	u32 sample, tables;

	if (!sk || !tp || !o || !s)
		return 0;
	sample = ts_bound(o->sample, INET_TCP_V6);
	inet_taken(&was, o);
	tables = inet_takes(sk, o, sample, INET_PPS) | inet_takes(sk, o, sample, INET_BPS) |
		 inet_takes(sk, o, sample, INET_RETRANS);
	tcp_counts(&now, sk, tp, s->has_lock);
	s->last = tcp_last_active(tp);
	s->now = now;
	inet_take(o, &was, &now, &s->more, tables);
	return 0;
}

static __always_inline void inet_value_in(struct sock *sk, struct inet_object *o, u32 sample, u32 table)
{
	struct record_ring *g = inet_ring_of(sk, o, sample, table);

	if (g)
		inet_value(g, sample, table);
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

/* A connection on the list. */
static __always_inline void inet_settle_one(struct inet_settling *s, struct sock *sk, struct tcp_sock *tp, struct inet_object *o)
{
	struct record *r;
	u32 sample;

	inet_keep_time(s);
	if (!o->object.id)
		inet_begin(sk, o);
	sample = ts_bound(o->sample, INET_TCP_V6);
	r = records_at(&o->tcp.ring, (o->tcp.ring.slide & TS_SLIDE_NUMBER) % TS_MARKS);
	s->cpu = r->cpu;
	s->known = s->claimed = 0;
	inet_take_all(sk, tp, o, s);
	inet_value_in(sk, o, sample, INET_PPS);
	inet_value_in(sk, o, sample, INET_BPS);
	inet_value_in(sk, o, sample, INET_RETRANS);
	inet_order_all(o);
	if (s->claimed && inet_is_silent(sk, tp))
		inet_unlist(sk, o);
	else if (ts_read(o->listed) & INET_LEAVING && inet_has_received(sk, tp, ts_read(o->listed)))
		inet_list(sk, tp, o); /* the hook was skipped, or the connection is in another state */
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
	tp = bpf_skc_to_tcp_sock(sk);
	o = tp ? host_of(objects, sk, sk) : NULL;
	if (o && inet_object_is_own(o) && !inet_is_dead(o))
		inet_settle_one(s, sk, tp, o);
	return 0;
}

/* A connection that may not be on the list. */
static __always_inline void inet_settle_found(struct inet_settling *s, struct sock *sk)
{
	struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
	struct inet_object *o = tp ? host_of(objects, sk, sk) : NULL;

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
