// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads the kernel's SNMP counters. A reader calls the programs; they are never attached. A program of their type is a reader of
 * RCU from its beginning to its end (SN1); a program of the type "syscall" is not.
 */
#include "snmp.bpf.h"
#include "list.bpf.h"
#include "find.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* Finds the arrays of a holder, if it is still the holder that was listed (SN2). */
static __always_inline u32 snmp_begin(struct snmp_cursor *c, struct snmp_plan *p, struct snmp_holder *h)
{
	u64 pointers = 0, id = 0;
	u32 bytes = p->pointers_bytes, number = 0;

	if (p->devices) {
		if (!snmp_is_listed(c, FIELD(struct net_device___snmp, h->address, dev_list)))
			return SNMP_UNIT_GONE;
		if (READ(&number, FIELD(struct net_device___snmp, h->address, ifindex)) || number != h->ifindex)
			return SNMP_UNIT_GONE;
		/* A device without IPv6 has no counters. */
		if (READ(&pointers, FIELD(struct net_device___snmp, h->address, ip6_ptr)) || !pointers)
			return SNMP_UNIT_GONE;
		pointers = FIELD(struct inet6_dev, pointers, stats);
	} else {
		if (!snmp_is_listed(c, FIELD(struct net___snmp, h->address, list)))
			return SNMP_UNIT_GONE;
		if (READ(&number, FIELD(struct net___snmp, h->address, ns.inum)) || number != h->inum)
			return SNMP_UNIT_GONE;
		if (bpf_core_field_exists(struct net___snmp, net_cookie))
			READ(&id, FIELD(struct net___snmp, h->address, net_cookie));
		if (id != h->id)
			return SNMP_UNIT_GONE;
		pointers = FIELD(struct net___snmp, h->address, mib);
	}
	if (bytes > sizeof(c->pointer))
		return SNMP_UNIT_GONE;
	bytes = ts_bound(bytes, 2 * sizeof(c->pointer) - 1);
	return bpf_probe_read_kernel(c->pointer, bytes, (void *)pointers) ? SNMP_UNIT_GONE : SNMP_UNIT_READ;
}

/* A word of the section. */
static __always_inline u64 snmp_word(struct section *s, u32 at)
{
	return *(u64 *)(s->byte + (ts_bound(at, SNMP_SECTION_BYTES - 1) & ~7U));
}

/*
 * Copies a holder's arrays of a CPU, or the arrays that all CPUs share (`cpu` is then the number behind the last CPU's). An array
 * that the kernel has not made yet has counted nothing. Returns 1 if this run has no room for them.
 */
__noinline int snmp_unit(u32 holder, u32 cpu)
{
	struct section *s = ONLY(sections);
	struct snmp_cursor *c = ONLY(cursors);
	struct snmp_plan *p = ONLY(plans);
	struct snmp_holder *h = bpf_map_lookup_elem(&holders, &holder);
	u32 b, bytes, used, shared, unit;
	u64 offset = 0, array, *known;

	if (!s || !c || !p || !h)
		return 1;
	shared = cpu >= p->cpus;
	if (!shared) {
		known = bpf_map_lookup_elem(&offsets, &cpu);
		if (!known)
			return 1;
		offset = *known;
	}
	if (c->holder != holder) {
		c->state = snmp_begin(c, p, h);
		c->holder = holder;
		/* If another run began to read the holder, its counted groups are unknown: take all. */
		c->groups = cpu ? ~0U : 0;
	}
	unit = c->units;
	if (unit >= SNMP_UNITS)
		return 1;
	used = c->used;
	for (b = 0; b < SNMP_BLOCKS && c->state == SNMP_UNIT_READ; b++) {
		if (b >= p->blocks)
			break;
		if (p->block[b].shared != shared)
			continue;
		if (p->block[b].group && !p->block[b].received && !(c->groups & p->block[b].group))
			continue; /* SN4 */
		bytes = p->block[b].bytes;
		if (bytes > SNMP_BLOCK_BYTES || used > SNMP_RUN_BYTES - SNMP_BLOCK_BYTES)
			return 1;
		array = c->pointer[ts_bound(p->block[b].pointer, SNMP_POINTERS - 1)];
		bytes = ts_bound(bytes, MASK_BYTES);
		used = ts_bound(used, SNMP_SECTION_BYTES - 1);
		/* An array that can't be read is filled with zeros. */
		if (bpf_probe_read_kernel(s->byte + used, bytes, (void *)(array ? array + offset : 0)) && array)
			c->faults++;
		if (p->block[b].received && (snmp_word(s, used + p->block[b].received) || snmp_word(s, used + p->block[b].sent)))
			c->groups |= p->block[b].group;
		used += bytes;
	}
	c->used = used;
	c->done[ts_bound(unit, SNMP_UNITS - 1)] = c->state | (c->groups << SNMP_UNIT_GROUPS);
	c->units = unit + 1;
	return 0;
}

/*
 * Copies as many units as fit, from a holder (argument 0) and a unit of it (argument 1) on. From the number of units the reader
 * knows where to go on. With argument 2, the namespaces are listed first.
 */
SEC("raw_tp")
int snmp_read(struct bpf_raw_tracepoint_args *ctx)
{
	u32 holder = ctx->args[0], unit = ctx->args[1], i;
	struct snmp_cursor *c = ONLY(cursors);
	struct snmp_plan *p = ONLY(plans);

	if (!c || !p)
		return -1;
	if (ctx->args[2] && snmp_list())
		return -1;
	c->holder = ~0U;
	c->used = c->units = 0;
	for (i = 0; i < SNMP_UNITS; i++) {
		if (holder >= c->found || snmp_unit(holder, unit))
			break;
		if (++unit >= p->units) {
			unit = 0;
			holder++;
		}
	}
	return 0;
}
