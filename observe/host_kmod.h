/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The host is a kernel module. Observers run at tracepoints: with preemption off, in any context but NMI, and so inside an RCU
 * read section.
 */
#ifndef TOPSTAT_HOST_KMOD_H
#define TOPSTAT_HOST_KMOD_H

#include <linux/hashtable.h>
#include <linux/jiffies.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/vmalloc.h>
#include "observe/kernel.h"
#include "topstat/section.h"
#include "topstat/spread.h"
#include "observe/process.h"

TS_INLINE u64 host_bank_size(const struct ts_shape *shape)
{
	return sizeof(struct ts_bank) + (u64)TS_BANK_TABLES * shape->table_stride;
}

/* All CPUs' banks are in one piece of memory, which host_banks_make() allocates. */
#define HOST_STATE(family, samples, banks_of_cpu, ...)                                               \
	enum { HOST_SAMPLES = (samples), HOST_BANKS = (banks_of_cpu) };                              \
	enum { HOST_SAMPLE_BANKS = HOST_BANKS / HOST_SAMPLES };                                      \
	static struct family##_constants constants = { __VA_ARGS__ };                                \
	static struct family##_settings settings;                                                    \
	static struct ts_census census[samples];                                                     \
	static void *host_banks;                                                                     \
	TS_INLINE struct ts_bank *host_bank(u32 cpu, u32 number)                                     \
	{                                                                                            \
		if (number >= HOST_BANKS)                                                            \
			return NULL;                                                                 \
		return host_banks +                                                                  \
		       ((u64)cpu * HOST_BANKS + number) * host_bank_size(&constants.shape);          \
	}                                                                                            \
	_Static_assert(1, "") /* for the semicolon */

/* For struct topstat_engine: windows, and the ends of objects, are the observer's. */
static __maybe_unused void host_section(struct ts_section *section, struct ts_table *table, const struct ts_config *config, ts_view view,
					u32 read_only, void *rows, u64 size)
{
	ts_section_take(section, table, config, view, read_only, rows, size);
}

static __maybe_unused u64 host_id(struct ts_table *table, u32 slot, u64 object, ts_view view)
{
	return ts_id_in(table, slot, object, view);
}

static __maybe_unused u64 host_ends(const struct ts_table *table)
{
	struct ts_ended *ended = ts_ended_of(table->place);

	return ended ? ts_read(ended->ends) : 0;
}

#define host_banks_free() vfree(host_banks)

/* Allocate `banks` banks, whose tables have `rows` rows in the layout of this ABI, and set `shape`. -EINVAL: tables can't have
 * this number of rows, which the kernel's log says. -ENOMEM: there is no memory. */
static noinline __maybe_unused void *host_banks_new(struct ts_shape *shape, u32 banks, u32 abi, u32 rows)
{
	u32 entries, i, k;
	size_t size;
	void *all;

	if (rows < TS_TOP_MIN || rows > TS_TOP_MAX) {
		pr_err("top=%u: tables have %u to %u rows\n", rows, TS_TOP_MIN, TS_TOP_MAX);
		return ERR_PTR(-EINVAL);
	}
	entries = roundup_pow_of_two(rows * TS_SPARE);
	shape->abi = abi;
	shape->top = rows;
	shape->entries_mask = entries - 1;
	shape->table_stride = ts_table_size(entries);
	size = host_bank_size(shape);
	all = vzalloc(array_size(banks, size));
	for (i = 0; all && i < banks; i++)
		for (k = 0; k < TS_BANK_TABLES; k++)
			ts_table_init(ts_bank_table(all + i * size, k, shape->table_stride), entries, i << 8 | k);
	return all ?: ERR_PTR(-ENOMEM);
}

/* Called before any push. */
#define host_banks_make(abi, rows)                                                                   \
	({                                                                                           \
		void *banks_ = host_banks_new(&constants.shape, nr_cpu_ids * HOST_BANKS, abi, rows); \
		if (!IS_ERR(banks_))                                                                 \
			host_banks = banks_;                                                         \
		PTR_ERR_OR_ZERO(banks_);                                                             \
	})

/*
 * A storage is a hash table by the owner's address. Pushes look up structures under RCU. Only adding and removing take the lock.
 * The module calls host_storage_free() when an owner ends. A storage holds at most HOST_STORAGE_MOST items: beyond that, making
 * one fails as if there were no memory.
 */
