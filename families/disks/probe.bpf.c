// SPDX-License-Identifier: GPL-2.0-only
/* This program needs one thing that a kernel may lack, and is loaded to find out whether it does. */
#include "observe/kernel.h"

char LICENSE[] SEC("license") = "GPL";

SEC("tp_btf/block_io_start")
int probe_start(void *ctx)
{
	return 0;
}
