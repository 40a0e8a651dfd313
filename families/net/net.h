/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the programs that count who uses the network and those that read it share. The one source. */
#ifndef TOPSTAT_NET_H
#define TOPSTAT_NET_H

#include "topstat/section.h"
#include "observe/keyed_object.h"
#include "observe/process.h"

enum net_sample {
	NET_PROCS, /* by the process whose socket it is */
	NET_CGROUPS,
	NET_HOSTS, /* by the remote address */
	NET_PORTS, /* by the port that is served */
	NET_SAMPLES,
};

/* Those of the first bank are dynamic, what is in the second one is static. */
enum net_table {
	NET_PPS, /* packets (of TCP: segments) */
	NET_BPS, /* bytes of payload; shown as bits */
	NET_RETRANS, /* segments sent again */
	NET_OPENED, /* connections that were opened */
	NET_BYTES, /* bytes of payload, running total */
	NET_TABLES,
};

#define NET_SAMPLE_BANKS 2
#define NET_BANKS (NET_SAMPLES * NET_SAMPLE_BANKS)

enum net_part {
	NET_RX, /* of connections: from others to this host */
	NET_TX,
};

/* Which end of a connection is here. */
enum net_side {
	NET_SERVER, /* the one that listened */
	NET_CLIENT, /* the one that connected */
};

/* Another one whenever a structure changes that is pinned. */
#define NET_ABI 1

/* Set before loading. */
struct net_constants {
	struct ts_shape shape;
	u64 jiffy_ns;
	u32 v1_controller; /* enum process_v1 */
	u32 pad;
};

TS_SETTINGS(net, NET_BANKS);

/* What tells objects apart; what a sample does not tell them apart by is 0. */
struct net_key {
	u64 id; /* of the process, or of the control group */
	u8 host[16]; /* an IPv4 address is mapped into IPv6 */
	u32 netns; /* of a port: its network namespace */
	u16 port; /* host byte order */
	u8 side; /* enum net_side */
	u8 is_port;
};

struct net_object {
	struct keyed_object keyed;
	struct net_key key;
	struct process_who owner; /* of a port: of the connection that was pushed last */
	struct ts_count bytes;
	struct ts_window window[NET_BYTES];
};

/* What a connection has counted since it was made. */
struct net_counters {
	u64 rx; /* bytes of payload */
	u64 tx;
	u64 in; /* segments */
	u64 out;
	u64 resent;
	u64 opened;
};

/* What connections of one object have used in one cell of time (NET_LOOK_MS), and is not pushed yet. */
struct net_batch {
	struct net_counters used;
	u64 id; /* of the object */
	u32 place; /* where it is, from 1; 0: it has none */
	u32 when; /* jiffies, in the cell */
	u32 side; /* enum net_side */
	u32 any; /* there is something */
};

/* So many objects of a sample at a time: both ends of connections within the host, and a few more. A power of two. */
#define NET_BATCHES 8

/* Those of a CPU, of all samples. Who has the claim reads and writes them. */
struct net_batches {
	u64 claim;
	struct net_batch found; /* by the look that has the claim */
	struct net_batch of[NET_SAMPLES][NET_BATCHES];
};

/* Looks interrupt each other, and readers push what is left: for each of them there is one more. */
#define NET_LEVELS 3

struct net_cpu {
	struct net_batches level[NET_LEVELS];
};

/* A connection, in its socket's storage. */
struct net_flow {
	u64 self; /* its own address; another's: a copy of the listener's, made by accept */
	u64 looked; /* NET_LISTED, and jiffies (low 32 bits) of the last look */
	struct net_counters seen; /* what was pushed of it */
	struct net_key to; /* the remote address, and the port that is served */
	u64 process; /* process_id() of the owner; 0: it is not known */
	struct process_who owner;
	u64 id[NET_SAMPLES]; /* the objects that it was pushed to last */
	u32 place[NET_SAMPLES]; /* and where they were */
	u8 sure; /* of the owner; 0: it is the listener's, until its user reads or closes */
	u8 unsure; /* it is among those that the word `unsure` counts */
	u8 begun; /* it counts from its beginning */
	u8 over;
	u32 pad;
};

/* Of `looked`: it is in the storage `active`. */
#define NET_LISTED (1ULL << 62)

/* One row of a section. */
struct net_row {
	struct ts_row row;
	struct net_key key;
	struct process_who owner;
	u32 family;
	u32 pad;
};

TS_SECTION(net);

#endif /* TOPSTAT_NET_H */
