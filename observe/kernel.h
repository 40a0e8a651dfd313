/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fields of the kernel's types that observers use. In a kernel module the types are the kernel's own. In eBPF, offsets are
 * relocated to the running kernel's when a program is loaded (CO-RE), so only names and types count. In tests in user space the
 * types are defined here.
 */
#ifndef TOPSTAT_KERNEL_H
#define TOPSTAT_KERNEL_H

#if defined(__KERNEL__)

#include <linux/cgroup.h>
#include <linux/delayacct.h>
#include <linux/kernfs.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#else

#if defined(__bpf__)

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false = 0, true = 1 };

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_endian.h>

/* BPF_MAP_TYPE_CGRP_STORAGE: the system's <linux/bpf.h> may be older (6.2) than the kernel that this runs on. */
#define MAP_TYPE_CGRP_STORAGE 32

#define CORE __attribute__((preserve_access_index))

#else

#include "topstat/platform.h"

typedef u16 __u16;
typedef u16 __be16;
typedef u32 __be32;
#define CORE

#endif

struct ns_common {
	unsigned int inum;
} CORE;

struct net {
	struct ns_common ns;
} CORE;

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
} CORE;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	unsigned long skc_flags;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} CORE;

struct qspinlock {
	struct {
		int counter;
	} val;
} CORE;

struct raw_spinlock {
	struct qspinlock raw_lock;
} CORE;

struct spinlock {
	struct raw_spinlock rlock;
} CORE;

typedef struct {
	struct spinlock slock;
	int owned;
} socket_lock_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} CORE;

struct dst_entry {
	struct net_device *dev;
	void *xfrm; /* with CONFIG_XFRM: the transformation that a packet goes through on its way */
} CORE;

struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	u16 sk_type;
	u16 sk_protocol;
} CORE;

struct socket {
	struct sock *sk;
} CORE;

struct file;

struct sk_buff {
	struct sock *sk;
	struct net_device *dev;
	u64 tstamp; /* when it arrived, on CLOCK_REALTIME in ns, if timestamps are requested */
	unsigned int len;
	unsigned int data_len; /* the part of `len` that is not at `data` but elsewhere */
	__be16 protocol;
	u16 transport_header; /* from `head` on */
	u16 network_header;
	unsigned int end; /* the place of its struct skb_shared_info, from `head` on */
	unsigned char *head;
	unsigned char *data;
} CORE;

struct skb_shared_info {
	unsigned short gso_segs; /* packets on the wire, if it is segmented or was merged; otherwise 0 */
} CORE;

struct inet_sock {
	struct sock sk;
	__be16 inet_sport;
} CORE;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	struct {
		u32 lrcvtime; /* jiffies: of the last data that was in order */
	} icsk_ack;
} CORE;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 segs_in;
	u32 segs_out;
	u64 bytes_received;
	u64 bytes_sent;
	u32 total_retrans;
	u32 rcv_tstamp; /* jiffies: of the last acknowledgement */
	u32 lsndtime; /* jiffies: of the last data sent */
} CORE;

struct kernfs_node {
	u64 id;
} CORE;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	unsigned int flags;
} CORE;

struct cgroup_root {
	unsigned int subsys_mask;
	int hierarchy_id; /* 0: of version 2 */
} CORE;

struct cgroup {
	struct cgroup_subsys_state self;
	int level; /* the root's is 0 */
	struct kernfs_node *kn;
	struct cgroup_root *root;
	struct cgroup *ancestors[]; /* by level, up to itself */
} CORE;

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
} CORE;

enum cgroup_subsys_id {
	cpu_cgrp_id,
	memory_cgrp_id,
	pids_cgrp_id,
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
} CORE;

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_arrival;
} CORE;

struct sighand_struct;

struct rq {
	struct task_struct *curr;
	u64 clock;
	u64 prev_steal_time_rq;
	int cpu;
	int online;
} CORE;

struct cfs_rq {
	struct rq *rq;
} CORE;

/* Bits of skc_flags. The running kernel defines their numbers. */
enum sock_flags {
	SOCK_DONE = 1, /* a FIN was received */
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
} CORE;

/* The time that a task has waited, in ns, and the number of waits, by cause; NULL in a task that was made while delay accounting
 * was off. A count grows with its sum. */
struct task_delay_info {
	u64 blkio_delay;
	u64 swapin_delay;
	u64 freepages_delay;
	u64 thrashing_delay;
	u64 compact_delay;
	u64 wpcopy_delay;
	u32 blkio_count;
	u32 swapin_count;
	u32 freepages_count;
	u32 thrashing_count;
	u32 compact_count;
	u32 wpcopy_count;
} CORE;

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	char comm[16];
	u64 utime;
	u64 stime;
	u64 gtime;
	unsigned long nvcsw;
	unsigned long nivcsw;
	u64 start_boottime;
	struct sched_entity se;
	struct sched_info sched_info;
	struct signal_struct *signal;
	struct sighand_struct *sighand;
	struct css_set *cgroups;
	struct task_delay_info *delays;
} CORE;


struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id; /* of the open iterator; from 1 */
	u64 seq_num;
} CORE;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} CORE;

struct bpf_iter__cgroup {
	struct bpf_iter_meta *meta;
	struct cgroup *cgroup;
} CORE;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
} CORE;

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} CORE;

struct udp_sock {
	struct inet_sock inet;
} CORE;

struct bpf_iter__udp {
	struct bpf_iter_meta *meta;
	struct udp_sock *udp_sk;
} CORE;

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	void *key;
	void *value;
} CORE;

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
} CORE;

#define AF_INET 2
#define PF_KTHREAD 0x00200000
/* A bit of a task's state at its last switch. */
#define TASK_DEAD 0x80
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_SYN_RECV 3
#define TCP_FIN_WAIT1 4
#define TCP_FIN_WAIT2 5
#define TCP_TIME_WAIT 6
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_LAST_ACK 9
#define TCP_LISTEN 10
#define TCP_CLOSING 11
/* A bit of a cgroup's own state: set until the cgroup is removed. */
#define CSS_ONLINE 2
#define EAGAIN 11
#define ENOENT 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define SOCK_RAW 3

#endif

#endif /* TOPSTAT_KERNEL_H */
