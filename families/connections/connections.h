/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Events of TCP connections: shared by the eBPF programs and the Rust side, which is generated. */
#ifndef TOPSTAT_CONNECTIONS_H
#define TOPSTAT_CONNECTIONS_H

#include "observe/process.h"
#include "observe/stream.h"

/* Of a record: what has happened. */
enum connections_kind {
	CONNECTIONS_OPEN, /* established */
	CONNECTIONS_FAIL, /* could not be established from here */
	CONNECTIONS_CLOSE,
	CONNECTIONS_KINDS,
};

/* Why a connection has ended. */
enum connections_reason {
	CONNECTIONS_UNKNOWN, /* its end was missed; this was told when its socket went */
	CONNECTIONS_LOCAL, /* this side has closed it first, and both have */
	CONNECTIONS_REMOTE, /* the other side has closed it first, and both have */
	CONNECTIONS_ABORTED, /* this side has reset it: it closed with data unread, or was told not to linger */
	CONNECTIONS_RESET, /* the other side has reset it */
	CONNECTIONS_REFUSED, /* the other side has refused it */
	CONNECTIONS_TIMEOUT, /* the other side has answered no more */
	CONNECTIONS_ABANDONED, /* this side has closed it before it was established */
	CONNECTIONS_ERROR, /* another error of the kernel's: `error` says which */
	CONNECTIONS_REASONS,
};

/* Of a connection: which side has begun it. */
enum connections_side {
	CONNECTIONS_SIDE_UNKNOWN, /* it was there already, or the kernel has kept its beginning from topstat */
	CONNECTIONS_CONNECTED, /* this one */
	CONNECTIONS_ACCEPTED,
	CONNECTIONS_SIDES,
};

struct connections_constants {
	u32 v1_controller; /* enum process_v1 */
};

struct connections_event {
	struct stream_record head;
	struct process_who who; /* who has connected, or listens */
	u8 local[16];
	u8 remote[16];
	u32 family;
	u16 sport; /* of this side */
	u16 dport;
	u32 netns;
	u32 side; /* enum connections_side */
	/* What follows is of its end. */
	u32 state; /* that it was in before */
	u32 reason;
	u32 error; /* of the kernel: its number, above 0 */
	u32 rtt_us; /* smoothed */
	u32 rtt_min_us;
	u32 rx_segments;
	u32 tx_segments;
	u32 resent_segments;
	u64 lived_ns; /* since it was established; before that, since it was begun. 0: it was there already */
	u64 rx_bytes; /* of payload, received in order */
	u64 tx_bytes; /* of payload, each counted once however often it was sent */
	u64 resent_bytes;
};

#endif /* TOPSTAT_CONNECTIONS_H */
