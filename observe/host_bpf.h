/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The host is eBPF. All code that is written for the verifier's sake, and is not in the engine, is in this header.
 */
#ifndef TOPSTAT_HOST_BPF_H
#define TOPSTAT_HOST_BPF_H

#ifdef TOPSTAT_PLATFORM_H
#error "include observe/host.h before headers of the engine: it says how the engine calls what rarely runs"
#endif

#include "observe/kernel.h"

/*
 * Code that rarely runs is in global functions: the verifier checks a global function once, and a static function at each call. A
 * global function takes numbers, or pointers to structures of a known size. The size of a table is not known at compile time, so
 * the function takes the table's place, and finds the table again.
 */
int host_settle(u32 place, u32 pos, u64 key, u32 slot);
int host_admit(u32 place, u64 obj, u64 id, u64 value);
int host_look_again(u32 place, u32 slot);
int host_look_at_kept(u32 place, u32 slot);
int host_bank_roll(u32 place);
#define TS_COLD_CALL(f, ...) HOST_COLD_##f(__VA_ARGS__)
#define HOST_COLD_ts_settle(t, pos, key, slot, mask) host_settle((t)->place, pos, key, slot)
#define HOST_COLD_ts_admit(t, tick, obj, id, value, view) host_admit((t)->place, obj, id, value)
#define HOST_COLD_ts_look_again(t, tick, slot, view) host_look_again((t)->place, slot)
#define HOST_COLD_ts_look_at_kept(t, tick, slot, view) host_look_at_kept((t)->place, slot)
#define HOST_COLD_ts_bank_roll(bank, stride, c, generation, now) host_bank_roll(ts_bank_table(bank, 0, stride)->place)

#include "topstat/section.h"
#include "topstat/spread.h"
#include "observe/process.h"

/* Tables have the default number of rows. User space sets constants before it loads the programs, and resizes `banks`, in which
 * the banks of a CPU are side by side. Each object has its own section, so that its place is known. */
#define HOST_STATE(family, samples, banks_of_cpu, ...)                                         \
	enum { HOST_SAMPLES = (samples), HOST_BANKS = (banks_of_cpu) };                        \
	enum { HOST_SAMPLE_BANKS = HOST_BANKS / HOST_SAMPLES };                                \
	_Static_assert(!(HOST_BANKS & (HOST_BANKS - 1)), "a power of two, for ts_bound()");    \
	const volatile struct family##_constants constants SEC(".rodata.constants") = {        \
		.shape = { .entries_mask = TS_TOP_DEFAULT * TS_SPARE - 1, .table_stride = 4096 }, \
		__VA_ARGS__                                                                    \
	};                                                                                     \
	struct family##_settings settings SEC(".data.settings");                               \
	struct ts_census census[samples] SEC(".data.census");                                  \
	struct {                                                                               \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                              \
		__uint(map_flags, BPF_F_MMAPABLE);                                             \
		__uint(max_entries, HOST_BANKS);                                               \
		__uint(key_size, sizeof(u32));                                                 \
		__uint(value_size, 4096);                                                      \
	} banks SEC(".maps");                                                                  \
	static __always_inline struct ts_bank *host_bank(u32 cpu, u32 number)                  \
	{                                                                                      \
		u32 i = cpu * HOST_BANKS + number;                                             \
		return bpf_map_lookup_elem(&banks, &i);                                        \
	}                                                                                      \
	_Static_assert(1, "") /* for the semicolon */

