// SPDX-License-Identifier: GPL-2.0-only
/* This program needs a feature that a kernel may lack, and is loaded to test for it. */
#include "observe/kernel.h"

char LICENSE[] SEC("license") = "GPL";

SEC("tp_btf/block_io_start")
int probe_start(void *ctx)
{
	return 0;
}
