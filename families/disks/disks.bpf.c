// SPDX-License-Identifier: GPL-2.0-only
/* The observer of disks: samples disk_procs and disk_cgroups. */
#include "logic.h"
#include "observe/gate.bpf.h"
#include "observe/owners.bpf.h"
#include "observe/process.bpf.h"

char LICENSE[] SEC("license") = "GPL";

struct gendisk {
	int major;
	int first_minor;
	char disk_name[DISKS_NAME];
} CORE;

struct request_queue {
	struct gendisk *disk;
} CORE;

struct blkcg {
	struct cgroup_subsys_state css;
} CORE;

struct blkcg_gq {
	struct blkcg *blkcg;
} CORE;

struct bvec_iter {
	u32 bi_size;
} CORE;

struct block_device {
	struct gendisk *bd_disk;
} CORE;

struct bio {
	struct block_device *bi_bdev;
	u32 bi_opf;
	struct bvec_iter bi_iter;
	struct blkcg_gq *bi_blkg;
} CORE;

struct request {
	struct request_queue *q;
	void *part; /* NULL: the kernel does not account for the request */
	u32 cmd_flags;
	u32 rq_flags;
	u32 __data_len;
	struct bio *biotail;
	u64 start_time_ns;
} CORE;

/* Operations in cmd_flags, as in the kernel's enum req_op. */
#define REQ_OP_MASK 255
enum disks_op {
	REQ_OP_READ = 0,
	REQ_OP_WRITE = 1,
	REQ_OP_FLUSH = 2,
	REQ_OP_DISCARD = 3,
	REQ_OP_SECURE_ERASE = 5,
	REQ_OP_ZONE_APPEND = 7,
	REQ_OP_WRITE_ZEROES = 9,
};

enum req_flag_bits {
	__REQ_FUA = 17,
	__REQ_PREFLUSH = 18,
};

enum rqf_flags {
	__RQF_FLUSH_SEQ = 1,
};

/*
 * Whether a flush precedes the data. When the kernel begins with the flush, it clears the flag in the request, but not in the
 * bio.
 */
static __always_inline u32 disks_flushes_first(struct bio *bio)
{
	return bio->bi_opf & 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_PREFLUSH);
}

/* Whether a flush precedes the data, or the data have to be on the disk at the end of the request: a flush may follow them. */
static __always_inline u32 disks_flushes(struct bio *bio)
{
	return disks_flushes_first(bio) || bio->bi_opf & 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_FUA);
}

/*
 * Whether the request is within a sequence of a flush, its data and another flush. The kernel then completes the data, and
 * completes the request at the end of the sequence. The bit was a macro until 6.11, 5f89154e8e9e ("block: Use enum to define
 * RQF_x bit indexes").
 */
static __always_inline u32 disks_is_amid(struct request *rq)
{
	u32 bit = 4;

	if (bpf_core_enum_value_exists(enum rqf_flags, __RQF_FLUSH_SEQ))
		bit = bpf_core_enum_value(enum rqf_flags, __RQF_FLUSH_SEQ);
	return rq->rq_flags & 1U << bit;
}

/* The enum disks_kind. /proc/diskstats counts the same writes, and includes flushes. */
static __always_inline u32 disks_kind(u32 flags, struct bio *bio, u32 bytes)
{
	switch (flags & REQ_OP_MASK) {
	case REQ_OP_READ:
		return DISKS_IS_READ;
	case REQ_OP_WRITE:
	case REQ_OP_ZONE_APPEND:
	case REQ_OP_WRITE_ZEROES:
		return !bytes && disks_flushes_first(bio) ? DISKS_IS_FLUSH : DISKS_IS_WRITE;
	case REQ_OP_FLUSH:
		return DISKS_IS_FLUSH;
	case REQ_OP_DISCARD:
	case REQ_OP_SECURE_ERASE:
		return DISKS_IS_DISCARD;
	default:
		return DISKS_KINDS;
	}
}

static __always_inline u32 disks_kind_of(struct request *rq)
{
	return disks_kind(rq->cmd_flags, rq->biotail, rq->__data_len);
}

/*
 * The owner of the data: the control group that made the page dirty, where the kernel knows it (v2), otherwise the process. If
 * the kernel writes the page back, the process is a kernel thread. Below a group without the controller io the kernel knows that
 * group alone; if that group is the root, it says nothing about the process.
 */
static __always_inline u64 disks_group(struct process_who *who, struct bio *bio)
{
	struct cgroup *cgroup = BPF_CORE_READ(bio, bi_blkg, blkcg, css.cgroup);
	u64 id = BPF_CORE_READ(cgroup, kn, id);

	if (id && id != PROCESS_GROUP_ROOT && !BPF_CORE_READ(cgroup, root, hierarchy_id))
		who->cgroup = id;
	return who->cgroup;
}

