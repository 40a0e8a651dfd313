// SPDX-License-Identifier: GPL-2.0-only
/*
 * topstat_tcp.ko: samples tcp_v4 and tcp_v6 in the kernel module, with the tables of the eBPF observer.
 *
 * TCP counts its segments and bytes itself. A connection is looked at when it has received a segment (tcp_probe, before TCP
 * takes note of it), when it begins, closes or sends again; what its counters have counted since the last look is pushed, both
 * ways at once. With a delay it is looked at only once in each delay: its own stamps of the last reception tell, so
 * that nothing else is read until then. A snapshot looks at all connections before it is taken, so rows are what TCP_INFO
 * says at that moment, also of connections that are half closed, which tcp_probe does not see.
 *
 *   C1  Who looks has claimed the object. A look that finds it claimed is left out: the counters go on, and the next look
 *       finds the difference. Only the last one waits.
 *   C2  What a connection has counted when it is seen first is not pushed, unless it is known from its beginning.
 *   C3  What has no object, since there was no memory or no room, is pushed to the total when it closes, and refused (T6).
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/pid_namespace.h>
#include <linux/sched/task.h>
#include <linux/tcp.h>
#include <net/inet_connection_sock.h>
#include <net/sock.h>
#include <net/tcp.h>
#include <trace/events/sock.h>
#include <trace/events/tcp.h>
#include "logic.h"
#include "topstat_hooks.h"
#include "topstat_observer.h"
#include "topstat_observer_compat.h"

static unsigned int top = TS_TOP_DEFAULT;
module_param(top, uint, 0444);
MODULE_PARM_DESC(top, "rows of each table, 1 to 1024 (default: 128)");

/* What TCP has counted. */
struct tcp_counts {
	u32 packets[TS_PARTS];
	u64 bytes[TS_PARTS];
	u32 resent;
};

struct tcp_object {
	struct inet_object o; /* as logic.h has it */
	u64 claim; /* C1 */
	struct tcp_counts seen; /* what was pushed */
};

/* Objects whose owner is not known yet: while there are none, receiving calls need not be looked at. */
static atomic_t unsure = ATOMIC_INIT(0);
static atomic64_t ids;
/* Some connection has, or had, no object: C3. */
static bool refused;

static struct tcp_object *tcp_of(const struct sock *sk)
{
	return host_storage_of(&objects.storage, sk);
}

/* An IPv6 socket with an IPv4 peer is in tcp_v4. */
static u32 tcp_sample(const struct sock *sk)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(&sk->sk_v6_daddr))
		return INET_TCP_V6;
#endif
	return INET_TCP_V4;
}

static bool is_tcp(const struct sock *sk)
{
	return (sk->sk_family == AF_INET || sk->sk_family == AF_INET6) && sk->sk_type == SOCK_STREAM &&
	       sk->sk_protocol == IPPROTO_TCP;
}

static void tcp_count(const struct sock *sk, struct tcp_counts *c)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	c->packets[INET_RX] = READ_ONCE(tp->segs_in);
	c->packets[INET_TX] = READ_ONCE(tp->segs_out);
	/* A FIN counts as a byte that was received. */
	c->bytes[INET_RX] = READ_ONCE(tp->bytes_received) - sock_flag(sk, SOCK_DONE);
	c->bytes[INET_TX] = READ_ONCE(tp->bytes_sent);
	c->resent = READ_ONCE(tp->total_retrans);
}

/* Both parts of a table at once, ordered once. */
static void tcp_add(struct obs *x, u32 table, u64 rx, u64 tx)
{
	void *w = (char *)x->object + obs_at(x->number, table);

	if (!x->config[table].enabled || !(rx | tx))
		return;
	if (rx && obs_type(x->number, table) == TS_STATIC)
		ts_push_static_quiet(obs_table(x->bank, table), w, INET_RX, rx);
	else if (rx)
		ts_push_quiet(obs_table(x->bank, table), &x->bank->tick[table], w, INET_RX, rx);
	obs_push_object(x, table, INET_TX, tx);
}

