// SPDX-License-Identifier: GPL-2.0-only
/* Any kernel compiles this: see kmod/build. */
#include <linux/module.h>

MODULE_LICENSE("GPL");
