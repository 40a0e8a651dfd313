// SPDX-License-Identifier: GPL-2.0-only
/* Samples and tables: how they are registered and removed. */

#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/mm.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/timekeeping.h>
#include <linux/topology.h>
#include <linux/vmalloc.h>
#include "core.h"
#include "topstat/push.h"

/* See core.h. */
DEFINE_MUTEX(tt_lock);
LIST_HEAD(tt_samples);
bool tt_enabled = true;

/* By their numbers. Changed under tt_lock, read under RCU. */
static DEFINE_HASHTABLE(live_tables, 6);

struct topstat_table *tt_live(u64 instance)
{
	struct topstat_table *t;

	lockdep_assert_preemption_disabled();
	hash_for_each_possible_rcu(live_tables, t, live, instance, true)
		if (t->instance == instance)
			return t;
	return NULL;
}

#ifdef TT_SELFTEST
static bool selftest = true;
module_param(selftest, bool, 0444);
MODULE_PARM_DESC(selftest, "test the engine before the module is loaded, and refuse to load if it fails (default: 1)");
#endif

bool tt_debug;
module_param_named(debug, tt_debug, bool, 0644);
MODULE_PARM_DESC(debug, "log all mistakes of modules that use topstat.h, with the callers (default: 0)");

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
	unsigned int i, k;

	if (!is_name(info->name) || info->column_count > TOPSTAT_COLUMNS_MAX || !info->parts[0] != !info->parts[1])
		return false;
	for (i = 0; i < info->column_count; i++) {
		if (!is_name(info->columns[i].name))
			return false;
		for (k = 0; k < i; k++)
			if (!strcmp(info->columns[i].name, info->columns[k].name))
				return false;
	}
	return !info->parts[0] || (is_name(info->parts[0]) && is_name(info->parts[1]));
}

static struct topstat_sample *register_sample(const struct topstat_sample_info *info,
					      const struct topstat_observed *observed, struct module *owner)
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
	s->owner = owner;
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

struct topstat_sample *__topstat_sample_register(const struct topstat_sample_info *info, struct module *owner)
{
	if (info->column_count && !info->describe)
		return ERR_PTR(-EINVAL);
	return register_sample(info, NULL, owner);
}
EXPORT_SYMBOL_GPL(__topstat_sample_register);

struct topstat_sample *__topstat_observer_register(const struct topstat_observed *observed, struct module *owner)
{
	if (observed->engine->abi != TOPSTAT_ENGINE_ABI) {
		pr_err("topstat: %s is built with an engine of ABI %u, topstat.ko with ABI %u: build both from one source\n",
		       observed->info.name, observed->engine->abi, TOPSTAT_ENGINE_ABI);
		return ERR_PTR(-EPROTO);
	}
	return register_sample(&observed->info, observed, owner);
}
EXPORT_SYMBOL_GPL(__topstat_observer_register);

/*
 * The memory of all CPUs' banks, one behind the other: the pages of each CPU's bank are memory of that CPU's node. `size`: of one
 * bank, whole pages. NULL: there is no memory. vfree() frees it.
 */
static void *make_banks(size_t size)
{
	unsigned int of_bank = size >> PAGE_SHIFT, count = of_bank * nr_cpu_ids, i;
	struct page **pages = kvmalloc_array(count, sizeof(*pages), GFP_KERNEL);
	void *banks = NULL;

	if (!pages)
		return NULL;
	for (i = 0; i < count; i++) {
		u32 cpu = i / of_bank;

		pages[i] = alloc_pages_node(cpu_possible(cpu) ? cpu_to_node(cpu) : NUMA_NO_NODE, GFP_KERNEL | __GFP_ZERO, 0);
		if (!pages[i])
			break;
	}
	if (i == count)
		banks = vmap(pages, count, VM_MAP | VM_MAP_PUT_PAGES, PAGE_KERNEL);
	if (banks)
		return banks; /* it owns the pages, and their array */
	while (i--)
		__free_page(pages[i]);
	kvfree(pages);
	return NULL;
}

