// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads the precise account. These programs are called, never attached. Each reader has its own programs and its own section.
 * Nothing is drained: readers only take turns in choosing the instant.
 */
#include "precise.bpf.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct account_section);
} section SEC(".maps");

/* By CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct account_cpu_row);
} cpu_rows SEC(".maps");

/* AHEAD_NS: how far ahead of now the instant lies (A2). MARGIN_NS: how long before the instant it must have been written. This is
 * longer than a load can be early, or a store late. */
#define AHEAD_NS 4000
#define MARGIN_NS 1000
/* Attempts at an instant that is written in time. */
#define TRIES 8
/* Readings of the clock until the instant has passed. Each takes 20 ns or more. */
#define SPINS 2000
/* Attempts to read the slot of a CPU that is amid a switch. */
#define LOOKS 200

static __always_inline struct account_section *precise_section(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&section, &zero);
}

/*
 * Begins a snapshot: chooses the instant (A2), and waits until it has passed. Argument: how long the reader's claim on the
 * instant lasts, in ns. If the reader has died, other readers go on after that time.
 */
SEC("raw_tp")
int precise_begin(struct bpf_raw_tracepoint_args *ctx)
{
	u64 now = bpf_ktime_get_ns(), claim = ts_read(control.claim), T = 0;
	struct account_section *s = precise_section();
	u32 i;

	if (!s)
		return ACCOUNT_FAULT;
	if (claim > now || !ts_cas(&control.claim, claim, now + ctx->args[0]))
		return ACCOUNT_CLAIMED;
	s->claim = now + ctx->args[0];
	for (i = 0; i < TRIES; i++) {
		s->ran_from = ts_read(control.ran_end);
		s->dead_from = ts_read(control.dead_end);
		T = bpf_ktime_get_ns() + AHEAD_NS;
		__sync_lock_test_and_set(&control.instant, T);
		if (bpf_ktime_get_ns() + MARGIN_NS < T)
			break;
		T = 0;
	}
	s->instant = T;
	s->overrun = 0;
	for (i = 0; i < SPINS; i++) {
		if (bpf_ktime_get_ns() > T)
			break;
	}
	if (!T || i == SPINS) {
		ts_cas(&control.claim, s->claim, 0);
		return ACCOUNT_LATE;
	}
	return ACCOUNT_DONE;
}

/* Says whether the instant is still this reader's, and releases the claim. */
SEC("raw_tp")
int precise_finish(struct bpf_raw_tracepoint_args *ctx)
{
	struct account_section *s = precise_section();
	int mine;

	if (!s)
		return ACCOUNT_FAULT;
	ts_fence();
	mine = ts_read(control.instant) == s->instant;
	ts_cas(&control.claim, s->claim, 0);
	return mine ? ACCOUNT_DONE : ACCOUNT_CLAIMED;
}

/* Whether the thread was last seen to come onto this CPU. */
static __always_inline int precise_is_on(u64 thread, u64 id, u32 cpu)
{
	u64 there = 0, on = 0;

	ts_peek(&on, sizeof(on), thread + offsetof(struct account_thread, on));
	ts_peek(&there, sizeof(there), thread + offsetof(struct account_thread, id));
	return there == id && on == (u64)cpu + 1;
}

/*
 * Whether a CPU is offline that a thread was last seen to come onto. A CPU goes offline by a switch to idle. The kernel does not
 * trace that switch: it skips tracepoints on a CPU that counts as offline already. When the CPU comes back it switches from idle,
 * so the slice is moved (struct account_moved). The last thread on the CPU is the CPU's own thread that stops the CPU. It leads
 * to the CPU's run queue.
 */
static __always_inline int precise_is_offline(u64 thread, u64 id, u32 cpu)
{
	struct task_struct *task = NULL, *curr;
	int online = 1, pid, of;
	struct rq *rq;

	if (!bpf_core_field_exists(task->se.cfs_rq->rq->online) || !precise_is_on(thread, id, cpu))
		return 0;
	ts_peek(&task, sizeof(task), thread + offsetof(struct account_thread, task));
	rq = BPF_CORE_READ(task, se.cfs_rq, rq);
	if (ts_likely(bpf_core_read(&online, sizeof(online), &rq->online) || online))
		return 0;
	if (bpf_core_read(&of, sizeof(of), &rq->cpu) || of != (int)cpu)
		return 0;
	bpf_core_read(&curr, sizeof(curr), &rq->curr);
	return !bpf_core_read(&pid, sizeof(pid), &curr->pid) && !pid;
}

