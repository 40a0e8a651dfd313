// SPDX-License-Identifier: GPL-2.0-only
/* Drops packets that arrive at a device, at random: the loss of `topstat lab`. */
#include "observe/host.h"
#include "netstack.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct netstack_loss loss SEC(".rodata.loss");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct netstack_dropped);
} dropped SEC(".maps");

SEC("xdp")
int netstack_lose(struct xdp_md *ctx)
{
	u32 zero = 0;
	struct netstack_dropped *count = bpf_map_lookup_elem(&dropped, &zero);

	if (!count)
		return XDP_PASS;
	count->seen++;
	if (bpf_get_prandom_u32() >= loss.below)
		return XDP_PASS;
	count->dropped++;
	return XDP_DROP;
}
