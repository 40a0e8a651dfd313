/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the programs of a table of the user's own share with readers. One program serves all such tables: constants describe the
 * table, and the verifier removes the code for all other tables.
 */
#ifndef TOPSTAT_CUSTOM_H
#define TOPSTAT_CUSTOM_H

#include "topstat/section.h"
#include "observe/keyed_object.h"

#define CUSTOM_KEYS 4
#define CUSTOM_CONDITIONS 4
/* Fields that the two events of one span have in common. */
#define CUSTOM_COMMON 2
/* Words of a key, over all its fields; a power of two. A number has one word, a text one for each 8 bytes. */
#define CUSTOM_WORDS 16
/* Words of a text: 63 bytes, and a zero. */
#define CUSTOM_TEXT_WORDS 8
/* Steps of a path through the kernel's types: pointers that are followed, and the last offset. */
#define CUSTOM_STEPS 4
/* Bytes of a definition's text, and of a table's name, with the zero behind it. */
#define CUSTOM_DEFINITION 1024
#define CUSTOM_NAME 416

enum custom_sample {
	CUSTOM_SAMPLE,
	CUSTOM_SAMPLES,
};

enum custom_table {
	CUSTOM_TABLE,
	CUSTOM_TABLES,
};

/* Changes whenever a pinned structure changes. */
#define CUSTOM_ABI 2

/*
 * Where a field is. The record is the context of a classic tracepoint, or the registers at a probe. A path begins at an argument
 * of a BTF tracepoint.
 */
enum custom_source {
	CUSTOM_NONE, /* the field is not used, and no field behind it is */
	CUSTOM_NUMBER, /* `size` bytes of the record at `at`, which is a multiple of the size */
	CUSTOM_CHARS, /* char[size] in the record, at `at` */
	CUSTOM_DATA_LOC, /* char[] in the record: the lower 16 bits of the u32 at `at` are its offset in the record */
	CUSTOM_REL_LOC, /* as CUSTOM_DATA_LOC; the offset counts from the end of the u32 */
	CUSTOM_BYTES, /* u8[size] in the record, at `at` */
	CUSTOM_USER_TEXT, /* text of the process, at the address in the record at `at` */
	CUSTOM_KERNEL_TEXT, /* text of the kernel, at the address in the record at `at` */
	CUSTOM_USER_WORD, /* a number of the process, at the address in the register at `at` and the s32 in the first two steps */
	CUSTOM_PATH, /* argument `at`, then the steps; a number of `size` bytes. Without a step: the argument itself */
	CUSTOM_PATH_CHARS, /* as CUSTOM_PATH, and char[size] is at the last step */
	CUSTOM_PATH_BYTES, /* as CUSTOM_PATH, and u8[size] is at the last step */
	CUSTOM_PATH_TEXT, /* as CUSTOM_PATH, and the number is the address of a text of the kernel */
	CUSTOM_PID, /* of the current task, as the remaining ones */
	CUSTOM_TID,
	CUSTOM_PPID,
	CUSTOM_UID,
	CUSTOM_CPU,
	CUSTOM_CGROUP, /* id of the control group, of the unified hierarchy */
	CUSTOM_NETNS, /* inode of the network namespace */
	CUSTOM_COMM, /* char[16] */
};

enum custom_field_flag {
	CUSTOM_SIGNED = 1,
	CUSTOM_SWAP = 2, /* in network byte order: swapped when it is read */
};

enum custom_op {
	CUSTOM_EQ,
	CUSTOM_NE,
	CUSTOM_LT,
	CUSTOM_LE,
	CUSTOM_GT,
	CUSTOM_GE,
	CUSTOM_AND, /* any of these bits is set */
};

