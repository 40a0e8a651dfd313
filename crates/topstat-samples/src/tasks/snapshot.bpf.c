// SPDX-License-Identifier: GPL-2.0-only
/*
 * What readers of the tables run: programs that are called, never attached, on the state that
 * the observer keeps. Each reader loads its own, with a section of its own to write to.
 */
#include "charge.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* What the latest call of top_snapshot found on its CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, 4096);
} section SEC(".maps");

static __always_inline void top_describe(struct tasks_top_row *row, u64 obj)
{
	struct task_struct *task, *leader;
	struct cgroup_subsys_state *subsys = NULL;
	struct css_set *css;
	u64 at = 0;

	ts_peek(&at, sizeof(at), obj + offsetof(struct tasks_object, task));
	task = (void *)at;
	leader = BPF_CORE_READ(task, group_leader);
	css = BPF_CORE_READ(task, cgroups);
	row->pid = BPF_CORE_READ(task, tgid);
	row->tid = constants.by_thread ? BPF_CORE_READ(task, pid) : 0;
	if (constants.by_thread)
		BPF_CORE_READ_INTO(&row->comm, task, comm);
	else
		BPF_CORE_READ_INTO(&row->comm, leader, comm);
	row->cgroup = BPF_CORE_READ(css, dfl_cgrp, kn, id);
	row->cgroup_v1 = 0;
	if (constants.v1_controller) {
		u32 i = top_v1_index();

		bpf_probe_read_kernel(&subsys, sizeof(subsys), &css->subsys[i]);
		row->cgroup_v1 = BPF_CORE_READ(subsys, cgroup, kn, id);
	}
}

/* One slot. A global function, which the verifier looks at once and not once a slot. */
__noinline int top_snapshot_row(u32 cpu, u32 sample, u32 table, u32 slot, u32 read_only)
{
	struct tasks_top_section *s;
	struct tasks_top_row *row;
	struct ts_bank *bank;
	u32 zero = 0;
	ts_view view;
	u64 obj;

	if (table >= TASKS_TABLES || sample >= TASKS_SAMPLES)
		return 0;
	s = bpf_map_lookup_elem(&section, &zero);
	bank = top_bank(cpu, sample);
	if (!s || !bank)
		return 0;
	view = top_view(sample, table);
	row = &s->row[ts_bound(s->head.rows, constants.shape.entries_mask)];
	obj = ts_section_row(&s->head, top_table(bank, table & (TASKS_TABLES - 1)), slot, view, read_only, &row->row);
	if (!obj)
		return 0;
	if (sample == TASKS_CGROUPS) {
		__builtin_memset(row->comm, 0, sizeof(row->comm));
		row->pid = row->tid = 0;
		row->cgroup = row->row.id & TASKS_GROUP_V1 ? 1 : row->row.id;
		row->cgroup_v1 = row->row.id & TASKS_GROUP_V1 ? row->row.id & ~TASKS_GROUP_V1 : 0;
	} else {
		top_describe(row, obj);
	}
	ts_section_keep(&s->head, &row->row, obj, view);
	return 0;
}

/*
 * Take one table's section on the CPU that is named, at the instant that is named. On that CPU,
 * what runs there is pushed first. Arguments: struct ts_section_args. Returns 0; EAGAIN: a push
 * that this call has interrupted holds the bank, call again; ENOENT: no such table.
 */
SEC("raw_tp")
int top_snapshot(struct bpf_raw_tracepoint_args *ctx)
{
	u32 cpu = ctx->args[0], sample = ctx->args[1], table = ctx->args[2];
	u64 now = ctx->args[3];
	u32 read_only = ctx->args[4];
	u32 zero = 0, slot;
	struct tasks_top_section *s;
	struct ts_config *c;
	struct ts_bank *bank;
	struct ts_table *t;

	if (sample >= TASKS_SAMPLES || table >= TASKS_TABLES)
		return ENOENT;
	s = bpf_map_lookup_elem(&section, &zero);
	bank = top_bank(cpu, sample);
	if (!s || !bank)
		return ENOENT;
	if (!read_only && cpu == bpf_get_smp_processor_id() && !top_charge_running(cpu))
		return EAGAIN;
	c = &settings.config[ts_bound(sample, TASKS_SAMPLES - 1)][ts_bound(table, TASKS_TABLES - 1)];
	if (!now)
		now = c->precise ? bpf_ktime_get_ns() : bpf_jiffies64();
	ts_section_begin(&s->head, c, now);
	if (!read_only && !ts_bank_enter(bank))
		return EAGAIN;
	t = top_table(bank, table & (TASKS_TABLES - 1));
	ts_section_table(&s->head, t, c, read_only);
	for (slot = 0; slot <= constants.shape.entries_mask; slot++)
		top_snapshot_row(cpu, sample, table, slot, read_only);
	ts_section_end(&s->head, t);
	ts_bank_leave(bank, !read_only);
	return 0;
}

struct ts_refill refill SEC(".data.refill");

/* Order an object again, on whatever CPU this runs: see inet_refill(). */
static __always_inline void top_order_again(u32 sample, u64 self, u64 id)
{
	u32 table = refill.table;
	struct ts_value value = {};
	struct ts_config *c;
	struct ts_bank *bank;
	struct ts_tick *tick;
	struct ts_table *t;
	ts_view view;

	if (!id || !self || table >= TASKS_TABLES)
		return;
	bank = top_bank(bpf_get_smp_processor_id(), sample);
	if (!bank)
		return;
	refill.objects++;
	c = settings.config[sample];
	ts_bank_to(bank, constants.shape.table_stride, c, settings.all.generation, bpf_jiffies64());
	if (!ts_bank_enter(bank)) {
		refill.skipped++;
		return;
	}
	tick = &bank->tick[table];
	t = top_table(bank, table);
	view = top_view(sample, table);
	if (ts_view_type(view) == TS_STATIC) {
		ts_peek(&t->scratch, sizeof(struct ts_count), self + ts_view_window(view));
		value.value = t->scratch.sum[0] + t->scratch.sum[1];
	} else {
		ts_peek(&t->scratch, sizeof(struct ts_window), self + ts_view_window(view));
		if (ts_window_eval(&t->scratch, tick, &value))
			value.value = ts_window_now(&t->scratch, tick->fraction);
	}
	if (value.value)
		ts_order_slow(t, tick, self, id, value.value, view);
	ts_bank_leave(bank, 1);
}

SEC("iter/task")
int top_refill_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct tasks_object *o;

	if (!task)
		return 0;
	o = bpf_task_storage_get(&objects, task, NULL, 0);
	if (o)
		top_order_again(TASKS_TASKS, o->self, o->id);
	return 0;
}

SEC("iter/bpf_map_elem")
int top_refill_groups(struct bpf_iter__bpf_map_elem *ctx)
{
	struct tasks_group *g = ctx->value;

	if (g)
		top_order_again(TASKS_CGROUPS, g->self, g->id);
	return 0;
}
