// SPDX-License-Identifier: GPL-2.0-only
/*
 * A user of topstat.h for the tests: a sample `trial` with a dynamic and a static table, whose objects the holder keeps. A test
 * writes commands to /proc/topstat_trial, a line at a time; the module executes a command before the write returns.
 *
 *	push TABLE OBJECT AMOUNT [PART]	TABLE: 0 `rate`, 1 `sum`
 *	storm SECONDS			pushes to random objects of both tables from every CPU, from threads and from timers
 *					in hardirq; returns when they have ended
 *	begin | end			as storm, until `end`
 *	attach				gives all existing objects to `sum`, and then declares `sum` complete
 *	cross TABLE OBJECT AMOUNT	pushes an object of the other table
 *	zero TABLE OBJECT AMOUNT	zeroes the object, and pushes it
 *	copy TABLE OBJECT TO AMOUNT	copies the object to the place of another one, and pushes the copy
 *	again TABLE OBJECT		initialises the object once more, as if its memory had been freed and used for another
 *	object overwrite TABLE OBJECT BYTES	overwrites this number of bytes of a freed object: in `sum`, the first 16 are its
 *	sums dead TABLE OBJECT		ends the object; the next push initialises it anew
 *	names				registers names and values that must be refused; returns -EIO if one is accepted
 *	register			registers another sample with a table, and removes it
 *	abi OBJECT			gives the object of `sum` another ABI
 *	engine				registers an observer with an engine of another ABI; returns -EIO if it is not refused
 *	delete TIMES			repeatedly adds a static table, which `begin` pushes to as well, and deletes it. The
 *					tables count one object in turn; returns -EIO if the object does not have all pushes
 */

#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "holder.h"
#include "topstat_observer.h"
#include "trial_compat.h"

/* The objects of one table. */
#define OBJECTS (HOLDER_OBJECTS / 2)
#define LINE_MAX_BYTES 64

enum { RATE, SUM, TABLES };

static struct topstat_sample *sample;
static struct topstat_table *tables[TABLES];
static struct topstat_object *objects;
static struct task_struct *pushers[NR_CPUS];
static DEFINE_PER_CPU(struct hrtimer, timers);
static atomic64_t pushed[TABLES];
/* Another table, while there is one. Pushes to it are in an RCU read section. */
static struct topstat_table __rcu *extra;
static struct topstat_object of_extra;
static atomic64_t pushed_extra;
static bool overrun;
module_param(overrun, bool, 0644);
MODULE_PARM_DESC(overrun, "descriptions are longer than allowed");

static struct topstat_object *object(u32 table, u32 number)
{
	struct topstat_object *o = &objects[table * OBJECTS + number % OBJECTS];

	if (!o->abi)
		topstat_object_init(o);
	return o;
}

static void describe(const struct topstat_object *o, struct topstat_row *row)
{
	char name[32];

	snprintf(name, sizeof(name), "object %u", (u32)(o - objects) % OBJECTS);
	topstat_row_number(row, (o - objects) % OBJECTS);
	topstat_row_text(row, name, sizeof(name));
	if ((o - objects) % OBJECTS == 0)
		topstat_row_none(row);
	else
		topstat_row_text(row, "\x1b[31m\xff", 6);
	if (READ_ONCE(overrun))
		topstat_row_number(row, 4);
}

static void push_random(void)
{
	u32 random = get_random_u32_of_trial(), table = random & 1, amount = random >> 8 & 1023;
	struct topstat_table *another;

	topstat_push(tables[table], object(table, random >> 18 & random >> 24), amount, random >> 1 & 1);
	atomic64_add(amount, &pushed[table]);
	rcu_read_lock();
	another = rcu_dereference(extra);
	if (another) {
		topstat_push(another, &of_extra, amount, 0);
		atomic64_add(amount, &pushed_extra);
	}
	rcu_read_unlock();
}

static int push_all_the_time(void *unused)
{
	int i;

	/* Not at full load: emulated CPUs are slow. */
	while (!kthread_should_stop()) {
		for (i = 0; i < 100; i++)
			push_random();
		usleep_range(500, 1000);
	}
	return 0;
}

static enum hrtimer_restart push_in_hardirq(struct hrtimer *timer)
{
	push_random();
	hrtimer_forward_now(timer, ns_to_ktime(NSEC_PER_MSEC));
	return HRTIMER_RESTART;
}

static void start_timer(void *unused)
{
	struct hrtimer *timer = this_cpu_ptr(&timers);

	setup_timer_of_trial(timer, push_in_hardirq);
	hrtimer_start(timer, ns_to_ktime(NSEC_PER_MSEC), HRTIMER_MODE_REL_PINNED_HARD);
}

static int begin(void)
{
	int cpu;

	if (pushers[cpumask_first(cpu_online_mask)])
		return -EBUSY;
	for_each_online_cpu(cpu) {
		pushers[cpu] = kthread_run(push_all_the_time, NULL, "trial/%d", cpu);
		if (IS_ERR(pushers[cpu])) {
			pushers[cpu] = NULL;
			return -ENOMEM;
		}
	}
	on_each_cpu(start_timer, NULL, 1);
	return 0;
}

