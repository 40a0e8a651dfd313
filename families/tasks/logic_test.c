/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads of a few processes in a few groups run on CPUs in turns; snapshots are taken between switches. A model keeps the owner
 * of all CPU time, so totals must be time × CPUs.
 */
#include "logic.h"
#include "observe/user_test.h"

#define PROCESSES 12
#define GROUPS 4

struct group {
	struct cgroup cgroup;
	struct cgroup_root root;
	struct kernfs_node node;
	struct css_set css;
	u64 used;
	int has; /* a group was made */
};

struct process {
	struct task_struct task[2];
	struct signal_struct signal;
	struct group *group;
	u64 used, switches;
	int is_object; /* -1: it has ended, and may leave its CPU a last time */
	int runs[2];
};

static struct group test_groups[GROUPS];
static struct process processes[PROCESSES];
static struct task_struct idle_tasks[HOST_USER_CPUS];
static struct task_struct *current[HOST_USER_CPUS];
static u64 idle, first_start[HOST_USER_CPUS], refused;
static struct sighand_struct *const some_sighand = (void *)1;
static int next_pid;

static struct process *process_at(struct task_struct *task)
{
	u32 i;

	for (i = 0; i < PROCESSES; i++)
		if (task == &processes[i].task[0] || task == &processes[i].task[1])
			return &processes[i];
	return NULL;
}

static void start(struct process *p, u32 thread)
{
	struct task_struct *task = &p->task[thread];

	memset(task, 0, sizeof(*task));
	task->pid = ++next_pid;
	task->group_leader = &p->task[0];
	task->tgid = p->task[0].pid;
	task->signal = &p->signal;
	task->sighand = some_sighand;
	task->cgroups = &p->group->css;
	task->start_boottime = host_user_ns;
	p->signal.live.counter++;
	p->runs[thread] = 1;
	host_user_no_memory = test_once_in(6);
	top_begin(task);
	top_group_of(task);
	host_user_no_memory = 0;
	p->group->has = !!host_of(groups, cgrp, &p->group->cgroup);
	if (!thread) {
		p->used = p->switches = 0;
		p->is_object = !!host_of(objects, task, task);
	}
}

/* Charge the slice on this CPU to its owner in the model. */
static void charged(struct task_struct *task, u64 before, u32 switches)
{
	u64 after = runners[host_user_cpu].start, used = before ? after - before : 0;
	struct process *p = process_at(task);

	if (!before) {
		first_start[host_user_cpu] = after;
		return;
	}
	if (!p) {
		idle += used;
		return;
	}
	if (p->is_object > 0) {
		p->used += used;
		p->switches += switches;
	} else if (!p->is_object) {
		refused += used;
	}
	p->group->used += p->group->has ? used : 0;
}

static void settle(void)
{
	u64 before = runners[host_user_cpu].start;

	TEST_WANT(top_charge_running(current[host_user_cpu]), "nobody was interrupted");
	if (runners[host_user_cpu].start)
		charged(current[host_user_cpu], before, 0);
}

static void switch_to(struct task_struct *next)
{
	struct task_struct *prev = current[host_user_cpu];
	u64 before = runners[host_user_cpu].start;

	top_switched(prev, next);
	charged(prev, before, 1);
	current[host_user_cpu] = next;
}

/* A thread that is on no CPU, or idle. */
static struct task_struct *choose(void)
{
	struct process *p = &processes[test_random(PROCESSES)];
	u32 thread = test_random(2), cpu;

	for (cpu = 0; cpu < HOST_USER_CPUS; cpu++)
		if (current[cpu] == &p->task[thread])
			return &idle_tasks[host_user_cpu];
	return p->runs[thread] ? &p->task[thread] : &idle_tasks[host_user_cpu];
}

/* The running task of this CPU ends, and leaves it. Leaders end last, so the other threads have one. */
static void end(void)
{
	struct task_struct *task = current[host_user_cpu];
	struct process *p = process_at(task);
	u64 before = runners[host_user_cpu].start;
	u32 thread;

	if (!p || (task == &p->task[0] && p->runs[1]))
		return;
	thread = task == &p->task[1];
	p->signal.live.counter--;
	p->runs[thread] = 0;
	top_end(task);
	if (runners[host_user_cpu].start)
		charged(task, before, 0);
	if (!thread && p->is_object)
		p->is_object = -1;
	switch_to(&idle_tasks[host_user_cpu]);
	process_freed(task, TASKS_TASKS);
	host_user_free(objects, task);
	host_user_free(waited, task);
}