/* BPF_F_CLONE: an accepted socket gets a copy of its listener's structure. The structure's address in it tells the copy. */
#define HOST_STORAGE_FLAGS_sk (BPF_F_NO_PREALLOC | BPF_F_CLONE)
#define HOST_STORAGE_FLAGS_task BPF_F_NO_PREALLOC
#define HOST_STORAGE_FLAGS_cgrp BPF_F_NO_PREALLOC
#define HOST_STORAGE_TYPE_sk BPF_MAP_TYPE_SK_STORAGE
#define HOST_STORAGE_TYPE_task BPF_MAP_TYPE_TASK_STORAGE
#define HOST_STORAGE_TYPE_cgrp MAP_TYPE_CGRP_STORAGE
#define HOST_STORAGE(name, owner, stored)                       \
	struct {                                                \
		__uint(type, HOST_STORAGE_TYPE_##owner);        \
		__uint(map_flags, HOST_STORAGE_FLAGS_##owner);  \
		__type(key, int);                               \
		__type(value, stored);                          \
	} name SEC(".maps")

#define HOST_SHARED(type, name) type name SEC(".data." #name)

/* A count of the family, 0 at first, that user space reads by its name. */
#define HOST_WORD(name) u64 name SEC(".data." #name)

#define host_of(name, owner, p) ((typeof((name).value))bpf_##owner##_storage_get(&(name), (p), NULL, 0))
/* If several CPUs make the structure at once, the kernel refuses all but one of them, as if there were no memory. The second call
 * finds the structure. */
#define host_make(name, owner, p)                                                                            \
	({                                                                                                   \
		typeof((name).value) made_ =                                                                 \
			bpf_##owner##_storage_get(&(name), (p), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);       \
		if (!made_)                                                                                  \
			made_ = bpf_##owner##_storage_get(&(name), (p), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE); \
		made_;                                                                                       \
	})

/* An array of structures, zeroes at first. */
#define HOST_ARRAY(name, entries, stored)              \
	struct {                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);      \
		__uint(max_entries, (entries));        \
		__type(key, u32);                      \
		__type(value, stored);                 \
	} name SEC(".maps")
/* As HOST_ARRAY(), and readers map it. */
#define HOST_MAPPED_ARRAY(name, entries, stored)       \
	struct {                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);      \
		__uint(map_flags, BPF_F_MMAPABLE);     \
		__uint(max_entries, (entries));        \
		__type(key, u32);                      \
		__type(value, stored);                 \
	} name SEC(".maps")
#define host_item(name, i)                                                     \
	({                                                                     \
		u32 i_ = (i);                                                  \
		(typeof((name).value))bpf_map_lookup_elem(&(name), &i_);       \
	})

/* One structure for each CPU, which the CPU writes and readers map. User space resizes the map. */
#define HOST_PER_CPU(name, stored) HOST_MAPPED_ARRAY(name, 1, stored)
#define HOST_SCRATCH(name, stored) HOST_ARRAY(name, 1, stored)
#define host_on(name, cpu) host_item(name, cpu)

/* User space resizes both maps. In the first `kept_banks` banks of a CPU, the first `kept_tables` tables keep ended objects. */
#define HOST_KEPT(stored, kept_banks, kept_tables)                                             \
	struct {                                                                               \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                              \
		__uint(max_entries, 1);                                                        \
		__type(key, u32);                                                              \
		__type(value, stored);                                                         \
	} kept SEC(".maps");                                                                   \
	struct {                                                                               \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                              \
		__uint(map_flags, BPF_F_MMAPABLE);                                             \
		__uint(max_entries, 1);                                                        \
		__type(key, u32);                                                              \
		__type(value, struct ts_ended);                                                \
	} ended SEC(".maps");                                                                  \
	TS_INLINE u32 host_kept_place(u32 place)                                               \
	{                                                                                      \
		u32 bank = place >> 8, number = bank & (HOST_BANKS - 1), table = place & 255;  \
		if (number >= (kept_banks) || table >= (kept_tables))                          \
			return ~0U;                                                            \
		return (bank / HOST_BANKS * (kept_banks) + number) * (kept_tables) + table;    \
	}                                                                                      \
	TS_INLINE struct ts_ended *ts_ended_of(u32 place)                                      \
	{                                                                                      \
		u32 i = host_kept_place(place);                                                \
		struct ts_ended *found = bpf_map_lookup_elem(&ended, &i);                      \
		if (found)                                                                     \
			barrier_var(found);                                                    \
		return found;                                                                  \
	}                                                                                      \
	TS_INLINE struct ts_kept *ts_kept_of(u32 place, u32 slot)                              \
	{                                                                                      \
		u32 i = host_kept_place(place), mask = constants.shape.entries_mask;           \
		struct ts_kept *found;                                                         \
		if (i == ~0U)                                                                  \
			return NULL;                                                           \
		i = i * (mask + 1) + (slot & mask);                                            \
		found = bpf_map_lookup_elem(&kept, &i);                                        \
		if (found) /* before the compiler computes with the pointer: the verifier demands it */ \
			barrier_var(found);                                                    \
		return found;                                                                  \
	}                                                                                      \
	_Static_assert(1, "") /* for the semicolon */

