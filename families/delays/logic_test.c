/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads of a few processes wait, run on CPUs, end and begin, while memory is refused now and then. The test keeps the value
 * that each process should have beside the observer's.
 */
#include "logic.h"
#include "observe/user_test.h"

#define PROCESSES 24
#define THREADS 3

struct process {
	struct task_struct task[THREADS]; /* the first is the leader */
	struct task_delay_info account[THREADS];
	struct signal_struct signal;
	u64 charged[DELAYS_TABLES]; /* to its object */
	int is_object;
	int runs[THREADS];
};

static struct process processes[PROCESSES];
static u64 totals[DELAYS_TABLES], refused[DELAYS_TABLES];
static struct sighand_struct *const some_sighand = (void *)1;
static int next_pid;

static u64 *delay_of(struct task_delay_info *d, u32 table)
{
	u64 *const of[DELAYS_TABLES] = { &d->blkio_delay,      &d->swapin_delay,  &d->freepages_delay,
					 &d->thrashing_delay, &d->compact_delay, &d->wpcopy_delay };

	return of[table];
}

static void start(struct process *p, u32 thread)
{
	struct task_struct *task = &p->task[thread];

	memset(task, 0, sizeof(*task));
	memset(&p->account[thread], 0, sizeof(p->account[thread]));
	task->pid = ++next_pid;
	task->group_leader = &p->task[0];
	task->tgid = p->task[0].pid;
	task->signal = &p->signal;
	task->sighand = some_sighand;
	task->delays = &p->account[thread];
	task->start_boottime = host_user_ns;
	p->signal.live.counter++;
	p->runs[thread] = 1;
	host_user_no_memory = test_once_in(6);
	delays_begin(task, host_jiffies());
	host_user_no_memory = 0;
	if (!thread) {
		memset(p->charged, 0, sizeof(p->charged));
		p->is_object = !!host_of(objects, task, task);
	}
}

/* The model's side of delays_charge(): records what the thread waited. */
static void charge(struct process *p, u32 thread, const u64 *waited)
{
	int known = !!host_of(threads, task, &p->task[thread]);
	u32 table;

	for (table = 0; table < DELAYS_TABLES; table++) {
		if (!known) { /* each time at most all waits of the thread so far */
			refused[table] += *delay_of(&p->account[thread], table);
			continue;
		}
		totals[table] += waited[table];
		if (p->is_object)
			p->charged[table] += waited[table];
		else
			refused[table] += waited[table];
	}
}

/* The thread is on a CPU, has waited before, and leaves the CPU or ends. */
static void leave(struct process *p, u32 thread, int ends)
{
	u64 waited[DELAYS_TABLES] = {};
	u32 table;

	host_user_cpu = test_random(HOST_USER_CPUS);
	for (table = 0; table < DELAYS_TABLES; table++) {
		if (!test_once_in(3))
			continue;
		waited[table] = 1 + test_random(1 << test_random(22));
		*delay_of(&p->account[thread], table) += waited[table];
		p->account[thread].blkio_count++;
	}
	/* A wait for a disk is at most as long as the time since the last look. */
	test_time_passes(waited[DELAYS_BLKIO]);
	if (ends)
		p->signal.live.counter--;
	if (p->account[thread].blkio_count)
		charge(p, thread, waited);
	if (ends)
		delays_end(&p->task[thread]);
	else
		delays_charge(&p->task[thread]);
}

static void end_all(struct process *p)
{
	u32 thread;

	for (thread = 0; thread < THREADS; thread++) {
		if (!p->runs[thread])
			continue;
		leave(p, thread, 1);
		p->runs[thread] = 0;
		if (thread)
			host_user_free(threads, &p->task[thread]);
	}
	host_user_free(threads, &p->task[0]);
	host_user_free(objects, &p->task[0]);
	p->is_object = 0;
}

static void compare(void)
{
	u64 begun = 0, value, rows;
	u32 i, table;

	for (table = 0; table < DELAYS_TABLES; table++) {
		u32 number = table / TS_BANK_TABLES, of_bank = table % TS_BANK_TABLES;

		TEST_WANT(test_total(number, of_bank) == totals[table], "table %u: total %llu, not %llu", table,
			  (unsigned long long)test_total(number, of_bank), (unsigned long long)totals[table]);
		TEST_WANT(test_refused(number, of_bank) == refused[table], "table %u: refused %llu, not %llu", table,
			  (unsigned long long)test_refused(number, of_bank), (unsigned long long)refused[table]);
		for (i = 0, rows = 0; i < PROCESSES; i++) {
			struct delays_object *o = host_of(objects, task, &processes[i].task[0]);

			if (!processes[i].is_object)
				continue;
			TEST_WANT(o->window[table].sum[0] == processes[i].charged[table],
				  "process %u, table %u: %llu, not %llu", i, table,
				  (unsigned long long)o->window[table].sum[0],
				  (unsigned long long)processes[i].charged[table]);
			value = test_value(number, of_bank, &o->window[table]);
			if (value <= test_missed(number, of_bank))
				continue;
			TEST_WANT(test_row(number, of_bank, o->object.id, &rows) && rows == value,
				  "process %u, table %u: value %llu has no row", i, table, (unsigned long long)value);
		}
	}
	for (i = 0; i < PROCESSES; i++)
		begun += processes[i].is_object;
	TEST_WANT(census[0].begun - census[0].ended == begun, "%llu objects, not %llu",
		  (unsigned long long)(census[0].begun - census[0].ended), (unsigned long long)begun);
	TEST_WANT(!impossible, "%llu waits were impossible", (unsigned long long)impossible);
}

TEST(delays)
{
	u32 i, steps = 40 + test_random(200), period_ms = test_once_in(4) ? 50 : 200;

	memset(processes, 0, sizeof(processes));
	memset(totals, 0, sizeof(totals));
	memset(refused, 0, sizeof(refused));
	memset(&objects, 0, sizeof(objects));
	memset(&threads, 0, sizeof(threads));
	next_pid = impossible = 0;
	constants.jiffy_ns = HOST_USER_JIFFY_NS;
	for (i = 0; i < DELAYS_TABLES; i++)
		test_configure(i / TS_BANK_TABLES, i % TS_BANK_TABLES, TS_DYNAMIC, period_ms, 0);
	for (i = 0; i < steps; i++) {
		struct process *p = &processes[test_random(PROCESSES)];
		u32 thread = test_random(THREADS);

		test_time_passes(test_random(1 << test_random(26)));
		if (!p->runs[0])
			start(p, 0);
		else if (!p->runs[thread])
			start(p, thread);
		else if (test_once_in(12))
			end_all(p);
		else
			leave(p, thread, 0);
		compare();
	}
}
