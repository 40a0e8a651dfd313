// SPDX-License-Identifier: GPL-2.0-only
/* Samples the kernel's stacks: a perf event on each CPU runs the program. */
#include "observe/host.h"
#if defined(__TARGET_ARCH_arm64)
/* <linux/bpf_perf_event.h> includes the registers of the machine that builds, which may be another one. */
struct bpf_perf_event_data {
	struct {
		u64 regs[31];
		u64 sp;
		u64 pc;
		u64 pstate;
	} regs;
	u64 sample_period;
	u64 addr;
};
#else
#include <linux/bpf_perf_event.h>
#endif
#include "observe/process.bpf.h"
#include "netstack.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct netstack_constants constants SEC(".rodata.netstack");

/* The number of the bank that is filled. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} filled SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct netstack_cpu);
} cpus SEC(".maps");

struct scratch {
	struct netstack_stack stack;
	struct process_who who;
	struct netstack_key key;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* The reader sets the number of entries. They are allocated at loading: an event may interrupt the kernel's allocator. */
#define BANK(name, key_type, value_type)         \
	struct {                                 \
		__uint(type, BPF_MAP_TYPE_HASH); \
		__uint(max_entries, 1);          \
		__type(key, key_type);           \
		__type(value, value_type);       \
	} name SEC(".maps")

BANK(stacks_0, u64, struct netstack_stack);
BANK(stacks_1, u64, struct netstack_stack);
BANK(samples_0, struct netstack_key, u64);
BANK(samples_1, struct netstack_key, u64);

#define ONLY(map) ({ u32 _zero = 0; bpf_map_lookup_elem(&(map), &_zero); })

static __always_inline int in_user_space(struct bpf_perf_event_data *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return ctx->regs.cs & 3;
#elif defined(__TARGET_ARCH_arm64)
	return (ctx->regs.pstate & 0xf) == 0; /* PSR_MODE_EL0t */
#else
	return (ctx->regs.psw.mask & 0x0001000000000000ULL) != 0; /* PSW_MASK_PSTATE */
#endif
}

/* Different stacks have different keys, but for one collision in many years of samples. */
static __always_inline u64 key_of(struct netstack_stack *s, u32 frames)
{
	u64 key = frames;
	u32 i;

	for (i = 0; i < NETSTACK_FRAMES; i++) {
		if (i >= frames)
			break;
		key = (key ^ s->address[i]) * 0x9e3779b97f4a7c15ULL;
		key ^= key >> 29;
	}
	return key;
}

/* Enters a value, unless the key has one already; NULL: there is no room. */
static __always_inline void *entered(void *map, const void *key, const void *value)
{
	void *found = bpf_map_lookup_elem(map, key);

	if (found)
		return found;
	bpf_map_update_elem(map, key, value, BPF_NOEXIST);
	return bpf_map_lookup_elem(map, key);
}

/* Keeps the stack of a sample, and counts the sample in a bank; 0 if there was room. */
static __always_inline int keep(struct bpf_perf_event_data *ctx, struct scratch *s, void *stacks, void *samples)
{
	long bytes = bpf_get_stack(ctx, s->stack.address, sizeof(s->stack.address), 0);
	struct task_struct *task = (void *)bpf_get_current_task();
	u64 *count, none = 0;

	if (bytes <= 0 || !task)
		return 1;
	s->stack.frames = bytes / sizeof(u64);
	process_describe(&s->who, task, 0, constants.v1_controller);
	s->key.stack = key_of(&s->stack, s->stack.frames);
	s->key.cgroup = s->who.cgroup;
	s->key.pid = s->who.pid;
	s->key.cpu = bpf_get_smp_processor_id();
	__builtin_memcpy(s->key.comm, s->who.comm, sizeof(s->key.comm));
	if (!entered(stacks, &s->key.stack, &s->stack))
		return 1;
	count = entered(samples, &s->key, &none);
	if (!count)
		return 1;
	ts_add(count, 1);
	return 0;
}

/* Counts one run in a bank (NS1). */
static __always_inline void sample(struct bpf_perf_event_data *ctx, struct scratch *s, struct netstack_counts *counts,
				   void *stacks, void *samples)
{
	if (in_user_space(ctx))
		counts->user++;
	else if (keep(ctx, s, stacks, samples))
		counts->lost++;
	else
		counts->kept++;
}

SEC("perf_event")
int netstack_sample(struct bpf_perf_event_data *ctx)
{
	struct netstack_cpu *c = ONLY(cpus);
	struct scratch *s = ONLY(scratches);
	u64 *which = ONLY(filled);

	if (!c || !s || !which)
		return 0;
	ts_add(&c->entered, 1); /* NS2 */
	/* Two calls, each with its own maps: old verifiers must know the map of each instruction. */
	if (ts_read(*which) & 1)
		sample(ctx, s, &c->bank[1], &stacks_1, &samples_1);
	else
		sample(ctx, s, &c->bank[0], &stacks_0, &samples_0);
	ts_publish(c->left, c->left + 1);
	return 0;
}