/* Reads one CPU as of the instant, once. ACCOUNT_LATE: its slot was written during the read. */
__noinline int precise_look(u32 cpu)
{
	struct account_section *s = precise_section();
	struct account_cpu_row *row = bpf_map_lookup_elem(&cpu_rows, &cpu);
	struct account_cpu *c = bpf_map_lookup_elem(&slots, &cpu);
	u64 T, seq, before, id;
	u32 running, last;

	if (!s || !row || !c)
		return ACCOUNT_FAULT;
	T = s->instant;
	ts_fence();
	seq = ts_read(c->seq);
	if (seq & 1)
		return ACCOUNT_LATE;
	ts_fence();
	row->since = c->since;
	row->thread = row->id = row->assumed = 0;
	row->start = c->start;
	__builtin_memcpy(row->moved, c->moved, sizeof(row->moved));
	running = c->running;
	id = c->id;
	if (running == ACCOUNT_RUNS_THREAD && precise_is_offline(c->thread, id, cpu)) {
		running = ACCOUNT_RUNS_IDLE;
		id = ACCOUNT_ID_IDLE;
		last = ts_bound(c->moves, ACCOUNT_MOVED - 1);
		row->moved[last].start = c->start;
		row->moved[last].unowned = 0;
		row->moved[last].to = ACCOUNT_ID_IDLE;
	}
	before = c->start < T ? T - c->start : 0;
	if (c->kept_at == T) {
		row->own = c->kept;
	} else {
		row->own = c->own;
		if (c->start < T)
			row->assumed = id;
		if (running == ACCOUNT_RUNS_IDLE) {
			row->own.idle += before;
			row->own.idle_irq += c->own.irq - c->start_irq;
			row->own.idle_softirq += c->own.softirq - c->start_softirq;
		} else if (running == ACCOUNT_RUNS_UNOWNED) {
			row->own.unowned += before;
		}
	}
	if (running == ACCOUNT_RUNS_THREAD && c->start < T) {
		row->thread = c->thread;
		row->id = id;
		/* If the thread's departure had been seen, the slot would have changed by now. */
		if (!precise_is_on(row->thread, row->id, cpu)) {
			row->own.unowned += before;
			row->assumed = ACCOUNT_ID_UNOWNED;
			row->thread = row->id = 0;
		}
	}
	row->irq = c->own.irq - c->start_irq;
	row->softirq = c->own.softirq - c->start_softirq;
	row->start_steal = c->start_steal;
	ts_fence();
	return ts_read(c->seq) == seq ? ACCOUNT_DONE : ACCOUNT_LATE;
}

/*
 * Reads one CPU as of the instant. A slot that is written during the read is read again: its members must belong to one moment,
 * and it must contain all that came before the instant (A3).
 */
static __always_inline int precise_cpu(u32 cpu)
{
	u32 i;
	int code;

	for (i = 0; i < LOOKS; i++) {
		code = precise_look(cpu);
		if (code != ACCOUNT_LATE)
			return code;
	}
	return ACCOUNT_BUSY;
}

/* Reads the CPUs from the one in the argument on. Returns ACCOUNT_BUSY, and the CPU's number in `next`, if a CPU is amid a switch
 * for a long time: then it is a virtual CPU that does not run. */
SEC("raw_tp")
int precise_cpus(struct bpf_raw_tracepoint_args *ctx)
{
	struct account_section *s = precise_section();
	u32 cpu, first = ctx->args[0], i;
	int code;

	if (!s)
		return ACCOUNT_FAULT;
	for (i = 0; i < ACCOUNT_ROWS; i++) {
		cpu = first + i;
		s->next = cpu;
		if (cpu >= constants.cpus)
			break;
		code = precise_cpu(cpu);
		if (code)
			return code;
	}
	return ACCOUNT_DONE;
}

#define NOWHERE ~0U

/* Adds what the running thread has used from the slice's start to the instant. */
static __always_inline void precise_slice(struct account_section *s, struct account_own *own, u32 cpu,
					  struct task_struct *task)
{
	struct account_cpu_row *row = bpf_map_lookup_elem(&cpu_rows, &cpu);
	u64 steal;

	if (!row || row->start >= s->instant)
		return;
	own->run += s->instant - row->start;
	own->irq += row->irq;
	own->softirq += row->softirq;
	if (constants.steal && bpf_core_field_exists(task->se.cfs_rq->rq->prev_steal_time_rq)) {
		steal = BPF_CORE_READ(task, se.cfs_rq, rq, prev_steal_time_rq);
		if (steal > row->start_steal)
			own->steal += steal - row->start_steal;
	}
}

