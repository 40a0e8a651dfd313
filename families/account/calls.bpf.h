/* SPDX-License-Identifier: GPL-2.0-only */
/* User and system told apart by system calls, for chosen processes. */
#ifndef TOPSTAT_ACCOUNT_CALLS_H
#define TOPSTAT_ACCOUNT_CALLS_H

#include "precise.bpf.h"

/*
 * Chosen processes: threads that are there get to know it here, those to come in precise_open().
 * A thread in another CPU's hands may be at its account just now; what it adds in this moment may
 * count to the wrong side.
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
	/* Who waits, waits in the kernel. Who runs is in user space mostly: its next system call, or
	 * the end of this one, tells. */
	t->in = task->__state ? ACCOUNT_IN_KERNEL : ACCOUNT_IN_USER;
	t->mark = precise_net(&t->own);
	t->own.user = 0;
	ts_wmb();
	ts_write(t->own.exact, exact ? t->mark + 1 : 0);
	return 0;
}

/* A system call begins or ends. Where the thread was until then, and where it is now. */
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
		/* It was not seen to come (struct account_moved), so that its first call stands for its coming. */
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
