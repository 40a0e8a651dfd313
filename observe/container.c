/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The kernel module's rule for containers, for tests. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef uint32_t u32;
typedef uint64_t u64;
#define U32_MAX UINT32_MAX

#include "kmod/core/container.h"

int container_of_path(const char *path, u32 length, u32 *at);

/* Returns the length of the container's name in the path, and sets its place; -1: the path belongs to no container. */
int container_of_path(const char *path, u32 length, u32 *at)
{
	struct tt_part id;

	if (!tt_container_of(path, length, &id))
		return -1;
	*at = id.at - path;
	return id.length;
}
