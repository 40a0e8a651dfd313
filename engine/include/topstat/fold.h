/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Sums of counters that each CPU has for itself.
 *
 *               item 0  item 1  item 2  …
 *      CPU 0  [   3       7       1     … ]    one array for each CPU, far apart in memory
 *      CPU 1  [   2       0       9     … ]
 *      sums   [   5       7      10     … ]
 *
 * There are three orders of addition. Item by item: goes through all CPUs for each item, and touches a cache line of every CPU
 * for a single number. CPU by CPU: goes through all items of one CPU before the next CPU, so each line is fetched once.
 * In blocks: adds each CPU's array as a whole to the array of sums. Reads and writes are then sequential, so the compiler adds
 * several numbers at once and the CPU fetches ahead.
 *
 *   FO1 After one ts_fold() of each CPU's array, in any order, the sum of an item is the sum of its values modulo 2^64.
 *       Negative values, as gauges have, are 64-bit numbers like any other.
 */
#ifndef TOPSTAT_FOLD_H
#define TOPSTAT_FOLD_H

#include "platform.h"

/* Items of a block: a cache line. With a constant number of items, compilers use wide additions by themselves. */
#define TS_FOLD_BLOCK 8

/* Add the counters of a CPU to the sums. The arrays do not overlap. */
TS_INLINE void ts_fold(u64 *__restrict sums, const u64 *__restrict counters, u64 items)
{
	u64 i = 0, j;

	for (; i + TS_FOLD_BLOCK <= items; i += TS_FOLD_BLOCK) {
		for (j = 0; j < TS_FOLD_BLOCK; j++)
			sums[i + j] += counters[i + j];
	}
	for (; i < items; i++)
		sums[i] += counters[i];
}

#endif /* TOPSTAT_FOLD_H */
