// SPDX-License-Identifier: GPL-2.0-only
/*
 * topstat_tasks.ko: samples tasks and cgroups in the kernel module, with the tables and the logic.h of the eBPF observer. Objects
 * are processes and the control groups of version 2.
 *
 * Objects are made with a task or a group, and at loading for all that already exist; a switch only looks them up. A task or a
 * group without an object counts to the total, and as refused (T6).
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cgroup.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched/signal.h>
#include <trace/events/cgroup.h>
#include <trace/events/sched.h>
#include <trace/events/task.h>
#include "logic.h"
#include "topstat_hooks.h"
#include "topstat_observer.h"
#include "topstat_probes.h"

static unsigned int top = TS_TOP_DEFAULT;
module_param(top, uint, 0444);
MODULE_PARM_DESC(top, "rows of each table, 1 to 1024 (default: 128)");

/* Kernels have tracepoints with other arguments: kmod/probes. */
#ifdef HAVE_TASK_NEWTASK_U64
#define CLONE_FLAGS u64
#else
#define CLONE_FLAGS unsigned long
#endif

/* With interrupts off. */
#ifdef HAVE_SCHED_SWITCH_STATE
static void on_switch(void *data, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int state)
#else
static void on_switch(void *data, bool preempt, struct task_struct *prev, struct task_struct *next)
#endif
{
	top_switched(prev, next);
}

/* obs_object_begin() must not run twice at a time for one object: adopt_all() may visit a task that another CPU has just made. */
static DEFINE_SPINLOCK(adopt_lock);
static bool adopting = true;

static void begin(struct task_struct *task)
{
	unsigned long flags;

	if (likely(!READ_ONCE(adopting))) {
		top_begin(task);
		return;
	}
	spin_lock_irqsave(&adopt_lock, flags);
	top_begin(task);
	spin_unlock_irqrestore(&adopt_lock, flags);
}

/* Since 7.3 ("tracing: Have tracepoints use SRCU-fast"), functions at the other tracepoints may be preempted. */
static void on_new(void *data, struct task_struct *task, CLONE_FLAGS flags)
{
	preempt_disable_notrace();
	begin(task);
	top_group_of(task);
	preempt_enable_notrace();
}

/* A thread that executes a program has become the leader: the program runs in the leader's name. */
static void on_exec(void *data, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	preempt_disable_notrace();
	begin(task);
	preempt_enable_notrace();
}

#ifdef HAVE_SCHED_EXIT_GROUP
static void on_exit(void *data, struct task_struct *task, bool group_dead)
#else
static void on_exit(void *data, struct task_struct *task)
#endif
{
	preempt_disable_notrace();
	top_end(task);
	preempt_enable_notrace();
}

/* The task no longer runs, and its storage is no longer looked up. */
static void on_free(void *data, struct task_struct *task)
{
	preempt_disable_notrace();
	process_freed(task, TASKS_TASKS);
	host_storage_free(&objects.storage, task);
	host_storage_free(&waited.storage, task);
	preempt_enable_notrace();
}

static void on_mkdir(void *data, struct cgroup *cgroup, const char *path)
{
	u64 id = group_number(cgroup);

	preempt_disable_notrace();
	/*
	 * Free the storage of an earlier cgroup at this address: on_new() may have made it while that cgroup was being removed.
	 */
	host_storage_free(&groups.storage, cgroup);
	if (id)
		top_group_begin(cgroup, id);
	preempt_enable_notrace();
}

/* Ended tasks may still be in the group, and leave a CPU: they find no group, and are not counted as refused. */
static void on_rmdir(void *data, struct cgroup *cgroup, const char *path)
{
	preempt_disable_notrace();
	top_group_end(cgroup, group_number(cgroup));
	host_storage_free(&groups.storage, cgroup);
	preempt_enable_notrace();
}

static struct topstat_hook hooks[] = {
	/* Hooks that end objects come first: each object that is made has a hook that sees its end. */
	{ "sched_process_free", on_free }, { "cgroup_rmdir", on_rmdir }, { "sched_process_exit", on_exit },
	{ "task_newtask", on_new }, { "sched_process_exec", on_exec }, { "cgroup_mkdir", on_mkdir },
	{ "sched_switch", on_switch },
};

static struct topstat_hooks all_hooks = { hooks, ARRAY_SIZE(hooks) };

