/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The account of CPU time: what the programs that keep it and those that read it share. The one
 * source: the Rust side is generated from this file.
 *
 * Every thread's storage holds what it has used so far, brought up to date
 * when it leaves a CPU; every CPU has a slot that says what runs there since when. A snapshot is
 * one number, the instant T, written to account_control.instant. Nothing else is stopped or poked:
 *
 *   A1  whoever leaves a CPU for the first time after T keeps its account as of T beside the
 *       running one (`kept`, for the instant in `kept_at`); so does a CPU's slot. Whoever
 *       leaves a CPU for the first time since T was *written* enters itself into the ring `ran`:
 *       it may leave before T comes, and not have left since the instant before;
 *   A2  T lies a little ahead when it is written, so that no clock that is read after T was
 *       read by a CPU that does not see T yet;
 *   A3  a slot's `seq` is odd while its CPU is at it. Once T has passed, and every CPU was seen
 *       with an even one, all that came before T is in the accounts;
 *   A4  hence a thread's account at T is `kept`, if that is of T, and else the running one and,
 *       if a slot says that it runs since before T, the time since;
 *   A5  a thread was on a CPU between two instants only if it is in `ran` behind the place that
 *       was the ring's end when the first was written, or in a slot: threads that sleep are
 *       never looked at;
 *   A6  a thread that has ended is in the ring `dead` with all that is to be known of it.
 *
 * The time on the CPUs that is not a thread's own is in their slots: `idle`, and `unowned` of
 * threads without storage. So at any T, threads + dead + idle + unowned = time × CPUs.
 */
#ifndef TOPSTAT_ACCOUNT_H
#define TOPSTAT_ACCOUNT_H

#include "topstat/platform.h"

#define ACCOUNT_COMM 16

/* Set before loading. */
struct account_constants {
	u32 interrupts; /* interrupts and softirqs are taken apart */
	u32 steal; /* the kernel knows what the hypervisor took */
	u32 ran_mask; /* entries of the rings - 1 */
	u32 dead_mask;
	u32 cpus;
	u32 pad;
};

/* What was used on a CPU, in ns; the parts are contained in `run`. */
struct account_own {
	u64 run;
	u64 irq;
	u64 softirq;
	u64 steal;
	u64 user; /* in user space, since `exact` was set */
	u64 exact; /* 1 + the net time when the thread's process was chosen; 0: `user` doesn't count */
};

/* What the kernel itself accounts for. Differences count. */
struct account_kernel {
	u64 utime; /* by ticks, or exact: see the README */
	u64 stime;
	u64 gtime; /* contained in utime */
	u64 wait; /* runnable, but not on a CPU */
	u64 switches;
};

struct account_times {
	struct account_own own;
	struct account_kernel kernel;
};

/* Who it is: taken down while it is sure. A process is told by its leader's start. */
struct account_who {
	u32 pid; /* the thread's */
	u32 tgid;
	u32 ppid; /* the parent process, to which its time goes when it ends */
	u32 gppid; /* and that one's */
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
	ACCOUNT_LAST = 2, /* dead, and with it all threads of the process */
};

/* Where a chosen thread is, as its system calls tell. Exceptions are taken for user space. */
enum account_in {
	ACCOUNT_IN_USER,
	ACCOUNT_IN_KERNEL,
};

/* Processes that can be chosen at once. */
#define ACCOUNT_CHOSEN 1024

/* A thread's storage. */
struct account_thread {
	u64 id; /* 0: not yet */
	struct account_own own; /* as of when it last left a CPU */
	u64 entered_at; /* the instant since whose writing it is in the ring `ran` */
	u64 kept_at; /* the instant of … */
	struct account_times kept;
	u64 task; /* its address */
	u64 on; /* the CPU that it was last seen to come onto, + 1 */
	u64 in; /* enum account_in */
	u64 mark; /* of a chosen thread: its net time when it went there */
	u64 came; /* see precise_unseen(); 0: it was seen to come onto its CPU */
	u64 came_in; /* enum account_in */
	struct account_kernel base; /* as of when the storage was made */
	struct account_who who; /* as of its exit */
};