/* A table of topstat.h has its own bank, with the table of its sums and no other table. */
static int make_bank(struct topstat_table *t, u32 entries)
{
	struct {
		struct ts_settings all;
		struct ts_config config[TS_BANK_TABLES];
	} *settings;
	u32 cpu, tables = t->sums ? 2 : 1, i;

	settings = kzalloc(sizeof(*settings), GFP_KERNEL);
	t->stride = ts_table_size(entries);
	t->bank_size = PAGE_ALIGN(sizeof(struct ts_bank) + tables * t->stride);
	t->banks = settings ? make_banks(t->bank_size) : NULL;
	if (!t->banks) {
		kfree(settings);
		return -ENOMEM;
	}
	t->settings = &settings->all;
	t->config = settings->config;
	t->bank_config = settings->config;
	for (cpu = 0; cpu < nr_cpu_ids; cpu++)
		for (i = 0; i < tables; i++)
			ts_table_init(ts_bank_table(tt_bank(t, cpu), i, t->stride), entries, cpu << 8 | i);
	return 0;
}

/* The table of sums shares the bank of the table that it belongs to, and ranks the objects of that table. */
static void share_bank(struct topstat_table *sums, const struct topstat_table *t, u32 entries)
{
	sums->settings = t->settings;
	sums->bank_config = t->bank_config;
	sums->config = t->config + 1;
	sums->banks = t->banks;
	sums->bank_size = t->bank_size;
	sums->stride = t->stride;
	sums->number = 1;
	sums->view = ts_view_of(entries - 1, TS_STATIC, TT_VALUE_AT, offsetof(struct topstat_object, id));
}

/* Also frees the table of sums, which uses the memory of this table. */
static void free_table(struct topstat_table *t)
{
	if (!t->sample->observed) {
		vfree(t->banks);
		kfree(t->settings);
	}
	kfree(t->sums);
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

/* A number that no table had before, in this topstat.ko or an earlier one: see KO1 in push.c. */
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
	if (!entries || (type != TOPSTAT_DYNAMIC && type != TOPSTAT_STATIC) || (t->sums && type == TOPSTAT_STATIC))
		return -EINVAL;
	error = make_bank(t, entries);
	if (error)
		return error;
	t->object_abi = tt_abi(type);
	t->view = ts_view_of(entries - 1, type, TT_VALUE_AT, offsetof(struct topstat_object, id));
	if (t->sums)
		share_bank(t->sums, t, entries);
	return 0;
}

static bool is_known(const struct topstat_sample *s, const char *name)
{
	const struct topstat_table *t;

	list_for_each_entry(t, &s->tables, list)
		if (!strcmp(t->name, name))
			return true;
	return !strcmp(name, "enabled");
}

/* The files go first, which waits for reads. The caller must not hold tt_lock: see tt_proc_remove_table(). */
static void delete_table(struct topstat_table *t)
{
	if (t->sums)
		tt_proc_remove_table(t->sums);
	tt_proc_remove_table(t);
	if (tt_debug && !t->sample->observed && !t->each && t->census.begun != t->census.ended)
		pr_warn("topstat: %s/%s is deleted, and %llu of its objects have not ended: a module that keeps them has an `each`\n",
			t->sample->info.name, t->name, t->census.begun - t->census.ended);
	mutex_lock(&tt_lock);
	if (t->sums)
		list_del(&t->sums->list);
	list_del(&t->list);
	if (!t->sample->observed)
		hash_del_rcu(&t->live);
	tt_key(t, false);
	WRITE_ONCE(t->config->enabled, 0);
	WRITE_ONCE(t->settings->generation, t->settings->generation + 1);
	mutex_unlock(&tt_lock);
	synchronize_rcu(); /* pushes, and all users of tt_live(), run with preemption off */
	free_table(t);
}

static const char *const units[] = { "count", "packets", "bits", "bytes", "segments", "ns" };

/* A table of the info's name; or with `of`, the table of its sums: they are in bytes where the other table has bits. */
static struct topstat_table *new_table(struct topstat_sample *s, const struct topstat_table_info *info, struct topstat_table *of)
{
	struct topstat_table *t = kzalloc(sizeof(*t), GFP_KERNEL);

	if (!t)
		return NULL;
	t->sample = s;
	t->of = of;
	t->name = of ? info->sums : info->name;
	t->unit = of && info->unit == TOPSTAT_BITS ? TOPSTAT_BYTES : info->unit;
	t->value_name = !of && info->value_name ? info->value_name : units[t->unit];
	t->top = s->observed ? s->observed->engine->top : info->top ? info->top : TS_TOP_DEFAULT;
	t->top_most = t->top;
	mutex_init(&t->told_lock);
	mutex_init(&t->refill_lock);
	return t;
}

