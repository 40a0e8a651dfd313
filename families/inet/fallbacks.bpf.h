/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the programs do where the kernel lacks something; untraced.bpf.h has the programs that
 * exist for that alone. All is compiled twice. With TOPSTAT_PLAIN it needs nothing that came
 * after 5.10:
 *
 *   atomics that return what was there     5.12, 5ffa25502b5a ("bpf: Add instructions for
 *                                          atomic_[cmp]xchg")
 *   socket storage in tracing programs     5.11, 8e4597c627fb ("bpf: Allow using
 *                                          bpf_sk_storage in FENTRY/FEXIT/RAW_TP")
 *   socket storage in iterators            5.11, a50a85e40c59 ("bpf: Expose
 *                                          bpf_sk_storage_* to iterator programs")
 *   bpf_sock_from_file                     5.11, 4f19cab76136 ("bpf: Add a
 *                                          bpf_sock_from_file helper")
 *
 * fallbacks.rs finds out by trying which of them there are.
 */
#ifndef TOPSTAT_INET_FALLBACKS_H
#define TOPSTAT_INET_FALLBACKS_H

#include "observe/kernel.h"

#ifdef TOPSTAT_PLAIN
#define TS_NO_FETCHING_ATOMICS
#else
#define TS_KEEPS /* what has ended: there its end can't be written into it */
#endif

/*
 * Whoever reads asks the socket, too (life.bpf.h): an end that the programs were not run for is not
 * written into the object. Who pushes does not ask, for it costs: there an entry of an object that
 * has ended so is taken for one that is silent. Without socket storage in tracing programs no end of
 * a connection is written into its object, so who pushes has to ask, too.
 */
#if defined(TOPSTAT_PLAIN) || defined(INET_READER)
static __always_inline u64 inet_id_now(u64 obj);
#define ts_id_now(obj, view) inet_id_now(obj)
#endif

#include "observe/host.h"
#include "inet.h"
#include "life.bpf.h"
#include "about.bpf.h"

#ifdef TOPSTAT_PLAIN

#ifdef INET_READER

/* Readers swap nothing but the slides of their own CPU's totals: there is nobody to lock out but
 * who interrupts them, and then has done the same. Iterators have no locks, either. */
static __always_inline int ts_cas(u64 *p, u64 old, u64 new_value)
{
	if (ts_read(*p) != old)
		return 0;
	ts_write(*p, new_value);
	return 1;
}

#else

/* So many that CPUs rarely meet at one. */
#define INET_LOCKS 64

struct inet_lock {
	struct bpf_spin_lock lock;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INET_LOCKS);
	__type(key, u32);
	__type(value, struct inet_lock);
} locks SEC(".maps");

/*
 * Compare and swap without the instruction: under a lock, which all who swap this word take. It
 * is done where an object begins or ends, and where a window begins a slide: not on every push.
 */
static __noinline int ts_cas(u64 *p, u64 old, u64 new_value)
{
	u32 i = 0;
	struct inet_lock *lock = bpf_map_lookup_elem(&locks, &i);
	int swapped = 0;

	if (!lock || !p)
		return 0;
	/* Of two pointers the verifier lets go of the difference only. */
	i = (((u64)p - (u64)lock) >> 8) & (INET_LOCKS - 1);
	lock = bpf_map_lookup_elem(&locks, &i);
	if (!lock)
		return 0;
	bpf_spin_lock(&lock->lock);
	if (ts_read(*p) == old) {
		ts_write(*p, new_value);
		swapped = 1;
	}
	bpf_spin_unlock(&lock->lock);
	return swapped;
}

#endif

/* The connection is over, and the object may not know: what is sent still belongs to none. */
static __always_inline int inet_is_over(struct bpf_sock *sk, u32 sample)
{
	return inet_is_tcp(sample) && sk->state == TCP_CLOSE;
}

#else

/* An object knows. */
static __always_inline int inet_is_over(struct bpf_sock *sk, u32 sample)
{
	return 0;
}

#endif

#endif /* TOPSTAT_INET_FALLBACKS_H */
