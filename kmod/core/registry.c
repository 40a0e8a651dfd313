// SPDX-License-Identifier: GPL-2.0-only
/* Samples and tables: how they are registered and removed. */

#include <linux/module.h>
#include <linux/mm.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/vmalloc.h>
#include "core.h"

/* See core.h. */
DEFINE_MUTEX(tt_lock);
LIST_HEAD(tt_samples);
bool tt_enabled = true;

/* Changed under tt_lock, read under RCU. */
static LIST_HEAD(live_tables);

struct topstat_table *tt_live(u64 instance)
{
	struct topstat_table *t;

	lockdep_assert_preemption_disabled();
	list_for_each_entry_rcu(t, &live_tables, live, true)
		if (t->instance == instance)
			return t;
	return NULL;
}

static bool selftest = true;
module_param(selftest, bool, 0444);
MODULE_PARM_DESC(selftest, "test the engine before the module is loaded, and refuse to load if it fails (default: 1)");

/* Names become files, JSON keys and titles: the allowed characters need no escapes in any of them. */
static bool is_name(const char *name)
{
	size_t i;

	if (!name || !name[0])
		return false;
	for (i = 0; name[i]; i++)
		if (i == TOPSTAT_NAME_MAX ||
		    !((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9') || name[i] == '_'))
			return false;
	return true;
}

static bool is_sample(const struct topstat_sample_info *info)
{
	unsigned int i;

	if (!is_name(info->name) || info->column_count > TOPSTAT_COLUMNS_MAX || !info->parts[0] != !info->parts[1])
		return false;
	for (i = 0; i < info->column_count; i++)
		if (!is_name(info->columns[i].name))
			return false;
	return !info->parts[0] || (is_name(info->parts[0]) && is_name(info->parts[1]));
}

static struct topstat_sample *register_sample(const struct topstat_sample_info *info,
					      const struct topstat_observed *observed)
{
	struct topstat_sample *s, *other;
	int error = -EINVAL;

	might_sleep();
	if (!is_sample(info))
		return ERR_PTR(-EINVAL);
	s = kzalloc(sizeof(*s), GFP_KERNEL);
	if (!s)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&s->tables);
	s->info = *info;
	s->observed = observed;
	s->enabled = true;
	mutex_lock(&tt_lock);
	error = -EEXIST;
	if (!strcmp(info->name, "enabled"))
		goto fail;
	list_for_each_entry(other, &tt_samples, list)
		if (!strcmp(other->info.name, info->name))
			goto fail;
	list_add_tail(&s->list, &tt_samples);
	mutex_unlock(&tt_lock);
	/* The sample's name is taken. This runs without tt_lock, as tt_proc_remove_sample() demands. */
	error = tt_proc_add_sample(s);
	if (!error)
		return s;
	topstat_sample_unregister(s);
	return ERR_PTR(error);
fail:
	mutex_unlock(&tt_lock);
	kfree(s);
	return ERR_PTR(error);
}

struct topstat_sample *topstat_sample_register(const struct topstat_sample_info *info)
{
	if (info->column_count && !info->describe)
		return ERR_PTR(-EINVAL);
	return register_sample(info, NULL);
}
EXPORT_SYMBOL_GPL(topstat_sample_register);

struct topstat_sample *topstat_observer_register(const struct topstat_observed *observed)
{
	if (observed->engine->abi != TOPSTAT_ENGINE_ABI) {
		pr_err("topstat: %s is built with an engine of ABI %u, topstat.ko with ABI %u: build both from one source\n",
		       observed->info.name, observed->engine->abi, TOPSTAT_ENGINE_ABI);
		return ERR_PTR(-EPROTO);
	}
	return register_sample(&observed->info, observed);
}
EXPORT_SYMBOL_GPL(topstat_observer_register);

/* A table of topstat.h has its own bank, with no other table. */
static int make_bank(struct topstat_table *t, u32 entries)
{
	struct {
		struct ts_settings all;
		struct ts_config config[TS_BANK_TABLES];
	} *settings;
	u32 cpu;

	settings = kzalloc(sizeof(*settings), GFP_KERNEL);
	t->stride = ts_table_size(entries);
	t->bank_size = sizeof(struct ts_bank) + t->stride;
	t->banks = settings ? vzalloc(array_size(nr_cpu_ids, t->bank_size)) : NULL;
	if (!t->banks) {
		kfree(settings);
		return -ENOMEM;
	}
	t->settings = &settings->all;
	t->config = settings->config;
	t->bank_config = settings->config;
	for (cpu = 0; cpu < nr_cpu_ids; cpu++)
		ts_table_init(tt_table_on(t, cpu), entries, cpu << 8);
	return 0;
}

static void free_table(struct topstat_table *t)
{
	if (!t->sample->observed) {
		vfree(t->banks);
		kfree(t->settings);
	}
	kfree(t);
}

static int find_bank(struct topstat_table *t, const struct topstat_observed *of, u32 number)
{
	const struct topstat_engine *e = of->engine;
	u64 bank_size = sizeof(struct ts_bank) + (u64)TS_BANK_TABLES * e->shape->table_stride;
	struct ts_config *config = (struct ts_config *)(e->settings + 1);

	if (number >= TS_BANK_TABLES || of->bank >= e->banks_of_cpu)
		return -EINVAL;
	t->settings = e->settings;
	t->bank_config = config + of->bank * TS_BANK_TABLES;
	t->config = t->bank_config + number;
	t->banks = e->banks + of->bank * bank_size;
	t->bank_size = e->banks_of_cpu * bank_size;
	t->stride = e->shape->table_stride;
	t->number = number;
	t->view = e->view(of->bank, number);
	return 0;
}

/* A number that no table had before, in this topstat.ko or an earlier one: see O1 in push.c. */
static u64 new_instance(void)
{
	static u64 last;

	last = max(last + 1, ktime_get_boottime_ns());
	return last;
}

static int place_table(struct topstat_table *t, const struct topstat_table_info *info, u32 number)
{
	enum topstat_type type = info->type ? info->type : TOPSTAT_DYNAMIC;
	u32 entries;
	int error;

	if (t->sample->observed)
		return find_bank(t, t->sample->observed, number);
	entries = tt_entries_for(t->top);
	if (!entries || (type != TOPSTAT_DYNAMIC && type != TOPSTAT_STATIC))
		return -EINVAL;
	error = make_bank(t, entries);
	if (!error)
		/* The engine sees an object from its words on. */
		t->view = ts_view_of(entries - 1, type, offsetof(struct tt_object, window),
				     offsetof(struct tt_object, head.id));
	return error;
}

/* The files go first, which waits for reads. The caller must not hold tt_lock: see tt_proc_remove_table(). */
static void delete_table(struct topstat_table *t)
{
	tt_proc_remove_table(t);
	mutex_lock(&tt_lock);
	list_del(&t->list);
	if (!t->sample->observed)
		list_del_rcu(&t->live);
	WRITE_ONCE(t->config->enabled, 0);
	WRITE_ONCE(t->settings->generation, t->settings->generation + 1);
	mutex_unlock(&tt_lock);
	synchronize_rcu(); /* pushes, and all users of tt_live(), run with preemption off */
	free_table(t);
}

static struct topstat_table *add_table(struct topstat_sample *s, const struct topstat_table_info *info, u32 number)
{
	static const char *const units[] = { "count", "packets", "bits", "bytes", "segments", "ns" };
	struct tt_values values = { TT_PERIOD_MS_DEFAULT, 0, true, true };
	struct topstat_table *t, *other;
	int error;

	might_sleep();
	if (!is_name(info->name) || info->unit >= ARRAY_SIZE(units) || (info->value_name && !is_name(info->value_name)))
		return ERR_PTR(-EINVAL);
	t = kzalloc(sizeof(*t), GFP_KERNEL);
	if (!t)
		return ERR_PTR(-ENOMEM);
	t->sample = s;
	t->name = info->name;
	t->value_name = info->value_name ? info->value_name : units[info->unit];
	t->unit = info->unit;
	t->top = s->observed ? s->observed->engine->top : info->top ? info->top : TS_TOP_DEFAULT;
	mutex_init(&t->told_lock);
	mutex_lock(&tt_lock);
	error = -EEXIST;
	if (!strcmp(info->name, "enabled"))
		goto fail;
	list_for_each_entry(other, &s->tables, list)
		if (!strcmp(other->name, info->name))
			goto fail;
	error = place_table(t, info, number);
	if (error)
		goto fail;
	t->instance = new_instance();
	/* Kept objects have values in static tables alone; objects of an observer are never kept. */
	t->complete = s->observed || !tt_is_static(t);
	error = tt_values_set(t, &values);
	if (error)
		goto fail;
	list_add_tail(&t->list, &s->tables);
	if (!s->observed)
		list_add_tail_rcu(&t->live, &live_tables);
	mutex_unlock(&tt_lock);
	/* The table's name is taken. This runs without tt_lock, as tt_proc_remove_table() demands. */
	error = tt_proc_add_table(t);
	if (!error)
		return t;
	delete_table(t);
	return ERR_PTR(error);
fail:
	mutex_unlock(&tt_lock);
	free_table(t);
	return ERR_PTR(error);
}

struct topstat_table *topstat_table_add(struct topstat_sample *s, const struct topstat_table_info *info)
{
	return s->observed ? ERR_PTR(-EINVAL) : add_table(s, info, 0);
}
EXPORT_SYMBOL_GPL(topstat_table_add);

struct topstat_table *topstat_observer_table(struct topstat_sample *s, const struct topstat_table_info *info,
					     unsigned int number)
{
	return s->observed ? add_table(s, info, number) : ERR_PTR(-EINVAL);
}
EXPORT_SYMBOL_GPL(topstat_observer_table);

void topstat_table_del(struct topstat_table *t)
{
	might_sleep();
	delete_table(t);
}
EXPORT_SYMBOL_GPL(topstat_table_del);

void topstat_sample_unregister(struct topstat_sample *s)
{
	struct topstat_table *t, *next;

	might_sleep();
	list_for_each_entry_safe(t, next, &s->tables, list)
		delete_table(t);
	tt_proc_remove_sample(s);
	mutex_lock(&tt_lock);
	list_del(&s->list);
	mutex_unlock(&tt_lock);
	kfree(s);
}
EXPORT_SYMBOL_GPL(topstat_sample_unregister);

static int __init topstat_init(void)
{
	int error = selftest ? tt_selftest() : 0;

	return error ? error : tt_proc_init();
}

/* The samples' modules use symbols of this module, so no sample is left. */
static void __exit topstat_exit(void)
{
	tt_proc_exit();
}

module_init(topstat_init);
module_exit(topstat_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("top-N statistics, ranked inside the kernel: /proc/topstat");
MODULE_VERSION(TOPSTAT_VERSION);
