/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A stream carries events from eBPF programs, its producers, to one process, its consumer. It is three maps:
 *
 *   stream_ring     BPF ring buffer: a record for each event, which begins with struct stream_record
 *   stream_counts   [CPU] struct stream_count: what the producers counted
 *   stream_control  struct stream_control: what the consumer tells the producers, and the consumer after it
 *
 * observe/stream.bpf.h is the producers' side, crates/topstat-consumer the consumer's. What always holds:
 *
 *   E1  Every event adds one to `produced` of its CPU. Then it is either a record, or adds one to `dropped`.
 *       The count is made before the record can be read. So a reader that reads delivered and dropped first
 *       and produced last never sees more delivered + dropped than produced; and it sees exactly as many once
 *       producers rest and the ring is empty.
 *   E2  `seq` of a record is what `produced` of its CPU was before the event. Dropped events have numbers,
 *       too, so a gap is as many as were dropped there. An event that interrupts another one on its CPU may
 *       come after it in the ring with a smaller number; both have the same number where eBPF has no atomics
 *       that return a value (before Linux 5.12), and the interrupt came just then.
 *   E3  A payload is cut to STREAM_HEAD_BYTES only while more than `cut_above` bytes are unread. Such a record
 *       has STREAM_CUT and is counted in `cut` of its CPU. Nothing else of an event is ever cut for that.
 *   E4  The consumer writes to `wake_at` how many unread bytes are to wake it up. The producer that reaches
 *       them takes the word back to 0, and wakes the consumer after that: a wake-up is asked for once, and
 *       given once (by each of the CPUs that reach them at the same moment), never by every event. A producer
 *       makes its space in the ring before it reads the word, the consumer writes the word before it reads how
 *       far the ring is filled, with a full barrier between on either side: one of both sees the other.
 *   E5  A record is delivered when its space is freed, which is one store to the ring's consumer position.
 *       `freed` says how many were delivered at a position; the entry that is not of the present position is
 *       written before that store. So whoever comes after a consumer that was killed, wherever, finds exactly
 *       one entry for the position, and delivers again what was not freed.
 */
#ifndef TOPSTAT_STREAM_H
#define TOPSTAT_STREAM_H

#include "topstat/platform.h"

/* What is left of a payload while the ring is nearly full: headers of most protocols, the beginning of a line. */
#define STREAM_HEAD_BYTES 80
/* The longest payload of a record: a ring of 8 MiB holds 500 of them. Lengths have 16 bits. */
#define STREAM_MOST_BYTES 16384

/* Flags of a record. */
#define STREAM_CUT 1 /* its payload was cut since the ring was nearly full */
#define STREAM_FAULT 2 /* its payload could not be read: the page was not in memory, or is not the program's */

/* For wake_at: the kernel is to wake the consumer at each event that finds it waiting. */
#define STREAM_WAKE_EACH (~0ULL)

/* How every record begins. What the source adds comes after it, and the payload, if there is any, last. */
struct stream_record {
	u64 time; /* ns, of the monotonic clock */
	u64 seq; /* E2 */
	u32 cpu;
	u16 kind; /* of the source's own kinds */
	u16 flags;
	u16 payload; /* bytes of payload that are here */
	u16 lacking; /* bytes of it that would be here, too, had it not been cut (E3) */
	u32 whole; /* bytes that the payload had, whether wanted or not */
};

/* What producers counted on one CPU. A cache line, so that CPUs don't share any. */
struct stream_count {
	u64 produced;
	u64 cut;
	u64 dropped;
	u64 unused[5];
};

/* How many records were delivered when the consumer's position was this (E5). */
struct stream_freed {
	u64 position;
	u64 delivered;
};

struct stream_control {
	/* Producers read and write this line. */
	u64 wake_at; /* unread bytes; 0: nobody wants to be woken (E4) */
	u64 cut_above; /* unread bytes; 0: nothing is cut (E3) */
	u64 rung_ns; /* when a producer last took wake_at */
	u64 unused[5];
	/* Consumers alone have this one. */
	struct stream_freed freed[2];
	u64 unused_too[4];
};

#endif /* TOPSTAT_STREAM_H */