static __always_inline int disks_made(u64 key, u32 kind, struct gendisk *disk, struct bio *bio)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct disks_who who = {};
	u64 group;

	if (kind >= DISKS_KINDS || !disk || (!disks_is_on(DISKS_PROCS) && !disks_is_on(DISKS_CGROUPS)))
		return 0;
	process_describe(&who.process, task, 0, constants.v1_controller);
	BPF_CORE_READ_INTO(&who.device, disk, disk_name);
	group = disks_group(&who.process, bio);
	disks_begin(key, (u64)disk->major << 32 | disk->first_minor, process_id(task->group_leader), group, kind, &who);
	return 0;
}

/* The beginning of each request, once, in the process that it is made for: Linux 6.5. */
TS_GATE("tp_btf/block_io_start", disks_start)

SEC("tp_btf/block_io_start")
int BPF_PROG(disks_start, struct request *rq)
{
	return disks_made(host_address(rq), disks_kind_of(rq), rq->q->disk, rq->biotail);
}

/*
 * Without block_io_start: a kernel thread may handle a request with a flush before or after its data, but the process makes its bio
 * before. The request is known by this bio, which stays its only one, for such a request is never joined with another one.
 */
TS_GATE("tp_btf/block_getrq", disks_bio)

SEC("tp_btf/block_getrq")
int BPF_PROG(disks_bio, struct bio *bio)
{
	if (!disks_flushes(bio))
		return 0;
	return disks_made(host_address(bio), disks_kind(bio->bi_opf, bio, bio->bi_iter.bi_size), bio->bi_bdev->bd_disk, bio);
}

/* Other requests go to a queue, from which a kernel thread issues them later; or they are issued at once. */
static __always_inline int disks_moved(struct request *rq)
{
	u64 start_ns = rq->start_time_ns;

	if (!rq->part || disks_knows(host_address(rq), start_ns) || disks_knows(host_address(rq->biotail), start_ns))
		return 0;
	return disks_made(host_address(rq), disks_kind_of(rq), rq->q->disk, rq->biotail);
}

TS_GATE("tp_btf/block_rq_insert", disks_insert)

SEC("tp_btf/block_rq_insert")
int BPF_PROG(disks_insert, struct request *rq)
{
	return disks_moved(rq);
}

TS_GATE("tp_btf/block_rq_issue", disks_issue)

SEC("tp_btf/block_rq_issue")
int BPF_PROG(disks_issue, struct request *rq)
{
	return disks_moved(rq);
}

/* The request's data move to the request before it. */
TS_GATE("tp_btf/block_rq_merge", disks_merge)

SEC("tp_btf/block_rq_merge")
int BPF_PROG(disks_merge, struct request *rq)
{
	disks_gone(host_address(rq), 0);
	return 0;
}

TS_GATE("tp_btf/block_rq_complete", disks_complete)

SEC("tp_btf/block_rq_complete")
int BPF_PROG(disks_complete, struct request *rq, int error, u32 bytes)
{
	u32 kind = disks_kind_of(rq), whole = bytes >= rq->__data_len && !disks_is_amid(rq);
	u64 request = host_address(rq), bio = host_address(rq->biotail);

	if (kind >= DISKS_KINDS)
		return 0;
	if (rq->part)
		disks_done(request, bio, rq->start_time_ns, kind, bytes, whole);
	else if (whole) /* the kernel does not account for the request either */
		disks_gone(request, bio);
	return 0;
}

struct disks_ending {
	u64 id;
	u32 sample;
};

static int disks_close_on(u32 i, void *context)
{
	struct disks_ending *ending = context;

	return !disks_close(ending->sample, ending->id, i);
}

static __always_inline void disks_owner_ended(u32 sample, u64 id)
{
	struct disks_ending ending = { .id = id, .sample = sample };

	bpf_loop(DISKS_DEVICES, disks_close_on, &ending, 0);
}

KEYED_OWNERS(disks, disks_owner_ended, DISKS_PROCS, DISKS_CGROUPS)

/* For completions that disks_complete has missed: the kernel does not run it when it interrupts itself. */
TS_GATE("tp_btf/block_io_done", disks_end)

SEC("tp_btf/block_io_done")
int BPF_PROG(disks_end, struct request *rq)
{
	u32 kind = disks_kind_of(rq);

	if (kind < DISKS_KINDS && !disks_is_amid(rq))
		disks_ended(host_address(rq), rq->start_time_ns, kind);
	return 0;
}