#define HOST_STORAGE_BITS 14
#define HOST_STORAGE_MOST (1U << 18)

struct host_storage {
	spinlock_t lock;
	u32 count;
	DECLARE_HASHTABLE(items, HOST_STORAGE_BITS);
};

struct host_item_head {
	struct hlist_node node;
	const void *owner;
	struct rcu_head rcu;
};

/* `stored` begins a cache line, because its windows are aligned. */
struct host_stored {
	struct host_item_head head;
	char stored[] __aligned(64);
};

TS_INLINE void *host_storage_of(struct host_storage *s, const void *owner)
{
	struct host_stored *item;

	hash_for_each_possible_rcu(s->items, item, head.node, (unsigned long)owner)
		if (item->head.owner == owner)
			return item->stored;
	return NULL;
}

static noinline __maybe_unused void *host_storage_make(struct host_storage *s, const void *owner, size_t bytes)
{
	struct host_stored *item;
	unsigned long flags;
	void *found = host_storage_of(s, owner);

	if (found)
		return found;
	if (READ_ONCE(s->count) >= HOST_STORAGE_MOST)
		return NULL;
	item = kzalloc(sizeof(*item) + bytes, GFP_ATOMIC | __GFP_NOWARN);
	if (!item)
		return NULL;
	item->head.owner = owner;
	spin_lock_irqsave(&s->lock, flags);
	found = host_storage_of(s, owner); /* another CPU may have been faster */
	if (!found) {
		hash_add_rcu(s->items, &item->head.node, (unsigned long)owner);
		WRITE_ONCE(s->count, s->count + 1);
	}
	spin_unlock_irqrestore(&s->lock, flags);
	if (!found)
		return item->stored;
	kfree(item);
	return found;
}

/* The owner ends. Pushes that have found its structure may still use it, until a grace period is over. */
static noinline __maybe_unused void host_storage_free(struct host_storage *s, const void *owner)
{
	struct host_stored *item;
	unsigned long flags;

	spin_lock_irqsave(&s->lock, flags);
	hash_for_each_possible(s->items, item, head.node, (unsigned long)owner) {
		if (item->head.owner != owner)
			continue;
		hash_del_rcu(&item->head.node);
		WRITE_ONCE(s->count, s->count - 1);
		kfree_rcu(item, head.rcu);
		break;
	}
	spin_unlock_irqrestore(&s->lock, flags);
}

/* The storage has no user any more. */
static noinline __maybe_unused void host_storage_free_all(struct host_storage *s)
{
	struct host_stored *item;
	struct hlist_node *next;
	int bucket;

	hash_for_each_safe(s->items, bucket, next, item, head.node) {
		hash_del(&item->head.node);
		kfree(item);
	}
}

/* The memory is in two pieces, which host_kept_make() allocates. */
#define HOST_KEPT(stored, kept_banks, kept_tables)                                                   \
	enum { HOST_KEPT_TABLES = (kept_banks) * (kept_tables) };                                    \
	static stored *kept;                                                                         \
	static struct ts_ended *ended;                                                               \
	TS_INLINE u32 host_kept_place(u32 place)                                                     \
	{                                                                                            \
		u32 bank = place >> 8, number = bank % HOST_BANKS, table = place & 255;              \
		if (number >= (kept_banks) || table >= (kept_tables))                                \
			return ~0U;                                                                  \
		return (bank / HOST_BANKS * (kept_banks) + number) * (kept_tables) + table;          \
	}                                                                                            \
	TS_INLINE struct ts_ended *ts_ended_of(u32 place)                                            \
	{                                                                                            \
		u32 i = host_kept_place(place);                                                      \
		return i == ~0U ? NULL : &ended[i];                                                  \
	}                                                                                            \
	TS_INLINE struct ts_kept *ts_kept_of(u32 place, u32 slot)                                    \
	{                                                                                            \
		u32 i = host_kept_place(place), mask = constants.shape.entries_mask;                 \
		return i == ~0U ? NULL : &kept[(u64)i * (mask + 1) + (slot & mask)].kept;            \
	}                                                                                            \
	_Static_assert(1, "") /* for the semicolon */

