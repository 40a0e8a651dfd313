/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the programs that account for tasks and those that read it share. The one source: the
 * Rust side is generated from this file.
 *
 * The precise account. Every thread's storage holds what it has used so far, brought up to date
 * when it leaves a CPU; every CPU has a slot that says what runs there since when. A snapshot is
 * one number, the instant T, written to tasks_control.instant. Nothing else is stopped or poked:
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
#ifndef TOPSTAT_TASKS_H
#define TOPSTAT_TASKS_H

#include "topstat/section.h"
#include "observe/process.h"

#define TASKS_COMM 16

/* Set before loading. */
struct tasks_constants {
	u32 interrupts; /* interrupts and softirqs are taken apart */
	u32 steal; /* the kernel knows what the hypervisor took */
	u32 ran_mask; /* entries of the rings - 1 */
	u32 dead_mask;
	u32 cpus;
	u32 pad;
};

/* What was used on a CPU, in ns; the parts are contained in `run`. */
struct tasks_own {
	u64 run;
	u64 irq;
	u64 softirq;
	u64 steal;
	u64 user; /* in user space, since `exact` was set */
	u64 exact; /* 1 + the net time when the thread's process was chosen; 0: `user` doesn't count */
};

/* What the kernel itself accounts for. Differences count. */
struct tasks_kernel {
	u64 utime; /* by ticks, or exact: see the README */
	u64 stime;
	u64 gtime; /* contained in utime */
	u64 wait; /* runnable, but not on a CPU */
	u64 switches;
};

struct tasks_times {
	struct tasks_own own;
	struct tasks_kernel kernel;
};

/* Who it is: taken down while it is sure. A process is told by its leader's start. */
struct tasks_who {
	u32 pid; /* the thread's */
	u32 tgid;
	u32 ppid; /* the parent process, to which its time goes when it ends */
	u32 gppid; /* and that one's */
	u64 start; /* of the process, ns since boot */
	u64 parent_start;
	u32 flags; /* of enum tasks_flag */
	u32 pad;
	char comm[TASKS_COMM]; /* of the process */
	char thread_comm[TASKS_COMM];
	char parent_comm[TASKS_COMM];
};

enum tasks_flag {
	TASKS_KERNEL = 1, /* a kernel thread */
	TASKS_LAST = 2, /* dead, and with it all threads of the process */
};

/* Where a chosen thread is, as its system calls tell. Exceptions are taken for user space. */
enum tasks_in {
	TASKS_IN_USER,
	TASKS_IN_KERNEL,
};

/* Processes that can be chosen at once. */
#define TASKS_CHOSEN 1024

/* A thread's storage. */
struct tasks_thread {
	u64 id; /* 0: not yet */
	struct tasks_own own; /* as of when it last left a CPU */
	u64 entered_at; /* the instant since whose writing it is in the ring `ran` */
	u64 kept_at; /* the instant of … */
	struct tasks_times kept;
	u64 task; /* its address */
	u64 on; /* the CPU that it was last seen to come onto, + 1 */
	u64 in; /* enum tasks_in */
	u64 mark; /* of a chosen thread: its net time when it went there */
	struct tasks_kernel base; /* as of when the storage was made */
	struct tasks_who who; /* as of its exit */
};

/* What is a CPU's own. */
struct tasks_cpu_own {
	u64 idle; /* contains the parts below that fell into it */
	u64 unowned;
	u64 idle_irq;
	u64 idle_softirq;
	u64 idle_steal;
	u64 irq; /* of all that ran here */
	u64 softirq;
	u64 steal;
};

enum tasks_running {
	TASKS_RUNS_UNKNOWN, /* nothing was seen of this CPU yet */
	TASKS_RUNS_IDLE,
	TASKS_RUNS_UNOWNED,
	TASKS_RUNS_THREAD,
};

/* Stand for an id of what runs where it is no thread with an account. */
#define TASKS_ID_IDLE 1
#define TASKS_ID_UNOWNED 2

/*
 * A slice that ended as another one's than it had begun as: a switch in between was not seen
 * (there are kernels that don't trace those of some threads), or its thread got its account in
 * the midst. Who left the CPU gets what it ran for by the kernel's account, and the first part of
 * the slice is nobody's. A reader whose instant was in the slice has taken all of it until then for
 * that of who it had begun as, and must not count it a second time. If a slice is moved while a
 * reader is at it, it takes another instant; and where a slot says that a thread runs which has
 * been seen to come onto another CPU since, the slice is nobody's until it ends.
 */
struct tasks_moved {
	u64 start; /* of the slice */
	u64 unowned; /* how much of its beginning is nobody's */
	u64 to; /* whose the rest is */
};
/* Only slices across an instant are kept: one for each reader, mostly. */
#define TASKS_MOVED 8

