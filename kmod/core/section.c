// SPDX-License-Identifier: GPL-2.0-only
/* The sections of a snapshot: each CPU's part of a table, taken on that CPU. */

#include <linux/cpu.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/sort.h>
#include "core.h"

/* The number of tries while a push holds the bank. */
#define BUSY_TRIES 200

static_assert(offsetof(struct tt_row, head) == offsetof(struct ts_found, row));
static_assert(offsetof(struct tt_row, object) == offsetof(struct ts_found, object));

/* The arguments and result of taking one CPU's section. */
struct take {
	struct topstat_table *table;
	struct tt_section *section;
	u64 now; /* the instant; 0: the present time */
	bool only_read;
	int error;
};

/* Runs on the CPU itself, with interrupts off; or, with `only_read`, on any CPU. */
static void take_section(void *arg)
{
	struct take *take = arg;
	struct topstat_table *t = take->table;
	struct ts_section *head = take->section->head;
	struct ts_bank *bank = tt_bank(t, take->section->cpu);
	struct ts_table *on = ts_bank_table(bank, t->number, t->stride);
	const struct topstat_observed *observed = t->sample->observed;

	take->error = -EAGAIN;
	if (!take->only_read && observed && observed->settle && !observed->settle())
		return;
	ts_section_begin(head, t->config, get_jiffies_64(), take->now);
	if (!take->only_read && !ts_bank_enter(bank))
		return;
	if (observed)
		observed->engine->section(head, on, t->config, t->view, take->only_read, take->section->rows,
					  sizeof(struct tt_row));
	else
		ts_section_take(head, on, t->config, t->view, take->only_read, take->section->rows,
				sizeof(struct tt_row));
	ts_bank_leave(bank, !take->only_read);
	take->error = 0;
}

/*
 * Whether a row of topstat.h has an object that still exists. The caller has found that the object's id is the row's id. An
 * object that has ended properly has no id, until the end of the RCU read section in which the row was found. Otherwise the
 * object's memory was freed, or overwritten.
 */
static bool is_whole(struct topstat_table *t, const struct tt_row *row)
{
	u32 abi = 0;
	u64 of = 0, self = 0;

	if (t->sample->observed)
		return true;
	return !ts_peek(&abi, sizeof(abi), row->object + offsetof(struct topstat_object, abi)) &&
	       !ts_peek(&of, sizeof(of), row->object + offsetof(struct topstat_object, table)) &&
	       !ts_peek(&self, sizeof(self), row->object + offsetof(struct topstat_object, self)) &&
	       abi == tt_of(t)->object_abi && of == t->instance && self == row->object;
}

/* A slot of a CPU's table whose object is broken. */
struct broken {
	const struct topstat_table *table;
	const struct ts_tick *tick;
	u32 cpu;
	u32 slot;
	u64 id;
};

/* Runs on the CPU itself, with interrupts off. The object may have had any value, which missed[] records. */
static void drop_broken(void *arg)
{
	const struct broken *broken = arg;
	const struct topstat_table *t = broken->table;
	struct ts_bank *bank = tt_bank(t, broken->cpu);
	struct ts_table *on = tt_table_on(t, broken->cpu);
	u32 mask = ts_view_mask(t->view);
	const struct ts_entry *e = ts_entry(on, broken->slot, mask);

	if (!ts_bank_enter(bank)) /* the next snapshot finds it again */
		return;
	if (e->obj && e->id == broken->id) {
		ts_miss(on->missed, broken->tick, ~0ULL, ts_view_type(t->view));
		ts_remove_node(on, e->pos, mask);
	}
	ts_bank_leave(bank, 1);
}

/*
 * Leave out rows that can't be right: they are not shown, leave the tables of their CPUs, count as one mistake, and are logged
 * once.
 */
void tt_leave_out(struct tt_snapshot *s, const struct tt_found *found, u32 count)
{
	struct topstat_table *t = s->table;
	u32 i;

	s->doubted = true;
	if (s->only_read)
		return;
	if (tt_misused(t, TT_BROKEN))
		pr_warn("topstat: an object of %s/%s is none any more: freed without topstat_object_dead(), or overwritten\n",
			t->sample->info.name, t->name);
	for (i = 0; i < count; i++) {
		const struct ts_row *row = &found[i].row->head;
		struct broken broken = { t, &s->tick, found[i].cpu, row->slot, row->id };

		smp_call_function_single(broken.cpu, drop_broken, &broken, 1);
	}
}

/* The id that the object of a row has now; 0: it has ended. */
static u64 id_now(const struct topstat_table *t, u32 cpu, const struct tt_row *row)
{
	const struct topstat_observed *observed = t->sample->observed;

	if (observed)
		return observed->engine->id(tt_table_on(t, cpu), row->head.slot, row->object, t->view);
	return ts_id_now(row->object, t->view);
}

