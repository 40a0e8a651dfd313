/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#include "topstat/platform.h"

__thread u64 ts_precise_now;
