/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TOPSTAT_HOLDER_H
#define TOPSTAT_HOLDER_H

#include "topstat.h"

#define HOLDER_OBJECTS 1024

/* Zeroes at first: an object whose `abi` is 0 is not initialised yet. */
struct topstat_object *topstat_holder_objects(void);

#endif /* TOPSTAT_HOLDER_H */
