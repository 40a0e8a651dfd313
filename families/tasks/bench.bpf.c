// SPDX-License-Identifier: GPL-2.0-only
/* The baseline of the comparison: a program on the same hook that does nothing. */
#include "observe/kernel.h"

char LICENSE[] SEC("license") = "GPL";

SEC("tp_btf/sched_switch")
int bench_empty(void *ctx)
{
	return 0;
}
