// SPDX-License-Identifier: GPL-2.0-only
/*
 * Payloads of system calls that read, write, send or receive, when they return. At that moment received data is in memory, and
 * the number of bytes moved is known. The registers still hold the arguments of the call.
 */
#include "observe/host.h"
#include "observe/process.bpf.h"
#include "observe/stream.bpf.h"
#include "families/capture/capture.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct capture_constants constants SEC(".rodata.constants") = { .snaplen = 256 };

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long di;
	unsigned long si;
	unsigned long orig_ax;
} CORE;
#define NUMBER(regs) ((regs)->orig_ax)
#define FIRST(regs) ((regs)->di)
#define SECOND(regs) ((regs)->si)

struct thread_info___compat {
	u32 status;
} CORE;
#define TS_COMPAT 0x0002
#define FOREIGN(info) (bpf_core_field_exists((info)->status) && (info)->status & TS_COMPAT)
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	unsigned long regs[31];
	unsigned long orig_x0;
	int syscallno;
} CORE;
#define NUMBER(regs) ((u32)(regs)->syscallno)
#define FIRST(regs) ((regs)->orig_x0)
#define SECOND(regs) ((regs)->regs[1])

struct thread_info___compat {
	unsigned long flags;
} CORE;
#define TIF_32BIT 22
#define FOREIGN(info) ((info)->flags >> TIF_32BIT & 1)
#elif defined(__TARGET_ARCH_s390)
struct pt_regs {
	unsigned long orig_gpr2;
	unsigned long gprs[16];
	u32 int_code;
} CORE;
#define NUMBER(regs) ((regs)->int_code & 0xffff)
#define FIRST(regs) ((regs)->orig_gpr2)
#define SECOND(regs) ((regs)->gprs[3])

struct thread_info___compat {
	unsigned long flags;
} CORE;
#define FOREIGN(info) ((void)(info), 0)
#endif

struct task_struct___compat {
	struct thread_info___compat thread_info;
} CORE;

/* A system call of 32 bits: its number means another system call. */
static __always_inline int capture_foreign(struct task_struct *task)
{
	struct task_struct___compat *t = (void *)task;

	return FOREIGN(&t->thread_info);
}

/* Structures that user space passes to the kernel. */
struct user_vector {
	u64 base;
	u64 bytes;
};

struct user_message {
	u64 name;
	u64 name_bytes;
	u64 vectors;
	u64 count;
};

static __always_inline int capture_wants(struct task_struct *task)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32, i;
	char comm[PROCESS_COMM] = {};

	if (pid == constants.own)
		return 0;
	if (constants.pids) {
		for (i = 0; i < CAPTURE_PIDS; i++)
			if (i < constants.pids && constants.pid[i] == pid)
				break;
		if (i == CAPTURE_PIDS)
			return 0;
	}
	if (constants.cgroup && bpf_get_current_ancestor_cgroup_id(constants.cgroup_level) != constants.cgroup)
		return 0;
	if (constants.comm_bytes) {
		bpf_get_current_comm(comm, sizeof(comm));
		for (i = 0; i < PROCESS_COMM; i++)
			if (comm[i] != constants.comm[i])
				return 0;
	}
	return 1;
}

/* Finds the beginning of the payload, and its bytes in one piece. Among several pieces, it is the first non-empty one of the
 * first four. */
static __always_inline u64 capture_payload(u32 way, u64 second, u64 moved, u64 *from)
{
	struct user_message message;
	struct user_vector vector;
	u32 i;

	*from = second;
	if (way == CAPTURE_BUFFER)
		return moved;
	if (way == CAPTURE_MESSAGE) {
		if (bpf_probe_read_user(&message, sizeof(message), (const void *)second))
			return 0;
		second = message.vectors;
	}
	for (i = 0; i < 4; i++) {
		if (bpf_probe_read_user(&vector, sizeof(vector), (const void *)(second + i * sizeof(vector))))
			return 0;
		if (vector.bytes) {
			*from = vector.base;
			return vector.bytes < moved ? vector.bytes : moved;
		}
	}
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(capture_exit, struct pt_regs *regs, long result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const volatile struct capture_call *call;
	u64 number = NUMBER(regs), from = 0, here;
	struct capture_event *e;
	struct stream s;
	u32 way;

	if (result <= 0 || number >= CAPTURE_NUMBERS)
		return 0;
	barrier_var(number);
	if (number >= CAPTURE_NUMBERS)
		return 0;
	call = &constants.calls[number];
	way = call->way;
	if (way == CAPTURE_NOT || capture_foreign(task) || !capture_wants(task))
		return 0;
	if (!stream_begin(&s))
		return 0;
	here = capture_payload(way, SECOND(regs), result, &from);
	e = stream_take(&s, sizeof(*e), constants.snaplen, here, (const void *)from);
	if (!e)
		return 0;
	s.whole = result > ~0U ? ~0U : result;
	process_describe(&e->who, task, 1, constants.v1_controller);
	e->call = call->name;
	e->out = call->out;
	e->fd = FIRST(regs);
	e->unused = 0;
	e->bytes = result;
	stream_submit(&s, &e->head, 0);
	return 0;
}
