/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The life of objects that are processes, or threads (`constants.by_thread`). They live in the storage
 * `objects` of the process's first thread, its leader.
 */
#ifndef TOPSTAT_PROCESS_LIFE_H
#define TOPSTAT_PROCESS_LIFE_H

#include "observe/obs.h"
#include "observe/process_id.h"

/* Whether the task has an object of its own from its first moment. */
TS_INLINE int process_is_object(struct task_struct *task)
{
	return constants.by_thread || task->pid == task->tgid;
}

/* Whose storage holds the object of a task. NULL: a thread that is reaped may have outlived its
 * leader. */
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

/* When a task ends: whose object ends with it. NULL: other threads go on. */
TS_INLINE struct task_struct *process_ended(struct task_struct *task)
{
	if (constants.by_thread)
		return task;
	return task->signal->live.counter ? NULL : task->group_leader;
}

/* `address`: of the object's, where it keeps the task's. */
TS_INLINE void process_begin(struct ts_object *o, u64 *address, struct task_struct *task, u32 sample)
{
	*address = (u64)(unsigned long)task;
	obs_object_begin(o, sample, process_id(task));
}

/*
 * The task is freed, and so its object, if it has one, is no object any more. Told twice this does nothing
 * the second time.
 *
 * That is the end of an object whose process ended unseen: the kernel does not run a program that is running
 * on the CPU already, and where programs at tracepoints can be preempted (Linux 7.3 does) that may be for
 * long. And that of a leader whose process goes on, for another of its threads has executed a program.
 */
TS_INLINE void process_freed(struct task_struct *task, u32 sample)
{
	typeof(host_of(objects, task, task)) o = host_of(objects, task, task);

	if (o)
		obs_object_end(&o->object, sample);
}

/* A process ends with the last of its threads: its object leaves all tables, its pushes stay in the
 * totals. */
TS_INLINE void process_end(struct task_struct *task, u32 sample)
{
	struct task_struct *leader = process_ended(task);

	if (leader)
		process_freed(leader, sample);
}

#endif /* TOPSTAT_PROCESS_LIFE_H */
