/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the engine keeps apart because it rarely runs: global functions, which the verifier looks
 * at once. They are in ranked.bpf.h; the engine, which is included before that, has to know.
 */
#ifndef TOPSTAT_APART_BPF_H
#define TOPSTAT_APART_BPF_H

#include "observe/kernel.h"

int ranked_settle(u32 where, u32 pos, u64 key, u32 slot);
int ranked_order_slow(u32 where, u64 obj, u64 id, u64 value);
int ranked_look_again(u32 where, u32 slot);
int ranked_roll(u32 bank_index);
#define ts_settle_apart(t, pos, key, slot, mask) ranked_settle((t)->where, pos, key, slot)
#define ts_order_apart(t, tick, obj, id, value, view) ranked_order_slow((t)->where, obj, id, value)
#define ts_look_apart(t, tick, slot, view) ranked_look_again((t)->where, slot)
#define ts_roll_apart(bank, stride, c, generation, now) ranked_roll(ts_bank_table(bank, 0, stride)->where >> 8)

#endif /* TOPSTAT_APART_BPF_H */
