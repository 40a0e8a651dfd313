// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formats of Linux 6.18 as tracefs has them. Long lines are wrapped, and of long lists of names only some are kept.

pub const BLOCK_RQ_ISSUE: &str = r#"name: block_rq_issue
ID: 2104
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:dev_t dev;	offset:8;	size:4;	signed:0;
	field:sector_t sector;	offset:16;	size:8;	signed:0;
	field:unsigned int nr_sector;	offset:24;	size:4;	signed:0;
	field:unsigned int bytes;	offset:28;	size:4;	signed:0;
	field:unsigned short ioprio;	offset:32;	size:2;	signed:0;
	field:char rwbs[10];	offset:34;	size:10;	signed:0;
	field:char comm[16];	offset:44;	size:16;	signed:0;
	field:__data_loc char[] cmd;	offset:60;	size:4;	signed:0;

print fmt: "%d,%d %s %u (%s) %llu + %u %s,%u,%u [%s]", ((unsigned int) ((REC->dev) >> 20)), ((unsigned int)
  ((REC->dev) & ((1U << 20) - 1))), REC->rwbs, REC->bytes, __get_str(cmd), (unsigned long long)REC->sector,
  REC->nr_sector, __print_symbolic((((REC->ioprio) >> 13) & (8 - 1)), { IOPRIO_CLASS_NONE, "none" }, {
  IOPRIO_CLASS_RT, "rt" }, { IOPRIO_CLASS_BE, "be" }, { IOPRIO_CLASS_IDLE, "idle" }, { IOPRIO_CLASS_INVALID,
  "invalid"}), (((REC->ioprio) >> 3) & ((1 << 10) - 1)), ((REC->ioprio) & ((1 << 3) - 1)), REC->comm
"#;

pub const KFREE_SKB: &str = r#"name: kfree_skb
ID: 2310
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:void * skbaddr;	offset:8;	size:8;	signed:0;
	field:void * location;	offset:16;	size:8;	signed:0;
	field:void * rx_sk;	offset:24;	size:8;	signed:0;
	field:unsigned short protocol;	offset:32;	size:2;	signed:0;
	field:enum skb_drop_reason reason;	offset:36;	size:4;	signed:0;

print fmt: "skbaddr=%p rx_sk=%p protocol=%u location=%pS reason: %s", REC->skbaddr, REC->rx_sk, REC->protocol,
  REC->location, __print_symbolic(REC->reason, { 2, "NOT_SPECIFIED" }, { 3, "NO_SOCKET" }, { 4, "SOCKET_CLOSE" }, {
  128, "MAX" })
"#;

pub const SCHED_SWITCH: &str = r#"name: sched_switch
ID: 372
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:char prev_comm[16];	offset:8;	size:16;	signed:0;
	field:pid_t prev_pid;	offset:24;	size:4;	signed:1;
	field:int prev_prio;	offset:28;	size:4;	signed:1;
	field:long prev_state;	offset:32;	size:8;	signed:1;
	field:char next_comm[16];	offset:40;	size:16;	signed:0;
	field:pid_t next_pid;	offset:56;	size:4;	signed:1;
	field:int next_prio;	offset:60;	size:4;	signed:1;

