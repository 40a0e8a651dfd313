/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The programs outside of a packet's way, where tracing programs and iterators have no socket
 * storage (see fallbacks.bpf.h): what traced.bpf.h does, by other ways.
 *
 *   inet_state    sees that a connection ends, and can read its object, not write it
 *   inet_anew     begins the object of a socket that is used again, which it can write
 *   inet_find     tells which sockets are there; user space makes their objects
 *
 * Segments sent again are counted by inet_packet() itself.
 */
#ifndef TOPSTAT_INET_UNTRACED_H
#define TOPSTAT_INET_UNTRACED_H

#include "count.bpf.h"
#include "observe/gate.bpf.h"

/* How the kernel keeps what is stored with a socket. */
struct hlist_node___plain {
	struct hlist_node___plain *next;
} CORE;

struct hlist_head___plain {
	struct hlist_node___plain *first;
} CORE;

struct bpf_local_storage {
	struct hlist_head___plain list;
} CORE;

struct bpf_local_storage_data {
	void *smap;
	u8 data[];
} CORE;

struct bpf_local_storage_elem {
	struct hlist_node___plain snode;
	struct bpf_local_storage_data sdata;
} CORE;

struct sock___plain {
	struct bpf_local_storage *sk_bpf_storage;
} CORE;

/* Maps whose storage a socket has, at most; of others than topstat hardly any. */
#define INET_STORAGES 32

/* The address of the socket's object, to read from; 0: it has none. */
static __always_inline u64 inet_object_of(struct sock *sk)
{
	struct bpf_local_storage *storage = BPF_CORE_READ((struct sock___plain *)sk, sk_bpf_storage);
	struct hlist_node___plain *node;
	u32 i;

	if (!storage)
		return 0;
	node = BPF_CORE_READ(storage, list.first);
	for (i = 0; i < INET_STORAGES && node; i++) {
		struct bpf_local_storage_elem *elem;

		elem = (void *)node - bpf_core_field_offset(struct bpf_local_storage_elem, snode);
		if (BPF_CORE_READ(elem, sdata.smap) == (void *)&objects)
			return (u64)elem + bpf_core_field_offset(struct bpf_local_storage_elem, sdata) +
			       bpf_core_field_offset(struct bpf_local_storage_data, data);
		node = BPF_CORE_READ(node, next);
	}
	return 0;
}

TS_GATE("tp_btf/inet_sock_set_state", inet_state)

/* From now on the socket tells that its object has ended: see inet_id_now(). */

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(inet_state, struct sock *sk, int from, int to)
{
	u64 obj, id = 0, self = 0;
	u8 sample = INET_SAMPLES;

	if (to != TCP_CLOSE || from == TCP_CLOSE)
		return 0;
	obj = inet_object_of(sk);
	if (!obj)
		return 0;
	ts_peek(&id, sizeof(id), obj + offsetof(struct inet_object, object.id));
	ts_peek(&self, sizeof(self), obj + offsetof(struct inet_object, object.self));
	ts_peek(&sample, sizeof(sample), obj + offsetof(struct inet_object, sample));
	if (self == obj && id && sample < INET_SAMPLES)
		inet_forget(obj, sample);
	return 0;
}

/* The socket is used for another connection, or to listen: it begins at 0. */
SEC("sockops")
int inet_anew(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct inet_object *o;

	if (ops->op != BPF_SOCK_OPS_TCP_CONNECT_CB && ops->op != BPF_SOCK_OPS_TCP_LISTEN_CB)
		return 1;
	if (!sk)
		return 1;
	o = host_of(objects, sk, sk);
	if (o && inet_object_is_own(o) && o->object.id) {
		ts_write(o->object.id, 0);
		inet_object_reset(o);
	}
	return 1;
}

struct inode___plain {
	unsigned short i_mode;
	unsigned long i_ino;
} CORE;

struct file___plain {
	struct inode___plain *f_inode;
	void *private_data;
} CORE;

struct task_struct___plain {
	void *files;
} CORE;

#define S_IFMT 0170000
#define S_IFSOCK 0140000

/* Before packets are counted: the sockets that are there, and whose they are. */
SEC("iter/task_file")
int inet_find(struct bpf_iter__task_file *ctx)
{
	struct file___plain *file = (void *)ctx->file;
	struct task_struct *task = ctx->task, *leader;
	struct inet_found found = {};
	struct socket *socket;
	u16 family, protocol;
	struct sock *sk;

	if (!file || !task)
		return 0;
	leader = task->group_leader;
	/* Threads share their descriptors, as a rule. */
	if (task != leader && BPF_CORE_READ((struct task_struct___plain *)task, files) ==
				      BPF_CORE_READ((struct task_struct___plain *)leader, files))
		return 0;
	/* An inode of this kind is a socket's, or a name in a file system that can't be opened but by
	 * O_PATH; then there is no private_data. */
	socket = BPF_CORE_READ(file, private_data);
	if ((BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK || !socket)
		return 0;
	sk = BPF_CORE_READ(socket, sk);
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	protocol = BPF_CORE_READ(sk, sk_protocol);
	if ((family != AF_INET && family != AF_INET6) || (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP))
		return 0;
	process_describe(&found.owner, task, 0, constants.v1_controller);
	found.inode = BPF_CORE_READ(file, f_inode, i_ino);
	found.fd = ctx->fd;
	bpf_seq_write(ctx->meta->seq, &found, sizeof(found));
	return 0;
}

#endif /* TOPSTAT_INET_UNTRACED_H */
