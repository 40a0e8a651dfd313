// SPDX-License-Identifier: GPL-2.0-only
/*
 * How long data is in the kernel: the time from the arrival of a packet until its data is copied to a process. The part of this
 * time in which the copying thread was ready and waited for a CPU is scheduling; the rest is queueing.
 *
 * The stack records when a packet arrives only on request: the reader has a socket that requests it.
 */
#include "histogram.bpf.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct netstack_latencies);
} latencies SEC(".maps");

/* Time of the clock of arrivals less time of the monotonic clock, in ns. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} ahead SEC(".maps");

/* A switch of a thread onto a CPU: its time, and the sum of the thread's waits for CPUs before the wait that it ended. */
struct wait {
	u64 ended_ns;
	u64 before_ns;
};

/* The last waits of a thread that copies, in a ring. Waits are recorded since `since_ns`. */
struct waits {
	u64 since_ns;
	u64 count;
	struct wait last[NETSTACK_WAITS];
};

HOST_STORAGE(waits, task, struct waits);

SEC("tp_btf/sched_switch")
int BPF_PROG(netstack_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct waits *w = host_of(waits, task, next);
	struct wait *last;

	if (!w || !bpf_core_field_exists(next->sched_info.run_delay))
		return 0;
	last = &w->last[w->count & (NETSTACK_WAITS - 1)];
	last->ended_ns = host_clock();
	/* The kernel adds the wait that ends here after this program. */
	last->before_ns = next->sched_info.run_delay;
	w->count++;
	return 0;
}

/* How long this thread has waited for CPUs since a time. False: unknown. */
static __always_inline int waited_since(struct task_struct *task, u64 since_ns, u64 *waited_ns)
{
	struct waits *w = host_of(waits, task, task);
	u64 after_ns, sum = 0;
	u32 i;

	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return 0;
	if (!w) {
		w = host_make(waits, task, task);
		if (w)
			w->since_ns = host_clock();
		return 0;
	}
	after_ns = task->sched_info.run_delay;
	for (i = 0; i < NETSTACK_WAITS; i++) {
		struct wait *wait = &w->last[(w->count - 1 - i) & (NETSTACK_WAITS - 1)];
		u64 in_time;

		if (i >= w->count)
			break;
		if (wait->ended_ns <= since_ns)
			goto known;
		in_time = wait->ended_ns - since_ns;
		sum += after_ns - wait->before_ns < in_time ? after_ns - wait->before_ns : in_time;
		after_ns = wait->before_ns;
	}
	/* There may have been other waits before. */
	if (w->count > NETSTACK_WAITS || w->since_ns > since_ns)
		return 0;
known:
	*waited_ns = sum;
	return 1;
}

static __always_inline int is_chosen(struct sk_buff *skb)
{
	u32 i, pid = bpf_get_current_pid_tgid() >> 32;
	u16 ports[2];

	if (filter.ports && (bpf_probe_read_kernel(ports, sizeof(ports), skb->head + skb->transport_header) ||
			     !port_is_chosen(ports)))
		return 0;
	for (i = 0; i < NETSTACK_CHOSEN; i++) {
		if (i >= filter.pids)
			break;
		if (filter.pid[i] == pid)
			return 1;
	}
	return !filter.pids;
}

/* Whether the data is behind the header of a protocol above IP. The data of packet sockets is not. */
static __always_inline int is_carried(struct sk_buff *skb)
{
	u32 network = skb->network_header, transport = skb->transport_header;

	return is_ip(skb) && transport > network && skb->data >= skb->head + transport;
}

/* Add a copy of a packet with this time of arrival. 0: it has none. */
static __always_inline void add_copy(struct netstack_latencies *l, u64 arrived_ns, u64 now_ns)
{
	u64 waited_ns = 0, took_ns;

	if (!arrived_ns || arrived_ns > now_ns) {
		ts_add(&l->undated, 1);
		return;
	}
	took_ns = now_ns - arrived_ns;
	add(&l->latency, took_ns);
	if (!waited_since(bpf_get_current_task_btf(), arrived_ns, &waited_ns)) {
		ts_add(&l->unsplit, 1);
		return;
	}
	waited_ns = waited_ns < took_ns ? waited_ns : took_ns;
	add(&l->scheduling, waited_ns);
	add(&l->queueing, took_ns - waited_ns);
}

SEC("tp_btf/skb_copy_datagram_iovec")
int BPF_PROG(netstack_copy, struct sk_buff *skb, int length)
{
	u64 now_ns = host_clock(), *clock;
	struct netstack_latencies *l;
	u32 zero = 0;

	if (!is_carried(skb) || !is_chosen(skb))
		return 0;
	l = bpf_map_lookup_elem(&latencies, &zero);
	clock = bpf_map_lookup_elem(&ahead, &zero);
	if (!l || !clock)
		return 0;
	ts_add(&l->copies, 1);
	ts_add(&l->bytes, length);
	add_copy(l, skb->tstamp ? skb->tstamp - ts_read(*clock) : 0, now_ns);
	ts_add(&l->done, 1);
	return 0;
}
