// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observer of a table of the user's own. User space gives the programs the type of the definition's event before it loads
 * them: classic tracepoint, BTF tracepoint, probe of a function, or sample.
 */
#include "fields.bpf.h"
#include "observe/gate.bpf.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline struct custom_scratch *custom_scratch_of(u32 which)
{
	return bpf_map_lookup_elem(&scratch, &which);
}

TS_GATE("tp", custom_event)

SEC("tp")
int custom_event(void *ctx)
{
	const volatile struct custom_table_is *table = &constants.table;
	struct custom_scratch *s = custom_scratch_of(0);
	u64 amount = 1;

	if (!s || !custom_all_hold(ctx, s->text))
		return 0;
	if (table->amount.source) {
		amount = custom_word(ctx, &table->amount);
		if (table->amount.flags & CUSTOM_SIGNED && (s64)amount < 0) {
			ts_add(&negative, 1);
			return 0;
		}
	}
	if (table->times != 1)
		amount *= table->times;
	if (amount)
		custom_push(custom_read_key(ctx, s), amount);
	return 0;
}

TS_GATE("tp", custom_first)

SEC("tp")
int custom_first(void *ctx)
{
	struct custom_scratch *s = custom_scratch_of(0);

	if (s && custom_all_hold(ctx, s->text))
		custom_begin(custom_read_key(ctx, s), custom_common(ctx, constants.table.common));
	return 0;
}

TS_GATE("tp", custom_last)

SEC("tp")
int custom_last(void *ctx)
{
	custom_finish(custom_common(ctx, constants.table.common_end));
	return 0;
}
