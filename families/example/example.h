/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The types that the example's programs share with its readers: signals, by their number. */
#ifndef TOPSTAT_EXAMPLE_H
#define TOPSTAT_EXAMPLE_H

#include "topstat/section.h"
#include "observe/keyed_object.h"

enum example_table {
	EXAMPLE_SENT, /* signals */
	EXAMPLE_TABLES,
};

#define EXAMPLE_BANKS 1

/* Changes whenever a pinned structure changes. */
#define EXAMPLE_ABI 1

/* Set before loading. */
struct example_constants {
	struct ts_shape shape;
	u64 jiffy_ns;
};

TS_SETTINGS(example, EXAMPLE_BANKS);

struct example_key {
	u64 signal;
};

struct example_object {
	struct keyed_object keyed;
	struct example_key key;
	struct ts_window window[EXAMPLE_TABLES];
};

/* One row of a section. */
struct example_row {
	struct ts_row row;
	u64 signal;
};

TS_SECTION(example);

#endif /* TOPSTAT_EXAMPLE_H */
