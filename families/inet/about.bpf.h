/* SPDX-License-Identifier: GPL-2.0-only */
/* The description of an object's socket, read from the socket itself. */
#ifndef TOPSTAT_INET_ABOUT_H
#define TOPSTAT_INET_ABOUT_H

/* A field in the copy of a socket. */
#define INET_SOCK_FIELD(copy, type, field) ((type *)((void *)(copy) + bpf_core_field_offset(struct sock_common, field)))

/* The fields of an object behind its windows. */
#define INET_TAIL offsetof(struct inet_object, sock)
#define INET_TAIL_BYTES (sizeof(struct inet_object) - INET_TAIL)
/* A field in a copy of these. */
#define INET_TAIL_FIELD(copy, field) \
	((typeof(((struct inet_object *)0)->field) *)((void *)(copy) + offsetof(struct inet_object, field) - INET_TAIL))

struct inet_sock___about {
	u16 inet_sport;
} CORE;

/*
 * Describe the socket of the object at this address. Object and socket are read in one piece each, into `copy` of
 * INET_SOCK_WORDS, since a snapshot does this for hundreds of rows.
 */
static __always_inline void inet_describe(struct inet_about *about, u64 *copy, u64 obj)
{
	struct net *net;
	u64 sock;

	ts_peek(copy, INET_TAIL_BYTES, obj + INET_TAIL);
	sock = *INET_TAIL_FIELD(copy, sock);
	about->owner.tid = 0;
	about->owner.pid = *INET_TAIL_FIELD(copy, pid);
	about->owner.cgroup = *INET_TAIL_FIELD(copy, cgroup);
	__builtin_memcpy(about->owner.comm, INET_TAIL_FIELD(copy, comm), sizeof(about->owner.comm));
	ts_peek(copy, INET_SOCK_WORDS * sizeof(*copy), sock);
	about->family = *INET_SOCK_FIELD(copy, u16, skc_family);
	about->sport = *INET_SOCK_FIELD(copy, u16, skc_num);
	/* The kernel clears skc_num before a connection ends, but not the port that segments are sent from. */
	if (!about->sport)
		about->sport = bpf_ntohs(BPF_CORE_READ((struct inet_sock___about *)sock, inet_sport));
	about->dport = bpf_ntohs(*INET_SOCK_FIELD(copy, u16, skc_dport));
	net = *INET_SOCK_FIELD(copy, struct net *, skc_net);
	about->netns = BPF_CORE_READ(net, ns.inum);
	if (about->family == AF_INET6) {
		__builtin_memcpy(about->sip, INET_SOCK_FIELD(copy, u32, skc_v6_rcv_saddr), 16);
		__builtin_memcpy(about->dip, INET_SOCK_FIELD(copy, u32, skc_v6_daddr), 16);
	} else {
		*(u32 *)about->sip = *INET_SOCK_FIELD(copy, u32, skc_rcv_saddr);
		*(u32 *)about->dip = *INET_SOCK_FIELD(copy, u32, skc_daddr);
	}
}

_Static_assert(sizeof(struct ts_window) == INET_SOCK_WORDS * sizeof(u64), "scratch memory for a copy of a socket");

/* inet_describe() for a connection that is about to end: see obs.h. */
TS_INLINE void obs_describe_kept(struct ts_kept *kept, u64 obj, struct ts_window *scratch)
{
	struct inet_about *about = &((struct inet_kept *)kept)->about;

	inet_describe(about, (u64 *)scratch, obj);
	about->closed = 1;
}

#endif /* TOPSTAT_INET_ABOUT_H */
