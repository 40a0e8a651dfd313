/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The types of the sample of delays. The programs that count share them with the programs that read, and the Rust types are
 * generated from this file.
 */
#ifndef TOPSTAT_DELAYS_H
#define TOPSTAT_DELAYS_H

#include "topstat/section.h"
#include "observe/process.h"

/* By the table's number in the sample; the bank is number / TS_BANK_TABLES. */
enum delays_table {
	DELAYS_BLKIO, /* ns that the process waited for block I/O */
	DELAYS_SWAPIN, /* ns that it waited for a page to be swapped in */
	DELAYS_RECLAIM, /* ns that it freed pages itself, because none were free */
	DELAYS_THRASHING, /* ns that it waited for a page that was evicted too early */
	DELAYS_COMPACT, /* ns that it moved pages itself, to make a contiguous area */
	DELAYS_WPCOPY, /* ns that it copied shared pages on writing */
	DELAYS_TABLES,
};

/* A power of two. Places of the last bank without a table stay empty. */
#define DELAYS_BANKS 2

/* Changes whenever a pinned structure changes. */
#define DELAYS_ABI 3

/* Set before loading. */
struct delays_constants {
	struct ts_shape shape;
	u32 by_thread;
	u32 v1_controller; /* enum process_v1 */
	u64 jiffy_ns;
};

TS_SETTINGS(delays, DELAYS_BANKS);

/* With the kernel's own 136 bytes the size fits into 2048 bytes, as it would with four windows. */
struct delays_object {
	struct ts_object object;
	u64 task; /* of the leader, or of the thread */
	u64 pad[5];
	struct ts_window window[DELAYS_TABLES];
};

/* The part of a thread's account that was pushed. */
struct delays_thread {
	u32 counts; /* the sum of all counts: it changes with each wait */
	u32 known; /* the account has begun */
	u64 left; /* jiffies, when the thread was last looked at; 0: it existed before the observer */
	u64 seen[DELAYS_TABLES];
};

/* One row of a section. */
struct delays_row {
	struct ts_row row;
	struct process_who who;
};

TS_SECTION(delays);

#endif /* TOPSTAT_DELAYS_H */
