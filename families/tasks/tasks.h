/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The tables of tasks and control groups: types that the observer shares with its readers. The only definition: the Rust side is
 * generated from this file.
 */
#ifndef TOPSTAT_TASKS_H
#define TOPSTAT_TASKS_H

#include "topstat/section.h"
#include "observe/process.h"

/*
 * An object is a process (or, if so configured, a thread), in the storage of its leader; or a control group: see struct
 * tasks_group.
 */
enum tasks_sample {
	TASKS_TASKS,
	TASKS_CGROUPS,
	TASKS_SAMPLES,
};

/* A power of two tables; the static table is the last. */
enum tasks_table {
	TASKS_CPU, /* ns on a CPU, by window */
	TASKS_SWITCHES, /* the number of times that it left a CPU */
	TASKS_WAITS, /* ns that it was runnable and waited for a CPU */
	TASKS_CPU_TOTAL, /* ns on a CPU, running total */
	TASKS_TABLES,
};

/* Changes whenever a pinned structure changes. */
#define TASKS_ABI 3

/* Set before loading. */
struct tasks_constants {
	struct ts_shape shape;
	u32 by_thread;
	u32 v1_controller; /* enum process_v1 */
	u32 groups; /* if groups are in an array: its places */
	u32 pad;
};

struct tasks_settings {
	struct ts_settings all;
	struct ts_config config[TASKS_SAMPLES][TASKS_TABLES];
};

/* The fields of every push fit a cache line or two: as in struct inet_object. */
struct tasks_object {
	struct ts_object object;
	struct ts_count total;
	u64 waited_seen; /* the leader's: as in tasks_waited */
	u32 group; /* the index of the cgroup in which it was seen last: GI1 */
	u32 pad;
	struct ts_window window[TASKS_CPU_TOTAL]; /* of the tables before it */
	u64 task; /* of the leader, or the thread */
};

/*
 * For a thread without an object: a switch finds it in the same time as an object. The pushed part of a thread's waiting time is
 * kept in one place only: when such a thread becomes an object, its object begins with this value. The previous leader keeps its
 * value in its own, old object.
 */
struct tasks_waited {
	u64 seen;
};

/*
 * A control group: in the storage of its cgroup, where the kernel has such storage (group_storage.h). Otherwise all groups are in
 * one array (group_array.bpf.h). There a switch finds its group at the index that the process's object remembers; a lookup in a
 * hash would take four times as long as the rest of a push to a table. All other callers use the hash `group_index`.
 *
 *   GI1 The id at an index is 0, or the id of the only group to which the hash assigns the index. So a remembered index is right
 *       if the wanted id is there, however old the index is.
 *   GI2 A CPU takes an index that was never used, or else one from the queue `group_free`. It clears the window, enters the index
 *       into the hash, and writes the id. If several CPUs do so for one group, the hash takes the first index, and the other CPUs
 *       give theirs back.
 *   GI3 A CPU that removes an index from the hash clears the id, and then puts the index at the end of the queue. If several CPUs
 *       try, the hash lets one of them remove it.
 *   GI4 A group is removed when the last of its tasks has ended or left. Only an ended task can still leave a CPU in the group,
 *       and it finds no object any more. A CPU that has seen the id before it was cleared adds to an unused window, for an index
 *       waits in the queue until all others have been used.
 *   GI5 A subtree gets a place only while it has fewer than are left: below a cgroup on level 3 as many as are left, on level 2
 *       twice, and on level 1 four times as many. (The root is level 0.) So a user with the right to make cgroups below one of
 *       these can't take all places: half are left for neighbouring cgroups, and a third, or a fifth, for the neighbours of the
 *       enclosing one. A subtree with few groups still gets a place. A group without a place is refused (T6). `tasks_shares`
 *       counts the groups below each cgroup.
 */
struct tasks_group {
	struct ts_object object; /* `id`: the number of the cgroup, as in struct process_who */
	u64 pad[6];
	struct ts_window window; /* of TASKS_CPU */
};
/* Places of the array, unless a test sets fewer: 3 MiB. */
#define TASKS_GROUPS 8192

/*
 * The levels on which a host's administrator shares it out: slices, users or units, and the subtrees delegated to them
 * (/user.slice/user-1000.slice/user@1000.service).
 */
#define TASKS_SHARE_LEVELS 3
/* A power of two. */
#define TASKS_SHARES 4096

/*
 * The number of groups in the array below each cgroup of a level, including itself, at a hash of its address. No entry is
 * allocated or looked up, so the counts can't run out. Two cgroups with one hash share a count, which at worst refuses a place to
 * one of them. To do this to another subtree, a subtree needs a good part of all places below a single cgroup, and there are only
 * a few such parts.
 */
struct tasks_shares {
	u64 indices; /* the number of indices ever used, at least: GI2 */
	u32 groups[TASKS_SHARE_LEVELS][TASKS_SHARES];
};

/*
 * The running task of a CPU, as the tables see it; and the CPU's idle time, which belongs to no task. Only that CPU writes it.
 *
 *   CL1 The clock is the CPU's run queue's, by which the kernel itself accounts for tasks' run time. The scheduler updates it at
 *       the beginning of every switch, so reading it there costs next to nothing. Slices are differences on one CPU: the clocks
 *       of different CPUs may differ.
 *   CL2 Between switches the clock is as old as the last tick, and older on a CPU without ticks. A snapshot takes the monotonic
 *       clock and adds the lead of the run queue's clock over it at a recent switch, or, on a CPU that has not switched yet, the
 *       first CPU's lead. NTP slews the monotonic clock alone, so the lead is wrong by 500 ppm of its age at most.
 *   CL3 Hence a slice that a snapshot has begun may end before its beginning: it then counts 0, and the next slice has the same
 *       beginning. Only a beginning that is ahead by more than TASKS_CLOCK_SLACK_NS is replaced, so that no time is left
 *       uncounted for longer.
 */
struct tasks_runner {
	u64 start; /* of the running task; 0: the CPU has not been seen yet … */
	u64 start_jiffies; /* … by both clocks */
	u64 clock_ahead; /* CL2; 0: unknown */
	u64 claim; /* of snapshots: one may interrupt another; switches interrupt none */
	struct ts_count idle_total;
	u64 pad;
	struct ts_window idle[TASKS_SAMPLES]; /* of TASKS_CPU */
};
#define TASKS_CLOCK_SLACK_NS 100000000ULL

/* One row of a section. */
struct tasks_row {
	struct ts_row row;
	struct process_who who; /* for a cgroup, only `cgroup` is set */
};

TS_SECTION(tasks);

#endif /* TOPSTAT_TASKS_H */
