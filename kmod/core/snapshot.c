// SPDX-License-Identifier: GPL-2.0-only
/*
 * A snapshot of a table: each CPU's part of it at one instant, and the exact merge. It drains nothing, and readers are
 * independent of each other. Rows are read before totals, and a push adds to totals first (P1), so `other` is never negative.
 */

#include <linux/cpu.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/sort.h>
#include <linux/timekeeping.h>
#include "core.h"

/* The number of tries while a push holds the bank, or while a CPU writes to a window. */
#define BUSY_TRIES 200
/* The number of times that a snapshot is begun, because the table advanced by two slides during the previous one. */
#define SNAPSHOT_TRIES 5

const char *const tt_lost_names[TT_LOST] = {
	"contended", "no_memory", "crowded", "skipped", "opaque", "cut", "foreign", "broken",
};

bool tt_shows_lost(const struct topstat_table *t, enum tt_lost lost)
{
	const struct topstat_observed *observed = t->sample->observed;

	if (lost == TT_OPAQUE)
		return observed && observed->has_opaque;
	return lost < TT_CUT || !observed;
}

static u64 add(u64 a, u64 b)
{
	return a + b < a ? U64_MAX : a + b;
}

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
	u32 slot, mask = ts_view_mask(t->view);

	take->error = -EAGAIN;
	if (!take->only_read && t->sample->observed && t->sample->observed->settle && !t->sample->observed->settle())
		return;
	ts_section_begin(head, t->config, get_jiffies_64(), take->now);
	if (!take->only_read && !ts_bank_enter(bank))
		return;
	ts_section_table(head, on, t->config, take->only_read);
	for (slot = 0; slot <= mask; slot++) {
		struct tt_row *row = &take->section->rows[head->rows];

		row->object = ts_section_row(head, on, slot, t->view, take->only_read, &row->head);
		if (row->object)
			head->rows++;
	}
	ts_section_end(head, on);
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
static void leave_out(struct tt_snapshot *s, const struct tt_found *found, u32 count)
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
		if (ts_id_now(row->object, t->view) != row->head.id)
			continue;
		if (!is_whole(t, row)) {
			leave_out(s, &(struct tt_found){ row, section->cpu }, 1);
			continue;
		}
		if (observed)
			observed->describe(row->object, row->head.id, &row->described);
		else if (info->describe)
			info->describe(tt_of(t), (const void *)(unsigned long)row->object, &row->described, info->private);
		if (row->described.cut)
			atomic64_inc(&t->misused[TT_CUT]);
		if (ts_id_now(row->object, t->view) == row->head.id)
			kept++;
	}
	section->head->rows = kept;
}

