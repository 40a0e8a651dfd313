// SPDX-License-Identifier: GPL-2.0-only
/* The observer of the sample delays: what processes wait for. Objects are made before a task first runs. */
#include "logic.h"
#include "observe/gate.bpf.h"

char LICENSE[] SEC("license") = "GPL";

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
	delays_begin(task, host_jiffies());
	return 0;
}

/* The thread that executes has become the leader, if it was not: the new program runs in the leader's name. */
TS_GATE("tp_btf/sched_process_exec", delays_exec)

SEC("tp_btf/sched_process_exec")
int BPF_PROG(delays_exec, struct task_struct *task)
{
	delays_begin(task, 0);
	return 0;
}

TS_GATE("tp_btf/sched_process_exit", delays_exit)

SEC("tp_btf/sched_process_exit")
int BPF_PROG(delays_exit, struct task_struct *task)
{
	delays_end(task);
	return 0;
}

/* The end of an object whose exit was not seen: see process_freed(). */
TS_GATE("tp_btf/sched_process_free", delays_free)

SEC("tp_btf/sched_process_free")
int BPF_PROG(delays_free, struct task_struct *task)
{
	process_freed(task, 0);
	return 0;
}

/* The tasks that exist already. */
SEC("iter/task")
int delays_adopt(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	/* The present wait of the task has begun before. */
	if (task)
		delays_begin(task, 0);
	return 0;
}
