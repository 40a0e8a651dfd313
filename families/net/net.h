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
	NET_PPS, /* packets: of TCP segments, of UDP datagrams, and the segments of such as are cut */
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

/* Whose a port is: TCP's and UDP's of the same number have nothing to do with each other. */
enum net_proto {
	NET_NO_PORT, /* of a key that is none of a port */
	NET_TCP,
	NET_UDP,
};

/* Which programs push. */
enum net_build {
	NET_TCP_ALONE,
	NET_TCP_AND_UDP,
};

/* Another one whenever a structure changes that is pinned. */
#define NET_ABI 3

/* Set before loading. */
struct net_constants {
	struct ts_shape shape;
	u64 jiffy_ns;
	u32 v1_controller; /* enum process_v1 */
	u32 build; /* enum net_build */
};

TS_SETTINGS(net, NET_BANKS);

/* What tells objects apart; what a sample does not tell them apart by is 0. */
struct net_key {
	u64 id; /* of the process, or of the control group */
	u8 host[16]; /* an IPv4 address is mapped into IPv6 */
	u32 netns; /* of a port: its network namespace */
	u16 port; /* host byte order */
	u8 side; /* enum net_side */
	u8 proto; /* enum net_proto */
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

/* Whose a batch is that has no place yet: another CPU that is making an object just there may have been stopped amid that. */
struct net_waiting {
	struct net_key key;
	struct process_who owner;
};

/* So many objects of a sample at a time: both ends of connections within the host, and a few more. A power of two. */
#define NET_BATCHES 8

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

/* A datagram, or several that are handed on as one. */
struct net_datagram {
	u64 host[2]; /* the other end, as in net_key */
	u32 part; /* enum net_part */
	u32 packets;
	u32 bytes; /* of payload */
	u32 when; /* the cell of time, in jiffies */
	u16 port; /* the other end's; host byte order */
	u16 pad[3];
};

/* Those of a CPU, of all samples. Who has the claim reads and writes them. */
struct net_batches {
	u64 claim;
	struct net_batch found; /* by the look that has the claim */
	struct net_datagram now; /* that is pushed by itself */
	struct net_flow alone; /* its flow */
	struct net_batch of[NET_SAMPLES][NET_BATCHES];
	struct net_waiting waiting[NET_SAMPLES]; /* of the first batches */
};

/* Looks interrupt each other, and readers push what is left: for each of them there is one more. */
#define NET_LEVELS 3

struct net_cpu {
	struct net_batches level[NET_LEVELS];
};

/* A peer of a UDP socket, and what was exchanged with it and is not pushed yet. */
struct net_peer {
	u64 host[2]; /* as in net_key */
	struct net_counters used;
	u64 id[2]; /* of the objects of its host, and of its port where the socket is a client: see net_flow */
	u32 place[2];
	u32 turn; /* when it was used last: the socket's `turn` then */
	u16 port; /* host byte order; 0 where the socket serves */
	u16 pad;
};

/* So many peers of a socket are told apart at a time: enough for who resolves names, or speaks with one or a few. */
#define NET_PEERS 4

/* A UDP socket, in its storage. Its zeroes are one that nothing is known of. */
struct net_udp {
	u64 claim; /* NET_HELD, NET_OVER */
	u64 side; /* enum net_side + 1; 0: it has exchanged nothing yet */
	struct net_flow flow; /* its user, and its objects; where it leads is a peer's while that is pushed */
	struct net_peer peer[NET_PEERS];
	struct net_datagram now; /* that is being added */
	u32 cell; /* jiffies: the beginning of the cell in which that was exchanged */
	u32 turn;
	u32 netns; /* once there is a side */
	u16 local; /* its own port, likewise */
	u8 listed; /* it is in the storage `active` */
	u8 made; /* it is known since it was made */
	u32 at; /* the place of the peer of `now` */
	u32 pad;
};

/* Of `claim`: somebody reads and writes what there is; the socket has ended, or nobody will tell when it does. */
#define NET_HELD 1
#define NET_OVER 2

/* As in inet.h: with what the kernel puts before it, it takes 1 KiB, and not 2. */
#define NET_STORAGE_BYTES 136
_Static_assert(sizeof(struct net_udp) + NET_STORAGE_BYTES <= 1024, "the storage of a UDP socket takes 1 KiB");

/* One row of a section. */
struct net_row {
	struct ts_row row;
	struct net_key key;
	struct process_who owner;
	u32 family;
	u8 closed; /* the process, or the control group, has ended */
	u8 pad[3];
};

TS_SECTION(net);

#endif /* TOPSTAT_NET_H */
