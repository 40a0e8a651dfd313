/* SPDX-License-Identifier: GPL-2.0-only */
/* From file descriptors to sockets, for iterators over files. */
#ifndef TOPSTAT_SOCK_BPF_H
#define TOPSTAT_SOCK_BPF_H

#include "observe/kernel.h"

/* NULL: the file is no socket. Linux 5.11, 4f19cab76136 ("bpf: Add a bpf_sock_from_file helper"). */
static __always_inline struct sock *sock_of_file(struct file *file)
{
	struct socket *socket = file ? bpf_sock_from_file(file) : NULL;

	return socket ? socket->sk : NULL;
}

#endif /* TOPSTAT_SOCK_BPF_H */
