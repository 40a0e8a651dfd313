/* SPDX-License-Identifier: GPL-2.0-only */
/* Tells user and system time of chosen processes apart by their system calls. */
#ifndef TOPSTAT_ACCOUNT_CALLS_H
#define TOPSTAT_ACCOUNT_CALLS_H

#include "precise.bpf.h"

/*
 * Marks the existing threads of chosen processes; precise_open() marks new ones. A thread that runs on another CPU may update its
 * account at the same time; the time that it adds at this moment may count to the wrong part, user or system.
 */
SEC("iter/task")
int precise_choose(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct account_thread *t;
	u64 exact;
	u32 tgid;

	if (!task)
		return 0;
	t = bpf_task_storage_get(&threads, task, NULL, 0);
	if (!t)
		return 0;
	tgid = task->tgid;
	exact = bpf_map_lookup_elem(&chosen, &tgid) != NULL;
	if (!t->own.exact == !exact)
		return 0;
	/* A sleeping thread sleeps in the kernel. A thread that runs is mostly in user space: the thread's next system call, or
	 * the end of the present one, corrects `in`. */
	t->in = task->__state ? ACCOUNT_IN_KERNEL : ACCOUNT_IN_USER;
	t->mark = precise_net(&t->own);
	t->own.user = 0;
	ts_publish(t->own.exact, exact ? t->mark + 1 : 0);
	return 0;
}

/* A system call begins or ends. `was`: where the thread was until then; `is`: where it is now. */
static __always_inline int precise_call(u64 was, u64 is)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct account_thread *t = bpf_task_storage_get(&threads, task, NULL, 0);
	struct account_cpu *c;
	u64 now, start, net;

	if (!t || !t->own.exact)
		return 0;
	c = precise_slot();
	if (!c)
		return 0;
	now = bpf_ktime_get_ns();
	start = c->start;
	if (ts_unlikely(c->id != t->id)) {
		/* The switch to the thread was not seen (struct account_moved): its first call counts as the slice's start. */
		if (!t->came) {
			t->came = now;
			t->came_in = t->in;
		}
		start = t->came;
	}
	net = precise_net(&t->own) - (c->own.irq - c->start_irq) - (c->own.softirq - c->start_softirq);
	if (constants.steal)
		net -= precise_steal(task) - c->start_steal;
	if (now > start)
		net += now - start;
	if (t->in == was)
		precise_part(&t->own, was, t->mark, net);
	t->mark = net;
	t->in = is;
	return 0;
}

SEC("tp_btf/sys_enter")
int precise_sys_enter(void *ctx)
{
	return precise_call(ACCOUNT_IN_USER, ACCOUNT_IN_KERNEL);
}

SEC("tp_btf/sys_exit")
int precise_sys_exit(void *ctx)
{
	return precise_call(ACCOUNT_IN_KERNEL, ACCOUNT_IN_USER);
}

#endif /* TOPSTAT_ACCOUNT_CALLS_H */