static void end(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		if (!pushers[cpu])
			continue;
		kthread_stop(pushers[cpu]);
		pushers[cpu] = NULL;
		if (per_cpu(timers, cpu).base)
			hrtimer_cancel(&per_cpu(timers, cpu));
	}
}

static int refuse(struct topstat_sample_info *info, int expected)
{
	struct topstat_sample *s = topstat_sample_register(info);

	if (!IS_ERR(s))
		topstat_sample_unregister(s);
	return PTR_ERR_OR_ZERO(s) == expected ? 0 : -EIO;
}

static int refuse_table(struct topstat_table_info *info, int expected)
{
	struct topstat_table *t = topstat_table_add(sample, info);

	if (!IS_ERR(t))
		topstat_table_del(t);
	return PTR_ERR_OR_ZERO(t) == expected ? 0 : -EIO;
}

static int names(void)
{
	static const char *const bad[] = { NULL, "", "a/b", "..", "A", "a b", "12345678901234567890123456789012", "a\n" };
	struct topstat_sample_info of_sample = { .owner = THIS_MODULE };
	struct topstat_table_info of_table = {};
	int error = 0, i;

	for (i = 0; i < ARRAY_SIZE(bad) && !error; i++) {
		of_sample.name = bad[i];
		of_table.name = bad[i];
		error = refuse(&of_sample, -EINVAL);
		if (!error)
			error = refuse_table(&of_table, -EINVAL);
	}
	of_sample.name = "trial";
	error = error ? error : refuse(&of_sample, -EEXIST);
	of_sample.name = "enabled";
	error = error ? error : refuse(&of_sample, -EEXIST);
	of_table.name = "sum";
	error = error ? error : refuse_table(&of_table, -EEXIST);
	of_table = (struct topstat_table_info){ .name = "x", .top = 1025 };
	error = error ? error : refuse_table(&of_table, -EINVAL);
	of_table = (struct topstat_table_info){ .name = "x", .type = 3 };
	error = error ? error : refuse_table(&of_table, -EINVAL);
	of_table = (struct topstat_table_info){ .name = "x", .unit = 6 };
	error = error ? error : refuse_table(&of_table, -EINVAL);
	if (!error && (topstat_table_set_period(tables[SUM], 0) != -EINVAL ||
		       topstat_table_set_delay(tables[SUM], 3600001) != -EINVAL))
		error = -EIO;
	return error;
}

static int register_another(void)
{
	static const struct topstat_sample_info info = { .name = "another", .owner = THIS_MODULE };
	struct topstat_sample *s = topstat_sample_register(&info);
	struct topstat_table *t;
	int error;

	if (IS_ERR(s))
		return PTR_ERR(s);
	t = topstat_table_add(s, &(struct topstat_table_info){ .name = "table" });
	error = PTR_ERR_OR_ZERO(t);
	topstat_sample_unregister(s);
	return error;
}

static int refuse_engine(void)
{
	static const struct topstat_engine engine = { .abi = TOPSTAT_ENGINE_ABI + 1 };
	static const struct topstat_observed observed = {
		.info = { .name = "another", .owner = THIS_MODULE },
		.engine = &engine,
	};
	struct topstat_sample *s = topstat_observer_register(&observed);

	if (!IS_ERR(s))
		topstat_sample_unregister(s);
	return PTR_ERR_OR_ZERO(s) == -EPROTO ? 0 : -EIO;
}

static int add_and_delete(u32 times)
{
	static const struct topstat_table_info info = { .name = "extra", .type = TOPSTAT_STATIC };
	struct topstat_table *t;
	u64 value = 0;
	u32 i;

	/* One time more than other contexts push: the last one reads the value. */
	for (i = 0; i <= times; i++) {
		t = topstat_table_add(sample, &info);
		if (IS_ERR(t))
			return PTR_ERR(t);
		if (i < times) {
			rcu_assign_pointer(extra, t);
			msleep(20);
			RCU_INIT_POINTER(extra, NULL);
		} else {
			synchronize_rcu(); /* all pushes are also in pushed_extra */
			value = topstat_push(t, &of_extra, 0, 0);
		}
		topstat_table_del(t);
	}
	return value && value == atomic64_read(&pushed_extra) ? 0 : -EIO;
}

static int attach_all(void)
{
	struct topstat_object *o;
	u32 i;

	for (i = 0; i < OBJECTS; i++) {
		o = &objects[SUM * OBJECTS + i];
		if (o->abi && !topstat_object_attach(tables[SUM], o))
			return -EIO;
	}
	topstat_table_complete(tables[SUM]);
	return 0;
}

static bool has_kept(void)
{
	u32 i;

	for (i = 0; i < OBJECTS; i++)
		if (objects[SUM * OBJECTS + i].abi)
			return true;
	return false;
}

