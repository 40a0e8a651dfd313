// SPDX-License-Identifier: GPL-2.0-only
/* 9c2136be0878 ("sched/tracing: Append prev_state to tp args instead"), 5.19: before 5.18 the tracepoint has no prev_state. */
#include <trace/events/sched.h>

static void probe(void *data, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
}

void topstat_probe(void)
{
	check_trace_callback_type_sched_switch(probe);
}