/* Keep the rows whose objects have not ended since they were found. Called inside an RCU read section. */
static void describe(struct tt_snapshot *s, struct tt_section *section)
{
	struct topstat_table *t = s->table;
	const struct topstat_sample_info *info = &t->sample->info;
	const struct topstat_observed *observed = t->sample->observed;
	u32 found = section->head->rows, i, kept = 0;

	for (i = 0; i < found; i++) {
		struct tt_row *row = &section->rows[kept];

		if (kept != i)
			*row = section->rows[i];
		row->described = (struct topstat_row){ .columns = info->column_count };
		if (id_now(t, section->cpu, row) != row->head.id)
			continue;
		if (!is_whole(t, row)) {
			tt_leave_out(s, &(struct tt_found){ row, section->cpu }, 1);
			continue;
		}
		if (observed)
			observed->describe(tt_table_on(t, section->cpu), &row->head, row->object, &row->described);
		else if (info->describe)
			info->describe(tt_of(t), (const void *)(unsigned long)row->object, &row->described, info->private);
		if (row->described.cut)
			atomic64_inc(&t->misused[TT_CUT]);
		if (id_now(t, section->cpu, row) == row->head.id)
			kept++;
	}
	section->head->rows = kept;
}

/* The first section sets the instant of the snapshot. */
static void is_taken(struct tt_snapshot *s, struct tt_section *section)
{
	if (section == s->sections)
		s->tick = section->head->tick;
	describe(s, section);
}

static int take_on_cpu(struct tt_snapshot *s, struct take *take)
{
	int tries, error = -EAGAIN;

	for (tries = 0; tries < BUSY_TRIES && !take->only_read; tries++) {
		rcu_read_lock();
		error = smp_call_function_single(take->section->cpu, take_section, take, 1);
		if (!error)
			error = take->error;
		if (!error)
			is_taken(s, take->section);
		rcu_read_unlock();
		if (error != -EAGAIN)
			break;
		if (signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	if (!error)
		return 0;
	/* Only to be read, or the CPU is offline, or another context has held the bank for all tries: read the table as it is. */
	take->section->stale = !take->only_read;
	take->only_read = true;
	rcu_read_lock();
	take_section(take);
	is_taken(s, take->section);
	rcu_read_unlock();
	return 0;
}

/* The number of objects that have ended on the CPU, where rows of these are kept (T9). */
static u64 ends(const struct topstat_table *t, u32 cpu)
{
	const struct topstat_observed *observed = t->sample->observed;

	return observed ? observed->engine->ends(tt_table_on(t, cpu)) : 0;
}

/* Whether any amount was ever counted, any object ordered for a snapshot, or a row kept on the CPU. Unused CPUs cost nothing. */
static bool is_used(const struct topstat_table *t, u32 cpu)
{
	const struct ts_table *on = tt_table_on(t, cpu);

	return READ_ONCE(on->total.sum[0]) || READ_ONCE(on->total.sum[1]) || READ_ONCE(on->n) || ends(t, cpu);
}

/* Take one more section, whose number was counted before. */
static int add_section(struct tt_snapshot *s, u32 cpu, bool only_read)
{
	struct tt_section *section = &s->sections[s->section_count + s->again - 1];
	u32 entries = ts_view_mask(s->table->view) + 1;
	struct take take = { .table = s->table, .section = section, .only_read = only_read };

	section->cpu = cpu;
	section->head = kzalloc(sizeof(*section->head), GFP_KERNEL);
	/* One row more than entries: the next row is written to its place before it is known whether there is one. */
	section->rows = kvmalloc(array_size(entries + 1, sizeof(*section->rows)), GFP_KERNEL);
	if (!section->head || !section->rows)
		return -ENOMEM;
	take.now = section == s->sections ? 0 : s->tick.now;
	return take_on_cpu(s, &take);
}

static bool has_section(const struct tt_snapshot *s, u32 cpu)
{
	u32 i;

	for (i = 0; i < s->section_count; i++)
		if (s->sections[i].cpu == cpu)
			return true;
	return false;
}

static int by_cpu(const void *a, const void *b)
{
	const struct tt_section *x = a, *y = b;

	return x->cpu < y->cpu ? -1 : x->cpu > y->cpu;
}

/*
 * Take the sections of all CPUs that are used. A CPU that was idle at first is taken after the others, if an object
 * has ended on it. Then another section is taken of each CPU on which objects have ended since its first one: it has the
 * objects that were only in the table of another CPU, and ended before that table was read (T9).
 */
int tt_take_sections(struct tt_snapshot *s, bool only_read)
{
	int error = 0, pass;
	u32 cpu, i;

	for (pass = 0; pass < 2; pass++) {
		for_each_possible_cpu(cpu) {
			if (error || !is_used(s->table, cpu) || has_section(s, cpu))
				continue;
			s->section_count++;
			error = add_section(s, cpu, only_read);
		}
	}
	if (!error && !s->section_count) {
		s->section_count++;
		error = add_section(s, cpumask_first(cpu_possible_mask), only_read);
	}
	if (!error)
		sort(s->sections, s->section_count, sizeof(*s->sections), by_cpu, NULL);
	for (i = 0; i < s->section_count && !error; i++) {
		if (ends(s->table, s->sections[i].cpu) == s->sections[i].head->ends)
			continue;
		s->again++;
		error = add_section(s, s->sections[i].cpu, only_read);
	}
	return error;
}
