// SPDX-License-Identifier: GPL-2.0-only
/* The settings of tables: converts milliseconds to the units that the engine computes with. */

#include <linux/bits.h>
#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include "core.h"

/* With fewer jiffies to a slide, the clock's grain would show in the values. */
#define JIFFIES_PER_SLIDE_MIN 10
/* Slides are whole jiffies. Where that changes the period by more than one part in this many, the clock is nanoseconds. */
#define ROUNDING 200
/* As ROUNDING, with the jiffy in which the period ends: a push counts through that jiffy. */
#define ROUNDING_AND_GRAIN 100
/* Delays have 32 bits: with the nanosecond clock their unit is 2^20 ns. */
#define PRECISE_DELAY_SHIFT 20
/* The fixed point of ts_config.fraction. */
#define FRACTION_ONE BIT_ULL(56)

static u64 apart(u64 a, u64 b)
{
	return a > b ? a - b : b - a;
}

/* Sets all fields but switches and `quiet`. The epoch must change whenever the period does. -EINVAL: a value is out of range. */
int tt_config(struct ts_config *c, u32 period_ms, u32 delay_ms, u32 type, u32 epoch, u32 hz)
{
	u64 exact, slide, rounded, units;

	if (!period_ms || period_ms > TT_PERIOD_MS_MAX || delay_ms > TT_DELAY_MS_MAX)
		return -EINVAL;
	/* All in jiffies times MSEC_PER_SEC, except the slide. */
	exact = (u64)period_ms * hz;
	slide = div_u64(exact + TS_SLIDES * MSEC_PER_SEC / 2, TS_SLIDES * MSEC_PER_SEC);
	rounded = slide * TS_SLIDES * MSEC_PER_SEC;
	c->precise = exact < (u64)TS_SLIDES * JIFFIES_PER_SLIDE_MIN * MSEC_PER_SEC ||
		     apart(rounded, exact) * ROUNDING > exact ||
		     apart(rounded + MSEC_PER_SEC, exact) * ROUNDING_AND_GRAIN > exact;
	if (c->precise) {
		slide = div_u64((u64)period_ms * NSEC_PER_MSEC, TS_SLIDES);
		units = DIV_ROUND_UP_ULL((u64)delay_ms * NSEC_PER_MSEC, 1 << PRECISE_DELAY_SHIFT);
		c->delay_shift = PRECISE_DELAY_SHIFT;
	} else {
		units = DIV_ROUND_UP_ULL((u64)delay_ms * hz, MSEC_PER_SEC);
		c->delay_shift = 0;
	}
	c->type = type;
	c->epoch = epoch;
	c->slide = slide;
	c->fraction = div64_u64(FRACTION_ONE, slide);
	c->delay = units;
	c->period_ms = period_ms;
	c->delay_ms = delay_ms;
	return 0;
}

/* The entries of a table with `top` rows; 0: tables can't have this number of rows. */
u32 tt_entries_for(u32 top)
{
	if (top < TS_TOP_MIN || top > TS_TOP_MAX)
		return 0;
	return roundup_pow_of_two(top * TS_SPARE);
}

void tt_values_of(const struct topstat_table *t, struct tt_values *v)
{
	const struct ts_config *c = t->config;

	v->period_ms = READ_ONCE(c->period_ms);
	v->delay_ms = READ_ONCE(c->delay_ms);
	v->enabled = READ_ONCE(c->switches) & TS_SWITCH_TABLE;
	v->sync = READ_ONCE(c->switches) & TS_SWITCH_SYNC;
}

/* Pushes may only sum where every table of the bank that is switched on has a delay. */
static void set_quiet(struct ts_config *of_bank)
{
	u32 quiet = 1, i;

	for (i = 0; i < TS_BANK_TABLES; i++)
		if (of_bank[i].epoch && of_bank[i].enabled && !of_bank[i].delay)
			quiet = 0;
	for (i = 0; i < TS_BANK_TABLES; i++)
		if (of_bank[i].epoch)
			WRITE_ONCE(of_bank[i].quiet, quiet);
}

/*
 * Objects may have grown without being ordered: nothing is proven until a period has passed (T5), in a static table until all
 * objects were ordered again.
 */
void tt_distrust(struct topstat_table *t)
{
	u32 cpu, i;

	for_each_possible_cpu(cpu) {
		struct ts_table *on = tt_table_on(t, cpu);

		for (i = 0; i < TS_MARKS; i++) {
			WRITE_ONCE(on->missed[i], ~0ULL);
			WRITE_ONCE(on->missed_nested[i], ~0ULL);
		}
	}
}

/* Epochs go from 1 to 65535: 0 stands for no table. */
static u32 next_epoch(u32 epoch)
{
	return epoch % U16_MAX + 1;
}

/*
 * Set all values of a table. The caller holds tt_lock. Pushes continue during the change: a push that sees half of it belongs to
 * the old or to the new epoch, and is counted. The generation is written last, and makes each CPU read all of the settings.
 */