static void push_counted(struct tcp_object *t, const struct tcp_counts *now)
{
	const struct tcp_counts *seen = &t->seen;
	struct obs x;

	if (!memcmp(now, seen, sizeof(*now)) || !obs_begin(&x, t->o.sample, &t->o.object))
		return;
	tcp_add(&x, INET_PPS, now->packets[INET_RX] - seen->packets[INET_RX], now->packets[INET_TX] - seen->packets[INET_TX]);
	tcp_add(&x, INET_BPS, now->bytes[INET_RX] - seen->bytes[INET_RX], now->bytes[INET_TX] - seen->bytes[INET_TX]);
	tcp_add(&x, INET_BYTES, now->bytes[INET_RX] - seen->bytes[INET_RX], now->bytes[INET_TX] - seen->bytes[INET_TX]);
	tcp_add(&x, INET_RETRANS, 0, now->resent - seen->resent);
	obs_end(&x);
	t->seen = *now;
}

/* Push what is new, under the claim and with preemption off. */
static void look_claimed(const struct sock *sk, struct tcp_object *t)
{
	struct tcp_counts now = {};

	if (!ts_read(t->o.object.id))
		return;
	tcp_count(sk, &now);
	/* A snapshot may have read the FIN's byte before it was known to be one. */
	now.bytes[INET_RX] = max(now.bytes[INET_RX], t->seen.bytes[INET_RX]);
	push_counted(t, &now);
}

static void tcp_look(const struct sock *sk, struct tcp_object *t)
{
	if (!ts_claim(&t->claim))
		return;
	look_claimed(sk, t);
	ts_release(&t->claim);
}

static void set_owner(struct tcp_object *t, struct task_struct *task)
{
	struct process_who *who = &t->o.owner;

	if (t->o.sure)
		return;
	who->pid = task->tgid;
	memcpy(who->comm, task->group_leader->comm, sizeof(who->comm));
	rcu_read_lock();
	who->cgroup = task_dfl_cgroup(task)->kn->id;
	rcu_read_unlock();
	t->o.sure = 1;
	atomic_dec(&unsure);
}

/* The connection's object, made where there was none. `new`: it begins just now, and all that it counts is pushed (C2). */
static struct tcp_object *tcp_make(struct sock *sk, bool new)
{
	static const struct inet_seen nothing; /* what was pushed is in `seen` of struct tcp_object */
	struct tcp_object *t = tcp_of(sk);
	u32 sample = tcp_sample(sk);

	if (t)
		return t;
	t = host_storage_make(&objects.storage, sk, sizeof(*t));
	if (!t) {
		WRITE_ONCE(refused, true);
		return NULL;
	}
	/* Another CPU may have made it, or be about to: it has no id yet then, and is not looked at. */
	if (inet_object_is_own(&t->o))
		return t;
	if (!inet_object_init(&t->o, (u64)(unsigned long)sk, &nothing))
		return NULL;
	atomic_inc(&unsure);
	if (!new)
		tcp_count(sk, &t->seen);
	inet_object_begin(&t->o, sample, atomic64_inc_return(&ids));
	return t;
}

static void tcp_end(struct sock *sk)
{
	struct tcp_object *t = tcp_of(sk);
	struct tcp_counts now = {};
	u32 sample = tcp_sample(sk);

	if (!t) {
		if (!READ_ONCE(refused)) /* before this was loaded */
			return;
		tcp_count(sk, &now);
		inet_count_total(sample, INET_RX, now.packets[INET_RX], now.bytes[INET_RX], 1);
		inet_count_total(sample, INET_TX, now.packets[INET_TX], now.bytes[INET_TX], 1);
		return;
	}
	/*
	 * The last look must not be left out. The socket is locked, so it can only be a snapshot on another CPU that has the
	 * claim: with softirqs off, for one look. Whoever has the claim and finds an id has a socket that is not closed.
	 */
	while (!ts_claim(&t->claim))
		cpu_relax();
	look_claimed(sk, t);
	inet_object_end(&t->o);
	ts_release(&t->claim);
	if (!t->o.sure)
		atomic_dec(&unsure);
	host_storage_free(&objects.storage, sk);
}

