/* SPDX-License-Identifier: GPL-2.0-only */
/* The first include of all eBPF programs of the family. */
#ifndef TOPSTAT_INET_BPF_H
#define TOPSTAT_INET_BPF_H

#define TS_KEEPS /* what has ended */

#include "observe/kernel.h"

/*
 * A reader also asks the socket (life.bpf.h): an end that the programs were not run for is not written into the object. A push
 * does not ask, since that costs: it takes an entry of an object that has ended so for one that is silent.
 */
#ifdef INET_READER
static __always_inline u64 inet_id_now(u64 obj);
#define ts_id_now(obj, view) inet_id_now(obj)
#endif

#include "observe/host.h"
#include "inet.h"
#include "life.bpf.h"
#include "about.bpf.h"

#endif /* TOPSTAT_INET_BPF_H */
