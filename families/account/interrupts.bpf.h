/* SPDX-License-Identifier: GPL-2.0-only */
/* Time of interrupts and softirqs: it counts to the interrupted task, as a separate part. */
#ifndef TOPSTAT_ACCOUNT_INTERRUPTS_H
#define TOPSTAT_ACCOUNT_INTERRUPTS_H

#include "precise.bpf.h"

static __always_inline int precise_irq_enter(void)
{
	struct account_cpu *c = precise_slot();

	if (c && !c->irq_depth++)
		c->irq_start = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int precise_irq_leave(void)
{
	struct account_cpu *c = precise_slot();
	u64 took;

	if (!c || !c->irq_depth || --c->irq_depth)
		return 0;
	took = bpf_ktime_get_ns() - c->irq_start;
	c->own.irq += took;
	c->softirq_other += took;
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int precise_irq_handler_entry(void *ctx)
{
	return precise_irq_enter();
}

SEC("tp_btf/irq_handler_exit")
int precise_irq_handler_exit(void *ctx)
{
	return precise_irq_leave();
}

/* x86's own interrupts have no handlers; they have tracepoints. */
#define PRECISE_VECTOR(name)                                  \
	SEC("tp_btf/" #name "_entry")                         \
	int precise_##name##_entry(void *ctx)                 \
	{                                                     \
		return precise_irq_enter();                   \
	}                                                     \
	SEC("tp_btf/" #name "_exit")                          \
	int precise_##name##_exit(void *ctx)                  \
	{                                                     \
		return precise_irq_leave();                   \
	}

PRECISE_VECTOR(local_timer)
PRECISE_VECTOR(reschedule)
PRECISE_VECTOR(call_function)
PRECISE_VECTOR(call_function_single)
PRECISE_VECTOR(irq_work)

SEC("tp_btf/softirq_entry")
int precise_softirq_entry(void *ctx)
{
	struct account_cpu *c = precise_slot();

	if (!c)
		return 0;
	c->softirq_other = 0;
	c->softirq_start = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int precise_softirq_exit(void *ctx)
{
	struct account_cpu *c = precise_slot();
	u64 took;

	if (!c || !c->softirq_start)
		return 0;
	took = bpf_ktime_get_ns() - c->softirq_start;
	c->softirq_start = 0;
	if (took > c->softirq_other)
		c->own.softirq += took - c->softirq_other;
	return 0;
}

#endif /* TOPSTAT_ACCOUNT_INTERRUPTS_H */
