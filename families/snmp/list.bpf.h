/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lists network namespaces, and devices.
 */
#ifndef TOPSTAT_SNMP_LIST_BPF_H
#define TOPSTAT_SNMP_LIST_BPF_H

static __always_inline struct snmp_holder *snmp_room(struct snmp_cursor *c)
{
	u32 i = c->found;
	struct snmp_holder *h = bpf_map_lookup_elem(&holders, &i);

	if (h)
		c->found++;
	else
		c->beyond++;
	return h;
}

/* Lists the namespace at the cursor, and goes on. Returns 1 at the end of the list. */
__noinline int snmp_net(void)
{
	struct snmp_cursor *c = ONLY(cursors);
	struct snmp_plan *p = ONLY(plans);
	struct snmp_holder *h;
	u64 net;

	if (!c || !p || !c->at)
		return 1;
	net = c->at - bpf_core_field_offset(struct net___snmp, list);
	if (!snmp_is_net(c, net)) {
		c->after_head = 1;
	} else if (!READ(&c->inum, FIELD(struct net___snmp, net, ns.inum))) {
		if (c->after_head)
			c->host = c->inum;
		c->after_head = 0;
		h = !p->only || c->inum == p->only ? snmp_room(c) : NULL;
		if (h) {
			h->address = net;
			h->inum = c->inum;
			h->ifindex = h->name[0] = h->id = 0;
			if (bpf_core_field_exists(struct net___snmp, net_cookie))
				READ(&h->id, FIELD(struct net___snmp, net, net_cookie));
		}
		if (h && p->only) {
			c->at = 0;
			return 1;
		}
	}
	if (READ(&c->at, c->at) || c->at == c->first)
		c->at = 0;
	return !c->at;
}

/*
 * The verifier goes through a loop step by step, up to 8,192 steps. A called function is verified by itself, so nested loops can
 * take more steps: SNMP_HOLDERS.
 */
#define STEPS 128
_Static_assert(STEPS * STEPS == SNMP_HOLDERS, "a walk can fill the directory");

__noinline int snmp_some_nets(void)
{
	u32 i;

	for (i = 0; i < STEPS; i++) {
		if (snmp_net())
			return 1;
	}
	return 0;
}

/*
 * Lists all namespaces, from the caller's on: the list is a ring. One run walks the whole list, for an element may be gone in the
 * next run. If only one namespace is wanted, the walk ends there.
 */
__noinline int snmp_list(void)
{
	struct task_struct___snmp *task = (void *)bpf_get_current_task();
	struct snmp_cursor *c = ONLY(cursors);
	u32 i;

	if (!c)
		return -1;
	c->found = c->beyond = c->after_head = c->host = 0;
	c->at = (u64)BPF_CORE_READ(task, nsproxy, net_ns);
	if (!c->at)
		return -1;
	c->at = c->first = FIELD(struct net___snmp, c->at, list);
	for (i = 0; i < STEPS; i++) {
		if (snmp_some_nets())
			break;
	}
	return 0;
}

SEC("raw_tp")
int snmp_nets(struct bpf_raw_tracepoint_args *ctx)
{
	return snmp_list();
}

/* As snmp_net(), for devices: `first` is the head of the list, in the namespace. */
__noinline int snmp_device(u64 net, u32 inum)
{
	struct snmp_cursor *c = ONLY(cursors);
	struct snmp_holder *h;
	u64 device;

	if (!c || !c->at || c->at == c->first)
		return 1;
	device = c->at - bpf_core_field_offset(struct net_device___snmp, dev_list);
	h = snmp_room(c);
	if (h) {
		h->address = device;
		h->inum = inum;
		h->id = h->ifindex = 0;
		READ(&h->ifindex, FIELD(struct net_device___snmp, device, ifindex));
		READ(&h->name, FIELD(struct net_device___snmp, device, name));
	}
	return READ(&c->at, c->at) || c->at == c->first;
}

__noinline int snmp_some_devices(u64 net, u32 inum)
{
	u32 i;

	for (i = 0; i < STEPS; i++) {
		if (snmp_device(net, inum))
			return 1;
	}
	return 0;
}

/*
 * Lists the devices of a namespace, behind the devices that are listed already. Arguments: the namespace's address and inode,
 * which snmp_nets() has found.
 */
SEC("raw_tp")
int snmp_devices(struct bpf_raw_tracepoint_args *ctx)
{
	u64 net = ctx->args[0], inum = ctx->args[1];
	struct snmp_cursor *c = ONLY(cursors);
	u32 i;

	if (!c)
		return -1;
	if (!snmp_is_listed(c, FIELD(struct net___snmp, net, list)) || !snmp_is_net(c, net))
		return 1;
	c->first = FIELD(struct net___snmp, net, dev_base_head);
	if (READ(&c->at, c->first))
		return -1;
	for (i = 0; i < STEPS; i++) {
		if (snmp_some_devices(net, inum))
			break;
	}
	return 0;
}

#endif /* TOPSTAT_SNMP_LIST_BPF_H */
