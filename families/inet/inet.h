/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Types that the observer of sockets shares with its readers. The only definition: the Rust side is generated from this file. */
#ifndef TOPSTAT_INET_H
#define TOPSTAT_INET_H

#include "topstat/section.h"
#include "observe/process.h"
#include "observe/record_ring.h"

enum inet_sample {
	INET_TCP_V4,
	INET_TCP_V6,
	INET_UDP_V4,
	INET_UDP_V6,
	INET_SAMPLES,
};

/* The samples of TCP come first. */
enum { INET_TCP_SAMPLES = INET_UDP_V4 };

/* The samples that this program counts, from the first one on. */
#ifndef INET_COUNTED
#define INET_COUNTED INET_SAMPLES
#endif

/* A power of two tables; the static table is the last. */
enum inet_table {
	INET_PPS, /* packets, by window */
	INET_BPS, /* payload bytes, by window; shown as bits */
	INET_RETRANS, /* segments sent again, by window */
	INET_BYTES, /* payload bytes, running total */
	INET_TABLES,
};

enum inet_part {
	INET_RX,
	INET_TX,
};

#define INET_INIT 1

/*
 * The mark in the two highest bits of an id: a UDP socket of the kernel itself, whose end no hook sees (see inet_id_now()). In
 * all other ids, which are cookies, the two bits are equal: the kernel counts cookies up from 1, and down from 2^64 for sockets
 * that an interrupt makes while it counts.
 */
#define INET_KERNELS (1ULL << 63)
/* The bits below, which are the cookie's. */
#define INET_COOKIE_BITS 62

TS_INLINE u64 inet_kernels_id(u64 cookie)
{
	return (cookie & ((1ULL << INET_COOKIE_BITS) - 1)) | INET_KERNELS;
}

TS_INLINE int inet_id_is_kernels(u64 id)
{
	return id >> INET_COOKIE_BITS == INET_KERNELS >> INET_COOKIE_BITS;
}

/*
 * A socket that is used again keeps its cookie, but the closed row of its earlier connection (keep.h) needs another id. So the
 * number of the connection changes bits of the id, above the bits that tell any two cookies apart. There are as many numbers as
 * half of `life` has.
 */
#define INET_LIFE_SHIFT 48

TS_INLINE u64 inet_connection_id(u64 cookie, u8 life)
{
	return cookie ^ (u64)(life >> 1) << INET_LIFE_SHIFT;
}

/* Whether the socket with this cookie has, or had, the id. */
TS_INLINE int inet_id_has(u64 id, u64 cookie)
{
	return !((id ^ cookie) << (64 - INET_LIFE_SHIFT));
}

/* The least silence of a connection before it is taken off the list of active ones. */
#define INET_SILENT_MS 1000
/* The longest time that hooks use a computed cell: settings may have changed. */
#define INET_CELL_MS 100

/*
 * States in `listed`, above the jiffies (low 32 bits) of its last change: whether the connection is in the storage `active`, and in
 * the storage `guests`. A reader that has found the connection silent takes it off in two steps (inet_leaves()).
 */
#define INET_LISTED (1ULL << 32)
#define INET_LEAVING (2ULL << 32) /* a reader takes it off, unless it speaks */
#define INET_ON_LIST (INET_LISTED | INET_LEAVING)
#define INET_GUEST_LISTED (4ULL << 32)
#define INET_GUEST_LEAVING (8ULL << 32)
#define INET_GUEST_ON_LIST (INET_GUEST_LISTED | INET_GUEST_LEAVING)

/* A UDP socket's counters, which hooks increase. Laid out as struct records_counts: `last` is at the place of `resent`. */
struct inet_own {
	u64 bytes[TS_PARTS];
	u32 packets[TS_PARTS];
	u32 last; /* jiffies: of the last datagram */
	u32 pad;
};
_Static_assert(sizeof(struct inet_own) == sizeof(struct records_counts), "see inet_peek_own()");
_Static_assert(offsetof(struct inet_own, last) == offsetof(struct records_counts, resent), "see inet_peek_own()");

/* The records of a socket's counters: see records.h. */
struct inet_counted {
	u64 rings; /* address of struct inet_rings; 0: not made */
	struct record_ring ring;
	struct inet_own own;
	/*
	 * The counters that readers have already added to the totals and to `bytes` of the object. A compare-and-swap moves each
	 * word forward, so two readers never take one difference twice.
	 */
	u64 taken[TS_PARTS]; /* bytes */
	u64 taken_segments; /* received; segments sent are in the high half */
	u32 taken_resent;
	u32 seen; /* the last walk over files (see settle.bpf.c) that has found the socket */
	struct ts_count bytes; /* of the table INET_BYTES: what was taken */
};

/*
 * The most lengths of slides by which another family reads records, beside the lengths of the sample's own tables. A power of two.
 */
#define INET_GUESTS 4

/*
 * The rings of a socket: one for each table of its sample, and then one for each guest, unless a ring before it has slides of
 * this length. The first ring is in the object.
 */
enum { INET_RINGS = RECORDS_TABLES + INET_GUESTS };

/* The other rings, made where they are needed. Ring n, from RECORDS_BYTES on, is at [n - 1]. */
struct inet_rings {
	struct record_ring ring[INET_RINGS - 1];
};

/*
 * An object, in the socket's local storage: it lives as long as the socket.
 *
 * The kernel puts it 8 bytes behind the start of a cache line. The fields of every record share the 56 bytes of the first line:
 * the head of the ring ends there, and each pair of records begins a line. With INET_STORAGE_BYTES before it, the object must
 * fit into 1 KiB, for the kernel's next larger size is 2 KiB.
 */