struct custom_field {
	u8 source; /* enum custom_source */
	u8 size; /* bytes that are read; of a text or of bytes: at most CUSTOM_TEXT_WORDS * 8 */
	u8 flags; /* enum custom_field_flag */
	u8 words; /* of the key */
	u16 at; /* bytes; of a path: the number of the argument, from 0 */
	u8 first; /* word of the key */
	u8 steps;
	u16 step[CUSTOM_STEPS]; /* bytes */
	u8 left; /* bits by which a number is shifted to the left, which removes the bits above it, … */
	u8 right; /* … and then to the right, which removes those below it. Without a bit field both are 64 - 8 * size */
};

struct custom_condition {
	struct custom_field field;
	u8 op; /* enum custom_op; of texts: CUSTOM_EQ and CUSTOM_NE alone */
	u8 pad[5];
	u64 constant[CUSTOM_TEXT_WORDS]; /* a number is in the first word; behind a text are zeroes */
};

/* What a definition means on this kernel: offsets move from one kernel to the next. */
struct custom_table_is {
	u64 times; /* the factor of the amount, or of 1 */
	u32 words; /* of a key, over all its fields; at least 1 */
	u32 is_span; /* the amount is the time between two events */
	struct custom_field key[CUSTOM_KEYS]; /* of the event, or of the first one */
	struct custom_field amount; /* none: 1 */
	struct custom_field common[CUSTOM_COMMON]; /* of a span, in its first event … */
	struct custom_field common_end[CUSTOM_COMMON]; /* … and the equal ones in its last event */
	u8 pad[6];
	struct custom_condition where[CUSTOM_CONDITIONS]; /* of the event, or of the first one */
};

/* Set before loading, so that the verifier removes what the table does not need. */
struct custom_constants {
	struct ts_shape shape;
	u64 jiffy_ns;
	u32 v1_controller; /* enum process_v1 */
	u32 buckets_mask; /* the number of buckets, less one */
	struct custom_table_is table;
	char name[CUSTOM_NAME]; /* sample/table */
	char definition[CUSTOM_DEFINITION]; /* the text that all of this was made of */
};

TS_SETTINGS(custom, 1);

struct custom_key {
	u64 word[CUSTOM_WORDS];
};

enum custom_reserved {
	CUSTOM_FOR_ALL,
	CUSTOM_FOR_WINNERS = 2, /* U6 */
};

struct custom_object {
	struct keyed_object keyed; /* held by spans that have begun */
	u64 missing; /* at most this amount of the key was refused, before the object began or beside it … */
	u64 born; /* … and in no later slide than this one: see custom_is_over() */
	u64 longest; /* the largest amount of one event */
	u64 reserved; /* of a displaced object: enum custom_reserved, or the hash of the key that may have the place, made odd */
	u64 begun; /* jiffies, when a span of this object last began */
	struct custom_key key;
	struct ts_window window[CUSTOM_TABLES];
	struct ts_window times; /* the number of events */
};

/* U2 and U5, for the keys whose first bucket this is. All fields but the window are hints: CPUs may overwrite each other's. */
struct custom_refused {
	struct ts_window window;
	u64 credit;
	u64 least; /* the smallest value in the bucket, when it was last looked for … */
	u64 looked; /* … in this slide */
	u64 ready; /* jiffies, when the first spare place can be used, and the credit begins again; 0: now, or there is none */
	u64 crowded; /* until then no key can win */
	u64 pace; /* the amount that was refused in KEYED_GRACE_MS, before … */
	u64 since; /* … this moment (jiffies) … */
	u64 amount; /* … and after it */
};

/* For readers, which have no other header of these. */
enum custom_sizes {
	CUSTOM_WAYS = KEYED_WAYS,
	CUSTOM_BUCKET = sizeof(struct keyed_bucket),
};

/* One row of a section. */
struct custom_row {
	struct ts_row row;
	u64 missing; /* the value may be too low by this amount */
	u64 times; /* events in the period */
	u64 longest;
	struct custom_key key;
};

struct custom_section {
	struct ts_section head;
	struct ts_window scratch;
	struct custom_row row[];
};

#endif /* TOPSTAT_CUSTOM_H */
