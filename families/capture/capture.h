/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Payloads of system calls: shared by the eBPF program and the Rust side, which is generated from this file. */
#ifndef TOPSTAT_CAPTURE_H
#define TOPSTAT_CAPTURE_H

#include "observe/process.h"
#include "observe/stream.h"

/* Size of the table of system calls, by number: x86-64 and arm64 have less than 500. */
#define CAPTURE_NUMBERS 512
/* Processes that can be chosen by their pids. */
#define CAPTURE_PIDS 16

/* How a system call names its payload; its first argument is a descriptor. */
enum capture_way {
	CAPTURE_NOT, /* the call is not captured */
	CAPTURE_BUFFER, /* the second argument is its address */
	CAPTURE_VECTOR, /* the second argument is the address of an array of struct iovec */
	CAPTURE_MESSAGE, /* the second argument is the address of a struct msghdr */
};

struct capture_call {
	u8 way; /* enum capture_way */
	u8 name; /* the name's index among the names in user space */
	u8 out; /* the call sends or writes */
	u8 unused;
};

struct capture_constants {
	u32 v1_controller; /* enum process_v1 */
	u32 own; /* the process that reads the events: its own output would be captured, and written again */
	u32 snaplen; /* bytes of a payload to capture */
	u32 pids; /* number of pids; 0: all processes */
	u32 pid[CAPTURE_PIDS];
	u64 cgroup; /* the id of a control group of v2, which includes all groups below it; 0: all */
	u32 cgroup_level;
	u32 comm_bytes; /* of the name; 0: all names */
	char comm[PROCESS_COMM]; /* of the thread */
	struct capture_call calls[CAPTURE_NUMBERS];
};

struct capture_event {
	struct stream_record head;
	struct process_who who;
	u32 call; /* the name's index */
	u32 out;
	u32 fd;
	u32 unused;
	u64 bytes; /* bytes moved */
};

#endif /* TOPSTAT_CAPTURE_H */