#define INET_STORAGE_BYTES 136
/* The bytes of the object in its first line. */
#define INET_HEAD_BYTES 56

struct inet_object {
	/*
	 * `id`: the socket's cookie and the number of the connection, but see INET_KERNELS. `self`: the object's own address;
	 * another address: a copy, made by accept; INET_INIT: a CPU is initialising the object.
	 */
	struct ts_object object;
	u64 listed; /* see guest.h */
	u32 cell; /* UDP: the beginning of the cell of the newest record, in jiffies; or INET_RECORDING */
	u8 sample; /* enum inet_sample */
	u8 life; /* of the socket, two for each connection; odd: closed, and later packets make no new object of it */
	u8 sure; /* the owner is known; 0: inherited from the listener, until its user sends */
	u8 no_rings; /* there was no memory for `rings` */
	struct inet_counted counted;
	u64 sock; /* address of the socket */
	/* The socket's user, as in struct process_who; set in process context, see inet_set_owner(). */
	u64 cgroup;
	u32 pid;
	u32 pad2;
	char comm[PROCESS_COMM];
};

_Static_assert(sizeof(struct inet_object) + INET_STORAGE_BYTES <= 1024, "an object takes 1 KiB, and not 2");
_Static_assert(offsetof(struct inet_object, counted.ring.record) == INET_HEAD_BYTES, "records begin a line");
_Static_assert((offsetof(struct inet_object, counted.own) - INET_HEAD_BYTES) % 64 == 0, "counters of UDP are in one line");
/* In place of a cell: a CPU makes the records of the socket. */
#define INET_RECORDING (~0U)

/* Set the socket's user. */
TS_INLINE void inet_set_owner(struct inet_object *o, const struct process_who *who)
{
	o->pid = who->pid;
	o->cgroup = who->cgroup;
	__builtin_memcpy(o->comm, who->comm, sizeof(o->comm));
	o->sure = 1;
}

/* Whether the socket is closed. */
TS_INLINE int inet_is_dead(const struct inet_object *o)
{
	return ts_read(o->life) & 1;
}

/* One comparison of order: the verifier of Linux 6.1 excludes no number by comparisons for equality. */
TS_INLINE int inet_is_tcp(u32 sample)
{
	return sample < INET_TCP_SAMPLES;
}

/* Changes whenever a pinned structure changes: the constants, the settings, a bank, an object. */
#define INET_ABI 10

/* Set before loading. */
struct inet_constants {
	struct ts_shape shape;
	u32 v1_controller; /* enum process_v1 */
	u32 pad;
	u64 jiffy_ns;
};

/* Settings of users, which may change at any time. */
struct inet_settings {
	struct ts_settings all;
	struct ts_config config[INET_SAMPLES][INET_TABLES];
	/*
	 * The slides by which the family net reads records of TCP's connections. That family writes them. Those that are
	 * enabled come first, and no two have slides of one length.
	 */
	struct ts_config guest[INET_GUESTS];
};

/* The description of a socket. */
struct inet_about {
	struct process_who owner;
	u32 family;
	u32 netns;
	u16 sport; /* host byte order */
	u16 dport;
	u8 closed;
	u8 pad[3];
	u8 sip[16]; /* IPv4: the first four */
	u8 dip[16];
};

/* One row of a snapshot. */
struct inet_row {
	struct ts_row row;
	struct inet_about about;
};

/* A closed connection in one table: see the engine's keep.h. In tables of TCP's samples before INET_BYTES. */
struct inet_kept {
	struct ts_kept kept;
	struct inet_about about;
};

enum {
	INET_KEPT_SAMPLES = INET_TCP_SAMPLES,
	INET_KEPT_TABLES = INET_BYTES,
};

/* The size of the kernel's struct sock_common, 136 bytes in 6.18, and some more. */
#define INET_SOCK_WORDS 32

/* One CPU's part of a snapshot. */
struct inet_section {
	struct ts_section head;
	u64 sock[INET_SOCK_WORDS]; /* a copy of the start of a struct sock */
	struct inet_row row[];
};

/*
 * Memory for copies of a connection. In hooks it belongs to the holder of the claim of the CPU's bank of the sample, so there is
 * one for each CPU and sample. A reader has separate memory, and one program of a reader runs at a time.
 */
struct inet_scratch {
	struct record_ring ring;
	struct records_counts was, now, more;
	struct ts_window window;
};

struct inet_scratches {
	struct inet_scratch of[INET_COUNTED];
};

/*
 * Amounts that a reader has taken and not yet added to the totals, by sample, table and slide. They belong to the CPU that has
 * made the newest record of the connection.
 */
struct inet_shares {
	u64 used;
	u64 share[INET_COUNTED][RECORDS_TABLES][TS_SLIDES + 2][TS_PARTS]; /* the last one: older amounts */
};

/*
 * The time of each table's last switching on or change of period, in ticks of its clock (R5). For the static table, which has no
 * records: when the first of the sample's other tables was switched on, in jiffies (R4). User space writes them.
 */
struct inet_since {
	u64 at[INET_SAMPLES][TS_BANK_TABLES];
};

/* A run of a reader. */
struct inet_moment {
	u64 jiffies; /* its end, in both clocks of tables */
	u64 ns;
	u64 all_found; /* not 0: it went over files, and has found all sockets on the list */
};

/* The sockets that the programs of the benchmark go through. */
struct inet_bench {
	u32 flows;
	u32 next;
	u64 not_found;
};

#endif /* TOPSTAT_INET_H */
