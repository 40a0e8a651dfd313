/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the kernel keeps of control groups: the types that the reading program shares with its reader. The only definition.
 *
 *   PR1 One run of the program passes through one hierarchy, in one piece, while the kernel makes and removes no group.
 *   PR2 Counters of time and events only grow. Each is copied whole.
 *   PR3 The kernel sums up pressure every two seconds, and when one of its files is read. In between, a run computes the sum that
 *       the file would have had at the run's `now_ns`, and changes nothing.
 */
#ifndef TOPSTAT_PRESSURE_H
#define TOPSTAT_PRESSURE_H

/* Control groups that are read of a hierarchy, at most: 2.3 MiB. The others are only counted. */
#define PRESSURE_GROUPS 16384
/* CPUs of a kernel, at most: the kernel's own limit on x86 and s390. */
#define PRESSURE_CPUS 8192
/* There is no such level of groups: the hierarchy is not cut. */
#define PRESSURE_UNCUT 0xffffffff

enum pressure_kind {
	PRESSURE_CPU_SOME,
	PRESSURE_CPU_FULL,
	PRESSURE_MEM_SOME,
	PRESSURE_MEM_FULL,
	PRESSURE_IO_SOME,
	PRESSURE_IO_FULL,
	PRESSURE_KINDS,
};

enum pressure_event {
	PRESSURE_HIGH,
	PRESSURE_MAX,
	PRESSURE_OOM,
	PRESSURE_OOM_KILL,
	PRESSURE_EVENTS,
};

/* Parts of a group that it has, as bits. */
enum pressure_has {
	PRESSURE_HAS_CPU = 1,
	PRESSURE_HAS_MEMORY = 2,
	PRESSURE_HAS_STALLS = 4,
};

/* Set by the reader before a run. */
struct pressure_plan {
	unsigned long long jiffy_ns;
	unsigned int level;	/* groups below count to their ancestor on this level; PRESSURE_UNCUT: to themselves */
	unsigned int cpus;	/* CPUs that may exist: 0 to `cpus` - 1 */
};

/* The state of a run. */
struct pressure_cursor {
	unsigned long long now_ns;	/* on the scheduler's clock, at most a tick ago */
	unsigned long long raw;		/* an address of per-CPU data before its CPU is chosen */
	unsigned long long there;	/* that data's address on a CPU */
	unsigned int found;		/* groups in the list */
	unsigned int beyond;		/* groups without room in it */
	unsigned int computed;		/* groups whose pressure was computed (PR3) */
	unsigned int unreadable;	/* parts of groups that could not be read, and count as 0 */
};

struct pressure_group {
	unsigned long long id;
	unsigned long long parent;	/* 0: of the root */
	unsigned long long above;	/* the group that this one counts to */
	unsigned long long throttled_ns;
	unsigned long long throttled_periods;
	unsigned long long memory_pages;	/* with all groups below */
	unsigned long long events[PRESSURE_EVENTS]; /* of the group itself */
	unsigned long long stalled_ns[PRESSURE_KINDS]; /* with all groups below */
	unsigned int level;		/* the root's is 0 */
	unsigned int below;		/* groups below */
	unsigned int has;		/* enum pressure_has */
	unsigned int pad;
};

#endif /* TOPSTAT_PRESSURE_H */