/* A CPU's slot; only that CPU writes it. */
struct tasks_cpu {
	u64 seq; /* A3 */
	u64 start; /* of what runs */
	u64 thread; /* its storage's address and id */
	u64 id;
	u32 running; /* enum tasks_running */
	u32 irq_depth;
	u64 irq_start;
	u64 softirq_start; /* 0: none */
	u64 softirq_other; /* interrupts inside of the softirq */
	/* as of `start` */
	u64 start_irq;
	u64 start_softirq;
	u64 start_steal;
	u64 since; /* when this CPU was first seen */
	struct tasks_cpu_own own;
	u64 kept_at;
	struct tasks_cpu_own kept;
	u64 moves;
	struct tasks_moved moved[TASKS_MOVED];
	u64 pad[5];
} __attribute__((aligned(64)));

struct tasks_control {
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
struct tasks_ran {
	u64 number; /* of the entry, from 1; written last */
	u64 thread; /* address of its storage … */
	u64 id; /* … if it is its own still */
	u64 pad;
};

/* An entry of the ring `dead`. */
struct tasks_dead {
	u64 number;
	u64 id;
	u64 died;
	u64 kept_at;
	struct tasks_times kept;
	struct tasks_times times;
	struct tasks_who who;
};

/* Rows of a section; how many threads are looked at in one call, which is not interrupted. */
#define TASKS_ROWS 512

/* A thread at the instant. */
struct tasks_row {
	u64 id;
	struct tasks_times times;
	struct tasks_who who;
};

/* A CPU at the instant. */
struct tasks_cpu_row {
	u64 since; /* 0: nothing was seen of it yet */
	struct tasks_cpu_own own;
	u64 start; /* of what runs, where it is a thread */
	u64 thread;
	u64 id;
	u64 irq; /* of what runs, since its start */
	u64 softirq;
	u64 start_steal;
	u64 assumed; /* the id of what runs since `start`, if that was taken for the truth; or 0 */
	struct tasks_moved moved[TASKS_MOVED];
};

/* What a call of a reader's program has found, and the snapshot it belongs to. */
struct tasks_section {
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
	struct tasks_thread thread; /* a copy */
	struct tasks_row row[TASKS_ROWS];
};

/* Why a call of a reader's program did not do it. */
enum tasks_code {
	TASKS_DONE,
	TASKS_CLAIMED, /* another reader is at it */
	TASKS_LATE, /* interrupted, call again */
	TASKS_BUSY, /* a CPU is in the midst of a switch, call again */
	TASKS_FAULT,
};

/*
 * The tables. An object is a process (or, where so set, a thread), in the storage of its leader;
 * or a cgroup, in a hash.
 */
enum tasks_sample {
	TASKS_TASKS,
	TASKS_CGROUPS,
	TASKS_SAMPLES,
};

/* A power of two, and the static one last. */
enum tasks_table {
	TASKS_CPU, /* ns on a CPU, by window */
	TASKS_SWITCHES, /* how often it left one */
	TASKS_WAITS, /* ns that it waited for one while runnable */
	TASKS_CPU_TOTAL, /* ns on a CPU, running total */
	TASKS_TABLES,
};

/* Another one whenever a structure changes that is pinned. */
#define TASKS_ABI 2

/* Set before loading. */
struct tasks_top_constants {
	struct ts_shape shape;
	u32 by_thread;
	u32 v1_controller; /* enum process_v1 */
	u32 groups; /* where they are in an array: its places */
	u32 pad;
};

struct tasks_settings {
	struct ts_settings all;
	struct ts_config config[TASKS_SAMPLES][TASKS_TABLES];
};

/* So that what every push needs fits a line or two: as in struct inet_object. */
struct tasks_object {
	u64 id; /* 0: not (or no longer) an object */
	u64 self; /* its own address */
	struct ts_count total;
	u64 waited_seen; /* of its leader: as in tasks_waited */
	u32 group; /* where the cgroup was in which it was seen last: G1 */
	u32 pad;
	struct ts_window window[TASKS_CPU_TOTAL]; /* of the tables before it */
	u64 task; /* of the leader, or the thread */
	u64 pad_end[7]; /* see ts_mark_index() */
};

/*
 * Of a thread that is no object: finding it takes a switch as long as finding the object. Of the time
 * that a thread has waited, what was pushed is kept in one place only: when such a thread becomes an
 * object its object begins with it, and what was the leader until then keeps it in its own, old one.
 */
struct tasks_waited {
	u64 seen;
};

/*
 * A control group: in the storage of its cgroup, where the kernel has such (group_storage.bpf.h). Else all
 * are in one array (group_array.bpf.h), where a switch finds its group at the index that the process's
 * object remembers; looking it up in a hash would take four times as long as everything else that a
 * push to a table takes. The hash `group_index` is for all others.
 *
 *   G1  The id at an index is 0, or that of the one group to which the hash assigns the index. So a
 *       remembered index is right if the id that is looked for is there, however old it is.
 *   G2  An index is one's who has taken it, from those never used or else from the queue `group_free`:
 *       he clears the window, then enters it into the hash, where the first succeeds and all others
 *       give theirs back, and then writes the id.
 *   G3  An index is taken away by whoever has removed it from the hash, where again one succeeds. He
 *       clears the id, then puts it at the end of the queue.
 *   G4  A group is removed when the last of its tasks has ended or left. Only a task that has ended
 *       already may still leave a CPU in its name, and find no object any more; one that has just seen
 *       the id before it was cleared adds to a window that nobody uses, for an index waits in the queue
 *       until all others have been used.
 *   G5  A subtree gets a place only while it has fewer than are left: below a cgroup on level 3 as many
 *       as are left, on level 2 twice, and on level 1 four times as many. (The root is level 0.) So
 *       whoever may make cgroups below one of these can't take all places: he leaves half to those
 *       beside him, and a third, or a fifth, to those beside what he is part of. Who has few still
 *       gets one. What gets none is refused (T6). `tasks_shares` has how many there are below each.
 */
struct tasks_group {
	u64 id; /* of the cgroup, with TASKS_GROUP_V1 if it is of a v1 hierarchy */
	u64 self;
	u64 pad[6];
	struct ts_window window; /* of TASKS_CPU */
	u64 pad_end[8];
};
#define TASKS_GROUP_V1 (1ULL << 63)
/* Places of the array, unless a test asks for fewer: 3 MiB. */
#define TASKS_GROUPS 8192

/* The levels on which a host's administrator shares it out: slices, users or units, and what is delegated
 * to them (/user.slice/user-1000.slice/user@1000.service). */
#define TASKS_SHARE_LEVELS 3
/* A power of two. */
#define TASKS_SHARES 4096

/*
 * Groups in the array below each cgroup of a level, itself included, at a hash of its address. Nothing has to
 * be allocated or found, so there is nothing to run out of. Two whose hash is the same are taken for one,
 * which at worst refuses a place to one of them: to do so to another one, a subtree has to have a good part of all
 * places below a single cgroup, and there are only so many such parts.
 */
struct tasks_shares {
	u32 groups[TASKS_SHARE_LEVELS][TASKS_SHARES];
};

struct tasks_census {
	struct ts_census objects[TASKS_SAMPLES];
	u64 indices; /* of groups that were ever used, at least: G2 */
};

/*
 * What runs on a CPU, as the tables see it; and the CPU's idle time, which is nobody's. Only that CPU
 * writes it.
 *
 *   C1  The clock is that of the CPU's run queue, by which the kernel itself accounts for tasks' run
 *       time. The scheduler brings it up to date at the beginning of every switch, so it takes next to
 *       nothing to read there. Slices are differences on one CPU: clocks of CPUs need not agree.
 *   C2  Between switches it is as old as the last tick, and on a CPU without ticks older. A snapshot
 *       takes the monotonic clock and adds what the run queue's was ahead of it at a switch not long
 *       ago, or, on a CPU that has not switched yet, on the first one. NTP slews the monotonic clock
 *       alone, so that what was added is wrong by 500 ppm of its age at most.
 *   C3  Hence a slice that a snapshot has begun may end before it began: it then counts 0, and the next
 *       begins where this one did. Only a beginning that lies ahead by more than
 *       TASKS_CLOCK_SLACK_NS is given up, so that nothing is left uncounted for longer.
 */
struct tasks_runner {
	u64 start; /* of what runs; 0: nothing was seen of this CPU yet … */
	u64 start_jiffies; /* … by both clocks */
	u64 clock_ahead; /* C2; 0: not known */
	u64 claim; /* of snapshots: one interrupts the other; switches interrupt none */
	struct ts_count idle_total;
	u64 pad;
	struct ts_window idle[TASKS_SAMPLES]; /* of TASKS_CPU */
	u64 pad_end[8];
};
#define TASKS_CLOCK_SLACK_NS 100000000ULL

/* One row of a section. */
struct tasks_top_row {
	struct ts_row row;
	struct process_who who; /* of a cgroup nothing but that */
};

struct tasks_top_section {
	struct ts_section head;
	struct tasks_top_row row[];
};

#endif /* TOPSTAT_TASKS_H */
