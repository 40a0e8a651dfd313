/* SPDX-License-Identifier: GPL-2.0-only */
/* What differs between kernels, by what kmod/probes finds; each of these says which commit it is about. */
#ifndef TOPSTAT_COMPAT_H
#define TOPSTAT_COMPAT_H

#include "topstat_probes.h"

#ifndef HAVE_PDE_DATA
#define pde_data PDE_DATA
#endif

#endif /* TOPSTAT_COMPAT_H */