/* When the delay that is now began, for each sample: all of its tables that are on are ordered at most once in it. */
struct cell {
	u32 generation;
	u32 length; /* jiffies; 0: there is no delay */
	u32 start;
};

static struct cell cells[INET_SAMPLES];

static u32 cell_length(const struct ts_config *c)
{
	u32 least = U32_MAX, i;

	for (i = 0; i < INET_TABLES; i++) {
		if (!c[i].enabled)
			continue;
		if (c[i].precise || !c[i].delay)
			return 0;
		least = min(least, c[i].delay);
	}
	return least == U32_MAX ? 0 : least;
}

/* Several CPUs may find that another cell has begun, and write the same. */
static bool seen_in_cell(const struct sock *sk, u32 sample)
{
	struct cell *cell = &cells[sample];
	u32 generation = READ_ONCE(settings.all.generation), now = (u32)jiffies, length;

	if (unlikely(READ_ONCE(cell->generation) != generation)) {
		WRITE_ONCE(cell->length, cell_length(settings.config[sample]));
		WRITE_ONCE(cell->generation, generation);
	}
	length = READ_ONCE(cell->length);
	if (!length)
		return false;
	if (now - READ_ONCE(cell->start) >= length)
		WRITE_ONCE(cell->start, now - now % length);
	return (s32)(tcp_sk(sk)->rcv_tstamp - READ_ONCE(cell->start)) >= 0 ||
	       (s32)(inet_csk(sk)->icsk_ack.lrcvtime - READ_ONCE(cell->start)) >= 0;
}

#ifdef HAVE_TCP_PROBE_CONST
#define PROBE_CONST const
#else
#define PROBE_CONST
#endif

static void tcp_received(void *data, struct sock *sk, PROBE_CONST struct sk_buff *skb)
{
	struct tcp_object *t;

	/* Since 7.3 ("tracing: Have tracepoints use SRCU-fast"), functions at tracepoints may be preempted. */
	preempt_disable_notrace();
	if (!seen_in_cell(sk, tcp_sample(sk))) {
		t = tcp_of(sk);
		if (unlikely(!t))
			t = tcp_make(sk, false);
		if (t)
			tcp_look(sk, t);
	}
	preempt_enable_notrace();
}

static void tcp_state(void *data, const struct sock *const_sk, const int from, const int to)
{
	struct sock *sk = (struct sock *)const_sk;
	struct tcp_object *t;

	if (!is_tcp(sk))
		return;
	preempt_disable_notrace();
	if (to == TCP_CLOSE) {
		tcp_end(sk);
	} else if (to == TCP_SYN_SENT || to == TCP_ESTABLISHED) {
		t = tcp_make(sk, true);
		if (t && in_task() && to == TCP_SYN_SENT)
			set_owner(t, current);
	} else if (from == TCP_ESTABLISHED) { /* it is not seen at tcp_probe any more */
		t = tcp_of(sk);
		if (t)
			tcp_look(sk, t);
	}
	preempt_enable_notrace();
}

/* The socket goes: after tcp_state() has been told that it is closed, mostly. */
static void tcp_destroyed(void *data, struct sock *sk)
{
	preempt_disable_notrace();
	if (tcp_of(sk))
		tcp_end(sk);
	preempt_enable_notrace();
}

#ifdef HAVE_TCP_RETRANSMIT_ERR
static void tcp_resent(void *data, const struct sock *sk, const struct sk_buff *skb, int err)
#else
static void tcp_resent(void *data, const struct sock *sk, const struct sk_buff *skb)
#endif
{
	struct tcp_object *t;

	preempt_disable_notrace();
	t = tcp_of(sk);
	if (t)
		tcp_look(sk, t);
	preempt_enable_notrace();
}

