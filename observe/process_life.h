/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The life of objects that are processes, or threads (`constants.by_thread`). They are in the storage `objects` of the process's
 * first thread, its leader.
 */
#ifndef TOPSTAT_PROCESS_LIFE_H
#define TOPSTAT_PROCESS_LIFE_H

#include "observe/obs.h"
#include "observe/process_id.h"

/* Whether the task has its own object from its first moment. */
TS_INLINE int process_is_object(struct task_struct *task)
{
	return constants.by_thread || task->pid == task->tgid;
}

/* The task whose storage holds the object of a task. NULL: the task is a reaped thread, which may have outlived its leader. */
TS_INLINE struct task_struct *process_of(struct task_struct *task)
{
	struct task_struct *leader = task;

	if (!constants.by_thread) {
		leader = task->group_leader;
		if (leader != task && !task->sighand)
			return NULL;
	}
	return leader;
}

/* The task whose object ends when this task ends. NULL: other threads continue. */
TS_INLINE struct task_struct *process_ended(struct task_struct *task)
{
	if (constants.by_thread)
		return task;
	return task->signal->live.counter ? NULL : task->group_leader;
}

/* `address`: the field of the object that keeps the task's address. */
TS_INLINE void process_begin(struct ts_object *o, u64 *address, struct task_struct *task, u32 sample)
{
	*address = (u64)(unsigned long)task;
	obs_object_begin(o, sample, process_id(task));
}

/*
 * The task is freed, so its object, if it has one, ends. A second call for one task does nothing.
 *
 * This ends an object in two more cases. The end of its process was missed: the kernel does not run a program that is already
 * running on the CPU, and where programs at tracepoints can be preempted (Linux 7.3 does), that may last long. Or its task is the
 * leader of a process that continues, because another of its threads has executed a program.
 */
TS_INLINE void process_freed(struct task_struct *task, u32 sample)
{
	typeof(host_of(objects, task, task)) o = host_of(objects, task, task);

	if (o)
		obs_object_end(&o->object, sample);
}

/* A process ends with the last of its threads: its object leaves all tables, its pushes stay in the totals. */
TS_INLINE void process_end(struct task_struct *task, u32 sample)
{
	struct task_struct *leader = process_ended(task);

	if (leader)
		process_freed(leader, sample);
}

#endif /* TOPSTAT_PROCESS_LIFE_H */
