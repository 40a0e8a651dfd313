// SPDX-License-Identifier: GPL-2.0-only
/* What tables are set to: from milliseconds to what the engine computes with. */

#include <linux/bits.h>
#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include "core.h"

/* With fewer jiffies to a slide, the clock's grain would show in the values. */
#define JIFFIES_PER_SLIDE_MIN 10
/* Slides are whole jiffies. Where that changes the period by more than one part in this many, nanoseconds are used. */
#define ROUNDING 200
/* The same with the jiffy in which its period ends, through which a push is counted. */
#define ROUNDING_AND_GRAIN 100
/* Delays have 32 bits: in nanoseconds they are counted in units of 2^20. */
#define PRECISE_DELAY_SHIFT 20
/* The fixed point of ts_config.fraction. */
#define FRACTION_ONE BIT_ULL(56)

static u64 apart(u64 a, u64 b)
{
	return a > b ? a - b : b - a;
}

/* All but switches and `quiet`. The epoch must be another one whenever the period is. -EINVAL: out of range. */
int tt_config(struct ts_config *c, u32 period_ms, u32 delay_ms, u32 type, u32 epoch, u32 hz)
{
	u64 exact, slide, rounded, units;

	if (!period_ms || period_ms > TT_PERIOD_MS_MAX || delay_ms > TT_DELAY_MS_MAX)
		return -EINVAL;
	/* In jiffies, times the milliseconds of a second; but the slide. */
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

/* The entries of a table of so many rows; 0: there is none of so many. */
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

/* Pushes may be summed alone where every table of the bank that is on has a delay. */
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

/* While there was a delay, objects have grown without being looked at: nothing is proven until a period has gone by (T5). */
static void distrust(struct topstat_table *t)
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
 * Set all of a table. tt_lock is held. Pushes go on meanwhile: one that sees half of it is of the old or the new epoch, and is
 * counted; the generation, written last, has each CPU take up the rest.
 */
int tt_values_set(struct topstat_table *t, const struct tt_values *v)
{
	struct ts_config c = *t->config, *to = t->config;
	u32 before = c.delay;
	int error;

	lockdep_assert_held(&tt_lock);
	error = tt_config(&c, v->period_ms, v->delay_ms, ts_view_type(t->view),
			  c.epoch && c.period_ms == v->period_ms ? c.epoch : next_epoch(c.epoch), HZ);
	if (error)
		return error;
	/* What was used until now is counted as it was set until now. */
	tt_settle_all(t->sample);
	c.switches = (v->enabled ? TS_SWITCH_TABLE : 0) | (t->sample->enabled ? TS_SWITCH_SAMPLE : 0) |
		     (tt_enabled ? TS_SWITCH_ROOT : 0) | (v->sync ? TS_SWITCH_SYNC : 0);
	c.enabled = (c.switches & TS_SWITCH_ALL) == TS_SWITCH_ALL;
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
	smp_wmb(); /* whoever sees the epoch sees the slide of it */
	WRITE_ONCE(to->epoch, c.epoch);
	set_quiet(t->bank_config);
	smp_wmb(); /* whoever sees the generation sees all of it */
	WRITE_ONCE(t->settings->generation, t->settings->generation + 1);
	if (before && !c.delay)
		distrust(t);
	return 0;
}

/* A number as a shell writes it: decimal digits, with white space around them. -EINVAL: it is none, or out of range. */
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

void topstat_table_set_enabled(struct topstat_table *t, bool enabled)
{
	set(t, to_enabled, enabled);
}
EXPORT_SYMBOL_GPL(topstat_table_set_enabled);

/* A switch above has changed: each table is set to what it is set to. */
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
