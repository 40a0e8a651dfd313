// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two ways to read the CPU time of tasks, for the comparison with topstat: an iterator over all tasks writes the CPU time of each
 * thread, or only of threads whose CPU time has changed since the last read.
 */
#include "observe/kernel.h"

char LICENSE[] SEC("license") = "GPL";

struct sched_entity___run {
	u64 sum_exec_runtime; /* ns */
} CORE;

struct task_struct___run {
	int pid;
	struct sched_entity___run se;
} CORE;

/* User space reads a sequence of these. */
struct record {
	u32 tid;
	u32 pad;
	u64 run_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} seen SEC(".maps");

static __always_inline u64 run_ns(const struct task_struct *task)
{
	return ((const struct task_struct___run *)task)->se.sum_exec_runtime;
}

static __always_inline void write(struct bpf_iter__task *ctx, const struct task_struct *task, u64 ns)
{
	struct record r = { .tid = task->pid, .run_ns = ns };

	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
}

SEC("iter/task")
int tasks_all(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task)
		write(ctx, task, run_ns(task));
	return 0;
}

SEC("iter/task")
int tasks_ran(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	u64 *before, now;

	if (!task)
		return 0;
	before = bpf_task_storage_get(&seen, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	now = run_ns(task);
	if (!before || *before == now)
		return 0;
	*before = now;
	write(ctx, task, now);
	return 0;
}
