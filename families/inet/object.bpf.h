/* SPDX-License-Identifier: GPL-2.0-only */
/* How an object comes to be, whose it is, and how it ends. */
#ifndef TOPSTAT_INET_OBJECT_H
#define TOPSTAT_INET_OBJECT_H

#include "maps.bpf.h"
#include "resent.bpf.h"
#include "observe/process.bpf.h"

struct sock___kernels {
	u8 sk_kern_sock : 1;
} CORE;

struct sock___route {
	struct dst_entry *sk_dst_cache;
} CORE;

/* Whether it is a UDP socket of the kernel's own: hooks tell of others' end. */
static __always_inline int inet_is_kernels(void *sock, u32 sample)
{
	return (sample == INET_UDP_V4 || sample == INET_UDP_V6) &&
	       BPF_CORE_READ_BITFIELD_PROBED((struct sock___kernels *)sock, sk_kern_sock);
}

/* The task's process is the socket's user. */
static __always_inline void inet_owner(struct inet_object *o, struct task_struct *task)
{
	process_describe(&o->owner, task, 0, constants.v1_controller);
	o->sure = 1;
}

/* Nothing was pushed yet. For an object that is in no table, and has no id. */
static __always_inline void inet_object_reset(struct inet_object *o)
{
	o->dead = 0;
	o->quiet = 0;
	o->resent = 0;
	__builtin_memset(&o->window, 0, sizeof(o->window));
	__builtin_memset(&o->bytes, 0, sizeof(o->bytes));
}

/*
 * The storage is new, or a copy of the listener's: make it an object of its own. False
 * when another CPU is doing so just now.
 */
static __always_inline int inet_object_init(struct inet_object *o, struct bpf_sock *sk)
{
	u64 self = ts_read(o->self);

	if (self == INET_INIT || !ts_cas(&o->self, self, INET_INIT))
		return 0;
	if (self) { /* the listener's numbers, and its user until the new one is known */
		o->id = 0;
		o->sure = 0;
		inet_object_reset(o);
	}
	inet_resent_begin(o, sk, self);
	o->sock = (u64)sk;
	ts_wmb();
	ts_write(o->self, (u64)o);
	return 1;
}

/* The object at this address is gone: this CPU's tables forget it at once. */
static __always_inline void inet_forget(u64 obj, u32 sample)
{
	ts_add(&census[ts_bound(sample, INET_SAMPLES - 1)].ended, 1);
	ranked_forget(sample, obj);
}

/*
 * The socket is closed: its object leaves all tables; its pushes stay in the totals. Told twice it
 * does nothing the second time.
 */
static __always_inline void inet_object_end(struct inet_object *o)
{
	u32 sample;
	u64 id;

	ts_write(o->dead, 1);
	if (o->self != (u64)o)
		return;
	/*
	 * A full barrier, which pairs with the swap in inet_object_begin(): either the id that another
	 * CPU has just given the object is seen here, or `dead` is seen there.
	 */
	if (ts_cas(&o->id, 0, 0))
		return;
	id = o->id;
	sample = o->sample;
	if (!id || sample >= INET_SAMPLES || !ts_cas(&o->id, id, 0))
		return;
	if (id & INET_KERNELS) /* never counted as begun */
		ranked_forget(sample, o->self);
	else
		inet_forget(o->self, sample);
}

/* The object takes its place in a sample. True: it has done so just now. (It may be `dead` by then.) */
static __always_inline int inet_object_begin(struct inet_object *o, u32 sample, u64 id)
{
	o->sample = sample;
	if (!ts_cas(&o->id, 0, id))
		return 0;
	if (!(id & INET_KERNELS))
		ts_add(&census[ts_bound(sample, INET_SAMPLES - 1)].begun, 1);
	/* Another CPU has ended it meanwhile, without an id. */
	if (ts_read(o->dead))
		inet_object_end(o);
	return 1;
}

#endif /* TOPSTAT_INET_OBJECT_H */
