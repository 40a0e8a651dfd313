/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Types that the programs which count the use of the network share with their readers. The only definition. */
#ifndef TOPSTAT_NET_H
#define TOPSTAT_NET_H

#include "topstat/section.h"
#include "observe/keyed_object.h"
#include "observe/process.h"
#include "../inet/inet.h"

enum net_sample {
	NET_PROCS, /* by the process that owns the socket */
	NET_CGROUPS,
	NET_HOSTS, /* by the remote address */
	NET_PORTS, /* by the local port that is served, or the remote port */
	NET_SAMPLES,
};

/* Tables of the first bank are dynamic; the table of the second bank is static. */
enum net_table {
	NET_PPS, /* packets: TCP segments, UDP datagrams; GSO and GRO packets count their segments */
	NET_BPS, /* bytes of payload; shown as bits */
	NET_RETRANS, /* segments sent again */
	NET_OPENED, /* connections that were opened */
	NET_BYTES, /* bytes of payload, running total */
	NET_TABLES,
};

#define NET_SAMPLE_BANKS 2
#define NET_BANKS (NET_SAMPLES * NET_SAMPLE_BANKS)

enum net_part {
	NET_RX, /* received; of connections: accepted */
	NET_TX,
};

/* The end of a connection that is on this host. */
enum net_side {
	NET_SERVER, /* the one that listened */
	NET_CLIENT, /* the one that connected */
};

/* The protocol of a port: TCP's port 53 and UDP's port 53 are two objects. */
enum net_proto {
	NET_NO_PORT, /* the key is not a port's */
	NET_TCP,
	NET_UDP,
};

/* The traffic that the programs push. */
enum net_build {
	NET_TCP_ALONE,
	NET_TCP_AND_UDP,
};

/* Changes whenever a pinned structure changes. */
#define NET_ABI 5

/* Set before loading. */
struct net_constants {
	struct ts_shape shape;
	u64 jiffy_ns;
	u32 v1_controller; /* enum process_v1 */
	u32 build; /* enum net_build */
};

TS_SETTINGS(net, NET_BANKS);

/* The key of an object. Fields that a sample does not rank by are 0. */
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

/* The counters of a connection since it was made. */
struct net_counters {
	u64 rx; /* bytes of payload */
	u64 tx;
	u64 in; /* segments */
	u64 out;
	u64 resent;
	u64 opened;
};

/*
 * The tables whose slides have one length: they are pushed to from records of these slides (struct inet_settings). NET_NO_GRID: all
 * tables are pushed to, with amounts of one moment.
 */
#define NET_NO_GRID INET_GUESTS

/* The slides of a window, the one that fades, and one for all before them. */
#define NET_AGES (TS_SLIDES + 2)

/* Amounts of one slide. */
struct net_amounts {
	u64 rx; /* bytes of payload */
	u64 tx;
	u64 in; /* packets */
	u64 out;
	u64 resent;
	u32 opened[2]; /* connections: enum net_part */
};

/* The amounts of one object's connections that are not pushed yet. */
struct net_batch {
	u64 id; /* of the object */
	u64 when; /* the number of the slide with age 0; NET_NO_GRID: jiffies */
	u32 place; /* the object's place, from 1; 0: the object has no place yet */
	u32 grid;
	u32 any; /* the ages in use, by bit */
	u32 pad;
	struct net_amounts used[NET_AGES]; /* by age, in slides */
};

/*
 * The key and owner of a batch that has no place yet: another CPU may have been stopped while making an object in the same
 * bucket.
 */
struct net_waiting {
	struct net_key key;
	struct process_who owner;
};

/* Batches of a sample: room for both ends of connections within the host, and a few objects more. A power of two. */
#define NET_BATCHES 8

/* A connection, in its socket's storage. */
struct net_flow {
	u64 self; /* its own address; another address: accept has copied the listener's storage */
	struct net_counters seen; /* the part of the counters that is pushed */
	struct net_key to; /* the remote address, and the port that is served */
	u64 process; /* process_id() of the owner; 0: unknown */
	struct process_who owner;
	u64 id[NET_SAMPLES]; /* the objects of the last push */
	u32 place[NET_SAMPLES]; /* and their places */
	u8 sure; /* the owner is known; 0: the listener's owner, until a process reads or closes */
	u8 unsure; /* the word `unsure` counts this connection */
	u8 begun; /* it counts from the connection's beginning */
	u8 over;
	u32 opened; /* jiffies; where `begun` is set */
};

/* One datagram, or several that the kernel passes on as one packet. */
struct net_datagram {
	u64 host[2]; /* the remote end, as in net_key */
	u32 part; /* enum net_part */
	u32 packets;
	u32 bytes; /* of payload */
	u32 when; /* the cell of time, in jiffies */
	u16 port; /* the remote one; host byte order */
	u16 pad[3];
};

/* The batches of one level of a CPU, for all samples. Only the holder of the claim reads and writes them. */
struct net_batches {
	u64 claim;
	struct net_batch found; /* by the look that holds the claim */
	struct record_ring ring; /* a copy of the connection's; `slide` 0: it has no records */
	struct records_counts now; /* the connection's counters */
	struct net_counters grown; /* since the last look */
	struct net_counters given; /* the part that is in slides already */
	struct net_key key; /* of the object that is looked for: stack is scarce */
	struct net_datagram datagram; /* that is pushed by itself */
	struct net_flow alone; /* the flow of `datagram` */
	struct net_batch of[NET_SAMPLES][NET_BATCHES];
	struct net_waiting waiting[NET_SAMPLES]; /* for the first batch of each sample */
};

/* Levels of a CPU: looks interrupt each other, readers flush batches, and each of them claims a level. */
#define NET_LEVELS 3

struct net_cpu {
	struct net_batches level[NET_LEVELS];
};

/* A peer of a UDP socket, and the amounts exchanged with it that are not pushed yet. */
struct net_peer {
	u64 host[2]; /* as in net_key */
	struct net_counters used;
	u64 id[2]; /* the objects of its host, and, where the socket is a client, of its port: see net_flow */
	u32 place[2];
	u32 turn; /* the socket's `turn` when the peer was used last */
	u16 port; /* host byte order; 0 where the socket serves */
	u16 pad;
};

/* Peers that a socket keeps apart at a time: enough for a resolver, or for a socket with one or a few peers. */
#define NET_PEERS 4

/* A UDP socket, in its storage. All zeroes: nothing is known of the socket. */
struct net_udp {
	u64 claim; /* NET_HELD, NET_OVER */
	u64 side; /* enum net_side + 1; 0: it has exchanged nothing yet */
	struct net_flow flow; /* its user and its objects; `to` is a peer's while that peer is pushed */
	struct net_peer peer[NET_PEERS];
	struct net_datagram now; /* the datagram that is being added */
	u32 cell; /* jiffies: the beginning of the cell of all amounts in `peer` */
	u32 turn;
	u32 netns; /* valid once `side` is set */
	u16 local; /* its own port, valid once `side` is set */
	u8 listed; /* the socket is in the storage `active` */
	u8 made; /* known since the socket was made */
	u32 at; /* the place in `peer` of the peer of `now` */
	u32 pad;
};

/* Bits of `claim`. NET_HELD: a CPU reads and writes the storage. NET_OVER: the socket has ended, or no hook will see its end. */
#define NET_HELD 1
#define NET_OVER 2

/* As in inet.h: with the kernel's header before it, the storage takes 1 KiB, and not 2. */
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
