/* SPDX-License-Identifier: GPL-2.0-only */
/* The first include of all eBPF programs of the family. */
#ifndef TOPSTAT_INET_BPF_H
#define TOPSTAT_INET_BPF_H

#define TS_KEEPS /* closed connections */

#include "observe/kernel.h"

/*
 * A reader also checks the socket (life.bpf.h): an end that the programs have missed is not written into the object. A push does
 * not check, for the cost: it takes an object with a missed end for a silent one.
 */
#ifdef INET_READER
static __always_inline u64 inet_id_now(u64 obj);
#define ts_id_now(obj, view) inet_id_now(obj)
#endif

struct ts_window;
int inet_peek(struct ts_window *w, u64 obj, u32 at);
u64 inet_most(u64 obj, u32 at);

#include "view.h"
#include "observe/host.h"
#include "inet.h"
#include "life.bpf.h"
#include "about.bpf.h"
#include "peek.h"

#endif /* TOPSTAT_INET_BPF_H */
