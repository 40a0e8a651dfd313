// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keeps objects, and does not depend on topstat.ko, so that the objects remain while topstat and its observers are removed and
 * loaded again. See trial.c.
 */

#include <linux/module.h>
#include <linux/vmalloc.h>
#include "holder.h"

static struct holder_objects *objects;

struct holder_objects *topstat_holder_objects(void)
{
	return objects;
}
EXPORT_SYMBOL_GPL(topstat_holder_objects);

static int __init holder_init(void)
{
	objects = vzalloc(sizeof(*objects));
	return objects ? 0 : -ENOMEM;
}

static void __exit holder_exit(void)
{
	vfree(objects);
}

module_init(holder_init);
module_exit(holder_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("keeps objects for the tests of topstat");
