// SPDX-License-Identifier: GPL-2.0-only
/* The observer of the example. */
#include "logic.h"
#include "observe/gate.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* Each signal that is sent, once, also if the receiver ignores it. */
TS_GATE("tp_btf/signal_generate", example_signal)

SEC("tp_btf/signal_generate")
int BPF_PROG(example_signal, int signal)
{
	example_sent(signal);
	return 0;
}
