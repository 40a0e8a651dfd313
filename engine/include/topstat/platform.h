/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * This is the only file of the engine that differs between eBPF, kernel module and user space. All other files are the
 * same source on every platform.
 *
 * A platform gives the engine these functions and attributes:
 *
 *   ts_add(p, v)           atomic p += v, without a result; on any CPU, in any context
 *   ts_add32(p, v)         as ts_add(), of a u32
 *   ts_fetch_add(p, v)     as ts_add(), ordered after all loads and stores before it, and before those after it; returns the old value
 *   ts_cas(p, old, new)    atomic compare and swap of a u64; true when it has swapped, and then ordered after all loads and stores
 *                          before it, and before those after it
 *   ts_cas32(p, old, new)  atomic compare and swap of a u32; missing where eBPF has no atomics that return the old value
 *   ts_claim(p)            try to take a u64 flag of this CPU; never waits. The callers are contexts of one CPU that
 *                          interrupt or preempt each other
 *   ts_release(p)          release the flag; ordered after all loads and stores made under it
 *   ts_read(x), ts_write(x, v)
 *                          a load or store that the compiler neither repeats nor tears; for all memory that another CPU
 *                          or an interrupt may access at the same time
 *   ts_publish(x, v)       ts_write(x, v) of a u32 or u64 that all CPUs see after the stores before it. It pairs with ts_rmb() after
 *                          the load of `x`, or with a dependency
 *   ts_retract(x, v)       ts_write(x, v) of a u64 that all CPUs see before the stores after it
 *   ts_wmb()               all CPUs see the stores before it before the stores after it: for words of which the eBPF verifier does not
 *                          know that they are aligned, as ts_publish() and ts_retract() need
 *   ts_rmb()               the loads before it are done before the loads after it
 *   ts_bound(i, mask)      i & mask, in a form that the eBPF verifier believes
 *   ts_times(i, size)      i * size, in a form that the eBPF verifier believes; `size` is constant when the program is loaded
 *   ts_mark_unknown(p, v)  v, stored to memory that no other context writes at that time, and loaded again. For the verifier
 *                          the result is an unknown number, so each round of a loop looks to it like the previous round
 *   TS_GLOBAL_FN           before a function that rarely runs and returns int: it is not inlined, and costs the verifier as
 *                          little work as possible
 *   TS_GLOBAL_HOT          as TS_GLOBAL_FN, before a function that runs often; without a verifier the compiler may inline it
 *   TS_UNINITIALIZED       after a variable's name: the variable is set before it is read. A compiler that zeroes all
 *                          variables, to harden a kernel, leaves this one out
 *   TS_COLD_CALL(f, …)     f(…), a call that rarely runs: a host may make the call in another way
 *   ts_precise()           the nanosecond clock, for slides too short for jiffies
 *   ts_peek(dst, n, addr)  copy n bytes from an address that may be stale, from the first word to the last; 0, or non-zero
 *                          when there is no memory at the address
 */
#ifndef TOPSTAT_PLATFORM_H
#define TOPSTAT_PLATFORM_H

#define ts_likely(x) __builtin_expect(!!(x), 1)
#define ts_unlikely(x) __builtin_expect(!!(x), 0)

#ifndef TS_COLD_CALL
#define TS_COLD_CALL(f, ...) f(__VA_ARGS__)
#endif

#if defined(__has_attribute)
#if __has_attribute(uninitialized)
#define TS_UNINITIALIZED __attribute__((uninitialized))
#endif
#endif
#ifndef TS_UNINITIALIZED
#define TS_UNINITIALIZED
#endif

#if defined(__bpf__)

#define TS_INLINE static __attribute__((always_inline)) inline
#define TS_NOINLINE static __attribute__((noinline, unused))
/* The verifier checks a static function at each call, and a global function once. The attribute weak keeps clang from leaving out
 * arguments that it finds unused: the verifier needs them. */
#define TS_GLOBAL_FN __attribute__((noinline, weak))
#define TS_GLOBAL_HOT TS_GLOBAL_FN

#define ts_read(x) (*(volatile typeof(x) *)&(x))
#define ts_write(x, v) (*(volatile typeof(x) *)&(x) = (v))
/*
 * All loads and stores before it are done before those after it. eBPF has no fences. An atomic instruction that returns the old
 * value is one on every architecture: it is ordered as the kernel's atomic operations with a result. The word that it exchanges
 * is on the stack, in the cache of this CPU. Not inlined: each call would add a word to the caller's stack, of which the verifier
 * allows 512 bytes over all callers.
 */
TS_NOINLINE void ts_fence(void)
{
	u64 word = 0, other = 0;

	asm volatile("%[other] = xchg_64(%[word] + 0, %[other])" : [other] "+r"(other) : [word] "r"(&word) : "memory");
}

