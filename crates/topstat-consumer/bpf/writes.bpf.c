// SPDX-License-Identifier: GPL-2.0-only
/*
 * A source for tests and benches, as large as the largest real one: it captures the data that one thread writes to one file
 * descriptor, with its payload. The writer of the load knows the number of events.
 */
#include "observe/stream.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long di;
	unsigned long si;
	unsigned long dx;
} CORE;
#define FIRST(regs) ((regs)->di)
#define SECOND(regs) ((regs)->si)
#define THIRD(regs) ((regs)->dx)
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	unsigned long regs[31];
} CORE;
#define FIRST(regs) ((regs)->regs[0])
#define SECOND(regs) ((regs)->regs[1])
#define THIRD(regs) ((regs)->regs[2])
#elif defined(__TARGET_ARCH_s390)
struct pt_regs {
	unsigned long orig_gpr2;
	unsigned long gprs[16];
} CORE;
#define FIRST(regs) ((regs)->orig_gpr2)
#define SECOND(regs) ((regs)->gprs[3])
#define THIRD(regs) ((regs)->gprs[4])
#endif

/* The most bytes that are captured of a payload. */
const volatile u32 snaplen = STREAM_MOST_BYTES;

/* The thread, its descriptor, and the number of write(2); all 0: nothing is watched. */
struct {
	u64 thread;
	u64 fd;
	s64 call;
} watched;

SEC("tp_btf/sys_enter")
int BPF_PROG(writes_enter, struct pt_regs *regs, long call)
{
	struct stream_record *record;
	struct stream s;

	if (call != watched.call || (u32)bpf_get_current_pid_tgid() != watched.thread || FIRST(regs) != watched.fd)
		return 0;
	if (!stream_begin(&s))
		return 0;
	record = stream_take(&s, sizeof(*record), snaplen, THIRD(regs), (const void *)SECOND(regs));
	if (record)
		stream_submit(&s, record, 0);
	return 0;
}
