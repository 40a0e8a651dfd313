/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the programs of both histograms. */
#ifndef TOPSTAT_NETSTACK_HISTOGRAM_H
#define TOPSTAT_NETSTACK_HISTOGRAM_H

#include "observe/host.h"
#include "netstack.h"

const volatile struct netstack_filter filter SEC(".rodata.filter");

/* From linux/if_ether.h, in network byte order. */
#define PROTOCOL_IP bpf_htons(0x0800)
#define PROTOCOL_IPV6 bpf_htons(0x86dd)

static __always_inline u32 bucket_of(u64 value)
{
	u32 bits = 0, step;

#pragma unroll
	for (step = 32; step; step /= 2) {
		if (value >> step) {
			value >>= step;
			bits += step;
		}
	}
	bits += value != 0;
	return bits < NETSTACK_BUCKETS ? bits : NETSTACK_BUCKETS - 1;
}

/* Adds atomically: another program on the same CPU may interrupt this one. */
static __always_inline void add(struct netstack_histogram *histogram, u64 value)
{
	u32 bucket = bucket_of(value);

	barrier_var(bucket);
	if (bucket >= NETSTACK_BUCKETS)
		return;
	ts_add(&histogram->bucket[bucket], 1);
	ts_add(&histogram->sum, value);
}

static __always_inline int is_ip(struct sk_buff *skb)
{
	u16 protocol = skb->protocol;

	return protocol == PROTOCOL_IP || protocol == PROTOCOL_IPV6;
}

/* Whether one of these ports, in network byte order, is chosen. */
static __always_inline int port_is_chosen(const u16 *ports)
{
	u32 i, one = bpf_ntohs(ports[0]), other = bpf_ntohs(ports[1]);

	for (i = 0; i < NETSTACK_CHOSEN; i++) {
		if (i >= filter.ports)
			break;
		if (filter.port[i] == one || filter.port[i] == other)
			return 1;
	}
	return 0;
}

#endif /* TOPSTAT_NETSTACK_HISTOGRAM_H */
