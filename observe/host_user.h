/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The host is a test in user space. A family's state is static, so each file that includes its logic.h has its own state. The
 * test sets the running CPU, the time, and whether there is memory.
 */
#ifndef TOPSTAT_HOST_USER_H
#define TOPSTAT_HOST_USER_H

#include "observe/kernel.h"
#include "topstat/section.h"
#include "topstat/spread.h"
#include "observe/process.h"

#define HOST_USER_CPUS 3
/* A small number, so that tables become full. */
#define HOST_USER_ENTRIES 16
#define HOST_USER_TABLE (sizeof(struct ts_table) + HOST_USER_ENTRIES * sizeof(struct ts_entry))
#define HOST_USER_BANK (sizeof(struct ts_bank) + TS_BANK_TABLES * HOST_USER_TABLE)
/* A jiffy, as with 1000 Hz. */
#define HOST_USER_JIFFY_NS 1000000ULL
/* The number of owners that a storage has room for. */
#define HOST_USER_OWNERS 128

static __attribute__((unused)) u32 host_user_cpu;
static __attribute__((unused)) u64 host_user_ns;
static __attribute__((unused)) int host_user_no_memory;

#define HOST_STATE(family, samples, banks_of_cpu, ...)                                              \
	enum { HOST_SAMPLES = (samples), HOST_BANKS = (banks_of_cpu) };                             \
	enum { HOST_SAMPLE_BANKS = HOST_BANKS / HOST_SAMPLES };                                     \
	static struct family##_constants constants = {                                              \
		.shape = { .entries_mask = HOST_USER_ENTRIES - 1, .table_stride = HOST_USER_TABLE }, \
		__VA_ARGS__                                                                         \
	};                                                                                          \
	static struct family##_settings settings;                                                   \
	static struct ts_census census[samples];                                                    \
	static char host_user_banks[HOST_USER_CPUS * (banks_of_cpu)][HOST_USER_BANK] __attribute__((aligned(64)))

#define host_bank(cpu, number)                                                                      \
	((u32)(number) < HOST_BANKS ? (struct ts_bank *)host_user_banks[(cpu) * HOST_BANKS + (number)] : NULL)

#define HOST_STORAGE(name, owner, stored)                                                           \
	static struct {                                                                             \
		const void *owners[HOST_USER_OWNERS];                                               \
		stored items[HOST_USER_OWNERS] __attribute__((aligned(64)));                        \
		stored *value;                                                                      \
	} name __attribute__((unused))

/* The index of the owner; HOST_USER_OWNERS: the owner has no structure. */
TS_INLINE u32 host_user_find(const void *const *owners, const void *owner)
{
	u32 i;

	for (i = 0; i < HOST_USER_OWNERS; i++)
		if (owners[i] == owner)
			break;
	return i;
}

#define host_of(name, owner, p)                                                                     \
	({                                                                                          \
		u32 at_ = host_user_find((name).owners, (p));                                       \
		at_ < HOST_USER_OWNERS ? &(name).items[at_] : NULL;                                 \
	})

#define host_make(name, owner, p)                                                                   \
	({                                                                                          \
		u32 at_ = host_user_find((name).owners, (p));                                       \
		if (at_ == HOST_USER_OWNERS && !host_user_no_memory) {                              \
			at_ = host_user_find((name).owners, NULL);                                  \
			if (at_ < HOST_USER_OWNERS) {                                               \
				(name).owners[at_] = (p);                                           \
				memset(&(name).items[at_], 0, sizeof((name).items[at_]));           \
			}                                                                           \
		}                                                                                   \
		at_ < HOST_USER_OWNERS ? &(name).items[at_] : NULL;                                 \
	})

/* The owner ends, and its structure with it. */
#define host_user_free(name, p)                                                                     \
	do {                                                                                        \
		u32 at_ = host_user_find((name).owners, (p));                                       \
		if (at_ < HOST_USER_OWNERS)                                                         \
			(name).owners[at_] = NULL;                                                  \
	} while (0)

