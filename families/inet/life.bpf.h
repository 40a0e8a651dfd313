/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether an object's socket is still the one that the object was made for. The socket itself is read.
 *
 * An object's end is an event, and programs can miss events: the kernel does not run a tracing program that is already running on
 * the CPU. Where programs at tracepoints can be preempted (Linux 7.3), a preempted program misses all events of the CPU until it
 * runs again. The object of a missed end keeps its id in freed memory until that memory is used again; without this check a row
 * would stay as long.
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
 * The current id of the object at this address; 0: the object or its socket has ended. A socket has ended if it is closed, or
 * freed, or its memory belongs to a socket with another cookie. (The memory of sockets is used for sockets only, and freeing one
 * leaves its contents, except for the fields read here.) A UDP socket of the kernel itself has ended if it has no
 * `struct socket`; no other field shows its end.
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
