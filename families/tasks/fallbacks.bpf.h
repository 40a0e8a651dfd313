/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the programs do where the kernel lacks something. All is compiled twice. With TOPSTAT_PLAIN it
 * needs nothing that came after 6.1:
 *
 *   storage of cgroups                     6.2, c4bcfb38a95e ("bpf: Implement cgroup storage
 *                                          available to non-cgroup-attached bpf progs")
 *
 * Without it groups are in an array of so many, and found by a hash: group_array.bpf.h, instead of group_storage.h. fallbacks.rs
 * finds out by trying.
 */
#ifndef TOPSTAT_TASKS_FALLBACKS_H
#define TOPSTAT_TASKS_FALLBACKS_H

#include "group_array.bpf.h"

#endif /* TOPSTAT_TASKS_FALLBACKS_H */