static void tcp_read(void *data, struct sock *sk)
{
	struct tcp_object *t;

	if (!atomic_read(&unsure) || !in_task())
		return;
	preempt_disable_notrace();
	t = tcp_of(sk);
	if (t)
		set_owner(t, current);
	preempt_enable_notrace();
}

static struct topstat_hook hooks[] = {
	{ "inet_sock_set_state", tcp_state }, { "tcp_destroy_sock", tcp_destroyed },
	{ "tcp_retransmit_skb", tcp_resent }, { "tcp_rcv_space_adjust", tcp_read },
	{ "tcp_probe", tcp_received },
};

static struct topstat_hooks all_hooks = { hooks, ARRAY_SIZE(hooks) };

static int adopt(const void *task, struct file *file, unsigned int fd)
{
	struct socket *socket = topstat_sock_from_file(file);
	struct sock *sk = socket ? socket->sk : NULL;
	struct tcp_object *t;

	if (!sk || !is_tcp(sk) || sk->sk_state == TCP_CLOSE || sk->sk_state == TCP_LISTEN)
		return 0;
	preempt_disable();
	t = tcp_make(sk, false);
	if (t)
		set_owner(t, (struct task_struct *)task);
	preempt_enable();
	return 0;
}

/* Connections that are there already. One of several processes is the first one's. */
static void adopt_all(void)
{
	struct files_struct *files;
	struct task_struct *task;

	rcu_read_lock();
	for_each_process(task) {
		task_lock(task);
		files = task->files;
		if (files)
			iterate_fd(files, 0, adopt, task);
		task_unlock(task);
	}
	rcu_read_unlock();
}

/* Before a snapshot: everything that was not pushed yet. Half closed connections are only seen here. */
static void settle_all(u32 sample)
{
	struct host_stored *item;
	struct tcp_object *t;
	int bucket;

	for (bucket = 0; bucket < HASH_SIZE(objects.storage.items); bucket++) {
		if (hlist_empty(&objects.storage.items[bucket]))
			continue;
		rcu_read_lock();
		local_bh_disable();
		hlist_for_each_entry_rcu(item, &objects.storage.items[bucket], head.node) {
			t = (void *)item->stored;
			if (t->o.sample == sample && ts_read(t->o.object.id))
				tcp_look(item->head.owner, t);
		}
		local_bh_enable();
		rcu_read_unlock();
		cond_resched();
	}
}

static void describe(u64 object, u64 id, struct topstat_row *row)
{
	/* Inside of an RCU read section neither object nor socket becomes memory of another kind. */
	const struct tcp_object *t = (const void *)(unsigned long)object;
	const struct sock *sk = (const void *)(unsigned long)READ_ONCE(t->o.sock);
	const struct process_who *who = &t->o.owner;
	const struct net *net = sock_net(sk);
	unsigned int netns = 0;
	const void *here = &sk->sk_rcv_saddr, *there = &sk->sk_daddr;

#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		here = &sk->sk_v6_rcv_saddr;
		there = &sk->sk_v6_daddr;
	}
#endif
	topstat_row_ip(row, sk->sk_family, here);
	topstat_row_number(row, sk->sk_num);
	topstat_row_ip(row, sk->sk_family, there);
	topstat_row_number(row, ntohs(sk->sk_dport));
	if (who->pid)
		topstat_row_number(row, who->pid);
	else
		topstat_row_none(row);
	topstat_row_text(row, who->comm, sizeof(who->comm));
	if (who->cgroup)
		topstat_row_cgroup(row, who->cgroup);
	else
		topstat_row_none(row);
	/* The namespace goes with its last socket, which may be this one, just now. */
	ts_peek(&netns, sizeof(netns), (u64)(unsigned long)&net->ns.inum);
	topstat_row_number(row, netns);
	topstat_row_none(row);
}

static const struct topstat_column columns[] = {
	{ "sip" }, { "sport" }, { "dip" }, { "dport" }, { "pid" }, { "comm" }, { "cgroup" }, { "netns" },
	{ "container", .optional = true },
};

