// SPDX-License-Identifier: GPL-2.0-only
/*
 * A user of topstat.h for the tests: a sample `trial` with a dynamic table, the table of its sums, and a static table, whose
 * objects the holder keeps. A test writes commands to /proc/topstat_trial, a line at a time; the module executes a command before
 * the write returns.
 *
 *	push TABLE OBJECT AMOUNT [PART]	TABLE: 0 `rate`, 1 `sum`
 *	storm SECONDS			pushes to random objects of both tables from every CPU, from threads and from timers
 *					in hardirq; returns when they have ended
 *	begin | end			as storm, until `end`
 *	attach				gives all existing objects to their tables, and then declares these complete
 *	cross TABLE OBJECT AMOUNT	pushes an object of the other table
 *	zero TABLE OBJECT AMOUNT	zeroes the object, and pushes it
 *	copy TABLE OBJECT TO AMOUNT	copies the object to the place of another one, and pushes the copy
 *	again TABLE OBJECT		initialises the object once more, as if its memory had been freed and used for another
 *					object
 *	overwrite TABLE OBJECT BYTES	overwrites this number of bytes of a freed object: in `sum`, the first 16 are its sums
 *	dead TABLE OBJECT		ends the object; the next push initialises it anew
 *	batch TABLE OBJECT AMOUNT	pushes the amount to this object and to the next seven, at once
 *	keyed TABLE OBJECT AMOUNT	pushes the amount if the key of `rate` is on
 *	reset TABLE OBJECT		begins the object's values anew
 *	value TABLE OBJECT RX TX	returns -EIO if topstat_object_value() says other parts; TABLE: also 2 `rate_sum`
 *	top ROWS | sync 0|1		of `sum`
 *	wrong AMOUNT			pushes a static object to `rate`
 *	handles				calls all functions without a sample and a table; returns -EIO if one does anything
 *	cost				logs how many nanoseconds each kind of push takes: instructions, where a guest counts them
 *	names				registers names and values that must be refused; returns -EIO if one is accepted
 *	register			registers another sample with a table, and removes it
 *	abi OBJECT			gives the object of `sum` another ABI
 *	engine				registers an observer with an engine of another ABI; returns -EIO if it is not refused
 *	delete TIMES			repeatedly adds a static table, which `begin` pushes to as well, and deletes it. The
 *					tables count one object in turn; returns -EIO if the object does not have all pushes,
 *					but for those that began while a table was being deleted
 */

#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <net/net_namespace.h>
#include "holder.h"
#include "trial.h"
#include "trial_compat.h"

#define OBJECTS HOLDER_OBJECTS
/* Storms push to the objects with numbers below this, a power of two. */
#define STORM_OBJECTS 256
#define LINE_MAX_BYTES 64

enum { RATE, SUM, TABLES };

static struct topstat_sample *sample;
static struct topstat_table *tables[TABLES];
static struct holder_objects *objects;
static DEFINE_STATIC_KEY_FALSE(rate_is_on);
static u32 evaluated; /* how often the key was on */
static struct task_struct *pushers[NR_CPUS];
static DEFINE_PER_CPU(struct hrtimer, timers);
static atomic64_t pushed[TABLES];
static struct trial_extra extra;
static bool overrun;
module_param(overrun, bool, 0644);
MODULE_PARM_DESC(overrun, "descriptions are longer than allowed");

static bool each;
module_param(each, bool, 0444);
MODULE_PARM_DESC(each, "the tables have a callback that attaches their objects");

static struct topstat_object *place(u32 table, u32 number)
{
	return table == RATE ? &objects->rate[number % OBJECTS].object : &objects->sum[number % OBJECTS].object;
}

static size_t size_in(u32 table)
{
	return table == RATE ? sizeof(struct topstat_dynamic) : sizeof(struct topstat_static);
}

static void init(u32 table, u32 number)
{
	if (table == RATE)
		topstat_dynamic_init(&objects->rate[number % OBJECTS]);
	else
		topstat_static_init(&objects->sum[number % OBJECTS]);
}

static struct topstat_object *object(u32 table, u32 number)
{
	if (!place(table, number)->abi)
		init(table, number);
	return place(table, number);
}

static u32 number_of(const struct topstat_object *o)
{
	const struct topstat_static *sum = container_of(o, struct topstat_static, object);

	if (sum >= objects->sum && sum < objects->sum + OBJECTS)
		return sum - objects->sum;
	return container_of(o, struct topstat_dynamic, object) - objects->rate;
}

