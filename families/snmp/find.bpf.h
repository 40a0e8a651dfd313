/* SPDX-License-Identifier: GPL-2.0-only */
/* Finds, when a reader is opened, the lists of names in the kernel's memory, and the data of each CPU. */
#ifndef TOPSTAT_SNMP_FIND_BPF_H
#define TOPSTAT_SNMP_FIND_BPF_H

/*
 * Copies the kernel's own memory from an address (argument 0) on, as far as it exists: it contains the lists of the counters'
 * names. Returns the number of bytes.
 */
SEC("raw_tp")
int snmp_memory(struct bpf_raw_tracepoint_args *ctx)
{
	struct section *s = ONLY(sections);
	u64 from = ctx->args[0];
	u32 i;

	if (!s)
		return -1;
	for (i = 0; i < SNMP_SECTION_BYTES / SNMP_BLOCK_BYTES; i++) {
		if (bpf_probe_read_kernel(s->byte + i * SNMP_BLOCK_BYTES, SNMP_BLOCK_BYTES,
					  (void *)(from + i * SNMP_BLOCK_BYTES)))
			break;
	}
	return i * SNMP_BLOCK_BYTES;
}

/* Finds an address in the kernel's read-only memory: the address of the operations of a device that every kernel has. */
SEC("raw_tp")
int snmp_constant(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct___snmp *task = (void *)bpf_get_current_task();
	struct snmp_cursor *c = ONLY(cursors);

	if (!c)
		return -1;
	c->at = (u64)BPF_CORE_READ(task, nsproxy, net_ns, loopback_dev, netdev_ops);
	return !c->at;
}

/*
 * Finds where a CPU's data is: the address of a value on the CPU, less the value's address before a CPU is chosen. Arguments: the
 * CPU, and its place in `offsets`.
 */
static __always_inline int snmp_keep(u64 there, u32 place)
{
	u64 *offset = bpf_map_lookup_elem(&offsets, &place);
	struct snmp_cursor *c = ONLY(cursors);

	if (!c || !offset || !there)
		return -1;
	/* Through memory, which turns addresses into numbers. */
	ts_write(c->there, there);
	ts_write(c->raw, (u64)&anywhere);
	if (READ(&c->raw, FIELD(struct bpf_array, ts_read(c->raw), pptrs)))
		return -1;
	*offset = ts_read(c->there) - ts_read(c->raw);
	return 0;
}

SEC("raw_tp")
int snmp_offset(struct bpf_raw_tracepoint_args *ctx)
{
	u32 zero = 0;

	return snmp_keep((u64)bpf_map_lookup_percpu_elem(&anywhere, &zero, ctx->args[0]), ctx->args[1]);
}

/*
 * Finds where the current CPU's data is; argument 0 must be the current CPU. For kernels before Linux 5.19, which brought
 * bpf_map_lookup_percpu_elem() (07343110b293).
 */
SEC("raw_tp")
int snmp_offset_here(struct bpf_raw_tracepoint_args *ctx)
{
	if (bpf_get_smp_processor_id() != ctx->args[0])
		return -1;
	return snmp_keep((u64)ONLY(anywhere), ctx->args[1]);
}

#endif /* TOPSTAT_SNMP_FIND_BPF_H */
