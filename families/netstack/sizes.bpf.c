// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lengths of packets: as devices hand them to the stack, and as protocols get them, after GRO has merged packets.
 *
 * Each function by which a driver hands packets over has a tracepoint at its entry. Packets that the stack itself passes on do
 * not go through it.
 */
#include "histogram.bpf.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct netstack_sizes);
} sizes SEC(".maps");

/* Whether the ports of TCP and UDP can be read from a packet that begins with the header of IP. */
enum ports { PORTS_READ, PORTS_NONE, PORTS_UNREAD };

#define IP_V4_HEADER 20
#define IP_V6_HEADER 40
#define IP_FRAGMENT bpf_htons(0x1fff) /* offset of the fragment in the whole packet */
#define IP_TCP 6
#define IP_UDP 17

static __always_inline enum ports ports_of(struct sk_buff *skb, u16 *ports)
{
	u32 linear = skb->len - skb->data_len, at;
	unsigned char header[IP_V4_HEADER], protocol;
	unsigned char *data = skb->data;
	u16 fragment;

	if (!is_ip(skb))
		return PORTS_NONE;
	if (linear < sizeof(header) || bpf_probe_read_kernel(header, sizeof(header), data))
		return PORTS_UNREAD;
	if (header[0] >> 4 == 4) {
		protocol = header[9];
		at = (header[0] & 15) * 4;
		__builtin_memcpy(&fragment, &header[6], sizeof(fragment));
		if (fragment & IP_FRAGMENT)
			return PORTS_UNREAD;
	} else {
		protocol = header[6];
		at = IP_V6_HEADER;
		/* There may be headers in between: hop-by-hop options, routing, fragments, destination options. */
		if (protocol == 0 || protocol == 43 || protocol == 44 || protocol == 60)
			return PORTS_UNREAD;
	}
	if (protocol != IP_TCP && protocol != IP_UDP)
		return PORTS_NONE;
	if (linear < at + 2 * sizeof(*ports) || bpf_probe_read_kernel(ports, 2 * sizeof(*ports), data + at))
		return PORTS_UNREAD;
	return PORTS_READ;
}

static __always_inline int device_is_chosen(struct sk_buff *skb)
{
	struct net_device *device = skb->dev;

	return !filter.device ||
	       (device && (u32)device->ifindex == filter.device && device->nd_net.net->ns.inum == filter.netns);
}

static __always_inline int count(struct sk_buff *skb, int before)
{
	u16 ports[2] = {};
	u32 zero = 0;
	struct netstack_sizes *s = bpf_map_lookup_elem(&sizes, &zero);

	if (!s || !device_is_chosen(skb))
		return 0;
	if (filter.ports) {
		enum ports found = ports_of(skb, ports);

		if (found == PORTS_UNREAD)
			ts_add(&s->unread, 1);
		if (found != PORTS_READ || !port_is_chosen(ports))
			return 0;
	}
	add(before ? &s->before : &s->after, skb->len);
	return 0;
}

#define HANDED_OVER(tracepoint)                    \
	SEC("tp_btf/" #tracepoint)                 \
	int BPF_PROG(tracepoint, struct sk_buff *skb) \
	{                                          \
		return count(skb, 1);              \
	}

HANDED_OVER(napi_gro_receive_entry)
HANDED_OVER(napi_gro_frags_entry)
HANDED_OVER(netif_receive_skb_entry)
HANDED_OVER(netif_receive_skb_list_entry)
HANDED_OVER(netif_rx_entry)
/* Until Linux 5.18: commit 2655926aea9b ("net: Remove netif_rx_any_context() and netif_rx_ni().") removed the function. */
HANDED_OVER(netif_rx_ni_entry)

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(netif_receive_skb, struct sk_buff *skb)
{
	return count(skb, 0);
}