/* The first section sets the instant of the snapshot. */
static void is_taken(struct tt_snapshot *s, struct tt_section *section)
{
	if (s->section_count == 1)
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

/* Whether any amount was ever counted, or any object ordered for a snapshot, on the CPU. Unused CPUs cost nothing. */
static bool is_used(const struct topstat_table *t, u32 cpu)
{
	const struct ts_table *on = tt_table_on(t, cpu);

	return READ_ONCE(on->total.sum[0]) || READ_ONCE(on->total.sum[1]) || READ_ONCE(on->n);
}

static int add_section(struct tt_snapshot *s, u32 cpu, bool only_read)
{
	u32 entries = ts_view_mask(s->table->view) + 1;
	struct tt_section *section = &s->sections[s->section_count];
	struct take take = { .table = s->table, .section = section, .only_read = only_read };
	int error;

	section->cpu = cpu;
	section->head = kzalloc(sizeof(*section->head), GFP_KERNEL);
	/* One row more than entries: the next row is written to its place before it is known whether there is one. */
	section->rows = kvmalloc(array_size(entries + 1, sizeof(*section->rows)), GFP_KERNEL);
	s->section_count++;
	if (!section->head || !section->rows)
		return -ENOMEM;
	take.now = s->section_count > 1 ? s->tick.now : 0;
	error = take_on_cpu(s, &take);
	return error;
}

static int take_sections(struct tt_snapshot *s, bool only_read)
{
	int error = 0;
	u32 cpu;

	for_each_possible_cpu(cpu)
		if (!error && is_used(s->table, cpu))
			error = add_section(s, cpu, only_read);
	if (!error && !s->section_count)
		error = add_section(s, cpumask_first(cpu_possible_mask), only_read);
	return error;
}

/* The value of a window that pushes may write at the same time. -EAGAIN: the window is too far ahead of the tick. */
static int evaluate(const struct tt_snapshot *s, struct ts_window *copy, const struct ts_window *of,
		    const struct ts_tick *tick, u64 *value)
{
	struct ts_value v;
	int tries;

	if (tt_is_static(s->table)) {
		*value = READ_ONCE(of->sum[0]) + READ_ONCE(of->sum[1]);
		return 0;
	}
	for (tries = 0; tries < BUSY_TRIES; tries++) {
		if (ts_window_peek(copy, (u64)(unsigned long)of) == TS_COPY_OK && !ts_window_eval(copy, tick, &v)) {
			*value = v.value;
			return 0;
		}
		cond_resched();
	}
	return -EAGAIN;
}

/*
 * A tick at the beginning of the previous slide. Evaluated at this tick, a total counts from the beginning of the slide
 * before the period that ends at `tick`. So it has all amounts that any object has in that period: a burst may fade later in the
 * object than in the total, and a push at a slide's boundary may be a slide earlier in the total.
 */
static struct ts_tick slide_before(const struct ts_tick *tick)
{
	struct ts_tick before = *tick;

	before.slide--;
	before.mark = ts_mark_index(tick->mark, 1);
	before.place = TS_MARK_FIRST + before.mark;
	before.place_recent = TS_MARK_FIRST + ts_mark_index(before.mark, TS_SLIDES - 1);
	before.place_fading = TS_MARK_FIRST + ts_mark_index(before.mark, TS_SLIDES);
	before.fraction = 0;
	return before;
}

/*
 * The upper bound of the sum of all rows. A static total has each push before its object has it, and is read after the object
 * (P1). Objects of an observer are in the observer's memory; an amount that it spreads over time may fade later in an object than
 * in the total.
 */
static void bound_rows(struct tt_snapshot *s, struct ts_window *copy)
{
	struct ts_tick before = slide_before(&s->tick);
	u64 of_cpu;
	u32 i;

	s->most = tt_is_static(s->table) ? s->total : 0;
	if (s->table->sample->observed)
		s->most = U64_MAX;
	for (i = 0; i < s->section_count && !tt_is_static(s->table); i++) {
		const struct ts_window *total = &tt_table_on(s->table, s->sections[i].cpu)->total;

		if (evaluate(s, copy, total, &before, &of_cpu)) /* it is too far ahead: use all of its pushes ever */
			of_cpu = READ_ONCE(total->sum[0]) + READ_ONCE(total->sum[1]);
		s->most = add(s->most, of_cpu);
	}
}

/*
 * The totals of all CPUs; and the bound of the unknown part of any object (T6): the slide in which the period began counts whole.
 */
static int evaluate_totals(struct tt_snapshot *s, u64 *refused)
{
	struct ts_window *copy = kmalloc(sizeof(*copy), GFP_KERNEL);
	struct ts_tick whole = s->tick;
	int error = copy ? 0 : -ENOMEM;
	u64 of_cpu;
	u32 i;

	whole.fraction = 0;
	*refused = 0;
	s->total = 0;
	for (i = 0; i < s->section_count && !error; i++) {
		struct tt_section *section = &s->sections[i];

		error = evaluate(s, copy, &tt_table_on(s->table, section->cpu)->total, &s->tick, &section->total);
		s->total = add(s->total, section->total);
	}
	for (i = 0; i < s->section_count && !error; i++) {
		error = evaluate(s, copy, &tt_table_on(s->table, s->sections[i].cpu)->refused, &whole, &of_cpu);
		*refused = add(*refused, of_cpu);
	}
	if (!error)
		bound_rows(s, copy);
	kfree(copy);
	return error;
}

static int by_id(const void *a, const void *b)
{
	const struct tt_found *x = a, *y = b;

	if (x->row->head.id != y->row->head.id)
		return x->row->head.id < y->row->head.id ? -1 : 1;
	return x->cpu < y->cpu ? -1 : x->cpu > y->cpu;
}

static int descending(u64 a, u64 b, u64 id_a, u64 id_b)
{
	if (a != b)
		return a > b ? -1 : 1;
	/* Equal values are in the order of age, so that their order is stable. */
	return id_a < id_b ? -1 : id_a > id_b;
}

static int by_value(const void *a, const void *b)
{
	const struct ts_row *x = &((const struct tt_merged *)a)->row->head, *y = &((const struct tt_merged *)b)->row->head;

	return descending(x->value, y->value, x->id, y->id);
}

static int by_key(const void *a, const void *b)
{
	const struct ts_row *x = &(*(const struct tt_row *const *)a)->head, *y = &(*(const struct tt_row *const *)b)->head;

	return descending(x->key, y->key, x->id, y->id);
}

/* Sort the rows of one CPU by the values that the table had ordered them by. */
static int order_section(struct tt_section *section, u32 top)
{
	u32 i;

	section->by_key = kvmalloc_array(section->head->rows + 1, sizeof(*section->by_key), GFP_KERNEL);
	if (!section->by_key)
		return -ENOMEM;
	section->keyed = 0;
	for (i = 0; i < section->head->rows; i++)
		if (section->rows[i].head.key)
			section->by_key[section->keyed++] = &section->rows[i];
	sort(section->by_key, section->keyed, sizeof(*section->by_key), by_key, NULL);
	section->keyed = min(section->keyed, top);
	return 0;
}

/*
 * Merge the rows of each object. Its values on the CPUs differ only by pushes in between, which only add: the largest is the
 * latest.
 */
static u32 merge_found(struct tt_snapshot *s, u32 count)
{
	u32 i, k, objects = 0;

	sort(s->found, count, sizeof(*s->found), by_id, NULL);
	for (i = 0; i < count; i = k) {
		struct tt_merged *m = &s->merged[objects++];

		m->row = s->found[i].row;
		m->found = &s->found[i];
		for (k = i + 1; k < count && s->found[k].row->head.id == m->row->head.id; k++)
			if (s->found[k].row->head.value > m->row->head.value)
				m->row = s->found[k].row;
		m->count = k - i;
	}
	return objects;
}

static void take_unranked(struct tt_snapshot *s)
{
	const struct topstat_observed *observed = s->table->sample->observed;
	u64 value = 0;

	if (!observed || !observed->unranked || !observed->unranked(s->table->number, &s->tick, &value))
		return;
	s->unranked.head.id = U64_MAX;
	s->unranked.head.value = value;
	s->unranked.head.part[0] = value;
	s->unranked.described.columns = s->table->sample->info.column_count;
	observed->unranked_describe(&s->unranked.described);
}

/*
 * Choose the largest objects that fit in the total, up to the table's number of rows. A row that does not fit belongs to a broken
 * object.
 */
static void choose_rows(struct tt_snapshot *s, u32 objects)
{
	u64 shown = 0, value;
	u32 i;

	s->rows = 0;
	for (i = 0; i < objects && s->rows < s->table->top; i++) {
		const struct tt_merged *m = &s->merged[i];

		value = m->row->head.value;
		if (!value)
			break;
		if (value > s->most - shown) {
			leave_out(s, m->found, m->count);
			continue;
		}
		shown += value;
		s->merged[s->rows++] = *m;
	}
	s->hidden = i < objects ? s->merged[i].row->head.value : 0;
	s->other = s->total - min(s->total, shown);
}

static int merge(struct tt_snapshot *s)
{
	u32 i, k, rows = 0, count = 0, objects;
	int error;

	for (i = 0; i < s->section_count; i++)
		rows += s->sections[i].head->rows;
	s->found = kvmalloc_array(rows + 1, sizeof(*s->found), GFP_KERNEL);
	s->merged = kvmalloc_array(rows + 1, sizeof(*s->merged), GFP_KERNEL);
	if (!s->found || !s->merged)
		return -ENOMEM;
	for (i = 0; i < s->section_count; i++) {
		struct tt_section *section = &s->sections[i];

		for (k = 0; k < section->head->rows; k++)
			s->found[count++] = (struct tt_found){ &section->rows[k], section->cpu };
		error = order_section(section, s->table->top);
		if (error)
			return error;
	}
	objects = merge_found(s, count);
	s->seen = objects;
	if (s->unranked.head.id)
		s->merged[objects++] = (struct tt_merged){ &s->unranked, NULL, 0 };
	sort(s->merged, objects, sizeof(*s->merged), by_value, NULL);
	choose_rows(s, objects);
	return 0;
}

/*
 * A push that was under way at a slide's boundary may be in one slide for its object and in the next for the total, and both fade
 * in their own way: the total is raised to the sum of the rows where that is larger. A static total is never less than its rows.
 */
static int settle(struct tt_snapshot *s)
{
	struct tt_section *most = &s->sections[0];
	u64 shown = 0;
	u32 i;

	for (i = 0; i < s->rows; i++)
		shown = add(shown, s->merged[i].row->head.value);
	if (shown <= s->total)
		return 0;
	if (tt_is_static(s->table))
		return -EIO;
	for (i = 1; i < s->section_count; i++)
		if (s->sections[i].total >= most->total)
			most = &s->sections[i];
	most->total += shown - s->total;
	s->total = shown;
	return 0;
}

/* The bound of an object that is in no table: T5, and the bounds of the whole table. */
static u64 most_absent(const struct tt_snapshot *s)
{
	/* With a delay, objects may have grown without being ordered. */
	bool ordered = !s->config.delay_ms && !s->doubted;
	u64 missed = ordered ? 0 : U64_MAX;
	u32 i;

	/* Kept objects without a push are in no total. */
	if (!READ_ONCE(s->table->complete))
		return U64_MAX;
	if (!s->table->sample->observed && s->seen >= s->alive_most)
		return 0;
	for (i = 0; i < s->section_count; i++)
		missed = max(missed, s->sections[i].head->missed);
	if (!tt_is_static(s->table))
		return missed;
	/* No object was turned away, and yet there are more objects than in the tables: these were overwritten. */
	if (!missed && s->seen < s->alive_least)
		missed = U64_MAX;
	/* The total has all of an object without a row, and no row has it. */
	return min(missed, s->other);
}

/* Count the rows that are certain to be the true top: no object without a row can be larger (T5, T6). */
static void prove(struct tt_snapshot *s, u64 refused)
{
	u64 least = add(max(most_absent(s), s->hidden), refused);

	s->proven = 0;
	while (s->proven < s->rows && s->merged[s->proven].row->head.value >= least && !s->merged[s->proven].row->head.busy)
		s->proven++;
}

/* The losses of the table since it was made, and the losses since the previous snapshot. */
static void count_lost(struct tt_snapshot *s)
{
	struct topstat_table *t = s->table;
	u32 i;

	for (i = 0; i < s->section_count; i++) {
		const struct ts_section *head = s->sections[i].head;

		s->lost[TT_CONTENDED] += head->contended;
		s->lost[TT_NO_MEMORY] += head->no_memory;
		s->lost[TT_CROWDED] += head->crowded;
		s->lost[TT_OPAQUE] += head->opaque;
	}
	for (i = TT_CUT; i < TT_LOST; i++)
		s->lost[i] = atomic64_read(&t->misused[i]);
	mutex_lock(&t->told_lock);
	for (i = 0; i < TT_LOST; i++) {
		s->lost_now[i] = s->lost[i] > t->told[i] ? s->lost[i] - t->told[i] : 0;
		t->told[i] = s->lost[i];
	}
	mutex_unlock(&t->told_lock);
}

/* Called in process context: see struct topstat_observed. */
void tt_settle_all(const struct topstat_sample *s)
{
	if (s->observed && s->observed->settle_all)
		s->observed->settle_all(s->observed->bank);
}

static int try_take(struct tt_snapshot *s, bool only_read)
{
	const struct ts_census *census = tt_census(s->table);
	u64 refused, begun, ended, begun_before, ended_before;
	int error;

	s->sections = kvcalloc(num_possible_cpus(), sizeof(*s->sections), GFP_KERNEL);
	if (!s->sections)
		return -ENOMEM;
	s->config = *s->table->config;
	s->only_read = only_read;
	s->refills = READ_ONCE(tt_of(s->table)->refills);
	smp_rmb(); /* before any bound is read: pairs with tt_refill() */
	tt_settle_all(s->table->sample);
	ended_before = READ_ONCE(census->ended);
	begun_before = READ_ONCE(census->begun);
	smp_rmb(); /* an ended object has no row: pairs with the swap in end() of push.c */
	ktime_get_real_ts64(&s->time);
	error = take_sections(s, only_read);
	if (error)
		return error;
	take_unranked(s);
	error = evaluate_totals(s, &refused);
	if (error)
		return error;
	error = merge(s);
	if (!error)
		error = settle(s);
	if (error)
		return error;
	smp_rmb(); /* an object with a row has begun: pairs with the swap in enter() of push.c */
	ended = READ_ONCE(census->ended);
	begun = READ_ONCE(census->begun);
	s->objects = begun > ended ? begun - ended : 0;
	s->alive_least = begun_before > ended ? begun_before - ended : 0;
	s->alive_most = begun > ended_before ? begun - ended_before : 0;
	smp_rmb(); /* all bounds were read: pairs with tt_refill() */
	if (s->refills & 1 || s->refills != READ_ONCE(tt_of(s->table)->refills))
		s->doubted = true;
	prove(s, refused);
	s->since = s->tick.now - min(s->tick.now, TS_SLIDES * (s->tick.end - s->tick.start));
	count_lost(s);
	return 0;
}

static int take_snapshot(struct tt_snapshot *s, struct topstat_table *t, bool only_read)
{
	int tries, error = -EAGAIN;

	for (tries = 0; tries < SNAPSHOT_TRIES && error == -EAGAIN; tries++) {
		memset(s, 0, sizeof(*s));
		s->table = t;
		error = try_take(s, only_read);
		if (error)
			tt_snapshot_free(s);
	}
	/* Reading takes longer than a slide. */
	return error == -EAGAIN ? -EBUSY : error;
}

/*
 * Whether the rows can be proven by ordering all objects again. A dynamic table forgets its bounds within a period. With a delay,
 * objects grow without being ordered.
 */
static bool is_worth_refill(const struct tt_snapshot *s)
{
	return tt_is_static(s->table) && !s->only_read && !s->config.delay_ms && s->config.enabled && s->proven < s->rows;
}

/* `only_read`: reads the table in its present state. Returns 0, or an error; after an error there is nothing to free. */
int tt_snapshot_take(struct tt_snapshot *s, struct topstat_table *t, bool only_read)
{
	int error = take_snapshot(s, t, only_read);

	if (error || !is_worth_refill(s) || !tt_refill(t))
		return error;
	tt_snapshot_free(s);
	return take_snapshot(s, t, only_read);
}

void tt_snapshot_free(struct tt_snapshot *s)
{
	u32 i;

	for (i = 0; i < s->section_count; i++) {
		kfree(s->sections[i].head);
		kvfree(s->sections[i].rows);
		kvfree(s->sections[i].by_key);
	}
	kvfree(s->sections);
	kvfree(s->found);
	kvfree(s->merged);
	memset(s, 0, sizeof(*s));
}
