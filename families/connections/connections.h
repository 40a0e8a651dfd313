/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Events of TCP connections: shared by the eBPF programs and the Rust side, which is generated. */
#ifndef TOPSTAT_CONNECTIONS_H
#define TOPSTAT_CONNECTIONS_H

#include "observe/process.h"
#include "observe/stream.h"

/* The event of a record. */
enum connections_kind {
	CONNECTIONS_OPEN, /* established */
	CONNECTIONS_FAIL, /* could not be established from here */
	CONNECTIONS_CLOSE,
	CONNECTIONS_KINDS,
};

/* The reason for the end of a connection. */
enum connections_reason {
	CONNECTIONS_UNKNOWN, /* the end was missed; this event was emitted when the socket was destroyed */
	CONNECTIONS_LOCAL, /* this side has closed first, and both have closed */
	CONNECTIONS_REMOTE, /* the other side has closed first, and both have closed */
	CONNECTIONS_ABORTED, /* this side has reset the connection: it closed with data unread, or without linger */
	CONNECTIONS_RESET, /* the other side has reset the connection */
	CONNECTIONS_REFUSED, /* the other side has refused the connection */
	CONNECTIONS_TIMEOUT, /* the other side does not answer any more */
	CONNECTIONS_ABANDONED, /* this side has closed before the connection was established */
	CONNECTIONS_ERROR, /* another error of the kernel: see `error` */
	CONNECTIONS_REASONS,
};

/* The side that has begun the connection. */
enum connections_side {
	CONNECTIONS_SIDE_UNKNOWN, /* older than topstat, or topstat has missed the beginning */
	CONNECTIONS_CONNECTED, /* this side */
	CONNECTIONS_ACCEPTED,
	CONNECTIONS_SIDES,
};

struct connections_constants {
	u32 v1_controller; /* enum process_v1 */
};

struct connections_event {
	struct stream_record head;
	struct process_who who; /* the process that has connected, or listens */
	u8 local[16];
	u8 remote[16];
	u32 family;
	u16 sport; /* of this side */
	u16 dport;
	u32 netns;
	u32 side; /* enum connections_side */
	/* The fields below describe the end. */
	u32 state; /* before CLOSE */
	u32 reason;
	u32 error; /* the kernel's error number, above 0 */
	u32 rtt_us; /* smoothed */
	u32 rtt_min_us;
	u32 rx_segments;
	u32 tx_segments;
	u32 resent_segments;
	u64 lived_ns; /* since established; before that, since begun. 0: the connection is older than topstat */
	u64 rx_bytes; /* payload, received in order */
	u64 tx_bytes; /* payload, each byte counted once however often it was sent */
	u64 resent_bytes;
};

#endif /* TOPSTAT_CONNECTIONS_H */