/* Under tt_lock: the table, and the table of its sums, get their place and their first settings. */
static int begin_table(struct topstat_table *t, const struct topstat_table_info *info, u32 number)
{
	struct tt_values values = { TT_PERIOD_MS_DEFAULT, 0, !info->off, true };
	struct topstat_sample *s = t->sample;
	int error;

	if (is_known(s, t->name) || (t->sums && (is_known(s, t->sums->name) || !strcmp(t->sums->name, t->name))))
		return -EEXIST;
	error = place_table(t, info, number);
	if (error)
		return error;
	t->instance = new_instance();
	t->key = info->key;
	t->each = info->each;
	/* Kept objects have values in static tables alone; objects of an observer are never kept. */
	t->complete = s->observed || !tt_is_static(t);
	error = tt_values_set(t, &values);
	if (!error && t->sums) {
		t->sums->instance = t->instance;
		error = tt_values_set(t->sums, &values);
	}
	if (error)
		return error;
	list_add_tail(&t->list, &s->tables);
	if (t->sums)
		list_add_tail(&t->sums->list, &s->tables);
	if (!s->observed)
		hash_add_rcu(live_tables, &t->live, t->instance);
	return 0;
}

static struct topstat_table *add_table(struct topstat_sample *s, const struct topstat_table_info *info, u32 number)
{
	struct topstat_table *t;
	int error = -ENOMEM;

	might_sleep();
	if (!is_name(info->name) || info->unit >= ARRAY_SIZE(units) || (info->value_name && !is_name(info->value_name)) ||
	    (info->sums && !is_name(info->sums)))
		return ERR_PTR(-EINVAL);
	t = new_table(s, info, NULL);
	if (t && info->sums) {
		t->sums = new_table(s, info, t);
		if (!t->sums)
			goto fail;
	}
	if (!t)
		return ERR_PTR(-ENOMEM);
	mutex_lock(&tt_lock);
	error = begin_table(t, info, number);
	mutex_unlock(&tt_lock);
	if (error)
		goto fail;
	/* The table's name is taken. This runs without tt_lock, as tt_proc_remove_table() demands. */
	error = tt_proc_add_table(t);
	if (!error && t->sums)
		error = tt_proc_add_table(t->sums);
	if (error) {
		delete_table(t);
		return ERR_PTR(error);
	}
	tt_refill(t);
	return t;
fail:
	free_table(t);
	return ERR_PTR(error);
}

struct topstat_table *topstat_table_add(struct topstat_sample *s, const struct topstat_table_info *info)
{
	if (IS_ERR_OR_NULL(s))
		return s ? ERR_CAST(s) : ERR_PTR(-EINVAL);
	return s->observed ? ERR_PTR(-EINVAL) : add_table(s, info, 0);
}
EXPORT_SYMBOL_GPL(topstat_table_add);

struct topstat_table *topstat_table_sums(struct topstat_table *t)
{
	return IS_ERR_OR_NULL(t) ? NULL : t->sums;
}
EXPORT_SYMBOL_GPL(topstat_table_sums);

struct topstat_table *topstat_observer_table(struct topstat_sample *s, const struct topstat_table_info *info,
					     unsigned int number)
{
	return s->observed ? add_table(s, info, number) : ERR_PTR(-EINVAL);
}
EXPORT_SYMBOL_GPL(topstat_observer_table);

void topstat_table_del(struct topstat_table *t)
{
	might_sleep();
	if (!IS_ERR_OR_NULL(t))
		delete_table(t);
}
EXPORT_SYMBOL_GPL(topstat_table_del);

void topstat_sample_unregister(struct topstat_sample *s)
{
	might_sleep();
	if (IS_ERR_OR_NULL(s))
		return;
	while (!list_empty(&s->tables))
		delete_table(tt_of(list_first_entry(&s->tables, struct topstat_table, list)));
	tt_proc_remove_sample(s);
	mutex_lock(&tt_lock);
	list_del(&s->list);
	mutex_unlock(&tt_lock);
	kfree(s);
}
EXPORT_SYMBOL_GPL(topstat_sample_unregister);

static int __init topstat_init(void)
{
	int error = 0;

#ifdef TT_SELFTEST
	if (selftest)
		error = tt_selftest();
#endif
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