/* Called after host_banks_make(), and before any push. -ENOMEM: there is no memory. */
#define host_kept_make()                                                                             \
	({                                                                                           \
		size_t tables_ = (size_t)nr_cpu_ids * HOST_KEPT_TABLES;                              \
		kept = vzalloc(array3_size(tables_, constants.shape.entries_mask + 1, sizeof(*kept))); \
		ended = vzalloc(array_size(tables_, sizeof(*ended)));                                \
		kept && ended ? 0 : -ENOMEM;                                                         \
	})

#define host_kept_free()                                                                             \
	do {                                                                                         \
		vfree(kept);                                                                         \
		vfree(ended);                                                                        \
	} while (0)

#define HOST_STORAGE(name, owner, stored)                                                            \
	static struct {                                                                              \
		struct host_storage storage;                                                         \
		stored *value; /* used for its type alone */                                         \
	} name __maybe_unused = { .storage.lock = __SPIN_LOCK_UNLOCKED(name.storage.lock) }

#define host_of(name, owner, p) ((typeof((name).value))host_storage_of(&(name).storage, (p)))
#define host_make(name, owner, p)                                                                    \
	((typeof((name).value))host_storage_make(&(name).storage, (p), sizeof(*(name).value)))

#define HOST_ARRAY(name, entries, stored) static stored name[entries] __aligned(64) __maybe_unused
#define HOST_MAPPED_ARRAY(name, entries, stored) HOST_ARRAY(name, entries, stored)
#define host_item(name, i) ((i) < ARRAY_SIZE(name) ? &(name)[i] : NULL)
#define HOST_PER_CPU(name, stored) static DEFINE_PER_CPU_ALIGNED(stored, name) __maybe_unused
#define HOST_STACK
#define HOST_SCRATCH(name, stored) HOST_PER_CPU(name, stored)
#define host_on(name, cpu) ((cpu) < nr_cpu_ids ? per_cpu_ptr(&(name), (cpu)) : NULL)
#define HOST_SHARED(type, name) static type name
#define HOST_WORD(name) static u64 name

#define host_each_cpu(step, arg)                                                           \
	do {                                                                               \
		int cpu_;                                                                  \
		for_each_possible_cpu(cpu_)                                                \
			(step)(cpu_, (arg));                                               \
	} while (0)
#define host_field(p, field)                                                               \
	({                                                                                 \
		typeof((p)->field) copy_;                                                  \
		if (ts_peek(&copy_, sizeof(copy_), (u64)(unsigned long)&(p)->field))       \
			memset(&copy_, 0, sizeof(copy_));                                  \
		copy_;                                                                     \
	})
#define host_enum(type, value) value
#define host_is_locked(sk)                                                                 \
	({                                                                                 \
		spinlock_t lock_ = host_field((sk), sk_lock.slock);                        \
		host_field((sk), sk_lock.owned) || spin_is_locked(&lock_);                 \
	})

#define host_cpu() ((u32)smp_processor_id())
#define host_jiffies() get_jiffies_64()
#define host_jiffies_of_ms(ms) msecs_to_jiffies(ms)
#define host_clock() ktime_get_mono_fast_ns()
#define host_since_boot() ktime_get_boot_fast_ns()
#define host_swap(p, value) xchg((p), (value))
#define host_address(p) ((u64)(unsigned long)(p))
#define host_number(n) (n)
#define host_item_at(i, n, size) ((u32)((i) < (n) ? (i) * (size) : 0))

/* The scheduler does not export run queues: modules can't read their clocks. */
#define host_has_run_clock() 0
#define host_run_clock(task) ((void)(task), 0ULL)

TS_INLINE u32 host_controller(u32 v1)
{
	switch (v1) {
#if IS_ENABLED(CONFIG_MEMCG)
	case PROCESS_V1_MEMORY:
		return memory_cgrp_id;
#endif
#if IS_ENABLED(CONFIG_CGROUP_SCHED)
	case PROCESS_V1_CPU:
		return cpu_cgrp_id;
#endif
#if IS_ENABLED(CONFIG_CGROUP_PIDS)
	case PROCESS_V1_PIDS:
		return pids_cgrp_id;
#endif
	default:
		return 0;
	}
}

/* It lives as long as the control groups, which are under RCU. */
#define host_css_set(task) rcu_dereference_raw((task)->cgroups)
#define host_subsys(css, v1) ((css)->subsys[host_controller(v1)])

#endif /* TOPSTAT_HOST_KMOD_H */