print fmt: "prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==> next_comm=%s next_pid=%d next_prio=%d",
  REC->prev_comm, REC->prev_pid, REC->prev_prio, (REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002 |
  0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) - 1)) ? __print_flags(REC->prev_state &
  ((((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) <<
  1) - 1), "|", { 0x00000001, "S" }, { 0x00000002, "D" }, { 0x00000004, "T" }, { 0x00000008, "t" }, { 0x00000010, "X"
  }, { 0x00000020, "Z" }, { 0x00000040, "P" }, { 0x00000080, "I" }) : "R", REC->prev_state & (((0x00000000 |
  0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) ? "+" : "",
  REC->next_comm, REC->next_pid, REC->next_prio
"#;

pub const SYS_ENTER_OPENAT: &str = r#"name: sys_enter_openat
ID: 782
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:int __syscall_nr;	offset:8;	size:4;	signed:1;
	field:int dfd;	offset:16;	size:8;	signed:0;
	field:const char * filename;	offset:24;	size:8;	signed:0;
	field:int flags;	offset:32;	size:8;	signed:0;
	field:umode_t mode;	offset:40;	size:8;	signed:0;

print fmt: "dfd: 0x%08lx, filename: 0x%08lx, flags: 0x%08lx, mode: 0x%08lx", ((unsigned long)(REC->dfd)), ((unsigned
  long)(REC->filename)), ((unsigned long)(REC->flags)), ((unsigned long)(REC->mode))
"#;

pub const SYS_ENTER: &str = r#"name: sys_enter
ID: 443
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:long id;	offset:8;	size:8;	signed:1;
	field:unsigned long args[6];	offset:16;	size:48;	signed:0;

print fmt: "NR %ld (%lx, %lx, %lx, %lx, %lx, %lx)", REC->id, REC->args[0], REC->args[1], REC->args[2], REC->args[3],
  REC->args[4], REC->args[5]
"#;

pub const INET_SOCK_SET_STATE: &str = r#"name: inet_sock_set_state
ID: 2287
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:const void * skaddr;	offset:8;	size:8;	signed:0;
	field:int oldstate;	offset:16;	size:4;	signed:1;
	field:int newstate;	offset:20;	size:4;	signed:1;
	field:__u16 sport;	offset:24;	size:2;	signed:0;
	field:__u16 dport;	offset:26;	size:2;	signed:0;
	field:__u16 family;	offset:28;	size:2;	signed:0;
	field:__u16 protocol;	offset:30;	size:2;	signed:0;
	field:__u8 saddr[4];	offset:32;	size:4;	signed:0;
	field:__u8 daddr[4];	offset:36;	size:4;	signed:0;
	field:__u8 saddr_v6[16];	offset:40;	size:16;	signed:0;
	field:__u8 daddr_v6[16];	offset:56;	size:16;	signed:0;

print fmt: "family=%s protocol=%s sport=%hu dport=%hu saddr=%pI4 daddr=%pI4 saddrv6=%pI6c daddrv6=%pI6c oldstate=%s
  newstate=%s", __print_symbolic(REC->family, { 2, "AF_INET" }, { 10, "AF_INET6" }), __print_symbolic(REC->protocol,
  { 6, "IPPROTO_TCP" }, { 132, "IPPROTO_SCTP" }, { 262, "IPPROTO_MPTCP" }), REC->sport, REC->dport, REC->saddr,
  REC->daddr, REC->saddr_v6, REC->daddr_v6, __print_symbolic(REC->oldstate, { 1, "TCP_ESTABLISHED" }, { 2,
  "TCP_SYN_SENT" }, { 3, "TCP_SYN_RECV" }, { 4, "TCP_FIN_WAIT1" }, { 5, "TCP_FIN_WAIT2" }, { 6, "TCP_TIME_WAIT" }, {
  7, "TCP_CLOSE" }, { 8, "TCP_CLOSE_WAIT" }, { 9, "TCP_LAST_ACK" }, { 10, "TCP_LISTEN" }, { 11, "TCP_CLOSING" }, {
  12, "TCP_NEW_SYN_RECV" }), __print_symbolic(REC->newstate, { 1, "TCP_ESTABLISHED" }, { 2, "TCP_SYN_SENT" }, { 3,
  "TCP_SYN_RECV" }, { 4, "TCP_FIN_WAIT1" }, { 5, "TCP_FIN_WAIT2" }, { 6, "TCP_TIME_WAIT" }, { 7, "TCP_CLOSE" }, { 8,
  "TCP_CLOSE_WAIT" }, { 9, "TCP_LAST_ACK" }, { 10, "TCP_LISTEN" }, { 11, "TCP_CLOSING" }, { 12, "TCP_NEW_SYN_RECV" })
"#;

pub const SOFTIRQ_ENTRY: &str = r#"name: softirq_entry
ID: 223
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:unsigned int vec;	offset:8;	size:4;	signed:0;

print fmt: "vec=%u [action=%s]", REC->vec, __print_symbolic(REC->vec, { 0, "HI" }, { 1, "TIMER" }, { 2, "NET_TX" }, {
  3, "NET_RX" }, { 4, "BLOCK" }, { 5, "IRQ_POLL" }, { 6, "TASKLET" }, { 7, "SCHED" }, { 8, "HRTIMER" }, { 9, "RCU" })
"#;

pub const BR_MDB_FULL: &str = r#"name: br_mdb_full
ID: 2254
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:__data_loc char[] dev;	offset:8;	size:4;	signed:0;
	field:int af;	offset:12;	size:4;	signed:1;
	field:u16 vid;	offset:16;	size:2;	signed:0;
	field:__u8 src[16];	offset:18;	size:16;	signed:0;
	field:__u8 grp[16];	offset:34;	size:16;	signed:0;
	field:__u8 grpmac[6];	offset:50;	size:6;	signed:0;

print fmt: "dev %s af %u src %pI6c grp %pI6c/%pM vid %u", __get_str(dev), REC->af, REC->src, REC->grp, REC->grpmac,
  REC->vid
"#;

pub const KMALLOC: &str = r#"name: kmalloc
ID: 658
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:unsigned long call_site;	offset:8;	size:8;	signed:0;
	field:const void * ptr;	offset:16;	size:8;	signed:0;
	field:size_t bytes_req;	offset:24;	size:8;	signed:0;
	field:size_t bytes_alloc;	offset:32;	size:8;	signed:0;
	field:unsigned long gfp_flags;	offset:40;	size:8;	signed:0;
	field:int node;	offset:48;	size:4;	signed:1;

print fmt: "call_site=%pS ptr=%p bytes_req=%zu bytes_alloc=%zu gfp_flags=%s node=%d accounted=%s", (void
  *)REC->call_site, REC->ptr, REC->bytes_req, REC->bytes_alloc, (REC->gfp_flags) ? __print_flags(REC->gfp_flags, "|",
  {( unsigned long)(((((((( gfp_t)(((((1UL))) << (10))|((((1UL))) << (11)))) | (( gfp_t)((((1UL))) << (6))) | ((
  gfp_t)((((1UL))) << (7))) | (( gfp_t)((((1UL))) << (20)))) | (( gfp_t)((((1UL))) << (1)))) | (( gfp_t)((((1UL))) <<
  (3))) | (( gfp_t)0)) | (( gfp_t)((((1UL))) << (18))) | (( gfp_t)((((1UL))) << (19))) | (( gfp_t)((((1UL))) <<
  (13)))) & ~(( gfp_t)(((((1UL))) << (10))|((((1UL))) << (11))))) | (( gfp_t)((((1UL))) << (10)))), "GFP_TRANSHUGE"},
  {( unsigned long)((( gfp_t)((((1UL))) << (5)))|(( gfp_t)((((1UL))) << (11)))), "GFP_ATOMIC"}, {( unsigned long)(((
  gfp_t)(((((1UL))) << (10))|((((1UL))) << (11))))), "GFP_NOIO"}, {( unsigned long)((( gfp_t)((((1UL))) << (11))) |
  (( gfp_t)((((1UL))) << (13)))), "GFP_NOWAIT"}, {( unsigned long)(( gfp_t)((((1UL))) << (0))), "GFP_DMA"}, {(
  unsigned long)(( gfp_t)((((1UL))) << (2))), "GFP_DMA32"}, {( unsigned long)(( gfp_t)(((((1UL))) << (10))|((((1UL)))
  << (11)))), "__GFP_RECLAIM"}, {( unsigned long)(( gfp_t)((((1UL))) << (0))), "__GFP_DMA"}, {( unsigned long)((
  gfp_t)((((1UL))) << (1))), "__GFP_HIGHMEM"}, {( unsigned long)(( gfp_t)((((1UL))) << (2))), "__GFP_DMA32"}, {(
  unsigned long)(( gfp_t)((((1UL))) << (3))), "__GFP_MOVABLE"}, {( unsigned long)(( gfp_t)((((1UL))) << (4))),
  "__GFP_RECLAIMABLE"}, {( unsigned long)(( gfp_t)((((1UL))) << (5))), "__GFP_HIGH"}, {( unsigned long)((
  gfp_t)((((1UL))) << (6))), "__GFP_IO"}, {( unsigned long)(( gfp_t)((((1UL))) << (7))), "__GFP_FS"}, {( unsigned
  long)(( gfp_t)((((1UL))) << (8))), "__GFP_ZERO"}, {( unsigned long)(( gfp_t)((((1UL))) << (10))),
  "__GFP_DIRECT_RECLAIM"}, {( unsigned long)(( gfp_t)((((1UL))) << (11))), "__GFP_KSWAPD_RECLAIM"}, {( unsigned
  long)(( gfp_t)((((1UL))) << (12))), "__GFP_WRITE"}, {( unsigned long)(( gfp_t)((((1UL))) << (13))),
  "__GFP_NOWARN"}, {( unsigned long)(( gfp_t)((((1UL))) << (14))), "__GFP_RETRY_MAYFAIL"}, {( unsigned long)((
  gfp_t)((((1UL))) << (15))), "__GFP_NOFAIL"}, {( unsigned long)(( gfp_t)((((1UL))) << (16))), "__GFP_NORETRY"}, {(
  unsigned long)(( gfp_t)((((1UL))) << (17))), "__GFP_MEMALLOC"}, {( unsigned long)(( gfp_t)((((1UL))) << (18))),
  "__GFP_COMP"}, {( unsigned long)(( gfp_t)((((1UL))) << (19))), "__GFP_NOMEMALLOC"}, {( unsigned long)((
  gfp_t)((((1UL))) << (20))), "__GFP_HARDWALL"}, {( unsigned long)(( gfp_t)((((1UL))) << (21))), "__GFP_THISNODE"},
  {( unsigned long)(( gfp_t)((((1UL))) << (22))), "__GFP_ACCOUNT"}, {( unsigned long)(( gfp_t)((((1UL))) << (23))),
  "__GFP_ZEROTAGS"}, {( unsigned long)(( gfp_t)((((1UL))) << (24))), "__GFP_NO_OBJ_EXT"}, { 0, ((void *)0) } ) :
  "none", REC->node, (1 && (REC->gfp_flags & ( unsigned long)(( gfp_t)((((1UL))) << (22))))) ? "true" : "false"
"#;

pub const FIB_TABLE_LOOKUP: &str = r#"name: fib_table_lookup
ID: 2264
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:u32 tb_id;	offset:8;	size:4;	signed:0;
	field:int err;	offset:12;	size:4;	signed:1;
	field:int oif;	offset:16;	size:4;	signed:1;
	field:int iif;	offset:20;	size:4;	signed:1;
	field:u8 proto;	offset:24;	size:1;	signed:0;
	field:__u8 tos;	offset:25;	size:1;	signed:0;
	field:__u8 scope;	offset:26;	size:1;	signed:0;
	field:__u8 flags;	offset:27;	size:1;	signed:0;
	field:__u8 src[4];	offset:28;	size:4;	signed:0;
	field:__u8 dst[4];	offset:32;	size:4;	signed:0;
	field:__u8 gw4[4];	offset:36;	size:4;	signed:0;
	field:__u8 gw6[16];	offset:40;	size:16;	signed:0;
	field:u16 sport;	offset:56;	size:2;	signed:0;
	field:u16 dport;	offset:58;	size:2;	signed:0;
	field:char name[16];	offset:60;	size:16;	signed:0;

print fmt: "table %u oif %d iif %d proto %u %pI4/%u -> %pI4/%u tos %d scope %d flags %x ==> dev %s gw %pI4/%pI6c err
  %d", REC->tb_id, REC->oif, REC->iif, REC->proto, REC->src, REC->sport, REC->dst, REC->dport, REC->tos, REC->scope,
  REC->flags, REC->name, REC->gw4, REC->gw6, REC->err
"#;

pub const DMA_MAP_SG: &str = r#"name: dma_map_sg
ID: 431
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:__data_loc char[] device;	offset:8;	size:4;	signed:0;
	field:int full_nents;	offset:12;	size:4;	signed:1;
	field:int full_ents;	offset:16;	size:4;	signed:1;
	field:bool truncated;	offset:20;	size:1;	signed:0;
	field:__data_loc u64[] phys_addrs;	offset:24;	size:4;	signed:0;
	field:__data_loc u64[] dma_addrs;	offset:28;	size:4;	signed:0;
	field:__data_loc unsigned int[] lengths;	offset:32;	size:4;	signed:0;
	field:enum dma_data_direction dir;	offset:36;	size:4;	signed:0;
	field:unsigned long attrs;	offset:40;	size:8;	signed:0;

print fmt: "%s dir=%s nents=%d/%d ents=%d/%d%s dma_addrs=%s sizes=%s phys_addrs=%s attrs=%s", __get_str(device),
  __print_symbolic(REC->dir, { 0, "BIDIRECTIONAL" }, { 1, "TO_DEVICE" }, { 2, "FROM_DEVICE" }, { 3, "NONE" }), ({ int
  __UNIQUE_ID_x_921 = (REC->full_nents); int __UNIQUE_ID_y_922 = (128); ((__UNIQUE_ID_x_921) < (__UNIQUE_ID_y_922) ?
  (__UNIQUE_ID_x_921) : (__UNIQUE_ID_y_922)); }), REC->full_nents, ({ int __UNIQUE_ID_x_923 = (REC->full_ents); int
  __UNIQUE_ID_y_924 = (128); ((__UNIQUE_ID_x_923) < (__UNIQUE_ID_y_924) ? (__UNIQUE_ID_x_923) : (__UNIQUE_ID_y_924));
  }), REC->full_ents, REC->truncated ? " [TRUNCATED]" : "", __print_array(__get_dynamic_array(dma_addrs),
  __get_dynamic_array_len(dma_addrs) / sizeof(u64), sizeof(u64)), __print_array(__get_dynamic_array(lengths),
  __get_dynamic_array_len(lengths) / sizeof(unsigned int), sizeof(unsigned int)),
  __print_array(__get_dynamic_array(phys_addrs), __get_dynamic_array_len(phys_addrs) / sizeof(u64), sizeof(u64)),
  __print_flags(REC->attrs, "|", { (1UL << 1), "WEAK_ORDERING" }, { (1UL << 2), "WRITE_COMBINE" }, { (1UL << 4),
  "NO_KERNEL_MAPPING" }, { (1UL << 5), "SKIP_CPU_SYNC" }, { (1UL << 6), "FORCE_CONTIGUOUS" }, { (1UL << 7),
  "ALLOC_SINGLE_PAGES" }, { (1UL << 8), "NO_WARN" }, { (1UL << 9), "PRIVILEGED" }, { (1UL << 10), "MMIO" }, { (1UL <<
  11), "CACHE_CLEAN" })
"#;
