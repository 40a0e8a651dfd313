/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What an observer needs of the host that it runs on. Three hosts are known, and only their headers
 * know which one it is: eBPF (host_bpf.h), a kernel module (host_kmod.h), and user space, for tests
 * (host_user.h). A family's logic.h is written with this header and obs.h alone, so it is the same
 * source on each of them; `make lint` compiles it as kernel C.
 *
 * State, once for a family:
 *
 *   HOST_STATE(family, samples, banks, …)
 *                          makes `constants` (struct family_constants, which begins with a ts_shape),
 *                          `settings` (struct family_settings), `census` (of so many samples), and so
 *                          many banks of tables for each CPU. What follows are initial values of
 *                          constants
 *   HOST_STORAGE(name, owner, type)
 *                          makes a storage in which every owner (sk, task, cgrp) may have one
 *                          structure of the type. It begins as zeroes and ends with its owner
 *
 *   HOST_PER_CPU(name, type)
 *                          makes one structure of the type for each CPU, zeroes at first; host_on(name, cpu)
 *                          finds it, or NULL
 *   HOST_ARRAY(name, entries, type)
 *                          makes so many structures of the type, zeroes at first; host_item(name, i) finds
 *                          one, or NULL
 *   HOST_KEPT(type, banks, tables)
 *                          where TS_KEEPS is defined: has the first so many tables of the first so many banks of a CPU
 *                          keep what has ended (the engine's keep.h), each in a structure of the type, which begins
 *                          with a ts_kept called `kept`
 *   HOST_WORD(name)        makes a u64, 0 at first, that readers find by its name
 *
 * Functions:
 *
 *   host_of(name, owner, p)    what the owner at p has in the storage; NULL: nothing
 *   host_make(name, owner, p)  the same, made where there was nothing; NULL: there was no memory
 *   host_cpu()                 the number of this CPU
 *   host_bank(cpu, number)     a bank; NULL: there is none of this number
 *   host_jiffies()             a clock that costs nothing to read; host_jiffies_of_ms(ms), for which
 *                              constants have a `jiffy_ns`
 *   host_clock()               the monotonic clock, in nanoseconds
 *   host_since_boot()          the same with the time that was spent suspended
 *   host_has_run_clock()       whether there is a clock that the scheduler brings up to date at each switch
 *   host_run_clock(task)       it, on the CPU that the task is on
 *   host_controller(v1)        the number of an enum process_v1 among this kernel's controllers
 *   host_css_set(task)         where the task is in all hierarchies of control groups
 *   host_subsys(css, v1)       where the tasks of a css_set are in its hierarchy
 *   host_swap(p, value)        an atomic swap of a u64; what was there before
 *   host_item_at(i, n, size)   i * size, where i is below n, in a form that the verifier believes
 *   host_address(p)            the address, as a number to compute with
 *   host_number(n)             n, of which the verifier forgets what it knew. Where many ways lead to the
 *                              same code, that code is then verified once
 *
 * Reading memory that may be gone, atomics and fences are the engine's: ts_peek() and the others of
 * topstat/platform.h.
 *
 * Types: a host gives task_struct, cgroup and so on, with at least the fields that kernel.h lists.
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

#endif /* TOPSTAT_HOST_H */
