/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether a socket is still the one that an object was made for, as the socket itself tells.
 *
 * An object's end is an event, and events can be missed: the kernel does not run a tracing program
 * that is running on the CPU already. Where programs at tracepoints can be preempted (Linux 7.3 does), that
 * leaves out all events of a CPU for as long as somebody else has it. The object of a missed end keeps its id in
 * memory that was freed, until that memory is used again; so would a row.
 */
#ifndef TOPSTAT_INET_LIFE_H
#define TOPSTAT_INET_LIFE_H

struct sock_common___life {
	struct {
		s64 counter;
	} skc_cookie;
	struct {
		atomic_t refs;
	} skc_refcnt;
} CORE;

struct sock___life {
	struct socket *sk_socket;
} CORE;

/*
 * The id that the object at this address has now; 0: it has ended, or its socket has. The socket is
 * closed, or it is freed, or it is another one, whose cookie is another. (Sockets' memory is that of
 * sockets only, and is left as it is when one is freed, but for what is told here.) Nothing tells when the
 * kernel closes a UDP socket of its own; but then it has lost its `struct socket`.
 */
static __always_inline u64 inet_id_now(u64 obj)
{
	u64 id = 0, sock = 0, cookie = 0, socket = 0;
	u8 sample = INET_SAMPLES, state = TCP_CLOSE;
	u32 references = 0;

	if (ts_peek(&id, sizeof(id), obj + offsetof(struct inet_object, object.id)) || !id)
		return 0;
	ts_peek(&sample, sizeof(sample), obj + offsetof(struct inet_object, sample));
	ts_peek(&sock, sizeof(sock), obj + offsetof(struct inet_object, sock));
	ts_peek(&cookie, sizeof(cookie), sock + bpf_core_field_offset(struct sock_common___life, skc_cookie));
	if (!inet_id_has(id, cookie))
		return 0;
	if (inet_id_is_kernels(id)) {
		ts_peek(&socket, sizeof(socket), sock + bpf_core_field_offset(struct sock___life, sk_socket));
		return socket ? id : 0;
	}
	if (inet_is_tcp(sample)) {
		ts_peek(&state, sizeof(state), sock + bpf_core_field_offset(struct sock_common, skc_state));
		return state == TCP_CLOSE ? 0 : id;
	}
	ts_peek(&references, sizeof(references), sock + bpf_core_field_offset(struct sock_common___life, skc_refcnt));
	return references ? id : 0;
}

#endif /* TOPSTAT_INET_LIFE_H */
