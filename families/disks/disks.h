/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Types that the programs which count disks' requests share with their readers. The only definition. */
#ifndef TOPSTAT_DISKS_H
#define TOPSTAT_DISKS_H

#include "topstat/section.h"
#include "observe/keyed_object.h"
#include "observe/process.h"

enum disks_sample {
	DISKS_PROCS, /* by the process that the request was made for */
	DISKS_CGROUPS,
	DISKS_SAMPLES,
};

enum disks_table {
	DISKS_BYTES,
	DISKS_OPS, /* completed requests */
	DISKS_WAIT, /* ns from the making of a request to its completion */
	DISKS_FLUSHES, /* requests that only flush the disk's cache */
	DISKS_DISCARDS, /* discarded bytes */
	DISKS_TABLES,
};

#define DISKS_SAMPLE_BANKS 2
#define DISKS_BANKS (DISKS_SAMPLES * DISKS_SAMPLE_BANKS)

enum disks_part {
	DISKS_READ,
	DISKS_WRITE, /* also flushes and discards */
	DISKS_PARTS,
};

enum disks_kind {
	DISKS_IS_READ,
	DISKS_IS_WRITE, /* also a write with a flush */
	DISKS_IS_FLUSH,
	DISKS_IS_DISCARD,
	DISKS_KINDS, /* stands for requests that are not counted */
};

/* Changes whenever a pinned structure changes. */
#define DISKS_ABI 3

/* The disks whose objects are closed when their owners end (K8 of keyed.h). */
#define DISKS_DEVICES 64

/* DISK_NAME_LEN of the kernel. */
#define DISKS_NAME 32

/* Set before loading. */
struct disks_constants {
	struct ts_shape shape;
	u64 jiffy_ns;
	u32 v1_controller; /* enum process_v1 */
	u32 pad;
};

TS_SETTINGS(disks, DISKS_BANKS);

struct disks_key {
	u64 device; /* major << 32 | minor, of the whole disk */
	u64 id; /* of the process, or of the cgroup */
};

struct disks_who {
	struct process_who process;
	char device[DISKS_NAME];
};

struct disks_object {
	struct keyed_object keyed; /* held by requests in flight */
	struct disks_key key;
	struct disks_who who;
	struct ts_window window[DISKS_TABLES];
};

/* One row of a section. */
struct disks_row {
	struct ts_row row;
	u64 in_flight; /* requests, now */
	u8 closed; /* the process, or the control group, has ended */
	u8 pad[7];
	struct disks_who who;
};

TS_SECTION(disks);

#endif /* TOPSTAT_DISKS_H */
