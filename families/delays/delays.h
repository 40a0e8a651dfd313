/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the programs that count what processes wait for and those that read it share. The one
 * source: the Rust side is generated from this file.
 */
#ifndef TOPSTAT_DELAYS_H
#define TOPSTAT_DELAYS_H

#include "topstat/section.h"
#include "observe/process.h"

/* By number in the sample; number / TS_BANK_TABLES is the bank. */
enum delays_table {
	DELAYS_BLKIO, /* ns that it waited for block I/O */
	DELAYS_SWAPIN, /* ns that it waited for a page to be swapped in */
	DELAYS_RECLAIM, /* ns that it freed pages itself, since there were none */
	DELAYS_THRASHING, /* ns that it waited for a page that was thrown out too early */
	DELAYS_COMPACT, /* ns that it moved pages itself, to have some side by side */
	DELAYS_WPCOPY, /* ns that it copied pages on writing */
	DELAYS_TABLES,
};

/* A power of two; those of the last that are no tables stay empty. */
#define DELAYS_BANKS 2

/* Another one whenever a structure changes that is pinned. */
#define DELAYS_ABI 3

/* Set before loading. */
struct delays_constants {
	struct ts_shape shape;
	u32 by_thread;
	u32 v1_controller; /* enum process_v1 */
	u64 jiffy_ns;
};

TS_SETTINGS(delays, DELAYS_BANKS);

/* With the kernel's own 136 bytes it fits 2048, as it would with four windows. */
struct delays_object {
	struct ts_object object;
	u64 task; /* of the leader, or the thread */
	u64 pad[5];
	struct ts_window window[DELAYS_TABLES];
};

/* What of a thread's account was pushed. */
struct delays_thread {
	u32 counts; /* all counts together: who has waited since has another sum */
	u32 known; /* it has begun */
	u64 left; /* jiffies, when it was last looked at; 0: it was there before */
	u64 seen[DELAYS_TABLES];
};

/* One row of a section. */
struct delays_row {
	struct ts_row row;
	struct process_who who;
};

TS_SECTION(delays);

#endif /* TOPSTAT_DELAYS_H */