/* Adopt the cgroups and tasks that already exist. Tasks are found until they are released, which is before they are freed. */
static void adopt_all(void)
{
	struct cgroup_subsys_state *css;
	struct task_struct *process, *task;

	rcu_read_lock();
	css_for_each_descendant_pre(css, &cgrp_dfl_root.cgrp.self) {
		preempt_disable();
		if (css->flags & CSS_ONLINE)
			top_group_begin(css->cgroup, group_number(css->cgroup));
		preempt_enable();
	}
	for_each_process_thread(process, task)
		begin(task);
	rcu_read_unlock();
	WRITE_ONCE(adopting, false);
}

/*
 * Each CPU counts from now on, also an idle one that does not switch for long. After the second call each CPU has counted some
 * time.
 */
static void start(void *unused)
{
	top_charge_running(current);
}

/* Before a section is taken, on its CPU: a task may run long before it leaves the CPU. */
static bool settle(void)
{
	return top_charge_running(current);
}

/* A task's memory may be freed while it is read: its row is then not shown. */
#define peek(p, field)                                                                                    \
	({                                                                                                \
		typeof((p)->field) peeked_;                                                               \
		if (ts_peek(&peeked_, sizeof(peeked_), (u64)(unsigned long)&(p)->field))                  \
			memset(&peeked_, 0, sizeof(peeked_));                                             \
		peeked_;                                                                                  \
	})

static void describe_task(const struct ts_table *table, const struct ts_row *found, u64 object, struct topstat_row *row)
{
	const struct tasks_object *o = (const void *)(unsigned long)object;
	struct task_struct *task = (void *)(unsigned long)READ_ONCE(o->task);
	char comm[TASK_COMM_LEN] = "";
	struct css_set *css = (struct css_set __force *)peek(task, cgroups);
	struct kernfs_node *kn = NULL;

	ts_peek(comm, sizeof(comm), (u64)(unsigned long)task->comm);
	if (css)
		kn = peek(peek(css, dfl_cgrp), kn);
	topstat_row_number(row, peek(task, tgid));
	topstat_row_none(row);
	topstat_row_text(row, comm, sizeof(comm));
	if (kn) {
		topstat_row_cgroup(row, peek(kn, id));
		topstat_row_container(row, peek(kn, id));
	} else {
		topstat_row_none(row);
		topstat_row_none(row);
	}
}

static void describe_group(const struct ts_table *table, const struct ts_row *found, u64 object, struct topstat_row *row)
{
	topstat_row_cgroup(row, found->id);
	topstat_row_container(row, found->id);
}

/* Tries to read a window that is being written. */
#define IDLE_TRIES 200

static u64 idle_of_cpu(const struct ts_window *window, const struct ts_tick *tick)
{
	struct ts_window copy;
	struct ts_value v;
	int tries;

	for (tries = 0; tries < IDLE_TRIES; tries++) {
		if (ts_window_peek(&copy, (u64)(unsigned long)window) == TS_COPY_OK && !ts_window_eval(&copy, tick, &v))
			return v.value;
		cpu_relax();
	}
	return 0; /* an unknown value is part of `other` */
}

/* The idle time of all CPUs. */
static bool idle(u32 sample, u32 table, const struct ts_tick *tick, u64 *value)
{
	struct tasks_runner *r;
	u32 cpu;

	if (table != TASKS_CPU && table != TASKS_CPU_TOTAL)
		return false;
	for_each_possible_cpu(cpu) {
		r = host_on(runners, cpu);
		if (table == TASKS_CPU_TOTAL)
			*value += READ_ONCE(r->idle_total.sum[0]);
		else
			*value += idle_of_cpu(&r->idle[sample], tick);
	}
	return true;
}

static bool idle_of_tasks(u32 table, const struct ts_tick *tick, u64 *value)
{
	return idle(TASKS_TASKS, table, tick, value);
}

static bool idle_of_groups(u32 table, const struct ts_tick *tick, u64 *value)
{
	return idle(TASKS_CGROUPS, table, tick, value);
}

static void describe_idle_of_tasks(struct topstat_row *row)
{
	topstat_row_number(row, 0);
	topstat_row_none(row);
	topstat_row_text(row, "idle", 4);
	topstat_row_none(row);
	topstat_row_none(row);
}