static void describe(struct topstat_table *t, const struct topstat_object *o, struct topstat_row *row, void *private)
{
	char name[32];

	snprintf(name, sizeof(name), "object %u", number_of(o));
	topstat_row_number(row, number_of(o));
	topstat_row_text(row, name, sizeof(name));
	if (private != &objects || (t != tables[RATE] && t != tables[SUM] && o != &extra.object.object))
		topstat_row_text(row, "not of this table", 20);
	else if (number_of(o) == 0)
		topstat_row_none(row);
	else
		topstat_row_text(row, "\x1b[31m\xff", 6);
	topstat_row_netns(row, number_of(o) ? &init_net : NULL);
	if (READ_ONCE(overrun))
		topstat_row_number(row, 5);
}

static void push_random(void)
{
	u32 random = get_random_u32_of_trial(), table = random & 1, amount = random >> 8 & 1023;
	struct topstat_table *another;

	/* Numbers with few bits are more frequent. */
	topstat_push(tables[table], object(table, random >> 18 & random >> 24 & (STORM_OBJECTS - 1)), amount, random >> 1 & 1);
	atomic64_add(amount, &pushed[table]);
	rcu_read_lock();
	another = rcu_dereference(extra.table);
	if (another) {
		u64 value = topstat_push(another, &extra.object.object, amount, 0);

		smp_rmb(); /* pairs with the locks between RCU_INIT_POINTER() and the end of counting in topstat_table_del() */
		if (value || rcu_access_pointer(extra.table) == another)
			atomic64_add(amount, &extra.pushed);
		else
			atomic64_add(amount, &extra.unsure);
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
	u32 number;
	int cpu;

	if (pushers[cpumask_first(cpu_online_mask)])
		return -EBUSY;
	/* Here, where nothing pushes: object() is for one caller at a time. */
	for (number = 0; number < STORM_OBJECTS; number++) {
		object(RATE, number);
		object(SUM, number);
	}
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

static int attach_all(void)
{
	struct topstat_object *o;
	u32 i, table;

	for (table = 0; table < TABLES; table++) {
		for (i = 0; i < OBJECTS; i++) {
			o = place(table, i);
			if (o->abi && !o->dead && !topstat_object_attach(tables[table], o))
				return -EIO;
		}
		topstat_table_complete(tables[table]);
	}
	return 0;
}

static void attach_each(u32 table, struct topstat_table *t)
{
	u32 i;

	for (i = 0; i < OBJECTS; i++)
		if (place(table, i)->abi)
			topstat_object_attach(t, place(table, i));
}

static void each_of_rate(struct topstat_table *t, void *private)
{
	attach_each(RATE, t);
}

static void each_of_sum(struct topstat_table *t, void *private)
{
	attach_each(SUM, t);
}

static bool has_kept(u32 table)
{
	u32 i;

	for (i = 0; i < OBJECTS; i++)
		if (place(table, i)->abi)
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
		memset(o, 0, size_in(table));
		topstat_push(tables[table], o, amount, 0);
	} else if (sscanf(line, "copy %u %u %u %llu", &table, &number, &to, &amount) == 4 && table < TABLES) {
		o = object(table, to);
		memcpy(o, object(table, number), size_in(table));
		topstat_push(tables[table], o, amount, 0);
	} else if (sscanf(line, "again %u %u", &table, &number) == 2 && table < TABLES) {
		object(table, number);
		init(table, number);
	} else if (sscanf(line, "overwrite %u %u %u", &table, &number, &to) == 3 && table < TABLES) {
		/* The value lies behind what all objects begin with. */
		o = object(table, number);
		memset(o + 1, 0xc3, min_t(size_t, to, size_in(table) - sizeof(*o)));
	} else if (sscanf(line, "wrong %llu", &amount) == 1) {
		topstat_push(tables[RATE], object(SUM, 0), amount, 0);
	} else {
		return -EINVAL;
	}
	return 0;
}

static void batch(u32 table, u32 number, u64 amount)
{
	struct topstat_amount amounts[TRIAL_BATCH];
	u32 i;

	for (i = 0; i < TRIAL_BATCH; i++)
		amounts[i] = (struct topstat_amount){ object(table, number + i), amount, i & 1 };
	topstat_push_batch(tables[table], amounts, TRIAL_BATCH);
	atomic64_add(TRIAL_BATCH * amount, &pushed[table]);
}

static int has_value(u32 table, u32 number, u64 rx, u64 tx)
{
	struct topstat_table *t = table == TABLES ? topstat_table_sums(tables[RATE]) : tables[table];
	u64 parts[2];

	if (!topstat_object_value(t, object(table == TABLES ? RATE : table, number), parts))
		return -ENOENT;
	return parts[0] == rx && parts[1] == tx ? 0 : -EIO;
}

static int cost(void)
{
	struct topstat_amount amounts[TRIAL_BATCH];
	u32 i;

	for (i = 0; i < TRIAL_BATCH; i++)
		amounts[i] = (struct topstat_amount){ object(SUM, i), 1, 0 };
	return trial_cost(sample, tables[RATE], object(RATE, 0), tables[SUM], amounts);
}

/* Commands about one object, and settings. */
static int more(const char *line)
{
	u32 table, number;
	u64 amount, tx;

	if (sscanf(line, "batch %u %u %llu", &table, &number, &amount) == 3 && table < TABLES) {
		batch(table, number, amount);
		return 0;
	}
	if (sscanf(line, "keyed %u %u %llu", &table, &number, &amount) == 3 && table < TABLES) {
		topstat_push_if(&rate_is_on, tables[table], (evaluated++, object(table, number)), amount, 0);
		return 0;
	}
	if (sscanf(line, "reset %u %u", &table, &number) == 2 && table < TABLES)
		return topstat_object_reset(object(table, number)) ? 0 : -ENOENT;
	if (sscanf(line, "value %u %u %llu %llu", &table, &number, &amount, &tx) == 4 && table <= TABLES)
		return has_value(table, number, amount, tx);
	if (sscanf(line, "top %u", &number) == 1)
		return topstat_table_set_top(tables[SUM], number);
	if (sscanf(line, "sync %u", &number) == 1) {
		topstat_table_set_sync(tables[SUM], number);
		return 0;
	}
	if (strstarts(line, "cost"))
		return cost();
	if (strstarts(line, "handles"))
		return trial_without_handles(object(RATE, 0));
	return mistake(line);
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
		topstat_object_dead(object(table, number));
		synchronize_rcu();
		object(table, number)->abi = 0;
		return 0;
	}
	if (sscanf(line, "kill %u %u", &table, &number) == 2 && table < TABLES) {
		topstat_object_dead(object(table, number));
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
		return trial_add_and_delete(sample, &extra, number);
	if (strstarts(line, "names"))
		return trial_names(sample, tables[SUM]);
	if (strstarts(line, "attach"))
		return attach_all();
	if (strstarts(line, "engine"))
		return trial_refuse_engine();
	if (strstarts(line, "register"))
		return trial_register_another();
	if (strstarts(line, "begin"))
		return begin();
	if (!strstarts(line, "end"))
		return more(line);
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

/* The sum of the pushes to each table since this module was loaded; and how often `keyed` has found the key on. */
static ssize_t read_pushed(struct file *file, char __user *to, size_t size, loff_t *at)
{
	char text[LINE_MAX_BYTES];
	int length = scnprintf(text, sizeof(text), "%lld %lld %u\n", (long long)atomic64_read(&pushed[RATE]),
			       (long long)atomic64_read(&pushed[SUM]), evaluated);

	return simple_read_from_buffer(to, size, at, text, length);
}

static const struct proc_ops operations = {
	.proc_write = write_line,
	.proc_read = read_pushed,
};

static const struct topstat_column columns[] = {
	{ "number" },
	{ "name" },
	{ "colour", .optional = true },
	{ "netns", .optional = true },
};

static int __init trial_init(void)
{
	static const struct topstat_sample_info info = {
		.name = "trial",
		.private = &objects,
		.columns = columns,
		.column_count = ARRAY_SIZE(columns),
		.parts = { "rx", "tx" },
		.describe = describe,
	};
	struct topstat_table_info of[TABLES] = {
		{ .name = "rate", .value_name = "pps", .unit = TOPSTAT_PACKETS, .top = 16, .sums = "rate_sum",
		  .key = &rate_is_on, .each = each ? each_of_rate : NULL },
		{ .name = "sum", .type = TOPSTAT_STATIC, .unit = TOPSTAT_BYTES, .top = 16,
		  .each = each ? each_of_sum : NULL },
	};
	int i, error;

	objects = topstat_holder_objects();
	topstat_static_init(&extra.object);
	sample = topstat_sample_register(&info);
	if (IS_ERR(sample))
		return PTR_ERR(sample);
	error = proc_create("topstat_trial", 0600, NULL, &operations) ? 0 : -ENOMEM;
	for (i = 0; i < TABLES && !error; i++) {
		tables[i] = topstat_table_add(sample, &of[i]);
		error = PTR_ERR_OR_ZERO(tables[i]);
	}
	for (i = 0; i < TABLES && !error; i++)
		if (!has_kept(i))
			topstat_table_complete(tables[i]);
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