#define host_field(p, field) BPF_CORE_READ((p), field)
#define host_enum(type, value) bpf_core_enum_value(type, value)

#define host_cpu() bpf_get_smp_processor_id()
#define host_jiffies() bpf_jiffies64()
#define host_jiffies_of_ms(ms) ((u64)(ms) * 1000000 / constants.jiffy_ns)
#define host_since_boot() bpf_ktime_get_boot_ns()
#define host_clock() bpf_ktime_get_ns()
#define host_swap(p, value) __sync_lock_test_and_set((p), (value))
/* The verifier looks at one step, and at each round of any other loop. */
#define host_loop(n, step, arg) bpf_loop((n), (step), (arg), 0)
/* More than a host has. The step ends the loop, since there is no memory of further CPUs. */
#define HOST_CPUS 8192
#define host_each_cpu(step, arg) bpf_loop(HOST_CPUS, (step), (arg), 0)

/* With barriers, so that the compiler does not remove the comparison as needless, does not multiply before it, and does not add
 * to the product by an OR, which tells the verifier less. */
static __always_inline u32 host_item_at(u32 i, u32 n, u32 size)
{
	barrier_var(i);
	i = i < n ? i : 0;
	barrier_var(i);
	i *= size;
	barrier_var(i);
	return i;
}

/* The task on this CPU leads to its run queue, and the run queue to its clock. Where a field is missing (se.cfs_rq: without
 * CONFIG_FAIR_GROUP_SCHED), the monotonic clock is read instead, which takes 30 times as long. */
static __always_inline int host_has_run_clock(void)
{
	return bpf_core_field_exists(struct sched_entity, cfs_rq) && bpf_core_field_exists(struct cfs_rq, rq) &&
	       bpf_core_field_exists(struct rq, clock);
}

static __always_inline u64 host_run_clock(struct task_struct *on_cpu)
{
	return on_cpu->se.cfs_rq->rq->clock;
}

/* Whether another CPU may be changing the socket. */
static __always_inline int host_is_locked(struct sock *sk)
{
	if (!bpf_core_field_exists(sk->sk_lock.slock.rlock.raw_lock.val))
		return 1;
	return BPF_CORE_READ(sk, sk_lock.slock.rlock.raw_lock.val.counter) || BPF_CORE_READ(sk, sk_lock.owned);
}

static __always_inline u32 host_controller(u32 controller)
{
	switch (controller) {
	case PROCESS_V1_MEMORY:
		return bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
	case PROCESS_V1_CPU:
		return bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);
	default:
		return bpf_core_enum_value(enum cgroup_subsys_id, pids_cgrp_id);
	}
}

#define host_css_set(task) ((task)->cgroups)

/* The verifier knows this load, because the index is constant. A read by a helper takes 50 ns. */
static __always_inline struct cgroup_subsys_state *host_subsys(struct css_set *css, u32 controller)
{
	return *(struct cgroup_subsys_state **)((void *)css + bpf_core_field_offset(css->subsys) +
						host_controller(controller) * sizeof(void *));
}

/*
 * For static functions without a result. If no call uses the result, the compiler sets no value, and the verifier refuses a
 * pointer
 * to the stack that is left in the register ("cannot return stack pointer to the caller"). So these functions return
 * host_nothing(), and host_call() calls them.
 */
static __always_inline int host_nothing(void)
{
	int nothing = 0;

	barrier_var(nothing);
	return nothing;
}

#define host_call(call)                 \
	do {                            \
		int result_ = (call);   \
		barrier_var(result_);   \
	} while (0)

/* The verifier takes a copy of a pointer for a pointer, and a value that a helper has read for a number. */
static __always_inline u64 host_address(const void *p)
{
	const void *kept = p;
	u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), &kept);
	return number;
}

/*
 * Without this, 5.10 and 6.1 check 600,000 instructions for a packet, of the million that they allow, instead of 110,000. The
 * number goes through the stack, because pushes interrupt each other. It is in the odd word: since 5.16, 354e8f1970f8 ("bpf:
 * Support <8-byte scalar spill and refill"), the verifier knows the value of an even word. (libbpf's barrier_var() hides a number
 * from the compiler only.)
 */
static __always_inline u32 host_number(u32 n)
{
	volatile u32 words[2] __attribute__((aligned(8)));

	words[1] = n;
	return words[1];
}

#endif /* TOPSTAT_HOST_BPF_H */
