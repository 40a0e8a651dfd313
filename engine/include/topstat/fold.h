/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Adding up counters that each CPU has for itself.
 *
 *               item 0  item 1  item 2  …
 *      CPU 0  [   3       7       1     … ]    one array for each CPU, far apart in memory
 *      CPU 1  [   2       0       9     … ]
 *      sums   [   5       7      10     … ]
 *
 * There are three orders to do so. Item by item goes through all CPUs for each item, and touches a cache line of every CPU
 * for a single number. CPU by CPU goes through all items of one CPU before the next, so that each line is fetched once.
 * In blocks, each CPU's array is added as a whole to the array of sums: what is read and what is written lie one after
 * the other, so that the compiler adds several numbers at once and the CPU fetches ahead.
 *
 *   F1  After ts_fold() of each CPU's array once, in any order, the sum of an item is that of its values modulo 2^64.
 *       Parts below 0, as gauges have, are numbers of 64 bits like any other.
 */
#ifndef TOPSTAT_FOLD_H
#define TOPSTAT_FOLD_H

#include "platform.h"

/* Items of a block: a cache line. With a number that is known, compilers use wide additions without being asked to. */
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
