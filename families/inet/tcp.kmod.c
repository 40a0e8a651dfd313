// SPDX-License-Identifier: GPL-2.0-only
/*
 * topstat_tcp.ko: samples tcp_v4 and tcp_v6 in the kernel module, with the tables of the eBPF observer, and by its rules
 * (counted.h): hooks copy TCP's counters into the connection's ring of records (record.h), at the first segment that it receives
 * in a cell (tcp_probe, before TCP processes the segment), and when it begins, closes or retransmits. Readers do the rest
 * (settle.h). So rows equal TCP_INFO at that moment, also for half-closed connections, which tcp_probe does not see.
 *
 *   KC1 A hook has the connection's lock, and preemption is off. One reader settles at a time.
 *   KC2 Amounts that a connection has counted before it was found are not counted, unless it is known from its beginning.
 *   KC3 A connection without an object, for want of memory or room, is added to the total when it closes, and refused (T6).
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/pid_namespace.h>
#include <linux/sched/task.h>
#include <linux/tcp.h>
#include <net/inet_connection_sock.h>
#include <net/sock.h>
#include <net/tcp.h>
#include <trace/events/sock.h>
#include <trace/events/tcp.h>

#define TS_KEEPS /* closed connections */
#define INET_COUNTED INET_TCP_SAMPLES

struct ts_window;
static int inet_peek(struct ts_window *w, u64 obj, u32 at);
static u64 inet_most(u64 obj, u32 at);

#include "view.h"
#include "counted.h"
#include "cell.h"
#include "topstat_hooks.h"
#include "topstat_observer.h"
#include "topstat_observer_compat.h"

static unsigned int top = TS_TOP_DEFAULT;
module_param(top, uint, 0444);
MODULE_PARM_DESC(top, "rows of each table, 1 to 1024 (default: 128)");

/* In the storage `objects`. */
struct tcp_object {
	struct inet_object o; /* see logic.h */
	u32 sure; /* OW3 in owner.kmod.h */
	u32 unseen; /* OW2 */
};

/* The memory of a connection, with its place in the storage. docs/kmod.md gives this figure. */
static_assert(sizeof(struct host_stored) + sizeof(struct tcp_object) <= 1024);

static atomic64_t ids;
/* Some connection has, or had, no object: KC3. */
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

#include "owner.kmod.h"

static void inet_begin(struct sock *sk, struct inet_object *o)
{
	inet_object_begin(o, o->sample, atomic64_inc_return(&ids));
}

#include "listed.h"
#include "record.h"
#include "settle.h"

/*
 * The connection's object, made if there is none. `new`: the connection begins just now, and all its amounts are counted (KC2).
 * `told`: the caller calls set_owner() at once.
 */
static struct tcp_object *tcp_make(struct sock *sk, bool new, bool told)
{
	struct tcp_object *t = tcp_of(sk);
	struct records_counts now;

	if (t)
		return t;
	t = host_storage_make(&objects.storage, sk, sizeof(*t));
	if (!t) {
		WRITE_ONCE(refused, true);
		return NULL;
	}
	/* Another CPU may have made the storage and not initialised it yet: it has no address then, and gets no record. */
	if (inet_object_is_own(&t->o))
		return t;
	if (!new)
		tcp_counts(&now, sk, tcp_sk(sk), 1); /* perhaps with a FIN's byte, which is then not counted */
	t->o.sample = tcp_sample(sk);
	if (!inet_object_init(&t->o, (u64)(unsigned long)sk, new ? NULL : &now))
		return NULL;
	owner_unknown(t, told);
	return t;
}

static void tcp_end(struct sock *sk)
{
	struct tcp_object *t = tcp_of(sk);
	struct records_counts now;
	u32 sample = tcp_sample(sk);

	if (!t) {
		if (!READ_ONCE(refused)) /* the connection closed before the module was loaded */
			return;
		tcp_counts(&now, sk, tcp_sk(sk), 1);
		inet_count_total(sample, INET_RX, now.packets[INET_RX], now.bytes[INET_RX], 1);
		inet_count_total(sample, INET_TX, now.packets[INET_TX], now.bytes[INET_TX], 1);
		return;
	}
	ts_write(t->o.life, t->o.life | 1);
	smp_wmb(); /* pairs with inet_take_all(): before the socket's memory is used again */
	if (t->o.object.id)
		inet_finish(sk, tcp_sk(sk), &t->o);
	inet_object_end(&t->o);
	is_surely(t);
	host_storage_free(&rings.storage, sk);
	host_storage_free(&objects.storage, sk);
}

#ifdef HAVE_TCP_PROBE_CONST
#define PROBE_CONST const
#else
#define PROBE_CONST
#endif

static noinline void tcp_received_due(struct sock *sk)
{
	struct tcp_object *t;

	/* Since 7.3 ("tracing: Have tracepoints use SRCU-fast"), functions at tracepoints may be preempted. */
	preempt_disable_notrace();
	t = tcp_of(sk);
	if (unlikely(!t))
		t = tcp_make(sk, false, false);
	if (t)
		inet_record(sk, tcp_sk(sk), &t->o, 1, 0);
	preempt_enable_notrace();
}

