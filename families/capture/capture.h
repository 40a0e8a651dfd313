/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Payloads of system calls: shared by the eBPF program and the Rust side, which is generated. */
#ifndef TOPSTAT_CAPTURE_H
#define TOPSTAT_CAPTURE_H

#include "observe/process.h"
#include "observe/stream.h"

/* Numbers of system calls that are known to be of one of these kinds: x86-64 and arm64 have less than 500. */
#define CAPTURE_NUMBERS 512
/* Processes that can be chosen by their pids. */
#define CAPTURE_PIDS 16

/* How a system call names its payload; its first argument is a descriptor. */
enum capture_way {
	CAPTURE_NOT, /* it is not wanted */
	CAPTURE_BUFFER, /* the second argument is its address */
	CAPTURE_VECTOR, /* the second argument is the address of an array of struct iovec */
	CAPTURE_MESSAGE, /* the second argument is the address of a struct msghdr */
};

struct capture_call {
	u8 way; /* enum capture_way */
	u8 name; /* its place among the names that user space has */
	u8 out; /* it sends or writes */
	u8 unused;
};

struct capture_constants {
	u32 v1_controller; /* enum process_v1 */
	u32 own; /* the process that reads: what it writes would be captured, and written */
	u32 snaplen; /* bytes of a payload that are wanted */
	u32 pids; /* how many pids there are; 0: of all processes */
	u32 pid[CAPTURE_PIDS];
	u64 cgroup; /* the id of a control group of v2, and all below it; 0: of all */
	u32 cgroup_level;
	u32 comm_bytes; /* of the name; 0: of all */
	char comm[PROCESS_COMM]; /* of the thread */
	struct capture_call calls[CAPTURE_NUMBERS];
};

struct capture_event {
	struct stream_record head;
	struct process_who who;
	u32 call; /* its place among the names */
	u32 out;
	u32 fd;
	u32 unused;
	u64 bytes; /* that were moved */
};

#endif /* TOPSTAT_CAPTURE_H */