static const struct topstat_table_info tables[INET_TABLES] = {
	[INET_PPS] = { "conns_pps", "pps", TOPSTAT_DYNAMIC, TOPSTAT_PACKETS },
	[INET_BPS] = { "conns_bps", "bps", TOPSTAT_DYNAMIC, TOPSTAT_BITS },
	[INET_BYTES] = { "conns_bytes", "bytes", TOPSTAT_STATIC, TOPSTAT_BYTES },
	[INET_RETRANS] = { "conns_retrans", "retrans", TOPSTAT_DYNAMIC, TOPSTAT_SEGMENTS },
};

static ts_view view(u32 bank, u32 table)
{
	return obs_view(bank, table);
}

static struct topstat_engine engine = {
	.abi = TOPSTAT_ENGINE_ABI,
	.banks_of_cpu = HOST_BANKS,
	.settings = &settings.all,
	.shape = &constants.shape,
	.view = view,
};

#define OBSERVED(sample, called)                                                                                     \
	{                                                                                                            \
		.info = { .name = called, .owner = THIS_MODULE, .columns = columns, .column_count = ARRAY_SIZE(columns), \
			  .parts = { "rx", "tx" } },                                                                 \
		.engine = &engine, .bank = sample, .census = &census[sample], .describe = describe,                  \
		.settle_all = settle_all, .has_opaque = true,                                                        \
	}

static const struct topstat_observed observed[] = {
	OBSERVED(INET_TCP_V4, "tcp_v4"),
	OBSERVED(INET_TCP_V6, "tcp_v6"),
};

static struct topstat_sample *samples[ARRAY_SIZE(observed)];

static void unregister(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(samples); i++)
		if (!IS_ERR_OR_NULL(samples[i]))
			topstat_sample_unregister(samples[i]);
}

static int register_all(void)
{
	/* In the order of the daemon's tree. */
	static const u32 order[] = { INET_PPS, INET_BPS, INET_BYTES, INET_RETRANS };
	struct topstat_table *t;
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(samples); i++) {
		samples[i] = topstat_observer_register(&observed[i]);
		if (IS_ERR(samples[i]))
			return PTR_ERR(samples[i]);
		for (k = 0; k < ARRAY_SIZE(order); k++) {
			t = topstat_observer_table(samples[i], &tables[order[k]], order[k]);
			if (IS_ERR(t))
				return PTR_ERR(t);
		}
	}
	return 0;
}

static void give_back(void)
{
	unregister();
	rcu_barrier();
	host_storage_free_all(&objects.storage);
	host_banks_free();
}

static int __init observer_init(void)
{
	int error;

	check_trace_callback_type_inet_sock_set_state(tcp_state);
	check_trace_callback_type_tcp_destroy_sock(tcp_destroyed);
	check_trace_callback_type_tcp_retransmit_skb(tcp_resent);
	check_trace_callback_type_tcp_rcv_space_adjust(tcp_read);
	check_trace_callback_type_tcp_probe(tcp_received);
	if (top < TS_TOP_MIN || top > TS_TOP_MAX) {
		pr_err("top=%u: tables have %u to %u rows\n", top, TS_TOP_MIN, TS_TOP_MAX);
		return -EINVAL;
	}
	constants.shape.abi = INET_ABI;
	constants.shape.top = top;
	error = host_banks_make(roundup_pow_of_two(top * TS_SPARE));
	if (error)
		return error;
	engine.banks = host_banks;
	engine.top = top;
	error = register_all();
	if (!error)
		error = topstat_hook_all(&all_hooks);
	if (error)
		give_back();
	else
		adopt_all();
	return error;
}

static void __exit observer_exit(void)
{
	topstat_unhook(&all_hooks, ARRAY_SIZE(hooks));
	give_back();
}

module_init(observer_init);
module_exit(observer_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("TCP connections by packets, bits, bytes and retransmits, for topstat");
MODULE_VERSION(TOPSTAT_VERSION);
