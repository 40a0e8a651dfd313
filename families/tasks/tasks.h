/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The tables of tasks and control groups: what the programs that push and those that read share.
 * The one source: the Rust side is generated from this file.
 */
#ifndef TOPSTAT_TASKS_H
#define TOPSTAT_TASKS_H

#include "topstat/section.h"
#include "observe/process.h"

/*
 * An object is a process (or, where so set, a thread), in the storage of its leader;
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
#define TASKS_ABI 3

/* Set before loading. */
struct tasks_constants {
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
	struct ts_object object;
	struct ts_count total;
	u64 waited_seen; /* of its leader: as in tasks_waited */
	u32 group; /* where the cgroup was in which it was seen last: G1 */
	u32 pad;
	struct ts_window window[TASKS_CPU_TOTAL]; /* of the tables before it */
	u64 task; /* of the leader, or the thread */
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
 * A control group: in the storage of its cgroup, where the kernel has such (group_storage.h). Else all
 * are in one array (group_array.bpf.h), where a switch finds its group at the index that the process's
 * object remembers; looking it up in a hash would take four times as long as everything else that a
 * push to a table takes. The hash `group_index` is for all others.
 *
 *   G1  The id at an index is 0, or that of the one group to which the hash assigns the index. So a
 *       remembered index is right if the id that is looked for is there, however old it is.
 *   G2  A CPU takes an index from those that were never used, or else from the queue `group_free`. It
 *       clears the window, enters the index into the hash, and writes the id. Where several CPUs do so
 *       for one group, the hash takes the first index, and the other CPUs give theirs back.
 *   G3  A CPU that removes an index from the hash clears the id, and then puts the index at the end of
 *       the queue. Where several CPUs try, the hash lets one of them remove it.
 *   G4  A group is removed when the last of its tasks has ended or left. Only a task that has ended
 *       already may still leave a CPU in its name, and find no object any more; one that has just seen
 *       the id before it was cleared adds to a window that nobody uses, for an index waits in the queue
 *       until all others have been used.
 *   G5  A subtree gets a place only while it has fewer than are left: below a cgroup on level 3 as many
 *       as are left, on level 2 twice, and on level 1 four times as many. (The root is level 0.) So
 *       a user who may make cgroups below one of these can't take all places: half are left for
 *       cgroups beside, and a third, or a fifth, for those beside the one above. A subtree that has few
 *       groups still gets a place. A group without one is refused (T6). `tasks_shares` has how many
 *       there are below each.
 */
struct tasks_group {
	struct ts_object object; /* `id`: the number of the cgroup, as in struct process_who */
	u64 pad[6];
	struct ts_window window; /* of TASKS_CPU */
};
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
	u64 indices; /* of groups that were ever used, at least: G2 */
	u32 groups[TASKS_SHARE_LEVELS][TASKS_SHARES];
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
};
#define TASKS_CLOCK_SLACK_NS 100000000ULL

/* One row of a section. */
struct tasks_row {
	struct ts_row row;
	struct process_who who; /* of a cgroup nothing but that */
};

TS_SECTION(tasks);

#endif /* TOPSTAT_TASKS_H */