/* What is a CPU's own. */
struct account_cpu_own {
	u64 idle; /* contains the parts below that fell into it */
	u64 unowned;
	u64 idle_irq;
	u64 idle_softirq;
	u64 idle_steal;
	u64 irq; /* of all that ran here */
	u64 softirq;
	u64 steal;
};

enum account_running {
	ACCOUNT_RUNS_UNKNOWN, /* nothing was seen of this CPU yet */
	ACCOUNT_RUNS_IDLE,
	ACCOUNT_RUNS_UNOWNED,
	ACCOUNT_RUNS_THREAD,
};

/* Stand for an id of what runs where it is no thread with an account. */
#define ACCOUNT_ID_IDLE 1
#define ACCOUNT_ID_UNOWNED 2

/*
 * A slice that ended as another one's than it had begun as: a switch in between was not seen
 * (there are kernels that don't trace those of some threads), or its thread got its account in
 * the midst. Who left the CPU gets what it ran for by the kernel's account, and the first part of
 * the slice is nobody's. A reader whose instant was in the slice has taken all of it until then for
 * that of who it had begun as, and must not count it a second time. If a slice is moved while a
 * reader is at it, it takes another instant; and where a slot says that a thread runs which has
 * been seen to come onto another CPU since, the slice is nobody's until it ends.
 */
struct account_moved {
	u64 start; /* of the slice */
	u64 unowned; /* how much of its beginning is nobody's */
	u64 to; /* whose the rest is */
};
/* Only slices across an instant are kept: one for each reader, mostly. */
#define ACCOUNT_MOVED 8

/* A CPU's slot; only that CPU writes it. */
struct account_cpu {
	u64 seq; /* A3 */
	u64 start; /* of what runs */
	u64 thread; /* its storage's address and id */
	u64 id;
	u32 running; /* enum account_running */
	u32 irq_depth;
	u64 irq_start;
	u64 softirq_start; /* 0: none */
	u64 softirq_other; /* interrupts inside of the softirq */
	/* as of `start` */
	u64 start_irq;
	u64 start_softirq;
	u64 start_steal;
	u64 since; /* when this CPU was first seen */
	struct account_cpu_own own;
	u64 kept_at;
	struct account_cpu_own kept;
	u64 moves;
	struct account_moved moved[ACCOUNT_MOVED];
	u64 pad[5];
} __attribute__((aligned(64)));

struct account_control {
	u64 instant; /* T of the latest snapshot */
	u64 claim; /* until when its reader has it to himself (ns); 0: nobody has */
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
	u64 thread; /* address of its storage … */
	u64 id; /* … if it is its own still */
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

/* Rows of a section; how many threads are looked at in one call, which is not interrupted. */
#define ACCOUNT_ROWS 512

/* A thread at the instant. */
struct account_row {
	u64 id;
	struct account_times times;
	struct account_who who;
};

/* A CPU at the instant. */
struct account_cpu_row {
	u64 since; /* 0: nothing was seen of it yet */
	struct account_cpu_own own;
	u64 start; /* of what runs, where it is a thread */
	u64 thread;
	u64 id;
	u64 irq; /* of what runs, since its start */
	u64 softirq;
	u64 start_steal;
	u64 assumed; /* the id of what runs since `start`, if that was taken for the truth; or 0 */
	struct account_moved moved[ACCOUNT_MOVED];
};

/* What a call of a reader's program has found, and the snapshot it belongs to. */
struct account_section {
	u64 instant;
	u64 ran_from; /* A5: the rings' ends when the instant was written */
	u64 dead_from;
	u64 claim;
	u64 fence;
	u64 address;
	u64 gone; /* threads that have ended meanwhile: see `dead` */
	u64 next; /* CPU to go on with */
	u64 overrun; /* entries of `ran` that were written over */
	u32 rows;
	u32 pad;
	struct account_thread thread; /* a copy */
	struct account_row row[ACCOUNT_ROWS];
};

/* Why a call of a reader's program did not do it. */
enum account_code {
	ACCOUNT_DONE,
	ACCOUNT_CLAIMED, /* another reader is at it */
	ACCOUNT_LATE, /* interrupted, call again */
	ACCOUNT_BUSY, /* a CPU is in the midst of a switch, call again */
	ACCOUNT_FAULT,
};

#endif /* TOPSTAT_ACCOUNT_H */
