/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The functions and types that an observer needs from the host that it runs on. There are three hosts, and only their headers
 * know which one it is: eBPF (host_bpf.h), a kernel module (host_kmod.h), and user space, for tests (host_user.h). A family's
 * logic.h uses this header and obs.h alone, so it is the same source on each host; `make lint` compiles it as kernel C.
 *
 * State, once for a family:
 *
 *   HOST_STATE(family, samples, banks, …)
 *                          makes `constants` (struct family_constants, which begins with a ts_shape),
 *                          `settings` (struct family_settings), `census` (with an item for each sample), and the given number of
 *                          banks of tables for each CPU. The other arguments are initial values of constants
 *   HOST_STORAGE(name, owner, type)
 *                          makes a storage in which every owner (sk, task, cgrp) may have one structure of the type. The
 *                          structure begins as zeroes and ends with its owner
 *   HOST_PER_CPU(name, type)
 *                          makes one structure of the type for each CPU, zeroes at first; host_on(name, cpu) finds it, or NULL
 *   HOST_SCRATCH(name, type)
 *                          as HOST_PER_CPU(), and readers do not map it
 *   HOST_ARRAY(name, entries, type)
 *                          makes `entries` structures of the type, zeroes at first; host_item(name, i) finds one, or NULL
 *   HOST_MAPPED_ARRAY(name, entries, type)
 *                          as HOST_ARRAY(), and readers map it
 *   HOST_KEPT(type, banks, tables)
 *                          where TS_KEEPS is defined: the first `tables` tables of the first `banks` banks of a CPU keep ended
 *                          objects (the engine's keep.h), each in a structure of the type, which begins with a ts_kept called
 *                          `kept`
 *   HOST_WORD(name)        makes a u64, 0 at first, that readers find by its name
 *   HOST_SHARED(type, name)
 *                          makes a structure of the type, zeroes at first, that readers find by its name. In eBPF it may be
 *                          memory of another family: then user space puts the map of that family in its place
 *
 *   HOST_STACK             is defined where the stack has room for a structure of 1 KiB
 *
 * Functions:
 *
 *   host_of(name, owner, p)    the structure of the owner at p in the storage; NULL: it has no structure
 *   host_make(name, owner, p)  as host_of(), and makes a missing structure; NULL: there was no memory
 *   host_field(p, field)       the field of a structure of the kernel whose memory may be freed; 0: there is no memory
 *   host_enum(type, value)     a value of an enumeration of the kernel
 *   host_is_locked(sk)         whether another CPU may be changing the socket, whose memory may be freed
 *   host_call(call)            calls a static function that returns host_nothing(): see host_bpf.h
 *   host_cpu()                 the number of this CPU
 *   host_bank(cpu, number)     a bank; NULL: there is no bank with this number
 *   host_jiffies()             a clock that costs nothing to read; host_jiffies_of_ms(ms), for which constants have a `jiffy_ns`
 *   host_clock()               the monotonic clock, in nanoseconds
 *   host_since_boot()          the monotonic clock with the time that was spent suspended
 *   host_has_run_clock()       whether there is a clock that the scheduler brings up to date at each switch
 *   host_run_clock(task)       that clock, on the CPU that the task is on
 *   host_controller(v1)        the number of an enum process_v1 among this kernel's controllers
 *   host_css_set(task)         the task's css_set: its place in all hierarchies of control groups
 *   host_subsys(css, v1)       the place of a css_set's tasks in the controller's hierarchy
 *   host_loop(n, step, arg)    calls step(i, arg) for i = 0 … n - 1, until it returns 1; a host without it has the loop below
 *   host_each_cpu(step, arg)   calls step(cpu, arg) for each CPU; a step returns 1 where there is no memory of the CPU
 *   host_swap(p, value)        an atomic swap of a u64; returns the old value
 *   host_item_at(i, n, size)   i * size, where i is below n, in a form that the verifier believes
 *   host_address(p)            the address, as a number to compute with
 *   host_number(n)             n, as a number that is unknown to the verifier. If many paths lead to the same code, the
 *                              verifier then checks that code once
 *
 * The engine has the functions for memory that may be freed, atomics and fences: ts_peek() and the others of topstat/platform.h.
 *
 * Types: a host defines task_struct, cgroup and so on, with at least the fields that kernel.h lists.
 */
#ifndef TOPSTAT_HOST_H
#define TOPSTAT_HOST_H

#if defined(__bpf__)
#include "observe/host_bpf.h"
#elif defined(__KERNEL__)
#include "observe/host_kmod.h"
#else
#include "observe/host_user.h"
#endif

#ifndef host_loop
#define host_loop(n, step, arg)                                        \
	do {                                                           \
		u32 i_, n_ = (n);                                      \
		for (i_ = 0; i_ < n_ && !step(i_, (arg)); i_++) {      \
		}                                                      \
	} while (0)
#endif

#ifndef host_call
#define host_call(call) ((void)(call))
#define host_nothing() 0
#endif

/* The jiffy in which the slide of this moment begins; `length`: of a slide, in jiffies. Slides divide all 64 bits of jiffies, and 2^32
 * is no multiple of their length. */
TS_INLINE u32 host_slide_start(u64 jiffies, u32 length)
{
	return (u32)jiffies - (u32)(jiffies % (length ?: 1));
}

#endif /* TOPSTAT_HOST_H */
