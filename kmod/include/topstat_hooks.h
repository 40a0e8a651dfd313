/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions that an observer's module attaches to tracepoints. */
#ifndef TOPSTAT_HOOKS_H
#define TOPSTAT_HOOKS_H

#include <linux/tracepoint.h>

/*
 * A function at a tracepoint, by the tracepoint's name: the kernel does not export all tracepoints, but all can be found. The
 * module checks the function's type with check_trace_callback_type_NAME(function).
 */
struct topstat_hook {
	const char *name;
	void *function;
	struct tracepoint *at;
};

struct topstat_hooks {
	struct topstat_hook *hook;
	unsigned int count;
};

static void topstat_hook_find(struct tracepoint *tp, void *arg)
{
	struct topstat_hooks *all = arg;
	unsigned int i;

	for (i = 0; i < all->count; i++)
		if (!strcmp(all->hook[i].name, tp->name))
			all->hook[i].at = tp;
}

static void topstat_unhook(struct topstat_hooks *all, unsigned int count)
{
	while (count--)
		tracepoint_probe_unregister(all->hook[count].at, all->hook[count].function, NULL);
	/* After this, no function runs any more. */
	tracepoint_synchronize_unregister();
}

/*
 * Attach all functions, or none. Returns -ENOENT if the kernel lacks a tracepoint, or the error of tracepoint_probe_register().
 */
static int topstat_hook_all(struct topstat_hooks *all)
{
	unsigned int i;
	int error;

	for_each_kernel_tracepoint(topstat_hook_find, all);
	for (i = 0; i < all->count; i++) {
		error = -ENOENT;
		if (all->hook[i].at)
			error = tracepoint_probe_register(all->hook[i].at, all->hook[i].function, NULL);
		if (!error)
			continue;
		pr_err("topstat: cannot attach to tracepoint %s: error %d\n", all->hook[i].name, error);
		topstat_unhook(all, i);
		return error;
	}
	return 0;
}

#endif /* TOPSTAT_HOOKS_H */