static void compare(void)
{
	u64 time = 0, alive = 0, sum;
	u32 i;

	for (i = 0; i < HOST_USER_CPUS; i++)
		time += runners[i].start - first_start[i];
	sum = test_total(TASKS_TASKS, TASKS_CPU);
	TEST_WANT(sum == time, "total %llu, time on CPUs %llu", (unsigned long long)sum, (unsigned long long)time);
	TEST_WANT(test_total(TASKS_TASKS, TASKS_CPU_TOTAL) == time, "total ever");
	TEST_WANT(test_total(TASKS_CGROUPS, TASKS_CPU) == time, "total of groups");
	for (i = 0, sum = 0; i < HOST_USER_CPUS; i++)
		sum += runners[i].idle[TASKS_TASKS].sum[0];
	TEST_WANT(sum == idle, "idle %llu, not %llu", (unsigned long long)sum, (unsigned long long)idle);
	for (i = 0; i < PROCESSES; i++) {
		struct process *p = &processes[i];
		struct tasks_object *o = host_of(objects, task, &p->task[0]);

		if (p->is_object <= 0)
			continue;
		alive++;
		TEST_WANT(o->window[TASKS_CPU].sum[0] == p->used, "process %u: %llu, not %llu", i,
			  (unsigned long long)o->window[TASKS_CPU].sum[0], (unsigned long long)p->used);
		TEST_WANT(o->total.sum[0] == p->used, "process %u: total", i);
		TEST_WANT(o->window[TASKS_SWITCHES].sum[0] == p->switches, "process %u: switches", i);
	}
	for (i = 0; i < GROUPS; i++) {
		struct tasks_group *g = host_of(groups, cgrp, &test_groups[i].cgroup);

		if (g)
			TEST_WANT(g->window.sum[0] == test_groups[i].used, "group %u: %llu, not %llu", i,
				  (unsigned long long)g->window.sum[0], (unsigned long long)test_groups[i].used);
	}
	TEST_WANT(test_refused(TASKS_TASKS, TASKS_CPU) == refused, "refused %llu, not %llu",
		  (unsigned long long)test_refused(TASKS_TASKS, TASKS_CPU), (unsigned long long)refused);
	TEST_WANT(census[TASKS_TASKS].begun - census[TASKS_TASKS].ended == alive, "objects");
}

TEST(tasks)
{
	u32 i, steps = 40 + test_random(200), period_ms = test_once_in(4) ? 50 : 200;

	memset(test_groups, 0, sizeof(test_groups));
	memset(processes, 0, sizeof(processes));
	memset(idle_tasks, 0, sizeof(idle_tasks));
	memset(runners, 0, sizeof(runners));
	memset(&objects, 0, sizeof(objects));
	memset(&waited, 0, sizeof(waited));
	memset(&groups, 0, sizeof(groups));
	memset(first_start, 0, sizeof(first_start));
	next_pid = idle = refused = 0;
	for (i = 0; i < TASKS_TABLES; i++)
		test_configure(TASKS_TASKS, i, obs_type(TASKS_TASKS, i), period_ms, 0);
	test_configure(TASKS_CGROUPS, TASKS_CPU, TS_DYNAMIC, period_ms, 0);
	for (i = 0; i < GROUPS; i++) {
		struct group *g = &test_groups[i];

		g->node.id = 100 + i;
		g->cgroup.kn = &g->node;
		g->cgroup.root = &g->root;
		g->cgroup.self.flags = CSS_ONLINE;
		g->css.dfl_cgrp = &g->cgroup;
	}
	for (i = 0; i < PROCESSES; i++)
		processes[i].group = &test_groups[i % GROUPS];
	for (i = 0; i < HOST_USER_CPUS; i++)
		current[i] = &idle_tasks[i];
	for (i = 0; i < steps; i++) {
		struct process *p = &processes[test_random(PROCESSES)];
		u32 thread = test_random(2);

		test_time_passes(test_random(1 << test_random(26)));
		host_user_cpu = test_random(HOST_USER_CPUS);
		if (!p->runs[0])
			start(p, 0);
		else if (!p->runs[thread])
			start(p, thread);
		else if (test_once_in(8))
			end();
		else if (test_once_in(4))
			settle();
		else
			switch_to(choose());
		compare();
	}
}
