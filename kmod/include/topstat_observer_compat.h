/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between kernels for observers, by the results of kmod/probes; each probe names the commit that made the difference.
 */
#ifndef TOPSTAT_OBSERVER_COMPAT_H
#define TOPSTAT_OBSERVER_COMPAT_H

#include <linux/net.h>
#include "topstat_probes.h"

static inline struct socket *topstat_sock_from_file(struct file *file)
{
#ifdef HAVE_SOCK_FROM_FILE
	return sock_from_file(file);
#else
	int error;

	return sock_from_file(file, &error);
#endif
}

#endif /* TOPSTAT_OBSERVER_COMPAT_H */
