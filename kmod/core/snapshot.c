// SPDX-License-Identifier: GPL-2.0-only
/*
 * A snapshot of a table: each CPU's part of it at one instant (section.c), the totals, and the exact merge (merge.c). It drains
 * nothing, and readers are independent of each other. Rows are read before totals, and a push adds to totals first (P1), so
 * `other` is never negative.
 */

#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include "core.h"

/* The number of tries while a CPU writes to a window. */
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
	for (i = 0; i < s->section_count + s->again; i++)
		missed = max3(missed, s->sections[i].head->missed, s->sections[i].head->missed_ended);
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

	s->sections = kvcalloc(2 * num_possible_cpus(), sizeof(*s->sections), GFP_KERNEL);
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
	error = tt_take_sections(s, only_read);
	if (error)
		return error;
	take_unranked(s);
	error = evaluate_totals(s, &refused);
	if (error)
		return error;
	error = tt_merge(s);
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

	for (i = 0; i < s->section_count + s->again; i++) {
		kfree(s->sections[i].head);
		kvfree(s->sections[i].rows);
		kvfree(s->sections[i].by_key);
	}
	kvfree(s->sections);
	kvfree(s->found);
	kvfree(s->merged);
	memset(s, 0, sizeof(*s));
}
