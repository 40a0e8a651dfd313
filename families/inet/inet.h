/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the observer of sockets and the programs that read it share. The one source:
 * the Rust side is generated from this file.
 */
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

/* A power of two, and the static one last. */
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
 * Of the two highest bits of an id the one that is set where the socket is UDP and the kernel's own: no hook tells of its end,
 * see inet_id_now(). All other ids are cookies, in which these bits are alike: the kernel counts cookies up from 1, and down
 * from 2^64 those of sockets that an interrupt makes in the midst of counting.
 */
#define INET_KERNELS (1ULL << 63)
/* The others, which are the cookie's. */
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
 * A socket that is used again has its cookie still, but what is left of the connection that it was (keep.h) is another's row. So
 * bits of the id above those in which no two cookies will ever be alike are changed by the number of the connection. There are
 * as many numbers as half of `life` has.
 */
#define INET_LIFE_SHIFT 48

TS_INLINE u64 inet_connection_id(u64 cookie, u8 life)
{
	return cookie ^ (u64)(life >> 1) << INET_LIFE_SHIFT;
}

/* Whether the id was given to the socket of this cookie. */
TS_INLINE int inet_id_has(u64 id, u64 cookie)
{
	return !((id ^ cookie) << (64 - INET_LIFE_SHIFT));
}

/* How long a connection is silent at least before it is taken off the list of the active ones. */
#define INET_SILENT_MS 1000
/* The longest that hooks go on with a cell as it was computed: settings may have changed. */
#define INET_CELL_MS 100

/* A connection, which TCP counts: see records.h. */
struct inet_tcp {
	struct record_ring ring;
	u64 rings; /* address of struct inet_rings; 0: not made */
	/* The counters as of the last reader, which has added them to the totals and to `bytes` of the object. Each word is brought
	 * forward by one swap, so two readers at once never take one difference twice. */
	u64 taken[TS_PARTS]; /* bytes */
	u64 taken_segments; /* received; those sent are in the high half */
	u32 taken_resent;
	u32 pad;
};

/* Further rings of a connection, for tables whose periods differ: made where there are any. Ring n, from RECORDS_BYTES on, is at
 * [n - 1]. */
struct inet_rings {
	struct record_ring ring[RECORDS_TABLES - 1];
};

/*
 * An object, in the socket's local storage: it lives as long as the socket.
 *
 * The kernel puts it 8 bytes behind the start of a cache line: so that what every push needs fits one line, and each window
 * and what is behind them begins one, there are 56 bytes before the windows. With INET_STORAGE_BYTES before it, it is to fit
 * into 1 KiB, for the kernel's next larger pieces of memory are of 2 KiB.
 */
#define INET_STORAGE_BYTES 136

struct inet_object {
	/* `id`: the socket's cookie and the number of the connection, but see INET_KERNELS. `self`: another's address:
	 * a copy, made by accept; INET_INIT: some CPU is making it an object right now. */
	struct ts_object object;
	union {
		u64 quiet; /* UDP: see ts_quiet() */
		u64 listed; /* TCP: see list.bpf.h */
	};
	struct ts_count bytes;
	u32 pad;
	u8 sample; /* enum inet_sample */
	u8 life; /* of the socket, two for each connection; odd: closed, and what still comes makes no new object of it */
	u8 sure; /* of the owner; 0: inherited from the listener, until its user sends */
	u8 no_rings; /* TCP: there was no memory for them */
	union {
		struct ts_window window[INET_BYTES]; /* of the tables before INET_BYTES */
		struct inet_tcp tcp; /* of connections that TCP counts */
	};
	u64 sock; /* address of the socket */
	/* Its user, as in struct process_who; set in process context, see inet_set_owner(). */
	u64 cgroup;
	u32 pid;
	u32 pad2;
	char comm[PROCESS_COMM];
};

_Static_assert(sizeof(struct inet_object) + INET_STORAGE_BYTES <= 1024, "an object takes 1 KiB, and not 2");
_Static_assert(sizeof(struct inet_tcp) <= INET_BYTES * sizeof(struct ts_window), "and no more for TCP's sake");

/* Who uses the socket, from now on. */
TS_INLINE void inet_set_owner(struct inet_object *o, const struct process_who *who)
{
	o->pid = who->pid;
	o->cgroup = who->cgroup;
	__builtin_memcpy(o->comm, who->comm, sizeof(o->comm));
	o->sure = 1;
}

/* Whether it is closed. */
TS_INLINE int inet_is_dead(const struct inet_object *o)
{
	return ts_read(o->life) & 1;
}

TS_INLINE int inet_is_tcp(u32 sample)
{
	return sample == INET_TCP_V4 || sample == INET_TCP_V6;
}

/* Another one whenever a structure changes that is pinned: the constants, the settings, a
 * bank, an object. */
#define INET_ABI 6

/* Set before loading. */
struct inet_constants {
	struct ts_shape shape;
	u32 v1_controller; /* enum process_v1 */
	u32 pad;
	u64 jiffy_ns;
};

/* What users set, at any time. */
struct inet_settings {
	struct ts_settings all;
	struct ts_config config[INET_SAMPLES][INET_TABLES];
};

/* What describes a socket. */
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

/* A connection that has ended, in one table: see the engine's keep.h. In tables of TCP's samples before INET_BYTES. */
struct inet_kept {
	struct ts_kept kept;
	struct inet_about about;
};

enum {
	INET_KEPT_SAMPLES = INET_TCP_SAMPLES,
	INET_KEPT_TABLES = INET_BYTES,
};

/* The kernel's struct sock_common, 136 bytes in 6.18, and some. */
#define INET_SOCK_WORDS 32

/* One CPU's part of a snapshot. */
struct inet_section {
	struct ts_section head;
	u64 sock[INET_SOCK_WORDS]; /* a copy of the start of a struct sock */
	struct inet_row row[];
};

/*
 * Memory for copies of a connection. In hooks it belongs to the CPU that has the claim of its bank of the sample, so there is one for
 * each CPU and sample. A reader has its own, and one program of a reader runs at a time.
 */
struct inet_scratch {
	struct record_ring ring;
	struct records_counts was, now, more;
	struct ts_window window;
};

struct inet_scratches {
	struct inet_scratch of[INET_TCP_SAMPLES];
};

/* Amounts that a reader has taken and not yet added to the totals, by sample, table and slide. They belong to the CPU that has made
 * the newest record of the connection. */
struct inet_shares {
	u64 used;
	u64 share[INET_TCP_SAMPLES][RECORDS_TABLES][TS_SLIDES + 2][TS_PARTS]; /* the last one: older amounts */
};

/* A moment, by both clocks of tables. */
struct inet_moment {
	u64 jiffies;
	u64 ns;
};

/* For the benchmark: which sockets its programs go through. */
struct inet_bench {
	u32 flows;
	u32 next;
	u64 not_found;
};

#endif /* TOPSTAT_INET_H */
