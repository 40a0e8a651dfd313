/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Events of processes: shared by the eBPF programs and the Rust side, which is generated from this file. */
#ifndef TOPSTAT_PROCESSES_H
#define TOPSTAT_PROCESSES_H

#include "observe/process.h"
#include "observe/stream.h"

/* Kind of a record. */
enum processes_kind {
	PROCESSES_FORK,
	PROCESSES_EXEC,
	PROCESSES_EXIT,
	PROCESSES_KINDS,
};

/* Bytes that are kept of an executed program's arguments. */
#define PROCESSES_ARGUMENT_BYTES 4096
/* Bytes that are kept of its file's path. */
#define PROCESSES_FILE_BYTES 256
/* Processes whose exit is announced and whose last thread still runs. Each CPU has few at a time. If the map is full, an exit is
 * reported at once, without the time that the last thread uses until it is off its CPU. */
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
	u32 user; /* the user that runs it, of the host's user namespace */
	char file[PROCESSES_FILE_BYTES];
};

/* Of all threads of the process together. */
struct processes_exit {
	struct stream_record head;
	struct process_who who;
	u32 parent;
	u32 code; /* of exit(2), 0 to 255 */
	u32 signal; /* the signal that has ended the process, or 0 */
	u32 dumped; /* 1: the process's memory was dumped */
	u64 lived_ns;
	u64 cpu_ns;
	u64 user_ns;
	u64 system_ns;
	u64 minor_faults;
	u64 major_faults;
	u64 voluntary; /* switches */
	u64 involuntary;
	u64 peak_pages; /* resident pages, at most */
};

#endif /* TOPSTAT_PROCESSES_H */
