/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A stream carries events from eBPF programs, its producers, to one process, its consumer. It is three maps:
 *
 *   stream_ring     BPF ring buffer: a record for each event, which begins with struct stream_record
 *   stream_counts   [CPU] struct stream_count: the producers' counts
 *   stream_control  struct stream_control: parameters that the consumer sets for the producers, and its state for the next
 *   consumer
 *
 * observe/stream.bpf.h is the producers' side, crates/topstat-consumer the consumer's. Invariants:
 *
 *   E1  Every event adds one to `produced` of its CPU. Then it either becomes a record, or adds one to `dropped`. The count is
 *       made before the record can be read. So a reader that reads delivered and dropped first and produced last never sees more
 *       delivered + dropped than produced; it sees equal numbers once producers rest and the ring is empty.
 *   E2  `seq` of a record is the value of `produced` of its CPU before the event. Dropped events have numbers, too, so the size
 *       of a gap is the number of events dropped there. An event that interrupts another one on its CPU may come after it in the
 *       ring with a smaller number. Both have the same number if the interrupt comes between reading the count and adding to it,
 *       where eBPF has no atomics that return a value (before Linux 5.12).
 *   E3  A payload is cut to STREAM_HEAD_BYTES only while more than `cut_above` bytes are unread. A record with a cut payload has
 *       STREAM_CUT and is counted in `cut` of its CPU. No other part of an event is ever cut.
 *   E4  The consumer writes to `wake_at` the number of unread bytes at which it is woken up. The producer that reaches this
 *       number sets the word to 0, and then wakes the consumer. So one request leads to one wake-up (or to one by each of the
 *       CPUs that reach the number at the same moment), never to one for every event. A producer makes its space in the ring
 *       before it reads the word. The consumer writes the word before it reads how far the ring is filled. Both have a full
 *       barrier in between, so one of them sees the other.
 *   E5  A record is delivered when its space is freed, which is one store to the ring's consumer position. `freed` holds the
 *       number of delivered records at a position. The consumer writes the entry that is not for the present position before that
 *       store. So the successor of a consumer that was killed at any point finds exactly one entry for the position, and delivers
 *       again the records that were not freed.
 */
#ifndef TOPSTAT_STREAM_H
#define TOPSTAT_STREAM_H

#include "topstat/platform.h"

/* The part of a payload that is kept while the ring is nearly full: headers of most protocols, the beginning of a line. */
#define STREAM_HEAD_BYTES 80
/* The longest payload of a record: a ring of 8 MiB holds 500 of them. Lengths have 16 bits. */
#define STREAM_MOST_BYTES 16384

/* Flags of a record. */
#define STREAM_CUT 1 /* its payload was cut because the ring was nearly full */
#define STREAM_FAULT 2 /* its payload could not be read: the page was not in memory, or does not belong to the program */

/* For wake_at: the kernel wakes the consumer at each event that finds it waiting. */
#define STREAM_WAKE_EACH (~0ULL)

/* The beginning of every record. The source's fields come after it, and the payload, if there is any, last. */
struct stream_record {
	u64 time; /* ns, of the monotonic clock */
	u64 seq; /* E2 */
	u32 cpu;
	u16 kind; /* one of the source's kinds */
	u16 flags;
	u16 payload; /* bytes of payload in the record */
	u16 lacking; /* bytes of payload that the record lacks because it was cut (E3) */
	u32 whole; /* bytes of the whole payload, including bytes beyond `snaplen` */
};

/* The counts of the producers on one CPU. It is a cache line, so that CPUs do not share one. */
struct stream_count {
	u64 produced;
	u64 cut;
	u64 dropped;
	u64 unused[5];
};

/* The number of records delivered up to a position of the consumer (E5). */
struct stream_freed {
	u64 position;
	u64 delivered;
};

struct stream_control {
	/* Producers read and write this line. */
	u64 wake_at; /* unread bytes; 0: the consumer does not want to be woken (E4) */
	u64 cut_above; /* unread bytes; 0: nothing is cut (E3) */
	u64 rung_ns; /* when a producer last set wake_at to 0 */
	u64 unused[5];
	/* Consumers alone use this line. */
	struct stream_freed freed[2];
	u64 unused_too[4];
};

#endif /* TOPSTAT_STREAM_H */
