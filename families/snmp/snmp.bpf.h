/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the programs that read SNMP counters: the kernel's types, the programs' maps, and checks that a holder still exists.
 */
#ifndef TOPSTAT_SNMP_BPF_H
#define TOPSTAT_SNMP_BPF_H

#include "observe/kernel.h"
#include <topstat/platform.h>
#include "snmp.h"

struct list_head {
	struct list_head *next, *prev;
} CORE;

struct net_device___snmp {
	void *netdev_ops;
	struct list_head dev_list;
	possible_net_t nd_net;
	struct inet6_dev *ip6_ptr;
	char name[SNMP_NAME];
	int ifindex;
} CORE;

struct netns_mib {
	void *tcp_statistics;
} CORE;

struct net___snmp {
	struct list_head list;
	struct list_head dev_base_head;
	struct net_device___snmp *loopback_dev;
	struct netns_mib mib;
	struct ns_common ns;
	u64 net_cookie;
} CORE;

/* Before Linux 5.12 a namespace had a cookie only after a first request for it. */
typedef struct {
	s64 counter;
} atomic64_t;

struct ipv6_devstat {
	void *ipv6;
} CORE;

struct inet6_dev {
	struct ipv6_devstat stats;
} CORE;

struct nsproxy {
	struct net___snmp *net_ns;
} CORE;

struct task_struct___snmp {
	struct nsproxy *nsproxy;
} CORE;

/* A map with a value for each CPU; `pptrs`: the addresses of its values before a CPU is chosen. */
struct bpf_array {
	void *pptrs[0];
} CORE;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} anywhere SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct snmp_cursor);
} cursors SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct snmp_plan);
} plans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SNMP_HOLDERS);
	__type(key, u32);
	__type(value, struct snmp_holder);
} holders SEC(".maps");

/* By place among the possible CPUs, which may differ from the CPU's number: the distance from an address of per-CPU data, before
 * a CPU is chosen, to the CPU's data. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SNMP_CPUS);
	__type(key, u32);
	__type(value, u64);
} offsets SEC(".maps");

/* The verifier takes an array to be as large as its mask allows: the section has that much space behind its used part. */
#define MASK_BYTES (2 * SNMP_BLOCK_BYTES - 1)

struct section {
	u8 byte[SNMP_SECTION_BYTES + MASK_BYTES + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct section);
} sections SEC(".maps");

#define ONLY(map) ({ u32 _zero = 0; bpf_map_lookup_elem(&(map), &_zero); })
#define READ(to, from) bpf_probe_read_kernel(to, sizeof(*(to)), (const void *)(from))
/* The address of a field in a structure whose address is a number. */
#define FIELD(type, at, field) ((at) + bpf_core_field_offset(type, field))

/*
 * In a deleted list element, the pointer to the previous element is LIST_POISON2, which is no multiple of 8; all elements'
 * addresses are multiples of 8. If the element is not deleted yet, or is deleted only during this run, its arrays are not freed
 * within this run.
 */
static __always_inline int snmp_is_listed(struct snmp_cursor *c, u64 element)
{
	return !READ(&c->previous, element + bpf_core_field_offset(struct list_head, prev)) && !(c->previous & 7);
}

/* Whether this is a namespace, and not the head of the list of namespaces: its loopback device is in it. */
static __always_inline int snmp_is_net(struct snmp_cursor *c, u64 net)
{
	if (READ(&c->loopback, FIELD(struct net___snmp, net, loopback_dev)) || !c->loopback)
		return 0;
	return !READ(&c->back, FIELD(struct net_device___snmp, c->loopback, nd_net)) && c->back == net;
}

#endif /* TOPSTAT_SNMP_BPF_H */
