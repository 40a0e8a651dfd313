/* SPDX-License-Identifier: GPL-2.0-only */
/* The host decides how groups are kept. */
#ifndef TOPSTAT_TASKS_GROUP_H
#define TOPSTAT_TASKS_GROUP_H

#include "state.h"

#include "observe/group.h"

#ifdef TOPSTAT_PLAIN
#include "fallbacks.bpf.h"
#else
#include "group_storage.h"
#endif

#endif /* TOPSTAT_TASKS_GROUP_H */
