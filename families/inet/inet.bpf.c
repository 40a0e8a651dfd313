// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observer of sockets: samples tcp_v4, tcp_v6, udp_v4 and udp_v6.
 *
 * Where it counts: at the cgroup ingress and egress hooks of the root cgroup. There a
 * packet passes once per socket that sends or receives it, whatever devices, bridges,
 * tunnels and namespaces it crosses, and before GSO has cut or after GRO has joined it.
 *
 * What it counts: packets as on the wire (a GSO/GRO packet counts its segments), and
 * bytes of payload: for TCP the same as TCP_INFO's segs_in + segs_out and
 * bytes_received + bytes_sent.
 *
 * Objects are in socket-local storage. One is made when the process makes the socket
 * (which tells whose it is), or copied from the listener's on accept, or else made with
 * the socket's first packet; it gets its id, and its place in a sample, with that packet.
 */
#include "count.bpf.h"
#include "made.bpf.h"

char LICENSE[] SEC("license") = "GPL";

SEC("cgroup_skb/ingress")
int inet_ingress(struct __sk_buff *skb)
{
	return inet_packet(skb, skb->sk, INET_RX);
}

SEC("cgroup_skb/egress")
int inet_egress(struct __sk_buff *skb)
{
	return inet_packet(skb, skb->sk, INET_TX);
}

#ifdef TOPSTAT_PLAIN
#include "untraced.bpf.h"
#else
#include "traced.bpf.h"
#endif