#if defined(__TARGET_ARCH_x86) || defined(__TARGET_ARCH_s390)
/* CPUs of these architectures keep the order of loads and the order of stores: only the compiler must not reorder. */
#define ts_barrier() asm volatile("" ::: "memory")
#define ts_publish(x, v) ({ ts_barrier(); (void)ts_write(x, v); })
#define ts_retract(x, v) ({ (void)ts_write(x, v); ts_barrier(); })
#else
#define ts_barrier() ts_fence()
/* An exchange is a fence as well, and takes neither a call nor a word of the stack. */
#define ts_publish(x, v) ((void)__sync_lock_test_and_set(&(x), (v)))
#define ts_retract(x, v) ts_publish(x, v)
#endif
#define ts_wmb() ts_barrier()
#define ts_rmb() ts_barrier()
#define ts_add(p, v) ((void)__sync_fetch_and_add((p), (v)))
#define ts_add32(p, v) ts_add(p, v)

/* In assembly: the compiler leaves the result out where it is not used, and with it the order. */
TS_INLINE u64 ts_fetch_add(u64 *p, u64 v)
{
	asm volatile("%0 = atomic_fetch_add((u64 *)(%1 + 0), %0)" : "+r"(v) : "r"(p) : "memory");
	return v;
}

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
	ts_publish(*p, 0);
}

/* In assembly: the compiler drops a mask that it can prove needless. The verifier proves less, and then refuses the access. */
TS_INLINE u32 ts_bound(u32 i, u32 mask)
{
	asm volatile("%0 &= %1" : "+r"(i) : "r"(mask));
	return i;
}

/* In assembly: before 6.10 ("bpf/verifier: relax MUL range computation check") the verifier follows a product only when it knows
 * the second factor. */
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
/* The kernel's <linux/skbuff.h> includes a struct ts_config for text search, which has the name of the engine's structure. */
#include <linux/textsearch.h>
#define ts_config ts_table_config

#define TS_INLINE static __always_inline
#define TS_NOINLINE static noinline __maybe_unused
#define TS_GLOBAL_FN TS_NOINLINE
#define TS_GLOBAL_HOT static __maybe_unused

#define ts_read(x) READ_ONCE(x)
#define ts_write(x, v) WRITE_ONCE(x, v)
#define ts_wmb() smp_wmb()
#define ts_rmb() smp_rmb()
/* Pairs with ts_rmb(). */
#define ts_publish(x, v) smp_store_release(&(x), (v))
#define ts_retract(x, v) ({ WRITE_ONCE(x, v); /* Pairs with ts_rmb(). */ smp_wmb(); })
#define ts_add(p, v) atomic64_add((v), (atomic64_t *)(p))
#define ts_add32(p, v) atomic_add((v), (atomic_t *)(p))
#define ts_fetch_add(p, v) ((u64)atomic64_fetch_add((v), (atomic64_t *)(p)))
#define ts_cas(p, old, new_value) (cmpxchg64((p), (old), (new_value)) == (old))
#define ts_cas32(p, old, new_value) (cmpxchg((p), (old), (new_value)) == (old))
#define ts_claim(p) (xchg((p), 1ULL) == 0)
#define ts_release(p) smp_store_release((p), 0ULL) /* pairs with ts_claim() */
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
typedef int32_t s32;
typedef int64_t s64;

#define TS_INLINE static inline __attribute__((always_inline, unused))
#define TS_NOINLINE static __attribute__((noinline, unused))
#define TS_GLOBAL_FN TS_NOINLINE
#define TS_GLOBAL_HOT static __attribute__((unused))

/* Called before each access to memory that other CPUs access at the same time: tests switch to another CPU there. */
#ifndef TS_STEP
#define TS_STEP() ((void)0)
#endif

#define ts_read(x) ({ TS_STEP(); __atomic_load_n(&(x), __ATOMIC_RELAXED); })
#define ts_write(x, v) ({ TS_STEP(); __atomic_store_n(&(x), (v), __ATOMIC_RELAXED); })
#define ts_wmb() __atomic_thread_fence(__ATOMIC_RELEASE)
#define ts_rmb() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define ts_publish(x, v) ({ TS_STEP(); __atomic_store_n(&(x), (v), __ATOMIC_RELEASE); })
#define ts_retract(x, v) ({ ts_write(x, v); __atomic_thread_fence(__ATOMIC_RELEASE); })
#define ts_add(p, v) ({ TS_STEP(); (void)__atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST); })
#define ts_add32(p, v) ts_add(p, v)
#define ts_fetch_add(p, v) ({ TS_STEP(); __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST); })

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

/* A user of the engine in user space sets this to the present time, in each thread. */
extern __thread u64 ts_precise_now;
#define ts_precise() ts_precise_now

/* Objects of a test live in memory that stays mapped. Words are copied one by one. */
TS_INLINE long ts_peek(void *dst, u32 n, u64 addr)
{
	const u64 *from = (const u64 *)(uintptr_t)addr;
	u64 *to = dst;
	u32 i;

	for (i = 0; i < n / sizeof(u64); i++)
		to[i] = ts_read(from[i]);
	memcpy(&to[i], &from[i], n % sizeof(u64));
	return 0;
}

#endif

#endif /* TOPSTAT_PLATFORM_H */