int tt_values_set(struct topstat_table *t, const struct tt_values *v)
{
	const struct topstat_observed *observed = t->sample->observed;
	struct ts_config c = *t->config, *to = t->config;
	u32 before = c.delay, was_enabled = c.enabled;
	bool begins = !c.epoch;
	int error;

	lockdep_assert_held(&tt_lock);
	error = tt_config(&c, v->period_ms, v->delay_ms, ts_view_type(t->view),
			  c.epoch && c.period_ms == v->period_ms ? c.epoch : next_epoch(c.epoch), HZ);
	if (error)
		return error;
	/* Amounts used until now count by the old settings. */
	tt_settle_all(t->sample);
	c.switches = (v->enabled ? TS_SWITCH_TABLE : 0) | (t->sample->enabled ? TS_SWITCH_SAMPLE : 0) |
		     (tt_enabled ? TS_SWITCH_ROOT : 0) | (v->sync ? TS_SWITCH_SYNC : 0);
	c.enabled = (c.switches & TS_SWITCH_ALL) == TS_SWITCH_ALL;
	if (observed && observed->begins && ((c.enabled && !was_enabled) || c.epoch != to->epoch))
		observed->begins(observed->bank, t->number, &c);
	WRITE_ONCE(to->enabled, c.enabled);
	WRITE_ONCE(to->type, c.type);
	WRITE_ONCE(to->precise, c.precise);
	WRITE_ONCE(to->slide, c.slide);
	WRITE_ONCE(to->fraction, c.fraction);
	WRITE_ONCE(to->delay, c.delay);
	WRITE_ONCE(to->delay_shift, c.delay_shift);
	WRITE_ONCE(to->period_ms, c.period_ms);
	WRITE_ONCE(to->delay_ms, c.delay_ms);
	WRITE_ONCE(to->switches, c.switches);
	smp_wmb(); /* a CPU that sees the epoch sees its slide */
	WRITE_ONCE(to->epoch, c.epoch);
	set_quiet(t->bank_config);
	smp_wmb(); /* a CPU that sees the generation sees all of the settings */
	WRITE_ONCE(t->settings->generation, t->settings->generation + 1);
	if (observed && observed->changed)
		observed->changed();
	/* Objects have grown without being ordered, or do so from now on: see topstat_table_set_enabled(). */
	if ((before && !c.delay) || (t->of && was_enabled != c.enabled && !begins))
		tt_distrust(t);
	tt_key(t, c.enabled);
	return 0;
}

/* Set the table's key, see topstat_push_if(). The caller holds tt_lock. */
void tt_key(const struct topstat_table *t, bool enabled)
{
	if (!t->key || static_key_enabled(t->key) == enabled)
		return;
	if (enabled)
		static_branch_enable(t->key);
	else
		static_branch_disable(t->key);
}

/*
 * Parse a number as a shell writes it: decimal digits, with white space around them. -EINVAL: it is no number, or out of range.
 */
int tt_parse(const char *text, size_t length, u32 least, u32 most, u32 *value)
{
	u64 number = 0;
	size_t i;

	while (length && isspace(text[0])) {
		text++;
		length--;
	}
	while (length && isspace(text[length - 1]))
		length--;
	if (!length)
		return -EINVAL;
	for (i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		number = number * 10 + text[i] - '0';
		if (number > most)
			return -EINVAL;
	}
	if (number < least)
		return -EINVAL;
	*value = number;
	return 0;
}

static int set(struct topstat_table *t, void (*change)(struct tt_values *v, u32 to), u32 to)
{
	struct tt_values v;
	int error;

	might_sleep();
	if (IS_ERR_OR_NULL(t))
		return 0;
	mutex_lock(&tt_lock);
	tt_values_of(t, &v);
	change(&v, to);
	error = tt_values_set(t, &v);
	mutex_unlock(&tt_lock);
	return error;
}

static void to_period(struct tt_values *v, u32 to)
{
	v->period_ms = to;
}

static void to_delay(struct tt_values *v, u32 to)
{
	v->delay_ms = to;
}

static void to_enabled(struct tt_values *v, u32 to)
{
	v->enabled = to;
}

int topstat_table_set_period(struct topstat_table *t, unsigned int ms)
{
	return set(t, to_period, ms);
}
EXPORT_SYMBOL_GPL(topstat_table_set_period);

int topstat_table_set_delay(struct topstat_table *t, unsigned int ms)
{
	return set(t, to_delay, ms);
}
EXPORT_SYMBOL_GPL(topstat_table_set_delay);

static void to_sync(struct tt_values *v, u32 to)
{
	v->sync = to;
}

void topstat_table_set_sync(struct topstat_table *t, bool sync)
{
	set(t, to_sync, sync);
}
EXPORT_SYMBOL_GPL(topstat_table_set_sync);

int topstat_table_set_top(struct topstat_table *t, unsigned int rows)
{
	if (IS_ERR_OR_NULL(t))
		return 0;
	if (!rows || rows > t->top_most)
		return -EINVAL;
	WRITE_ONCE(t->top, rows);
	return 0;
}
EXPORT_SYMBOL_GPL(topstat_table_set_top);

void topstat_table_set_enabled(struct topstat_table *t, bool enabled)
{
	set(t, to_enabled, enabled);
}
EXPORT_SYMBOL_GPL(topstat_table_set_enabled);

/* A switch of the sample or of the root has changed: compute the settings of each table again. */
static void set_again(struct topstat_sample *s)
{
	struct topstat_table *t;
	struct tt_values v;

	list_for_each_entry(t, &s->tables, list) {
		tt_values_of(t, &v);
		tt_values_set(t, &v);
	}
}

void topstat_sample_set_enabled(struct topstat_sample *s, bool enabled)
{
	might_sleep();
	if (IS_ERR_OR_NULL(s))
		return;
	mutex_lock(&tt_lock);
	s->enabled = enabled;
	set_again(s);
	mutex_unlock(&tt_lock);
}
EXPORT_SYMBOL_GPL(topstat_sample_set_enabled);

int tt_switch_root(bool enabled)
{
	struct topstat_sample *s;

	mutex_lock(&tt_lock);
	tt_enabled = enabled;
	list_for_each_entry(s, &tt_samples, list)
		set_again(s);
	mutex_unlock(&tt_lock);
	return 0;
}
