/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The structures of records.h. */
#ifndef TOPSTAT_RECORD_RING_H
#define TOPSTAT_RECORD_RING_H

#include "topstat/window.h"

/* The kernel's counters. Bytes are taken modulo 2^56, the others modulo 2^32. */
struct records_counts {
	u64 bytes[TS_PARTS]; /* of payload; received, sent */
	u32 packets[TS_PARTS];
	u32 resent; /* packets */
	u32 pad;
};

/* The counter that a table ranks. */
enum records_of {
	RECORDS_PACKETS,
	RECORDS_BYTES,
	RECORDS_RESENT, /* of the second part */
	RECORDS_TABLES,
};

struct record {
	u64 bytes[TS_PARTS]; /* << 8; the low bytes are the fractions of the slide's first event, and of its last */
	u32 packets[TS_PARTS];
	u32 resent;
	u32 cpu; /* that has made the record */
};

struct record_ring {
	u64 slide; /* of the newest record, with the tag of the ring above TS_EPOCH_SHIFT; 0: there is no record yet */
	u64 done; /* as in ts_window: which of the last TS_MARKS slides have a record */
	struct record record[TS_MARKS]; /* of slide x at [x % TS_MARKS] */
};

#endif /* TOPSTAT_RECORD_RING_H */
