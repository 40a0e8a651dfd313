// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cost of a push compared with other ways to count a packet, on the same sockets. Every program looks up the next of many
 * sockets, counts a packet in one way, and releases the socket. The first program does not count; its cost is subtracted from the
 * others'.
 *
 * Run by BPF_PROG_TEST_RUN, never attached. It uses the observer's maps, and separate maps for the other ways.
 */
#include "packet.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define BENCH_PORTS 16384 /* sockets to an address: ports 16384 … */
#define BENCH_FLOWS_MAX 131072

struct inet_bench bench SEC(".data.bench");

struct bench_count {
	u64 packets;
	u64 bytes;
	u64 total;
};

/* Counting alone, without ranking. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct bench_count);
} bench_counts SEC(".maps");

/*
 * One hash map, keyed by the tuple: an IPv4 tuple, a tuple for both families as in tcptop, and the latter with the process as in
 * tcptop.
 */
struct bench_tuple4 {
	u32 saddr, daddr;
	u16 sport, dport;
};

struct bench_tuple {
	u32 saddr[4], daddr[4];
	u16 sport, dport, family, pad;
};

struct bench_tcptop {
	u32 saddr[4], daddr[4];
	u32 pid;
	char name[16];
	u16 sport, dport, family, pad;
};

#define BENCH_HASH(map_name, key_type)                                 \
	struct {                                                       \
		__uint(type, BPF_MAP_TYPE_HASH);                       \
		__uint(max_entries, BENCH_FLOWS_MAX);                  \
		__type(key, key_type);                                 \
		__type(value, struct bench_count);                     \
	} map_name SEC(".maps")

BENCH_HASH(bench_hash4, struct bench_tuple4);
BENCH_HASH(bench_hash, struct bench_tuple);
BENCH_HASH(bench_hash_tcptop, struct bench_tcptop);

/* The next flow's socket, in an order that caches can't foresee. */
static __always_inline struct bpf_sock *bench_next(struct __sk_buff *skb)
{
	struct bpf_sock_tuple tuple = {};
	u32 flow;

	bench.next = (bench.next * 1664525 + 1013904223);
	flow = ((u64)bench.next * bench.flows) >> 32;
	tuple.ipv4.saddr = bpf_htonl(0x7f000001);
	tuple.ipv4.sport = bpf_htons(9);
	tuple.ipv4.daddr = bpf_htonl(0x7f100001 + (flow / BENCH_PORTS << 8));
	tuple.ipv4.dport = bpf_htons(BENCH_PORTS + flow % BENCH_PORTS);
	return bpf_sk_lookup_udp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
}

static __always_inline u32 bench_packets(struct __sk_buff *skb)
{
	return packet_segments(skb);
}

static __always_inline void bench_add(struct bench_count *c, struct __sk_buff *skb)
{
	u32 bytes = inet_payload(skb, INET_UDP_V4, INET_RX);

	__sync_fetch_and_add(&c->packets, bench_packets(skb));
	__sync_fetch_and_add(&c->bytes, bytes);
}

#define BENCH(name, body)                                              \
	SEC("cgroup_skb/egress")                                       \
	int name(struct __sk_buff *skb)                                \
	{                                                              \
		struct bpf_sock *sk = bench_next(skb);                 \
                                                                       \
		if (!sk) {                                             \
			bench.not_found++;                             \
			return 1;                                      \
		}                                                      \
		body;                                                  \
		bpf_sk_release(sk);                                    \
		return 1;                                              \
	}

static __always_inline void bench_storage_one(struct __sk_buff *skb, struct bpf_sock *sk)
{
	struct bench_count *c = bpf_sk_storage_get(&bench_counts, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (c)
		__sync_fetch_and_add(&c->packets, bench_packets(skb));
}

static __always_inline void bench_storage(struct __sk_buff *skb, struct bpf_sock *sk)
{
	struct bench_count *c = bpf_sk_storage_get(&bench_counts, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (c)
		bench_add(c, skb);
}

/* The usual form, with a helper that checks for a full socket. */
static __always_inline void bench_fullsock_one(struct __sk_buff *skb, struct bpf_sock *sk)
{
	struct bpf_sock *full = bpf_sk_fullsock(sk);

	if (full)
		bench_storage_one(skb, full);
}

static __always_inline void bench_fullsock(struct __sk_buff *skb, struct bpf_sock *sk)
{
	struct bpf_sock *full = bpf_sk_fullsock(sk);

	if (full)
		bench_storage(skb, full);
}

#define BENCH_COUNT_IN(map, key)                                       \
	do {                                                           \
		struct bench_count *c = bpf_map_lookup_elem(&map, &key), zero = {}; \
                                                                       \
		if (!c) {                                              \
			bpf_map_update_elem(&map, &key, &zero, BPF_NOEXIST); \
			c = bpf_map_lookup_elem(&map, &key);           \
		}                                                      \
		if (c)                                                 \
			bench_add(c, skb);                             \
	} while (0)

static __always_inline void bench_in_hash4(struct __sk_buff *skb, struct bpf_sock *sk)
{
	struct bench_tuple4 key = { sk->src_ip4, sk->dst_ip4, sk->src_port, sk->dst_port };

	BENCH_COUNT_IN(bench_hash4, key);
}

static __always_inline void bench_in_hash(struct __sk_buff *skb, struct bpf_sock *sk)
{
	struct bench_tuple key = {};

	key.family = sk->family;
	key.saddr[0] = sk->src_ip4;
	key.daddr[0] = sk->dst_ip4;
	key.sport = sk->src_port;
	key.dport = sk->dst_port;
	BENCH_COUNT_IN(bench_hash, key);
}

static __always_inline void bench_in_hash_tcptop(struct __sk_buff *skb, struct bpf_sock *sk)
{
	struct bench_tcptop key = {};

	key.pid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(key.name, sizeof(key.name));
	key.family = sk->family;
	key.saddr[0] = sk->src_ip4;
	key.daddr[0] = sk->dst_ip4;
	key.sport = sk->src_port;
	key.dport = sk->dst_port;
	BENCH_COUNT_IN(bench_hash_tcptop, key);
}

BENCH(bench_empty, )
BENCH(bench_count_one, bench_storage_one(skb, sk))
BENCH(bench_count_one_fullsock, bench_fullsock_one(skb, sk))
BENCH(bench_count, bench_storage(skb, sk))
BENCH(bench_count_fullsock, bench_fullsock(skb, sk))
BENCH(bench_tuple4, bench_in_hash4(skb, sk))
BENCH(bench_tuple, bench_in_hash(skb, sk))
BENCH(bench_tcptop, bench_in_hash_tcptop(skb, sk))
BENCH(bench_topstat, inet_packet(skb, sk, INET_RX))