/* The owner at `copy` begins as a copy of another owner, as an accepted socket does. */
#define host_user_clone(name, p, copy)                                                              \
	do {                                                                                        \
		u32 from_ = host_user_find((name).owners, (p));                                     \
		u32 to_ = host_user_find((name).owners, NULL);                                      \
		if (from_ < HOST_USER_OWNERS && to_ < HOST_USER_OWNERS) {                           \
			(name).owners[to_] = (copy);                                                \
			(name).items[to_] = (name).items[from_];                                    \
		}                                                                                   \
	} while (0)

#define HOST_ARRAY(name, entries, stored) \
	static stored name[entries] __attribute__((aligned(64)))
#define HOST_MAPPED_ARRAY(name, entries, stored) HOST_ARRAY(name, entries, stored)
#define host_item(name, i) ((i) < sizeof(name) / sizeof(*(name)) ? &(name)[i] : NULL)
#define HOST_PER_CPU(name, stored) HOST_ARRAY(name, HOST_USER_CPUS, stored)
#define HOST_STACK
#define HOST_SCRATCH(name, stored) HOST_PER_CPU(name, stored)
#define host_on(name, cpu) host_item(name, cpu)
/* See the engine's keep.h. */
#define HOST_KEPT(stored, kept_banks, kept_tables)                                                  \
	static struct ts_ended ended[HOST_USER_CPUS * HOST_BANKS][TS_BANK_TABLES];                   \
	static stored kept[HOST_USER_CPUS * HOST_BANKS][TS_BANK_TABLES][HOST_USER_ENTRIES];         \
	TS_INLINE int host_user_keeps(u32 place)                                                    \
	{                                                                                           \
		return (place >> 8) % HOST_BANKS < (kept_banks) && (place & 255) < (kept_tables);   \
	}                                                                                           \
	TS_INLINE struct ts_ended *ts_ended_of(u32 place)                                           \
	{                                                                                           \
		return host_user_keeps(place) ? &ended[place >> 8][place & 255] : NULL;             \
	}                                                                                           \
	TS_INLINE struct ts_kept *ts_kept_of(u32 place, u32 slot)                                   \
	{                                                                                           \
		return host_user_keeps(place) ? &kept[place >> 8][place & 255][slot].kept : NULL;   \
	}                                                                                           \
	_Static_assert(1, "") /* for the semicolon */

#define HOST_SHARED(type, name) static __attribute__((unused)) type name
#define HOST_WORD(name) static __attribute__((unused)) u64 name

#define host_each_cpu(step, arg) host_loop(HOST_USER_CPUS, step, arg)
#define host_field(p, field) ts_read((p)->field)
#define host_enum(type, value) value
#define host_is_locked(sk) ((sk)->sk_lock.owned)

#define host_cpu() host_user_cpu
#define host_jiffies() (host_user_ns / HOST_USER_JIFFY_NS)
#define host_jiffies_of_ms(ms) ((ms) * 1000000ULL / HOST_USER_JIFFY_NS)
#define host_clock() host_user_ns
#define host_since_boot() host_user_ns
#define host_swap(p, value) __atomic_exchange_n((p), (value), __ATOMIC_SEQ_CST)
#define host_address(p) ((u64)(unsigned long)(p))
#define host_number(n) (n)
#define host_item_at(i, n, size) ((u32)((i) < (n) ? (i) * (size) : 0))

/* The clock of run queues is ahead of the monotonic clock. */
#define host_has_run_clock() 1
#define host_run_clock(task) (host_user_ns + 1000000000ULL)

#define host_controller(v1) ((u32)(v1) - 1)
#define host_css_set(task) ((task)->cgroups)
#define host_subsys(css, v1) ((css)->subsys[0])

#endif /* TOPSTAT_HOST_USER_H */
