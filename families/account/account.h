/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The types of the account of CPU time. The programs that keep the account share them with the programs that read it, and the
 * Rust types are generated from this file.
 *
 * The storage of each thread holds what the thread has used so far. It is brought up to date when the thread leaves a CPU. Each
 * CPU has a slot that says which thread runs there, and since when. A snapshot is one number, the instant T, written to
 * account_control.instant. No thread is stopped and no CPU is interrupted:
 *
 *   A1  a thread that leaves a CPU for the first time after T copies its account as of T to `kept`, and T to `kept_at`. A CPU's
 *       slot does this, too. A thread that leaves a CPU for the first time since T was *written* enters itself into the ring
 *       `ran`: the thread may leave before T comes, and may not have left a CPU since the previous instant;
 *   A2  T lies a little ahead when it is written, so that every CPU that reads a time after T from the clock sees T;
 *   A3  a slot's `seq` is odd while its CPU updates the slot and a thread's account. Once T has passed, and the reader has seen
 *       an even `seq` of every CPU, all that came before T is in the accounts;
 *   A4  hence a thread's account at T is `kept`, if `kept_at` is T. Else it is the running account, plus the time from the
 *       slice's start to T if a slot says that the thread runs since before T;
 *   A5  a thread was on a CPU between two instants only if it is in a slot, or in `ran` behind the place that was the ring's
 *       end when the first instant was written: a reader never looks at threads that sleep;
 *   A6  a thread that has ended is in the ring `dead`, with its account and its identity.
 *
 * CPU time that belongs to no thread is in the CPUs' slots: `idle`, and `unowned` (the time of threads without storage). So at
 * any T, threads + dead + idle + unowned = time × CPUs.
 */
#ifndef TOPSTAT_ACCOUNT_H
#define TOPSTAT_ACCOUNT_H

#include "topstat/platform.h"

#define ACCOUNT_COMM 16

/* Set before loading. */
struct account_constants {
	u32 interrupts; /* interrupts and softirqs are separate parts */
	u32 steal; /* the machine is virtual: steal time is read */
	u32 ran_mask; /* entries of the rings - 1 */
	u32 dead_mask;
	u32 cpus;
	u32 pad;
};

/* CPU time of a thread, in ns; `irq` to `user` are contained in `run`. */
struct account_own {
	u64 run;
	u64 irq;
	u64 softirq;
	u64 steal;
	u64 user; /* in user space, since `exact` was set */
	u64 exact; /* 1 + the net time when the thread's process was chosen; 0: `user` is not valid */
};

/* The kernel's own counters. Only differences are used. */
struct account_kernel {
	u64 utime; /* sampled by ticks, or exact: see the README */
	u64 stime;
	u64 gtime; /* contained in utime */
	u64 wait; /* runnable, but not on a CPU */
	u64 switches;
};

struct account_times {
	struct account_own own;
	struct account_kernel kernel;
};

/* The identity of a thread, read while it is certain. The leader's start identifies a process. */
struct account_who {
	u32 pid; /* of the thread */
	u32 tgid;
	u32 ppid; /* the parent process, which gets the time of a process that ends */
	u32 gppid; /* the parent's parent */
	u64 start; /* of the process, ns since boot */
	u64 parent_start;
	u32 flags; /* of enum account_flag */
	u32 pad;
	char comm[ACCOUNT_COMM]; /* of the process */
	char thread_comm[ACCOUNT_COMM];
	char parent_comm[ACCOUNT_COMM];
};

enum account_flag {
	ACCOUNT_KERNEL = 1, /* a kernel thread */
	ACCOUNT_LAST = 2, /* the thread has ended, as the last of its process */
};

/* The place of a chosen thread, known from its system calls. Exceptions count as user space. */
enum account_in {
	ACCOUNT_IN_USER,
	ACCOUNT_IN_KERNEL,
};

/* Processes that can be chosen at once. */
#define ACCOUNT_CHOSEN 1024

/* A thread's storage. */
struct account_thread {
	u64 id; /* 0: no account yet, or the thread has ended */
	struct account_own own; /* as of when the thread last left a CPU */
	u64 entered_at; /* the latest instant for which the thread has entered itself into `ran` */
	u64 kept_at; /* the instant of `kept` */
	struct account_times kept;
	u64 task; /* address of the task */
	u64 on; /* 1 + the CPU that the thread was last seen to come onto */
	u64 in; /* enum account_in */
	u64 mark; /* of a chosen thread: the net time at which `user` was last brought up to date */
	u64 came; /* time of the first system call after a switch to the thread that was not seen (precise_unseen()), or 0 */
	u64 came_in; /* `in` before that call */
	struct account_kernel base; /* as of when the storage was made */
	struct account_who who; /* as of the thread's exit */
};

