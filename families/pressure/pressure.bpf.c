// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copies what the kernel keeps of control groups. A reader runs the program over a hierarchy; nothing is attached, and a group
 * that is not read costs nothing.
 */
#include "observe/kernel.h"
#include <topstat/platform.h>
#include "logic.h"

char LICENSE[] SEC("license") = "GPL";

typedef struct {
	s64 counter;
} atomic_long_t;

struct work_struct {
	atomic_long_t data;
} CORE;

struct delayed_work {
	struct work_struct work;
} CORE;

/* The running kernel defines their numbers. */
enum psi_states {
	PSI_IO_SOME,
	PSI_IO_FULL,
	PSI_MEM_SOME,
	PSI_MEM_FULL,
	PSI_CPU_SOME,
	PSI_CPU_FULL,
	PSI_NONIDLE,
};

struct psi_group_cpu {
	u32 state_mask;
	u32 times[1];
	u64 state_start;
	u32 times_prev[1];
} CORE;

struct mutex {
	atomic_long_t owner; /* 0: not held */
} CORE;

struct psi_group {
	struct mutex avgs_lock; /* held while the kernel sums up */
	struct delayed_work avgs_work;
	u64 avg_last_update;
	u64 total[1];
	void *pcpu;
} CORE;

/* An array of arrays has one dimension or two in the kernel's types: its build tools differ. The first array is PSI_AVGS. */
struct psi_group_cpu___two {
	u32 times_prev[1][1];
} CORE;

struct psi_group___two {
	u64 total[1][1];
} CORE;

struct cgroup_subsys_state___pressure {
	struct cgroup *cgroup;
	struct cgroup_subsys_state___pressure *parent;
} CORE;

struct cgroup___pressure {
	struct cgroup_subsys_state___pressure self;
	int level;
	int nr_descendants;
	struct kernfs_node *kn;
	struct cgroup_subsys_state *subsys[1];
	struct psi_group *psi;
	struct cgroup___pressure *ancestors[];
} CORE;

struct cfs_bandwidth {
	int nr_throttled;
	u64 throttled_time;
} CORE;

struct task_group {
	struct cgroup_subsys_state css;
	struct cfs_bandwidth cfs_bandwidth;
} CORE;

enum memcg_memory_event {
	MEMCG_HIGH,
	MEMCG_MAX,
	MEMCG_OOM,
	MEMCG_OOM_KILL,
};

struct page_counter {
	atomic_long_t usage;
} CORE;

struct mem_cgroup {
	struct cgroup_subsys_state css;
	struct page_counter memory;
	atomic_long_t memory_events_local[1];
} CORE;

/* A map with a value for each CPU; `pptrs`: the addresses of its values before a CPU is chosen. */
struct bpf_array {
	void *pptrs[0];
} CORE;

#define ARRAY(name, entries, t) \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, entries); \
		__type(key, u32); \
		__type(value, t); \
	} name SEC(".maps")

ARRAY(plans, 1, struct pressure_plan);
ARRAY(cursors, 1, struct pressure_cursor);
ARRAY(groups, PRESSURE_GROUPS, struct pressure_group);
/* By CPU: the distance from an address of per-CPU data, before a CPU is chosen, to the CPU's data. */
ARRAY(offsets, PRESSURE_CPUS, u64);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} anywhere SEC(".maps");