/* Mostly no record is due: so no register is saved before that is known. */
static void tcp_received(void *data, struct sock *sk, PROBE_CONST struct sk_buff *skb)
{
	if (inet_is_due(tcp_sk(sk)))
		tcp_received_due(sk);
}

static void tcp_state(void *data, const struct sock *const_sk, const int from, const int to)
{
	struct sock *sk = (struct sock *)const_sk;
	bool opens = to == TCP_SYN_SENT && in_task();
	struct tcp_object *t;

	if (!is_tcp(sk))
		return;
	preempt_disable_notrace();
	if (to == TCP_CLOSE) {
		tcp_end(sk);
	} else if (to == TCP_SYN_SENT || to == TCP_ESTABLISHED) {
		t = tcp_make(sk, true, opens);
		if (t && opens)
			set_owner(t, current);
		if (t)
			inet_record(sk, tcp_sk(sk), &t->o, 0, 0);
	} else if (from == TCP_ESTABLISHED) { /* tcp_probe does not see it any more */
		t = tcp_of(sk);
		if (t)
			inet_record(sk, tcp_sk(sk), &t->o, 0, 0);
	}
	preempt_enable_notrace();
}

/* The socket is destroyed: mostly after tcp_state() has seen its close. */
static void tcp_destroyed(void *data, struct sock *sk)
{
	preempt_disable_notrace();
	if (tcp_of(sk))
		tcp_end(sk);
	preempt_enable_notrace();
}

#ifdef HAVE_TCP_RETRANSMIT_ERR
static void tcp_resent(void *data, const struct sock *const_sk, const struct sk_buff *skb, int err)
#else
static void tcp_resent(void *data, const struct sock *const_sk, const struct sk_buff *skb)
#endif
{
	struct sock *sk = (struct sock *)const_sk;
	struct tcp_object *t;

	preempt_disable_notrace();
	t = tcp_of(sk);
	if (t)
		inet_record(sk, tcp_sk(sk), &t->o, 0, 1);
	preempt_enable_notrace();
}

static struct topstat_hook hooks[] = {
	{ "inet_sock_set_state", tcp_state }, { "tcp_destroy_sock", tcp_destroyed },
	{ "tcp_retransmit_skb", tcp_resent }, { "tcp_probe", tcp_received },
};

static struct topstat_hooks all_hooks = { hooks, ARRAY_SIZE(hooks) };

/* Adopt connections that already exist. */
static int adopt(const void *task, struct file *file, unsigned int fd)
{
	struct socket *socket = topstat_sock_from_file(file);
	struct sock *sk = socket ? socket->sk : NULL;
	struct tcp_object *t;

	if (!sk || !is_tcp(sk) || sk->sk_state == TCP_CLOSE || sk->sk_state == TCP_LISTEN)
		return 0;
	preempt_disable();
	t = tcp_make(sk, false, true);
	if (t) {
		set_owner(t, (struct task_struct *)task);
		/* A silent connection is due when it speaks again. */
		if (!(ts_read(t->o.listed) & INET_ON_LIST) && !inet_is_silent(sk, tcp_sk(sk), &t->o))
			inet_list(sk, tcp_sk(sk), &t->o);
	}
	preempt_enable();
	return 0;
}

static DEFINE_MUTEX(settling_lock); /* KC1 */

/* Before a snapshot, and before a setting is changed. */
static void settle_all(u32 sample)
{
	struct inet_settling *s = inet_settling();
	struct host_stored *item;
	struct inet_object *o;
	struct sock *sk;
	int bucket;

	mutex_lock(&settling_lock);
	for (bucket = 0; bucket < HASH_SIZE(objects.storage.items); bucket++) {
		if (hlist_empty(&objects.storage.items[bucket]))
			continue;
		rcu_read_lock();
		local_bh_disable();
		preempt_disable(); /* the claim of this CPU's bank, also where softirqs may be preempted */
		hlist_for_each_entry_rcu(item, &objects.storage.items[bucket], head.node) {
			o = (void *)item->stored;
			sk = (struct sock *)item->head.owner;
			if (o->sample == sample && inet_object_is_own(o) && !inet_is_dead(o) && ts_read(o->listed) & INET_ON_LIST)
				inet_settle_one(s, sk, tcp_sk(sk), o);
		}
		preempt_enable();
		local_bh_enable();
		rcu_read_unlock();
		cond_resched();
	}
	moment.jiffies = get_jiffies_64();
	moment.ns = ts_precise();
	preempt_disable();
	inet_now(s);
	inet_flush(s);
	preempt_enable();
	mutex_unlock(&settling_lock);
}