/* A CPU's time that belongs to no thread, and totals of the CPU, in ns. */
struct account_cpu_own {
	u64 idle; /* contains the `idle_` parts below */
	u64 unowned;
	u64 idle_irq;
	u64 idle_softirq;
	u64 idle_steal;
	u64 irq; /* in all that ran on this CPU */
	u64 softirq;
	u64 steal;
};

enum account_running {
	ACCOUNT_RUNS_UNKNOWN, /* nothing is known of this CPU yet */
	ACCOUNT_RUNS_IDLE,
	ACCOUNT_RUNS_UNOWNED,
	ACCOUNT_RUNS_THREAD,
};

/* Ids in the slot of a CPU that runs no thread with an account. */
#define ACCOUNT_ID_IDLE 1
#define ACCOUNT_ID_UNOWNED 2

/*
 * A moved slice: the task that left the CPU is not the task that was seen to come onto it. Either the kernel did not trace a
 * switch in between (some kernels do not trace some threads' switches), or the thread got its account amid the slice. The task
 * that left gets the time that it ran for by the kernel's account; the first part of the slice counts as unowned. A reader whose
 * instant lies in the slice has counted the slice until then to the task that was seen to come, and must not count that time
 * again. If a slice is moved while a reader reads, the reader takes another instant. If a slot names a thread that was since seen
 * to come onto another CPU, the slice counts as unowned until it ends.
 */
struct account_moved {
	u64 start; /* when the slice began */
	u64 unowned; /* how much of its beginning is unowned, in ns */
	u64 to; /* the id that gets the rest */
};
/* Only slices that contain an instant are kept: mostly one per reader. */
#define ACCOUNT_MOVED 8

/* The slot of a CPU; only that CPU writes it. */
struct account_cpu {
	u64 seq; /* A3 */
	u64 start; /* when the current slice began */
	u64 thread; /* address of the running thread's storage, or 0 */
	u64 id;
	u32 running; /* enum account_running */
	u32 irq_depth;
	u64 irq_start;
	u64 softirq_start; /* 0: no softirq runs */
	u64 softirq_other; /* interrupts within the softirq */
	/* as of `start`: */
	u64 start_irq;
	u64 start_softirq;
	u64 start_steal;
	u64 since; /* when this CPU was first seen */
	struct account_cpu_own own;
	u64 kept_at;
	struct account_cpu_own kept;
	u64 moves;
	struct account_moved moved[ACCOUNT_MOVED];
	u64 pad[10];
} __attribute__((aligned(64)));

struct account_control {
	u64 instant; /* T of the latest snapshot */
	u64 claim; /* the time (ns) until which a reader's claim on the instant lasts; 0: no claim */
	u64 pad[6];
	u64 ran_end; /* entries ever made in the ring */
	u64 pad1[7];
	u64 dead_end;
	u64 pad2[7];
	u64 no_memory; /* threads without storage */
	u64 pad3[7];
};

/* An entry of the ring `ran`, at [number & ran_mask]. */
struct account_ran {
	u64 number; /* of the entry, from 1; written last */
	u64 thread; /* address of the thread's storage, … */
	u64 id; /* … which still is the thread's if it holds this id */
	u64 pad;
};

/* An entry of the ring `dead`. */
struct account_dead {
	u64 number;
	u64 id;
	u64 died;
	u64 kept_at;
	struct account_times kept;
	struct account_times times;
	struct account_who who;
};

/* Rows of a section: the threads that one call reads. A call is not interrupted. */
#define ACCOUNT_ROWS 512

/* A thread as of the instant. */
struct account_row {
	u64 id;
	struct account_times times;
	struct account_who who;
};

/* A CPU as of the instant. */
struct account_cpu_row {
	u64 since; /* 0: nothing is known of this CPU yet */
	struct account_cpu_own own;
	u64 start; /* when the current slice began */
	u64 thread;
	u64 id;
	u64 irq; /* in the current slice */
	u64 softirq;
	u64 start_steal;
	u64 assumed; /* the id that the slice was counted to, until the instant; or 0 */
	struct account_moved moved[ACCOUNT_MOVED];
};

/* The result of a call of a reader's program, and the snapshot that it belongs to. */
struct account_section {
	u64 instant;
	u64 ran_from; /* A5: the rings' ends when the instant was written */
	u64 dead_from;
	u64 claim;
	u64 address;
	u64 gone; /* threads that ended before they were read: see `dead` */
	u64 next; /* the CPU to go on with */
	u64 overrun; /* entries of `ran` that were overwritten */
	u32 rows;
	u32 pad;
	struct account_thread thread; /* a copy of the thread's storage */
	struct account_row row[ACCOUNT_ROWS];
};

/* Results of a reader's programs. */
enum account_code {
	ACCOUNT_DONE,
	ACCOUNT_CLAIMED, /* another reader has claimed the instant */
	ACCOUNT_LATE, /* the program was interrupted, call again */
	ACCOUNT_BUSY, /* a CPU is amid a switch, call again */
	ACCOUNT_FAULT,
};

#endif /* TOPSTAT_ACCOUNT_H */