/*
 * Reads one thread as of the instant into the next row. `cpu`: the CPU on which a slot says that the thread runs, or NOWHERE. The
 * storage is read in the order of A4; the row is valid if the storage's id is unchanged afterwards.
 */
__noinline int precise_thread(u64 thread, u64 id, u32 cpu)
{
	struct account_section *s = precise_section();
	struct task_struct *task;
	struct account_row *row;
	u64 still = 0;

	if (!s)
		return 0;
	row = &s->row[ts_bound(s->rows, ACCOUNT_ROWS - 1)];
	ts_peek(&row->times.own, sizeof(row->times.own), thread + offsetof(struct account_thread, own));
	ts_fence();
	if (ts_peek(&s->thread, sizeof(s->thread), thread) || s->thread.id != id) {
		s->gone++;
		return 0;
	}
	task = (void *)s->thread.task;
	if (s->thread.kept_at == s->instant) {
		row->times = s->thread.kept;
	} else {
		precise_kernel(&row->times.kernel, task);
		precise_since(&row->times.kernel, &s->thread.base);
		if (cpu != NOWHERE)
			precise_slice(s, &row->times.own, cpu, task);
		precise_user(&row->times.own, s->thread.in, s->thread.mark);
	}
	row->id = id;
	precise_who(&row->who, task);
	ts_fence();
	if (ts_peek(&still, sizeof(still), thread + offsetof(struct account_thread, id)) || still != id) {
		s->gone++;
		return 0;
	}
	s->rows++;
	return 0;
}

__noinline int precise_running(u32 cpu)
{
	struct account_cpu_row *row = bpf_map_lookup_elem(&cpu_rows, &cpu);

	if (row && row->thread)
		precise_thread(row->thread, row->id, cpu);
	return 0;
}

/* Reads the threads that run on the CPUs from the one in the argument on. */
SEC("raw_tp")
int precise_runs(struct bpf_raw_tracepoint_args *ctx)
{
	struct account_section *s = precise_section();
	u32 i, first = ctx->args[0];

	if (!s)
		return ACCOUNT_FAULT;
	s->rows = 0;
	for (i = 0; i < ACCOUNT_ROWS; i++) {
		if (first + i >= constants.cpus)
			break;
		precise_running(first + i);
	}
	s->next = first + i;
	return ACCOUNT_DONE;
}

/* Reads an entry of `ran`. An entry that is being written is skipped: its thread left a CPU after that CPU's slot was read, so
 * the thread is among those that ran at the instant. */
__noinline int precise_entry(u64 number)
{
	struct account_section *s = precise_section();
	u32 i = number & constants.ran_mask;
	struct account_ran *entry = bpf_map_lookup_elem(&ran, &i);
	u64 found, thread, id;

	if (!entry || !s)
		return 0;
	found = ts_read(entry->number);
	ts_fence();
	thread = entry->thread;
	id = entry->id;
	ts_fence();
	if (ts_read(entry->number) != found || found > number)
		s->overrun++;
	else if (found == number)
		precise_thread(thread, id, NOWHERE);
	return 0;
}

/* Reads threads that ran (A5): the entries of the ring from argument 0 to argument 1, at most ACCOUNT_ROWS. */
SEC("raw_tp")
int precise_ran(struct bpf_raw_tracepoint_args *ctx)
{
	struct account_section *s = precise_section();
	u64 number = ctx->args[0], end = ctx->args[1];
	u32 i;

	if (!s)
		return ACCOUNT_FAULT;
	s->rows = 0;
	for (i = 0; i < ACCOUNT_ROWS; i++) {
		if (number + i > end)
			break;
		precise_entry(number + i);
	}
	return ACCOUNT_DONE;
}

/* Reads all threads that have ever run: for a reader's first snapshot, or after an overrun. */
SEC("iter/task")
int precise_all(struct bpf_iter__task *ctx)
{
	struct account_section *s = precise_section();
	struct task_struct *task = ctx->task;
	struct account_thread *t;

	if (!task || !s)
		return 0;
	t = bpf_task_storage_get(&threads, task, NULL, 0);
	if (!t || !t->id || (!t->own.run && t->kept_at != s->instant))
		return 0;
	s->rows = 0;
	/* Through memory, which turns the pointer into a number. */
	ts_write(s->address, (u64)t);
	precise_thread(ts_read(s->address), t->id, NOWHERE);
	if (s->rows)
		bpf_seq_write(ctx->meta->seq, &s->row[0], sizeof(s->row[0]));
	return 0;
}
