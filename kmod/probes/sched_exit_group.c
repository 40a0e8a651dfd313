// SPDX-License-Identifier: GPL-2.0-only
/* After 6.12 the tracepoint also says whether the whole process ends. */
#include <trace/events/sched.h>

static void probe(void *data, struct task_struct *task, bool group_dead)
{
}

void topstat_probe(void)
{
	check_trace_callback_type_sched_process_exit(probe);
}
