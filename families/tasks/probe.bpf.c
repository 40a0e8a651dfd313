// SPDX-License-Identifier: GPL-2.0-only
/* Never run: loaded to test whether the kernel has the features that it needs. See fallbacks.rs. */
#include "observe/kernel.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} stored SEC(".maps");

SEC("tp_btf/sched_switch")
int BPF_PROG(probe_groups, bool preempt, struct task_struct *prev)
{
	bpf_cgrp_storage_get(&stored, prev->cgroups->dfl_cgrp, NULL, 0);
	return 0;
}
