/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The only file of the engine that differs between eBPF, kernel module and
 * user space. Everything else is the same source everywhere.
 *
 * What the engine asks of a platform:
 *
 *   ts_add(p, v)           atomic p += v, no result; any CPU, any context
 *   ts_cas(p, old, new)    atomic compare and swap of a u64; true when swapped
 *   ts_cas32(p, old, new)  the same of a u32; not where eBPF has no atomics that return what was there
 *   ts_claim(p)            try to take a u64 flag of this CPU; never waits.
 *                          The takers are contexts of one CPU that interrupt
 *                          or preempt each other.
 *   ts_release(p)          give it back; ordered after all that was done under it
 *   ts_read(x), ts_write(x, v)
 *                          a load or store that the compiler neither repeats
 *                          nor tears; for all that another CPU or an interrupt
 *                          may access meanwhile
 *   ts_wmb()               stores before it are seen, by all CPUs, before those after
 *                          it. It pairs with ts_rmb(), or with a dependency
 *   ts_rmb()               loads before it are done before those after it
 *   ts_bound(i, mask)      i & mask, in a form the eBPF verifier believes
 *   ts_times(i, size)      i * size, with `size` constant when the program is loaded,
 *                          likewise
 *   ts_mark_unknown(p, v)  v, by way of memory that nobody else writes just then: for the
 *                          verifier an unknown number, so that it finds each round of a loop
 *                          like the last
 *   TS_APART               before a function that rarely runs and returns int: not inlined, and
 *                          as little work for the verifier as can be
 *   TS_ALONE               the same before a function that runs often, and that a compiler may inline where there is no verifier
 *   TS_UNSET               after a variable's name: it is set before it is read. Where a compiler is told to zero all variables,
 *                          to harden a kernel, it leaves this one out
 *   TS_COLD(f, …)          f(…), a call that rarely runs: a host may make it in another way
 *   ts_precise()           the nanosecond clock, for slides too short for jiffies
 *   ts_peek(dst, n, addr)  copy n bytes from an address that may be stale, from the first word to the
 *                          last; 0, or non-zero when there is no such memory
 */
#ifndef TOPSTAT_PLATFORM_H
#define TOPSTAT_PLATFORM_H

#define ts_likely(x) __builtin_expect(!!(x), 1)
#define ts_unlikely(x) __builtin_expect(!!(x), 0)

#ifndef TS_COLD
#define TS_COLD(f, ...) f(__VA_ARGS__)
#endif

#if defined(__has_attribute)
#if __has_attribute(uninitialized)
#define TS_UNSET __attribute__((uninitialized))
#endif
#endif
#ifndef TS_UNSET
#define TS_UNSET
#endif

#if defined(__bpf__)

#define TS_INLINE static __attribute__((always_inline)) inline
#define TS_NOINLINE static __attribute__((noinline, unused))
/* The verifier looks at a static function wherever it is called, at a global one once. Weak, or clang leaves out arguments that it
 * finds unused, which the verifier wants. */
#define TS_APART __attribute__((noinline, weak))
#define TS_ALONE TS_APART

#define ts_read(x) (*(volatile typeof(x) *)&(x))
#define ts_write(x, v) (*(volatile typeof(x) *)&(x) = (v))
/*
 * eBPF had no fences before 6.15 (880442305a39, "bpf: Introduce load-acquire and store-release
 * instructions"), and compilers of that time have none either. Architectures whose CPUs keep loads
 * in order, and stores, need none: there, it is the compiler that must not reorder.
 */
#if !defined(__TARGET_ARCH_x86) && !defined(__TARGET_ARCH_s390)
#error "topstat's eBPF needs an architecture that keeps the order of loads and of stores: x86 or s390"
#endif
#define ts_wmb() asm volatile("" ::: "memory")
#define ts_rmb() asm volatile("" ::: "memory")
#define ts_add(p, v) ((void)__sync_fetch_and_add((p), (v)))

TS_INLINE int ts_cas(u64 *p, u64 old, u64 new_value)
{
	return __sync_val_compare_and_swap(p, old, new_value) == old;
}

TS_INLINE int ts_cas32(u32 *p, u32 old, u32 new_value)
{
	return __sync_val_compare_and_swap(p, old, new_value) == old;
}

TS_INLINE int ts_claim(u64 *p)
{
	return __sync_lock_test_and_set(p, 1) == 0;
}

TS_INLINE void ts_release(u64 *p)
{
	ts_wmb();
	ts_write(*p, 0);
}

/* In assembly: a mask that the compiler can prove needless it drops, and then
 * the verifier, which proves less, refuses the access. */