static void describe_idle_of_groups(struct topstat_row *row)
{
	topstat_row_none(row);
	topstat_row_none(row);
}

static const struct topstat_column of_tasks[] = {
	{ "pid" }, { "tid", .optional = true }, { "comm" }, { "cgroup" }, { "container", .optional = true },
};

static const struct topstat_column of_groups[] = { { "cgroup" }, { "container", .optional = true } };

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

static const struct topstat_observed observed[] = {
	[TASKS_TASKS] = {
		.info = { .name = "tasks", .columns = of_tasks, .column_count = ARRAY_SIZE(of_tasks) },
		.engine = &engine, .bank = TASKS_TASKS, .census = &census[TASKS_TASKS], .describe = describe_task,
		.settle = settle, .unranked = idle_of_tasks, .unranked_describe = describe_idle_of_tasks,
	},
	[TASKS_CGROUPS] = {
		.info = { .name = "cgroups", .columns = of_groups, .column_count = ARRAY_SIZE(of_groups) },
		.engine = &engine, .bank = TASKS_CGROUPS, .census = &census[TASKS_CGROUPS], .describe = describe_group,
		.settle = settle, .unranked = idle_of_groups, .unranked_describe = describe_idle_of_groups,
	},
};

/* In the order of the daemon's tree. */
static const struct {
	u32 sample;
	u32 number;
	struct topstat_table_info info;
} tables[] = {
	{ TASKS_TASKS, TASKS_CPU, { "cpu", "ns", TOPSTAT_DYNAMIC, TOPSTAT_NANOSECONDS } },
	{ TASKS_TASKS, TASKS_CPU_TOTAL, { "cpu_total", "ns", TOPSTAT_STATIC, TOPSTAT_NANOSECONDS } },
	{ TASKS_TASKS, TASKS_SWITCHES, { "switches", "switches", TOPSTAT_DYNAMIC, TOPSTAT_COUNT } },
	{ TASKS_TASKS, TASKS_WAITS, { "waits", "ns", TOPSTAT_DYNAMIC, TOPSTAT_NANOSECONDS } },
	{ TASKS_CGROUPS, TASKS_CPU, { "cpu", "ns", TOPSTAT_DYNAMIC, TOPSTAT_NANOSECONDS } },
};

static struct topstat_sample *samples[TASKS_SAMPLES];

static int register_all(void)
{
	struct topstat_table *t;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(samples); i++) {
		samples[i] = topstat_observer_register(&observed[i]);
		if (IS_ERR(samples[i]))
			return PTR_ERR(samples[i]);
	}
	for (i = 0; i < ARRAY_SIZE(tables); i++) {
		t = topstat_observer_table(samples[tables[i].sample], &tables[i].info, tables[i].number);
		if (IS_ERR(t))
			return PTR_ERR(t);
	}
	return 0;
}

static void give_back(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(samples); i++)
		if (!IS_ERR_OR_NULL(samples[i]))
			topstat_sample_unregister(samples[i]);
	rcu_barrier();
	host_storage_free_all(&objects.storage);
	host_storage_free_all(&waited.storage);
	host_storage_free_all(&groups.storage);
	host_banks_free();
}

static int __init observer_init(void)
{
	int error;

	check_trace_callback_type_sched_switch(on_switch);
	check_trace_callback_type_task_newtask(on_new);
	check_trace_callback_type_sched_process_exec(on_exec);
	check_trace_callback_type_sched_process_exit(on_exit);
	check_trace_callback_type_sched_process_free(on_free);
	check_trace_callback_type_cgroup_mkdir(on_mkdir);
	check_trace_callback_type_cgroup_rmdir(on_rmdir);
	error = host_banks_make(TASKS_ABI, top);
	if (error)
		return error;
	engine.banks = host_banks;
	engine.top = top;
	error = register_all();
	if (!error)
		error = topstat_hook_all(&all_hooks);
	if (error) {
		give_back();
		return error;
	}
	on_each_cpu(start, NULL, 1);
	adopt_all();
	on_each_cpu(start, NULL, 1);
	return 0;
}

static void __exit observer_exit(void)
{
	topstat_unhook(&all_hooks, ARRAY_SIZE(hooks));
	give_back();
}

module_init(observer_init);
module_exit(observer_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("processes and control groups by what they use of the CPUs, for topstat");
MODULE_VERSION(TOPSTAT_VERSION);
