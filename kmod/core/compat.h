/* SPDX-License-Identifier: GPL-2.0-only */
/* Differences between kernels, by the results of kmod/probes; each probe names the commit that made the difference. */
#ifndef TOPSTAT_COMPAT_H
#define TOPSTAT_COMPAT_H

#include <linux/lockdep.h>
#include "topstat_probes.h"

#ifndef HAVE_PDE_DATA
#define pde_data PDE_DATA
#endif

/* Since 5.13 (3e31f94752e4, "lockdep: Add lockdep_assert_not_held()"). */
#ifndef lockdep_assert_not_held
#define lockdep_assert_not_held(lock) ((void)(lock))
#endif

#endif /* TOPSTAT_COMPAT_H */
