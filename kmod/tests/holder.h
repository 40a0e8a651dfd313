/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TOPSTAT_HOLDER_H
#define TOPSTAT_HOLDER_H

#include "topstat.h"

#define HOLDER_OBJECTS 512

/* Zeroes at first: an object whose `abi` is 0 is not initialised yet. */
struct holder_objects {
	struct topstat_dynamic rate[HOLDER_OBJECTS];
	struct topstat_static sum[HOLDER_OBJECTS];
};

struct holder_objects *topstat_holder_objects(void);

#endif /* TOPSTAT_HOLDER_H */