TS_INLINE u32 ts_bound(u32 i, u32 mask)
{
	asm volatile("%0 &= %1" : "+r"(i) : "r"(mask));
	return i;
}

/* In assembly: before 6.10 ("bpf/verifier: relax MUL range computation check") the verifier
 * follows a product only when it is the second factor that it knows. */
TS_INLINE u64 ts_times(u64 i, u64 size)
{
	asm volatile("%0 *= %1" : "+r"(i) : "r"(size));
	return i;
}

#define ts_precise() bpf_ktime_get_ns()

TS_INLINE u32 ts_mark_unknown(u32 *p, u32 v)
{
	ts_write(*p, v);
	return ts_read(*p);
}

TS_INLINE long ts_peek(void *dst, u32 n, u64 addr)
{
	return bpf_probe_read_kernel(dst, n, (const void *)addr);
}

#elif defined(__KERNEL__)

#include <linux/types.h>
#include <linux/atomic.h>
#include <linux/uaccess.h>
/* The kernel has a struct ts_config of its own, for searching texts, in what <linux/skbuff.h> includes. */
#include <linux/textsearch.h>
#define ts_config ts_table_config

#define TS_INLINE static __always_inline
#define TS_NOINLINE static noinline __maybe_unused
#define TS_APART TS_NOINLINE
#define TS_ALONE static __maybe_unused

#define ts_read(x) READ_ONCE(x)
#define ts_write(x, v) WRITE_ONCE(x, v)
#define ts_wmb() smp_wmb()
#define ts_rmb() smp_rmb()
#define ts_add(p, v) atomic64_add((v), (atomic64_t *)(p))
#define ts_cas(p, old, new_value) (cmpxchg64((p), (old), (new_value)) == (old))
#define ts_cas32(p, old, new_value) (cmpxchg((p), (old), (new_value)) == (old))
#define ts_claim(p) (xchg((p), 1ULL) == 0)
#define ts_release(p) smp_store_release((p), 0ULL)
#define ts_bound(i, mask) ((u32)(i) & (u32)(mask))
#define ts_times(i, size) ((u64)(i) * (u64)(size))
#define ts_mark_unknown(p, v) ((void)(p), (u32)(v))
#define ts_precise() ktime_get_mono_fast_ns()
#define ts_peek(dst, n, addr) \
	copy_from_kernel_nofault((dst), (const void *)(unsigned long)(addr), (n))

#else

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

#define TS_INLINE static inline __attribute__((always_inline, unused))
#define TS_NOINLINE static __attribute__((noinline, unused))
#define TS_APART TS_NOINLINE
#define TS_ALONE static __attribute__((unused))

/* Called before each access to memory that others access meanwhile: tests switch to another CPU there. */
#ifndef TS_STEP
#define TS_STEP() ((void)0)
#endif

#define ts_read(x) ({ TS_STEP(); __atomic_load_n(&(x), __ATOMIC_RELAXED); })
#define ts_write(x, v) ({ TS_STEP(); __atomic_store_n(&(x), (v), __ATOMIC_RELAXED); })
#define ts_wmb() __atomic_thread_fence(__ATOMIC_RELEASE)
#define ts_rmb() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define ts_add(p, v) ({ TS_STEP(); (void)__atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST); })

TS_INLINE int ts_cas(u64 *p, u64 old, u64 new_value)
{
	TS_STEP();
	return __atomic_compare_exchange_n(p, &old, new_value, 0,
					   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

TS_INLINE int ts_cas32(u32 *p, u32 old, u32 new_value)
{
	TS_STEP();
	return __atomic_compare_exchange_n(p, &old, new_value, 0,
					   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

#define ts_claim(p) (__atomic_exchange_n((p), 1, __ATOMIC_ACQUIRE) == 0)
#define ts_release(p) __atomic_store_n((p), 0, __ATOMIC_RELEASE)
#define ts_bound(i, mask) ((u32)(i) & (u32)(mask))
#define ts_times(i, size) ((u64)(i) * (u64)(size))
#define ts_mark_unknown(p, v) ((void)(p), (u32)(v))

/* Whoever uses the engine in user space says what time it is, each thread its own. */
extern __thread u64 ts_precise_now;
#define ts_precise() ts_precise_now

/* Objects of a test live in memory that stays mapped. All of them are words, copied one by one. */
TS_INLINE long ts_peek(void *dst, u32 n, u64 addr)
{
	const u64 *from = (const u64 *)(uintptr_t)addr;
	u64 *to = dst;
	u32 i;

	for (i = 0; i < n / sizeof(u64); i++)
		to[i] = ts_read(from[i]);
	return 0;
}

#endif

#endif /* TOPSTAT_PLATFORM_H */