#define ONLY(map) ({ u32 _zero = 0; bpf_map_lookup_elem(&(map), &_zero); })
#define READ(to, from) bpf_probe_read_kernel(to, sizeof(*(to)), (const void *)(from))
/* The address of a field in a structure whose address is a number. */
#define FIELD(type, at, field) ((u64)(at) + bpf_core_field_offset(type, field))
#define EITHER(name, at, field) \
	(bpf_core_field_exists(struct name, field) ? FIELD(struct name, at, field) : FIELD(struct name##___two, at, field))
#define STATE(name) bpf_core_enum_value(enum psi_states, name)
/* WORK_STRUCT_PENDING_BIT */
#define PENDING 1
/* The kernel sums up the pressure of a group that is not idle every 2 s (PSI_FREQ); a longer pause means that it is idle. */
#define SUMMED_NS 4000000000ULL

/* Arguments of a loop over CPUs. */
struct sum_loop {
	struct pressure_sum sum;
	u64 pcpu;
	u64 now;
	u64 jiffy_ns;
	u32 unreadable;
};

/* Finds where the data of a CPU is. */
static long pressure_offset(u32 cpu, void *unused)
{
	u64 *offset = bpf_map_lookup_elem(&offsets, &cpu);
	struct pressure_cursor *c = ONLY(cursors);
	u32 zero = 0;

	if (!c || !offset)
		return 1;
	/* Through memory, which turns addresses into numbers. */
	ts_write(c->there, (u64)bpf_map_lookup_percpu_elem(&anywhere, &zero, cpu));
	ts_write(c->raw, (u64)&anywhere);
	if (READ(&c->raw, FIELD(struct bpf_array, ts_read(c->raw), pptrs)))
		return 1;
	*offset = ts_read(c->there) - ts_read(c->raw);
	return 0;
}

/*
 * A change of the state while it is copied: the kernel sets `state_start` first, and then adds the time before it to `times`.
 * So a mixed copy lacks some time, and never has any twice. The next run has it.
 */
TS_GLOBAL_FN int pressure_add(struct sum_loop *l, u32 cpu)
{
	u64 *offset = bpf_map_lookup_elem(&offsets, &cpu);
	struct pressure_cpu c = {};
	u64 at;

	if (!l || !offset)
		return 1;
	at = l->pcpu + *offset;
	if (READ(&c.times, FIELD(struct psi_group_cpu, at, times)) ||
	    READ(&c.state_mask, FIELD(struct psi_group_cpu, at, state_mask)) ||
	    READ(&c.state_start, FIELD(struct psi_group_cpu, at, state_start)) ||
	    READ(&c.times_prev, EITHER(psi_group_cpu, at, times_prev))) {
		l->unreadable++;
		return 0;
	}
	pressure_add_cpu(&l->sum, &c, STATE(PSI_NONIDLE), l->now, l->jiffy_ns);
	return 0;
}

static long pressure_cpu(u32 cpu, void *arg)
{
	return pressure_add(arg, cpu) != 0;
}

/* A word of an array in a structure that the verifier knows, which takes a tenth of the time of a helper. */
#define WORD(at, offset, number) (*(u64 *)((void *)(at) + (offset) + sizeof(u64) * (number)))

/* The kernel's totals, as of its last sum. */
static __always_inline void pressure_totals(struct pressure_group *g, struct psi_group *psi)
{
#define TOTAL(kind, state) g->stalled_ns[kind] = WORD(psi, EITHER(psi_group, 0, total), STATE(state))
	TOTAL(PRESSURE_CPU_SOME, PSI_CPU_SOME);
	TOTAL(PRESSURE_CPU_FULL, PSI_CPU_FULL);
	TOTAL(PRESSURE_MEM_SOME, PSI_MEM_SOME);
	TOTAL(PRESSURE_MEM_FULL, PSI_MEM_FULL);
	TOTAL(PRESSURE_IO_SOME, PSI_IO_SOME);
	TOTAL(PRESSURE_IO_FULL, PSI_IO_FULL);
}

/* Differs whenever one of the totals, which only grow, has changed. */
static __always_inline u64 pressure_all(const struct pressure_group *g)
{
	u64 all = 0;
	u32 kind;

	for (kind = 0; kind < PRESSURE_KINDS; kind++)
		all += g->stalled_ns[kind];
	return all;
}

/*
 * Copy the totals and the time since; l->sum gets the time. If the kernel sums up during the copy, some of the time is in neither. It
 * does not do so while its lock is free before and after and its totals stay as they are: then the copy is whole.
 */
static __always_inline int pressure_try(const struct pressure_plan *p, struct pressure_group *g, struct psi_group *psi,
					struct sum_loop *l)
{
	u64 held = psi->avgs_lock.owner.counter, before;

	pressure_totals(g, psi);
	before = pressure_all(g);
	__builtin_memset(&l->sum, 0, sizeof(l->sum));
	l->unreadable = 0;
	bpf_loop(p->cpus, pressure_cpu, l, 0);
	pressure_totals(g, psi);
	held |= psi->avgs_lock.owner.counter;
	return !held && pressure_all(g) == before;
}

static __always_inline void pressure_stalls(struct pressure_cursor *c, const struct pressure_plan *p,
					    struct pressure_group *g, struct psi_group *psi)
{
	struct sum_loop l = { .now = c->now_ns, .jiffy_ns = p->jiffy_ns };

	g->has |= PRESSURE_HAS_STALLS;
	if (!(psi->avgs_work.work.data.counter & PENDING) &&
	    (s64)(c->now_ns - psi->avg_last_update) >= (s64)SUMMED_NS) {
		pressure_totals(g, psi);
		return;
	}
	/* By a helper, which gives a number: the verifier knows no arithmetic with addresses of per-CPU data. */
	READ(&l.pcpu, FIELD(struct psi_group, psi, pcpu));
	c->computed++;
	/* The third try is taken as it is: at worst, the next run has the time. Not a loop: Linux 6.1 accepts no callback in one. */
	(void)(pressure_try(p, g, psi, &l) || pressure_try(p, g, psi, &l) || pressure_try(p, g, psi, &l));
	c->unreadable += l.unreadable;
#define SINCE(kind, state) g->stalled_ns[kind] += pressure_since(&l.sum, STATE(state))
	SINCE(PRESSURE_CPU_SOME, PSI_CPU_SOME);
	SINCE(PRESSURE_CPU_FULL, PSI_CPU_FULL);
	SINCE(PRESSURE_MEM_SOME, PSI_MEM_SOME);
	SINCE(PRESSURE_MEM_FULL, PSI_MEM_FULL);
	SINCE(PRESSURE_IO_SOME, PSI_IO_SOME);
	SINCE(PRESSURE_IO_FULL, PSI_IO_FULL);
}

static __always_inline void pressure_throttled(struct pressure_cursor *c, struct pressure_group *g, u64 group)
{
	u32 periods = 0;

	if (!bpf_core_field_exists(struct task_group, cfs_bandwidth))
		return;
	if (READ(&g->throttled_ns, FIELD(struct task_group, group, cfs_bandwidth.throttled_time)) ||
	    READ(&periods, FIELD(struct task_group, group, cfs_bandwidth.nr_throttled)))
		c->unreadable++;
	g->throttled_periods = periods;
	g->has |= PRESSURE_HAS_CPU;
}

#define EVENT(number, name) \
	READ(&g->events[number], FIELD(struct mem_cgroup, memcg, memory_events_local) + \
				 sizeof(u64) * bpf_core_enum_value(enum memcg_memory_event, name))

static __always_inline void pressure_memory(struct pressure_cursor *c, struct pressure_group *g, u64 memcg)
{
	if (READ(&g->memory_pages, FIELD(struct mem_cgroup, memcg, memory.usage)) || EVENT(PRESSURE_HIGH, MEMCG_HIGH) ||
	    EVENT(PRESSURE_MAX, MEMCG_MAX) || EVENT(PRESSURE_OOM, MEMCG_OOM) || EVENT(PRESSURE_OOM_KILL, MEMCG_OOM_KILL))
		c->unreadable++;
	g->has |= PRESSURE_HAS_MEMORY;
}

/* The part of a controller; NULL: the controller is off in the group. */
#define SUBSYS(cgroup, name) \
	(*(struct cgroup_subsys_state **)((void *)(cgroup) + bpf_core_field_offset((cgroup)->subsys) + \
					  sizeof(void *) * bpf_core_enum_value(enum cgroup_subsys_id, name)))

static __always_inline u64 pressure_ancestor(struct cgroup___pressure *cgroup, u32 level)
{
	struct cgroup___pressure *ancestor = NULL;

	READ(&ancestor, (void *)cgroup + bpf_core_field_offset(cgroup->ancestors) + level * sizeof(ancestor));
	return ancestor ? BPF_CORE_READ(ancestor, kn, id) : 0;
}

SEC("iter/cgroup")
int pressure_read(struct bpf_iter__cgroup *ctx)
{
	struct cgroup___pressure *cgroup = (void *)ctx->cgroup;
	struct pressure_cursor *c = ONLY(cursors);
	struct pressure_plan *p = ONLY(plans);
	struct cgroup_subsys_state___pressure *parent;
	struct cgroup_subsys_state *css;
	struct pressure_group *g;
	struct task_struct *task;
	struct psi_group *psi;
	u32 place;

	if (!cgroup || !c || !p)
		return 0;
	if (!c->now_ns) {
		bpf_loop(p->cpus, pressure_offset, NULL, 0);
		task = bpf_get_current_task_btf();
		c->now_ns = task->se.cfs_rq->rq->clock;
	}
	place = c->found;
	g = bpf_map_lookup_elem(&groups, &place);
	if (!g) {
		c->beyond++;
		return 0;
	}
	c->found = place + 1;
	__builtin_memset(g, 0, sizeof(*g));
	g->id = cgroup->kn->id;
	g->level = cgroup->level;
	g->below = cgroup->nr_descendants;
	g->above = g->id;
	parent = cgroup->self.parent;
	if (parent)
		g->parent = parent->cgroup->kn->id;
	if (g->level > p->level)
		g->above = pressure_ancestor(cgroup, p->level);
	css = SUBSYS(cgroup, cpu_cgrp_id);
	if (css)
		pressure_throttled(c, g, (u64)css);
	css = SUBSYS(cgroup, memory_cgrp_id);
	if (css)
		pressure_memory(c, g, (u64)css);
	if (bpf_core_field_exists(cgroup->psi)) {
		psi = cgroup->psi;
		/* The root has no pressure of its own: the host's is in /proc/pressure. */
		if (psi)
			pressure_stalls(c, p, g, psi);
	}
	return 0;
}
