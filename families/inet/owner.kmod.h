/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The owners of connections, for tcp.kmod.c. The owner of a connection that a process opens is known at once. The owner of an
 * accepted connection is known at its first read (tcp_rcv_space_adjust). Every receiving call passes this hook, so it is attached
 * only while there are connections without a known owner ("reads are watched").
 *
 *   OW1 `unsure` counts these connections. A new connection is added to `unsure`, and then it checks `reads_seen`. The work that
 *       ends the watch writes `reads_seen`, and then it checks `unsure`. Both have a full barrier in between. So either the work
 *       finds the connection and continues the watch, or the connection finds that reads are not watched, and queues the work.
 *   OW2 A connection is `unseen` if reads were not watched when it began: a read may have been missed. UNSEEN_MS after the watch
 *       has begun, an unseen connection that was read from, and has not been read from since, belongs to the process that has it
 *       open.
 *   OW3 The caller that swaps `sure` to 1 takes the connection off `unsure`, once. The connection then has its owner, or has
 *       ended.
 */
#ifndef TOPSTAT_INET_OWNER_KMOD_H
#define TOPSTAT_INET_OWNER_KMOD_H

#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/workqueue.h>

/* The interval of the checks whether the watch is still needed. */
#define WATCH_MS 1000
/* The watch ends after all owners have been known for this long. Its beginning and end cost an interrupt on each CPU. */
#define ALL_SURE_MS 5000
/* OW2. A process that was handed a connection by the accepting process has read from it within this time. */
#define UNSEEN_MS 1000

static atomic_t unsure = ATOMIC_INIT(0);
/* Set since the last run of the work: a connection was added to `unsure`; a connection is unseen and has no owner yet. */
static bool some_added, some_unseen;
static bool reads_seen;
module_param(reads_seen, bool, 0444);
MODULE_PARM_DESC(reads_seen, "to be read: whether some connection's owner is not known, so that calls that receive are looked at");

/* Used by the work alone, in jiffies: the beginning of the watch; the last time that `unsure` was not 0. */
static unsigned long reads_since, unsure_last;

static void watch_owners(struct work_struct *work);
static DECLARE_DELAYED_WORK(owners_work, watch_owners);

/* OW3: true for the first caller only. */
static bool is_surely(struct tcp_object *t)
{
	if (READ_ONCE(t->sure) || xchg(&t->sure, 1))
		return false;
	atomic_dec(&unsure);
	return true;
}

static void set_owner(struct tcp_object *t, struct task_struct *task)
{
	struct process_who who = { .pid = task->tgid };

	if (!is_surely(t))
		return;
	memcpy(who.comm, task->group_leader->comm, sizeof(who.comm));
	rcu_read_lock();
	who.cgroup = task_dfl_cgroup(task)->kn->id;
	rcu_read_unlock();
	inet_set_owner(&t->o, &who);
}

/* A connection begins. `told`: the caller calls set_owner() at once. */
static void owner_unknown(struct tcp_object *t, bool told)
{
	atomic_inc(&unsure);
	if (told)
		return;
	if (!READ_ONCE(some_added))
		WRITE_ONCE(some_added, true);
	smp_mb__after_atomic(); /* OW1: pairs with the barrier in reads_end() */
	if (READ_ONCE(reads_seen))
		return;
	WRITE_ONCE(t->unseen, 1);
	WRITE_ONCE(some_unseen, true);
	schedule_delayed_work(&owners_work, 0); /* if it is queued already, it runs within a second */
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

static struct topstat_hook of_reads[] = {
	{ "tcp_rcv_space_adjust", tcp_read },
};

static struct topstat_hooks reads = { of_reads, ARRAY_SIZE(of_reads) };

static int reads_begin(void)
{
	int error = topstat_hook_all(&reads);

	if (error)
		return error;
	reads_since = jiffies;
	unsure_last = jiffies;
	WRITE_ONCE(reads_seen, true);
	return 0;
}

/* False: a connection has just begun, and the watch continues. */
static bool reads_end(void)
{
	WRITE_ONCE(reads_seen, false);
	smp_mb(); /* OW1: pairs with the barrier in owner_unknown() */
	if (atomic_read(&unsure)) {
		reads_since = jiffies;
		WRITE_ONCE(reads_seen, true);
		return false;
	}
	topstat_unhook(&reads, reads.count);
	return true;
}

/* Calls `call` for all files of all processes. A file of several processes belongs to the first of them. */
static void visit_open_files(int (*call)(const void *task, struct file *file, unsigned int fd))
{
	struct files_struct *files;
	struct task_struct *task;

	rcu_read_lock();
	for_each_process(task) {
		task_lock(task);
		files = task->files;
		if (files)
			iterate_fd(files, 0, call, task);
		task_unlock(task);
	}
	rcu_read_unlock();
}

/* Whether received data was read. TCP writes rcv_nxt last, so it is read first. */
static bool was_read(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 next = READ_ONCE(tp->rcv_nxt);

	smp_rmb(); /* TCP writes bytes_received before rcv_nxt */
	return READ_ONCE(tp->copied_seq) != next - (u32)READ_ONCE(tp->bytes_received);
}

/* OW2 */
static int adopt_unseen(const void *task, struct file *file, unsigned int fd)
{
	struct socket *socket = topstat_sock_from_file(file);
	struct sock *sk = socket ? socket->sk : NULL;
	struct tcp_object *t;

	if (!sk || !is_tcp(sk))
		return 0;
	preempt_disable();
	t = tcp_of(sk);
	if (t && READ_ONCE(t->unseen) && was_read(sk))
		set_owner(t, (struct task_struct *)task);
	preempt_enable();
	return 0;
}

static void watch_owners(struct work_struct *work)
{
	if (atomic_read(&unsure) || READ_ONCE(some_added))
		unsure_last = jiffies;
	WRITE_ONCE(some_added, false);
	if (!reads_seen) {
		/* Without memory the next run tries again. */
		reads_begin();
	} else if (READ_ONCE(some_unseen) && time_after_eq(jiffies, reads_since + msecs_to_jiffies(UNSEEN_MS))) {
		WRITE_ONCE(some_unseen, false);
		visit_open_files(adopt_unseen);
	} else if (time_after_eq(jiffies, unsure_last + msecs_to_jiffies(ALL_SURE_MS)) && reads_end()) {
		return;
	}
	schedule_delayed_work(&owners_work, msecs_to_jiffies(WATCH_MS));
}

/* Before the first connection. */
static int owners_begin(void)
{
	int error = reads_begin();

	if (!error)
		schedule_delayed_work(&owners_work, msecs_to_jiffies(WATCH_MS));
	return error;
}

/* After the last connection. */
static void owners_end(void)
{
	cancel_delayed_work_sync(&owners_work);
	if (reads_seen)
		topstat_unhook(&reads, reads.count);
}

#endif /* TOPSTAT_INET_OWNER_KMOD_H */
