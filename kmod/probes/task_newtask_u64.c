// SPDX-License-Identifier: GPL-2.0-only
/* After 6.12 the flags of clone() have 64 bits everywhere. */
#include <trace/events/task.h>

static void probe(void *data, struct task_struct *task, u64 clone_flags)
{
}

void topstat_probe(void)
{
	check_trace_callback_type_task_newtask(probe);
}
