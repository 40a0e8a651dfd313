/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Events of processes: shared by the eBPF programs and the Rust side, which is generated. */
#ifndef TOPSTAT_PROCESSES_H
#define TOPSTAT_PROCESSES_H

#include "observe/process.h"
#include "observe/stream.h"

/* Of a record: what has happened. */
enum processes_kind {
	PROCESSES_FORK,
	PROCESSES_EXEC,
	PROCESSES_EXIT,
	PROCESSES_KINDS,
};

/* Of the arguments of a program that is executed so many bytes are kept. */
#define PROCESSES_ARGUMENT_BYTES 4096
/* Of the path of its file. */
#define PROCESSES_FILE_BYTES 256
/* Processes that have told of their end and still run towards it. Each CPU has few at a time; where it is full, an exit is
 * told at once, without what the last thread uses until it is off its CPU. */
#define PROCESSES_ENDING 16384

struct processes_constants {
	u32 v1_controller; /* enum process_v1 */
};

struct processes_fork {
	struct stream_record head;
	struct process_who who;
	u32 parent;
	u32 unused;
};

struct processes_exec {
	struct stream_record head;
	struct process_who who;
	u32 parent;
	u32 user; /* as which it runs, of the host's user namespace */
	char file[PROCESSES_FILE_BYTES];
};

/* All threads of the process together. */
struct processes_exit {
	struct stream_record head;
	struct process_who who;
	u32 parent;
	u32 code; /* of exit(2), 0 to 255 */
	u32 signal; /* that has ended it, or 0 */
	u32 dumped; /* its memory was dumped */
	u64 lived_ns;
	u64 cpu_ns;
	u64 user_ns;
	u64 system_ns;
	u64 minor_faults;
	u64 major_faults;
	u64 voluntary; /* switches */
	u64 involuntary;
	u64 peak_pages; /* that were in memory at the same time, at most */
};

#endif /* TOPSTAT_PROCESSES_H */
