// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observer of what processes wait for: sample delays.
 *
 * The kernel keeps an account for every task (struct task_delay_info, what taskstats tells). What
 * was added to it is pushed when the task leaves a CPU, and when it ends. Objects are made before
 * a task first runs.
 */
#include "charge.bpf.h"
#include "observe/gate.bpf.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline void delays_begin(struct task_struct *task, u64 now_jiffies)
{
	struct task_delay_info *d = task->delays;
	struct delays_thread *w;
	struct delays_object *o;

	w = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	/* What it waited for before it was known does not count. */
	if (w && d && !w->known) {
		w->seen[DELAYS_BLKIO] = d->blkio_delay;
		w->seen[DELAYS_SWAPIN] = d->swapin_delay;
		w->seen[DELAYS_RECLAIM] = d->freepages_delay;
		w->seen[DELAYS_THRASHING] = d->thrashing_delay;
		w->seen[DELAYS_COMPACT] = d->compact_delay;
		w->seen[DELAYS_WPCOPY] = d->wpcopy_delay;
		w->counts = delays_counts(d);
		w->known = 1;
		w->left = now_jiffies;
	}
	if (!constants.by_thread && task->pid != task->tgid)
		return;
	o = bpf_task_storage_get(&objects, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!o || o->self)
		return; /* without memory, its pushes are counted as lost */
	o->task = (u64)task;
	o->self = (u64)o;
	ts_wmb();
	ts_write(o->id, process_id(task));
	ts_add(&census[0].begun, 1);
}

TS_GATE("tp_btf/sched_switch", delays_switch)

SEC("tp_btf/sched_switch")
int BPF_PROG(delays_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	delays_charge(prev);
	return 0;
}

TS_GATE("tp_btf/task_newtask", delays_new)

SEC("tp_btf/task_newtask")
int BPF_PROG(delays_new, struct task_struct *task)
{
	delays_begin(task, bpf_jiffies64());
	return 0;
}

/* A thread that is not the leader has become it: what it executes runs in its name. */
TS_GATE("tp_btf/sched_process_exec", delays_exec)

SEC("tp_btf/sched_process_exec")
int BPF_PROG(delays_exec, struct task_struct *task)
{
	delays_begin(task, 0);
	return 0;
}

/* The task's object, if it has one, is no object any more. Told twice it does nothing the second time. */
static __always_inline void delays_end(struct task_struct *task)
{
	struct delays_object *o = bpf_task_storage_get(&objects, task, NULL, 0);
	u64 id;
	u32 i;

	if (!o)
		return;
	id = o->id;
	if (!id || !ts_cas(&o->id, id, 0))
		return;
	ts_add(&census[0].ended, 1);
	for (i = 0; i < DELAYS_BANKS; i++)
		ranked_forget(i, o->self);
}

/* A process ends with the last of its threads: its object leaves all tables, its pushes stay in
 * the totals. A thread leaves its CPU a last time when it may have been reaped, and has no process
 * any more: what it has waited until now is pushed now. */
TS_GATE("tp_btf/sched_process_exit", delays_exit)

SEC("tp_btf/sched_process_exit")
int BPF_PROG(delays_exit, struct task_struct *task)
{
	struct task_struct *leader = process_ended(task, constants.by_thread);

	delays_charge(task);
	if (!leader)
		return 0;
	delays_end(leader);
	return 0;
}

/* An end that was not seen, and that of a leader whose process goes on: as top_free(). */
TS_GATE("tp_btf/sched_process_free", delays_free)

SEC("tp_btf/sched_process_free")
int BPF_PROG(delays_free, struct task_struct *task)
{
	delays_end(task);
	return 0;
}

/* The tasks that are there already. */
SEC("iter/task")
int delays_adopt(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	/* What it waits for just now has begun before. */
	if (task)
		delays_begin(task, 0);
	return 0;
}
