/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A gate, for a hook whose link can't be given another program (all of tracing: BPF_LINK_UPDATE is for cgroups, XDP and the
 * like). The gate is attached to the hook, once. It continues in the program in a one-element array, which can be replaced in one
 * step. An event runs in the old program or in the new one, never in both and never in neither.
 *
 * The gate outlives the builds whose programs it calls, so it is part of the ABI: its map, and the argument that it passes on,
 * which is the hook's own context.
 */
#ifndef TOPSTAT_GATE_H
#define TOPSTAT_GATE_H

/* `program` runs at `section`, which its own SEC() names, too: the kernel lets a program continue only in a program for the same
 * hook. See At::Gate in hooks.rs for the names. */
#define TS_GATE(section, program) \
	struct { \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY); \
		__uint(max_entries, 1); \
		__uint(key_size, sizeof(u32)); \
		__uint(value_size, sizeof(u32)); \
	} program##_gate SEC(".maps"); \
	SEC(section) int program##_enter(void *ctx) \
	{ \
		bpf_tail_call_static(ctx, &program##_gate, 0); \
		return 0; \
	}

#endif /* TOPSTAT_GATE_H */
