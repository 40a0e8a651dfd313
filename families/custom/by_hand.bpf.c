// SPDX-License-Identifier: GPL-2.0-only
/*
 * The other side of a measurement: a program for the two tables of `DEFINITIONS` in bench.rs alone. It shares readers, maps and
 * constants with custom.bpf.c.
 */
#include "fields.bpf.h"
#include "observe/gate.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* The record of syscalls:sys_enter_write. */
struct by_hand_write {
	u64 common;
	u32 nr;
	u32 pad;
	u64 fd;
	u64 buf;
	u64 count;
};

TS_GATE("tp", custom_event)

SEC("tp")
int custom_event(struct by_hand_write *ctx)
{
	u32 which = 0;
	struct custom_scratch *s = bpf_map_lookup_elem(&scratch, &which);

	if (!s)
		return 0;
	if (constants.table.key[0].source == CUSTOM_COMM) {
		bpf_get_current_comm(s->key.word, 16);
		s->key.word[2] = ctx->fd;
	} else {
		s->key.word[0] = bpf_get_current_pid_tgid() >> 32;
		s->key.word[1] = ctx->fd;
	}
	if (ctx->count)
		custom_push(&s->key, ctx->count);
	return 0;
}

/* No span is measured. */
TS_GATE("tp", custom_first)

SEC("tp")
int custom_first(void *ctx)
{
	return 0;
}

TS_GATE("tp", custom_last)

SEC("tp")
int custom_last(void *ctx)
{
	return 0;
}