/* The state was settled just before (R4, R5). */
static void table_begins(u32 bank, u32 table, const struct ts_config *to)
{
	u32 other;

	if (table >= RECORDS_TABLES)
		return;
	WRITE_ONCE(since.at[bank][table], to->precise ? moment.ns : moment.jiffies);
	for (other = 0; other < RECORDS_TABLES; other++)
		if (other != table && settings.config[bank][other].enabled)
			return;
	WRITE_ONCE(since.at[bank][INET_BYTES], moment.jiffies); /* all records are from before */
}

/* Cells are computed anew. */
static void settings_changed(void)
{
	ts_write(cell, 0);
}

/* Within an RCU read section the memory of object and socket does not become memory of another type. */
static void about_of(struct inet_about *about, u64 object)
{
	const struct inet_object *o = (const void *)(unsigned long)object;
	const struct sock *sk = (const void *)(unsigned long)READ_ONCE(o->sock);
	const struct net *net = sock_net(sk);

	*about = (struct inet_about){ .owner = { .pid = o->pid, .cgroup = o->cgroup }, .family = sk->sk_family };
	memcpy(about->owner.comm, o->comm, sizeof(about->owner.comm));
	/* The kernel clears sk_num before a connection ends, but not the port that segments are sent from. */
	about->sport = sk->sk_num ?: ntohs(inet_sk(sk)->inet_sport);
	about->dport = ntohs(sk->sk_dport);
	/* The namespace ends with its last socket, which may be this one, just now. */
	ts_peek(&about->netns, sizeof(about->netns), (u64)(unsigned long)&net->ns.inum);
	memcpy(about->sip, &sk->sk_rcv_saddr, sizeof(sk->sk_rcv_saddr));
	memcpy(about->dip, &sk->sk_daddr, sizeof(sk->sk_daddr));
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		memcpy(about->sip, &sk->sk_v6_rcv_saddr, sizeof(about->sip));
		memcpy(about->dip, &sk->sk_v6_daddr, sizeof(about->dip));
	}
#endif
}

TS_INLINE void obs_describe_kept(struct ts_kept *kept, u64 self, struct ts_window *scratch)
{
	struct inet_about *about = &((struct inet_kept *)kept)->about;

	about_of(about, self);
	about->closed = 1;
}

static void describe(const struct ts_table *table, const struct ts_row *found, u64 object, struct topstat_row *row)
{
	const struct inet_kept *of_closed = ts_is_kept(object) ? (void *)ts_kept_of(table->place, found->slot) : NULL;
	struct inet_about about = {};

	if (of_closed)
		about = of_closed->about;
	else if (!ts_is_kept(object))
		about_of(&about, object);
	topstat_row_ip(row, about.family, about.sip);
	topstat_row_number(row, about.sport);
	topstat_row_ip(row, about.family, about.dip);
	topstat_row_number(row, about.dport);
	if (about.owner.pid)
		topstat_row_number(row, about.owner.pid);
	else
		topstat_row_none(row);
	topstat_row_text(row, about.owner.comm, sizeof(about.owner.comm));
	if (about.owner.cgroup)
		topstat_row_cgroup(row, about.owner.cgroup);
	else
		topstat_row_none(row);
	topstat_row_number(row, about.netns);
	if (about.owner.cgroup)
		topstat_row_container(row, about.owner.cgroup);
	else
		topstat_row_none(row);
	if (about.closed)
		topstat_row_true(row);
	else
		topstat_row_none(row);
}

static const struct topstat_column columns[] = {
	{ "sip" }, { "sport" }, { "dip" }, { "dport" }, { "pid" }, { "comm" }, { "cgroup" }, { "netns" },
	{ "container", .optional = true }, { "closed", .optional = true },
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
	.section = host_section,
	.id = host_id,
	.ends = host_ends,
};

#define OBSERVED(sample, called)                                                                                     \
	{                                                                                                            \
		.info = { .name = called, .columns = columns, .column_count = ARRAY_SIZE(columns), \
			  .parts = { "rx", "tx" } },                                                                 \
		.engine = &engine, .bank = sample, .census = &census[sample], .describe = describe,                  \
		.settle_all = settle_all, .begins = table_begins, .changed = settings_changed,                       \
		.keeps = true, .has_opaque = true,                                                                   \
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
	host_storage_free_all(&rings.storage);
	host_storage_free_all(&objects.storage);
	host_kept_free();
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
	error = host_banks_make(INET_ABI, top);
	if (!error)
		error = host_kept_make();
	if (error)
		goto fail;
	engine.banks = host_banks;
	engine.top = top;
	error = register_all();
	if (error)
		goto fail;
	error = owners_begin();
	if (error)
		goto fail;
	error = topstat_hook_all(&all_hooks);
	if (error)
		goto fail_hooks;
	visit_open_files(adopt);
	return 0;
fail_hooks:
	owners_end();
fail:
	give_back();
	return error;
}

static void __exit observer_exit(void)
{
	topstat_unhook(&all_hooks, ARRAY_SIZE(hooks));
	owners_end();
	give_back();
}

module_init(observer_init);
module_exit(observer_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("TCP connections by packets, bits, bytes and retransmits, for topstat");
MODULE_VERSION(TOPSTAT_VERSION);
