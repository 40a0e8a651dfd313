/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The producers' side of a stream (stream.h has its maps and invariants). A source writes
 *
 *	struct stream s;
 *	struct birth *b;
 *
 *	if (stream_begin(&s) && (b = stream_reserve(&s, sizeof(*b)))) {
 *		b->pid = ...;
 *		stream_submit(&s, &b->head, KIND_BIRTH);
 *	}
 *
 * For a payload from user space, cut to `snaplen` bytes, it calls stream_take() instead of stream_reserve().
 * After either of them the program must reach stream_submit(): the consumer waits at a record that is reserved and not submitted.
 */
#ifndef TOPSTAT_STREAM_BPF_H
#define TOPSTAT_STREAM_BPF_H

#include "observe/kernel.h"
#include "observe/stream.h"

/* The loader sets the size of the ring, and the number of CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} stream_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stream_count);
} stream_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stream_control);
} stream_control SEC(".maps");

/* An event that is being made. */
struct stream {
	struct stream_control *control;
	struct stream_count *count;
	u64 unread; /* bytes in the ring when it began */
	u64 time;
	u64 seq;
	u64 submit; /* flags of the submit: whether it wakes the consumer */
	u32 flags;
	u32 payload;
	u32 lacking;
	u32 whole;
};

/* 0: there is no CPU with this number. This does not happen, because the loader has counted the CPUs. */
static __always_inline int stream_begin(struct stream *s)
{
	u32 cpu = bpf_get_smp_processor_id(), zero = 0;

	s->control = bpf_map_lookup_elem(&stream_control, &zero);
	s->count = bpf_map_lookup_elem(&stream_counts, &cpu);
	s->unread = bpf_ringbuf_query(&stream_ring, BPF_RB_AVAIL_DATA);
	s->flags = 0;
	s->payload = 0;
	s->lacking = 0;
	s->whole = 0;
	return s->control && s->count;
}

/* E1, E2. Also the full barrier of E4, between reserving the space in the ring and reading the word. */
static __always_inline u64 stream_number(u64 *produced)
{
	return __sync_fetch_and_add(produced, 1);
}

/* E4: whether this event, after which `unread` bytes are unread, wakes the consumer. */
static __always_inline u64 stream_wake(struct stream *s, u64 unread)
{
	u64 at = ts_read(s->control->wake_at);

	if (at == STREAM_WAKE_EACH)
		return 0;
	if (!at || unread < at)
		return BPF_RB_NO_WAKEUP;
	ts_write(s->control->rung_ns, s->time);
	ts_write(s->control->wake_at, 0);
	return BPF_RB_FORCE_WAKEUP;
}

/* Reserve a record of `size` bytes, a constant. NULL: there is no space, and the event is counted as dropped. */
static __always_inline void *stream_reserve(struct stream *s, u64 size)
{
	void *record = bpf_ringbuf_reserve(&stream_ring, size, 0);

	s->seq = stream_number(&s->count->produced);
	if (!record) {
		ts_add(&s->count->dropped, 1);
		return NULL;
	}
	s->time = bpf_ktime_get_ns();
	s->submit = stream_wake(s, s->unread + size);
	return record;
}

static __always_inline void stream_submit(struct stream *s, struct stream_record *record, u16 kind)
{
	record->time = s->time;
	record->seq = s->seq;
	record->cpu = bpf_get_smp_processor_id();
	record->kind = kind;
	record->flags = s->flags;
	record->payload = s->payload;
	record->lacking = s->lacking;
	record->whole = s->whole;
	bpf_ringbuf_submit(record, s->submit);
}

/* Reserve a record of `fixed` bytes and a payload of at most `room` bytes, both constants, and read the payload from user space.
 * */
static __always_inline void *stream_read_user(struct stream *s, u64 fixed, u64 room, u64 bytes, const void *from)
{
	void *record = stream_reserve(s, fixed + room);

	if (!record)
		return NULL;
	/* The verifier needs to see the bound where the bytes are read. */
	barrier_var(bytes);
	if (bytes > room)
		bytes = room;
	if (bpf_probe_read_user(record + fixed, bytes, from)) {
		s->flags |= STREAM_FAULT;
		bytes = 0;
	}
	s->payload = bytes;
	return record;
}

/*
 * As stream_reserve(), with a payload: of the `whole` bytes at `from`, in user space, the first `snaplen` (a constant of the
 * program's .rodata, at most STREAM_MOST_BYTES), or the first STREAM_HEAD_BYTES while the ring is nearly full (E3). The kernel
 * reserves only sizes that are known when a program is loaded: a payload takes the smallest of these sizes that fits.
 */
static __always_inline void *stream_take(struct stream *s, u64 fixed, u32 snaplen, u64 whole, const void *from)
{
	u64 above = ts_read(s->control->cut_above);
	u64 bytes = whole < snaplen ? whole : snaplen;
	void *record;

	s->whole = whole > ~0U ? ~0U : whole;
	if (bytes > STREAM_HEAD_BYTES && above && s->unread > above) {
		s->flags = STREAM_CUT;
		s->lacking = bytes - STREAM_HEAD_BYTES;
		bytes = STREAM_HEAD_BYTES;
	}
	if (bytes <= STREAM_HEAD_BYTES)
		record = stream_read_user(s, fixed, STREAM_HEAD_BYTES, bytes, from);
	else if (bytes <= 256)
		record = stream_read_user(s, fixed, 256, bytes, from);
	else if (bytes <= 1024)
		record = stream_read_user(s, fixed, 1024, bytes, from);
	else if (bytes <= 4096)
		record = stream_read_user(s, fixed, 4096, bytes, from);
	else
		record = stream_read_user(s, fixed, snaplen, bytes, from);
	if (record && s->flags & STREAM_CUT)
		ts_add(&s->count->cut, 1);
	return record;
}

#endif /* TOPSTAT_STREAM_BPF_H */
