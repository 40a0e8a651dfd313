// SPDX-License-Identifier: GPL-2.0-only
/* The observer of disks: samples disk_procs and disk_cgroups. */
#include "logic.h"
#include "observe/gate.bpf.h"
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

struct bio {
	struct blkcg_gq *bi_blkg;
} CORE;

struct request {
	struct request_queue *q;
	void *part; /* NULL: the kernel does not account for it */
	u32 cmd_flags;
	u32 __data_len;
	struct bio *bio;
	u64 start_time_ns;
} CORE;

/* Of cmd_flags, as in the kernel's enum req_op. */
#define REQ_OP_MASK 255
#define REQ_OP_READ 0
#define REQ_OP_WRITE 1
#define REQ_OP_ZONE_APPEND 7

static __always_inline u32 disks_part(struct request *rq)
{
	u32 op = rq->cmd_flags & REQ_OP_MASK;

	if (!rq->part)
		return DISKS_PARTS;
	if (op == REQ_OP_READ)
		return DISKS_READ;
	return op == REQ_OP_WRITE || op == REQ_OP_ZONE_APPEND ? DISKS_WRITE : DISKS_PARTS;
}

/* Whose data it is: that of the control group which made the page dirty, where the kernel knows (v2), and else of the
 * process. Written back by the kernel, it is a kernel thread's. Below a group without the controller io the kernel knows
 * that group alone; where it is the root, that says nothing of the process. */
static __always_inline u64 disks_group(struct process_who *who, struct request *rq)
{
	struct cgroup *cgroup = BPF_CORE_READ(rq, bio, bi_blkg, blkcg, css.cgroup);
	u64 id = BPF_CORE_READ(cgroup, kn, id);

	if (id && id != PROCESS_GROUP_ROOT && !BPF_CORE_READ(cgroup, root, hierarchy_id))
		who->cgroup = id;
	return who->cgroup;
}

static __always_inline int disks_made(struct request *rq)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gendisk *disk = rq->q->disk;
	u64 request = host_address(rq), group;
	struct disks_who who = {};

	if (disks_part(rq) >= DISKS_PARTS || !disk || disks_knows(request, rq->start_time_ns) ||
	    (!disks_is_on(DISKS_PROCS) && !disks_is_on(DISKS_CGROUPS)))
		return 0;
	process_describe(&who.process, task, 0, constants.v1_controller);
	BPF_CORE_READ_INTO(&who.device, disk, disk_name);
	group = disks_group(&who.process, rq);
	disks_begin(request, rq->start_time_ns, (u64)disk->major << 32 | disk->first_minor,
		    process_id(task->group_leader), group, &who);
	return 0;
}

/* To a queue, by whom it is made for; a thread of the kernel issues it later. */
TS_GATE("tp_btf/block_rq_insert", disks_insert)

SEC("tp_btf/block_rq_insert")
int BPF_PROG(disks_insert, struct request *rq)
{
	return disks_made(rq);
}

TS_GATE("tp_btf/block_rq_issue", disks_issue)

SEC("tp_btf/block_rq_issue")
int BPF_PROG(disks_issue, struct request *rq)
{
	return disks_made(rq);
}

TS_GATE("tp_btf/block_rq_complete", disks_complete)

SEC("tp_btf/block_rq_complete")
int BPF_PROG(disks_complete, struct request *rq, int error, u32 bytes)
{
	u32 part = disks_part(rq);

	if (part < DISKS_PARTS)
		disks_done(host_address(rq), rq->start_time_ns, part, bytes, bytes >= rq->__data_len);
	return 0;
}
