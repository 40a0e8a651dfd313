/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fallback for kernels without a feature. All programs are compiled twice. With TOPSTAT_PLAIN they need nothing newer
 * than 6.1:
 *
 *   storage of cgroups                     6.2, c4bcfb38a95e ("bpf: Implement cgroup storage
 *                                          available to non-cgroup-attached bpf progs")
 *
 * Without it groups are in a bounded array, and found by a hash: group_array.bpf.h, instead of group_storage.h. fallbacks.rs
 * probes the kernel.
 */
#ifndef TOPSTAT_TASKS_FALLBACKS_H
#define TOPSTAT_TASKS_FALLBACKS_H

#include "group_array.bpf.h"

#endif /* TOPSTAT_TASKS_FALLBACKS_H */