/* Mistakes that a module can make. The test overwrites freed memory, as a later user of the memory would. */
static int mistake(const char *line)
{
	struct topstat_object *o;
	u32 table, number, to;
	u64 amount;

	if (sscanf(line, "cross %u %u %llu", &table, &number, &amount) == 3 && table < TABLES) {
		topstat_push(tables[table], object(!table, number), amount, 0);
	} else if (sscanf(line, "zero %u %u %llu", &table, &number, &amount) == 3 && table < TABLES) {
		o = object(table, number);
		memset(o, 0, sizeof(*o));
		topstat_push(tables[table], o, amount, 0);
	} else if (sscanf(line, "copy %u %u %u %llu", &table, &number, &to, &amount) == 4 && table < TABLES) {
		o = object(table, to);
		memcpy(o, object(table, number), sizeof(*o));
		topstat_push(tables[table], o, amount, 0);
	} else if (sscanf(line, "again %u %u", &table, &number) == 2 && table < TABLES) {
		topstat_object_init(object(table, number));
	} else if (sscanf(line, "overwrite %u %u %u", &table, &number, &to) == 3 && table < TABLES) {
		/* The bytes behind the id, the address and a word for pushes. */
		o = object(table, number);
		memset(&o->words[3], 0xc3, min_t(size_t, to, sizeof(o->words) - sizeof(u64[3])));
	} else {
		return -EINVAL;
	}
	return 0;
}

static int obey(const char *line)
{
	u32 table, number, part = 0, seconds;
	u64 amount;

	if (sscanf(line, "push %u %u %llu %u", &table, &number, &amount, &part) >= 3 && table < TABLES) {
		topstat_push(tables[table], object(table, number), amount, part);
		atomic64_add(amount, &pushed[table]);
		return 0;
	}
	if (sscanf(line, "dead %u %u", &table, &number) == 2 && table < TABLES) {
		topstat_object_dead(tables[table], object(table, number));
		synchronize_rcu();
		object(table, number)->abi = 0;
		return 0;
	}
	if (sscanf(line, "kill %u %u", &table, &number) == 2 && table < TABLES) {
		topstat_object_dead(tables[table], object(table, number));
		return 0;
	}
	if (sscanf(line, "abi %u", &number) == 1) {
		object(SUM, number)->abi++;
		return 0;
	}
	if (sscanf(line, "storm %u", &seconds) == 1) {
		int error = begin();

		msleep(seconds * 1000);
		end();
		return error;
	}
	if (sscanf(line, "delete %u", &number) == 1)
		return add_and_delete(number);
	if (strstarts(line, "names"))
		return names();
	if (strstarts(line, "attach"))
		return attach_all();
	if (strstarts(line, "engine"))
		return refuse_engine();
	if (strstarts(line, "register"))
		return register_another();
	if (strstarts(line, "begin"))
		return begin();
	if (!strstarts(line, "end"))
		return mistake(line);
	end();
	return 0;
}

static ssize_t write_line(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	char line[LINE_MAX_BYTES] = {};
	int error;

	if (size >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, from, size))
		return -EFAULT;
	error = obey(line);
	return error ? error : size;
}

/* The sum of the pushes to each table since this module was loaded. */
static ssize_t read_pushed(struct file *file, char __user *to, size_t size, loff_t *at)
{
	char text[LINE_MAX_BYTES];
	int length = scnprintf(text, sizeof(text), "%lld %lld\n", (long long)atomic64_read(&pushed[RATE]),
			       (long long)atomic64_read(&pushed[SUM]));

	return simple_read_from_buffer(to, size, at, text, length);
}

static const struct proc_ops operations = {
	.proc_write = write_line,
	.proc_read = read_pushed,
};

static const struct topstat_column columns[] = { { "number" }, { "name" }, { "colour", .optional = true } };

static int __init trial_init(void)
{
	static const struct topstat_sample_info info = {
		.name = "trial",
		.owner = THIS_MODULE,
		.columns = columns,
		.column_count = ARRAY_SIZE(columns),
		.parts = { "rx", "tx" },
		.describe = describe,
	};
	static const struct topstat_table_info of[TABLES] = {
		{ .name = "rate", .value_name = "pps", .unit = TOPSTAT_PACKETS, .top = 16 },
		{ .name = "sum", .type = TOPSTAT_STATIC, .unit = TOPSTAT_BYTES, .top = 16 },
	};
	int i, error;

	objects = topstat_holder_objects();
	topstat_object_init(&of_extra);
	sample = topstat_sample_register(&info);
	if (IS_ERR(sample))
		return PTR_ERR(sample);
	error = proc_create("topstat_trial", 0600, NULL, &operations) ? 0 : -ENOMEM;
	for (i = 0; i < TABLES && !error; i++) {
		tables[i] = topstat_table_add(sample, &of[i]);
		error = PTR_ERR_OR_ZERO(tables[i]);
	}
	if (!error && !has_kept())
		topstat_table_complete(tables[SUM]);
	if (!error)
		return 0;
	remove_proc_entry("topstat_trial", NULL);
	topstat_sample_unregister(sample);
	return error;
}

static void __exit trial_exit(void)
{
	remove_proc_entry("topstat_trial", NULL);
	end();
	topstat_sample_unregister(sample);
}

module_init(trial_init);
module_exit(trial_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a user of topstat for its tests");
