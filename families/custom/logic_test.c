/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keys push amounts, or begin and end spans, in fewer places than there are keys. A model keeps the amounts of each key by slide.
 * In half of the runs three CPUs work at the same time, and take turns at any access to memory that they share.
 */
static void test_step(void);
#define TS_STEP() test_step()
#include <stdlib.h>
#include <ucontext.h>
#include "logic.h"
#include "observe/user_test.h"
#include "model_test.h"

static u64 missing_of(const struct custom_object *o)
{
	u64 epoch = (u64)settings.config[CUSTOM_SAMPLE][CUSTOM_TABLE].epoch << TS_EPOCH_SHIFT;

	return custom_is_over(o->born, epoch | slide_now()) ? 0 : o->missing;
}

static u64 value_of(const struct ts_window *w)
{
	return test_value(CUSTOM_SAMPLE, CUSTOM_TABLE, w);
}

static u64 most_of(const struct ts_window *w)
{
	return test_most(CUSTOM_SAMPLE, CUSTOM_TABLE, w);
}

static void compare_key(u32 i)
{
	struct key_model *m = &model[i];
	struct slide_model inside = model_since(m, TS_SLIDES - 1 - grain), outside = model_since(m, TS_SLIDES + grain);
	u64 least = inside.amount, most = outside.amount + ROUNDING, row = 0, value, missing, bound;
	struct custom_object *o = object_of(i);

	least = least > ROUNDING ? least - ROUNDING : 0;
	if (is_parallel) /* where another CPU is writing to the window, a span counts to its end (spread.h) */
		most += outside.ended;
	if (!o) {
		bound = most_of(&refused[keyed_first(keyed_hash(&m->key, CUSTOM_SAMPLE))].window);
		TEST_WANT(least <= bound, "key %u without an object: %llu, and its bucket has refused %llu", i,
			  (unsigned long long)least, (unsigned long long)bound);
		return;
	}
	value = value_of(&o->window[CUSTOM_TABLE]);
	missing = missing_of(o);
	TEST_WANT(value <= most, "key %u: %llu, more than %llu", i, (unsigned long long)value, (unsigned long long)most);
	TEST_WANT(least <= value + missing, "key %u: %llu and %llu missing, less than %llu", i, (unsigned long long)value,
		  (unsigned long long)missing, (unsigned long long)least);
	TEST_WANT(value_of(&o->times) <= outside.times, "key %u: more events than there were", i);
	if (!missing)
		TEST_WANT(value_of(&o->times) >= inside.times, "key %u: events are missing", i);
	TEST_WANT(o->longest <= m->longest, "key %u: no event was that long", i);
	if (value > test_missed(CUSTOM_SAMPLE, CUSTOM_TABLE))
		TEST_WANT(test_row(CUSTOM_SAMPLE, CUSTOM_TABLE, o->keyed.object.id, &row) && row == value, "key %u: no row", i);
}

/* U6, K7: a place is used again only after a while. U8: objects that are held stay. */
static void compare_places(void)
{
	u32 i, k, alive = 0;

	for (i = 0; i < in_use; i++) {
		struct custom_object *o = &objects[i];
		u64 tag = buckets[i / KEYED_WAYS].tag[i % KEYED_WAYS], id = o->keyed.object.id;

		TEST_WANT(id ? tag == id : tag <= KEYED_ENDED, "place %u: the tag is not the id", i);
		if (id && id != places[i].id && places[i].tag != KEYED_FREE)
			TEST_WANT(places[i].tag == KEYED_ENDED && host_jiffies() - places[i].ended >= KEYED_GRACE_MS,
				  "place %u: used too soon", i);
		places[i] = (struct place_model){ .id = id, .tag = tag, .ended = o->keyed.ended };
		if (!id)
			continue;
		alive++;
		TEST_WANT(!o->keyed.ended, "place %u has ended", i);
		for (k = 0; k < i; k++)
			TEST_WANT(!objects[k].keyed.object.id || !keyed_is_of(&objects[k], &o->key, CUSTOM_SAMPLE),
				  "places %u and %u have the same key", i, k);
	}
	TEST_WANT(census[CUSTOM_SAMPLE].begun - census[CUSTOM_SAMPLE].ended == alive, "objects are counted wrong");
	for (i = 0; i < KEYS; i++) {
		struct custom_object *o = object_of(i);

		if (model[i].held && host_jiffies() - model[i].begun < CUSTOM_LOST_MS)
			TEST_WANT(o && o->keyed.object.id == model[i].holding, "key %u: ended while it was held", i);
		if (o && o->keyed.object.id == model[i].holding)
			TEST_WANT(o->keyed.held == model[i].held, "key %u: held %llu times, not %llu", i,
				  (unsigned long long)o->keyed.held, (unsigned long long)model[i].held);
		else if (o)
			TEST_WANT(!o->keyed.held, "key %u: held by none", i);
	}
}

/* U1, and T6: the amounts without a row are at most the refused ones. */
static void compare_total(void)
{
	u64 all = 0, unknown = 0, rows = 0;
	u32 cpu, i;

	TEST_WANT(test_total(CUSTOM_SAMPLE, CUSTOM_TABLE) == total, "total %llu, not %llu",
		  (unsigned long long)test_total(CUSTOM_SAMPLE, CUSTOM_TABLE), (unsigned long long)total);
	for (cpu = 0; cpu < HOST_USER_CPUS; cpu++) {
		struct ts_table *t = obs_table(host_bank(cpu, CUSTOM_SAMPLE), CUSTOM_TABLE);

		unknown += most_of(&t->refused);
	}
	for (i = 0; i < KEYS; i++)
		all += model_since(&model[i], TS_SLIDES - 1 - grain).amount;
	all = all > ROUNDING * KEYS ? all - ROUNDING * KEYS : 0;
	for (i = 0; i < in_use; i++)
		if (objects[i].keyed.object.id)
			rows += most_of(&objects[i].window[CUSTOM_TABLE]);
	TEST_WANT(all <= rows + unknown, "rows %llu and refused %llu, less than the total %llu", (unsigned long long)rows,
		  (unsigned long long)unknown, (unsigned long long)all);
}

static void compare(void)
{
	u32 i;

	compare_total();
	compare_places();
	for (i = 0; i < KEYS; i++)
		compare_key(i);
}

/* A span holds no object any more. */
static void let_go(struct span_model *s)
{
	struct key_model *m = &model[s->key];

	if (s->on && s->holds && s->holds == m->holding)
		m->held--;
	s->on = 0;
}

static void model_begin(const struct work *w)
{
	struct span_model *s = &spans[w->span];
	struct key_model *m = &model[w->key];
	struct pending p = {};
	struct custom_object *o;

	*s = (struct span_model){ .on = 1, .key = w->key, .when = host_user_ns };
	TEST_WANT(pending_find(common_of(w->span), &p) && p.when == s->when, "span %u has not begun", w->span);
	o = custom_held_by(p.who);
	if (!o)
		return;
	TEST_WANT(keyed_is_of(o, &m->key, CUSTOM_SAMPLE), "span %u holds another key", w->span);
	s->holds = o->keyed.object.id;
	if (m->holding != s->holds)
		m->held = 0;
	m->holding = s->holds;
	m->held++;
	m->begun = host_jiffies();
}

/* U5: an object that one push has displaced was outweighed. */
static void compare_displaced(u64 credit)
{
	u32 i;

	for (i = 0; i < in_use; i++)
		if (places[i].id && objects[i].keyed.object.id != places[i].id)
			TEST_WANT(places[i].value < credit || !places[i].value, "place %u: %llu is displaced by %llu", i,
				  (unsigned long long)places[i].value, (unsigned long long)credit);
}

/* The next key without a place wins, and every place that has ended is older by this time. */
static void hurry(u32 ms)
{
	u32 i;

	for (i = 0; i < in_use; i++)
		if (objects[i].keyed.ended) {
			objects[i].keyed.ended -= ms;
			places[i].ended = objects[i].keyed.ended;
		}
	for (i = 0; i <= constants.buckets_mask; i++)
		refused[i] = (struct custom_refused){ .window = refused[i].window, .credit = 1ULL << 40, .since = host_jiffies() };
}

/* One CPU works, or several at the same time. */
static void step(u32 cpus, u32 hot, u32 is_span)
{
	u32 cpu, first = test_random(SPANS), i;
	u64 credit;

	for (cpu = 0; cpu < cpus; cpu++) {
		struct work *w = &works[cpu];
		struct span_model *s = &spans[(first + cpu) % SPANS];

		memset(w, 0, sizeof(*w));
		w->key = test_once_in(3) ? test_random(3) : test_random(hot);
		w->amount = 1 + test_random(1 << test_random(16));
		w->span = (first + cpu) % SPANS;
		if (!is_span)
			w->pushes = cpus == 1 ? 1 : 1 + test_random(PUSHES);
		w->begins = !s->on || test_once_in(8);
		if (test_once_in(40)) /* its end without its beginning, too */
			w->begins = 0;
		for (i = 0; i < w->pushes; i++)
			model_push(&model[(w->key + i) % KEYS], w->amount);
		if (is_span) {
			if (!w->begins && s->on)
				model_span(&model[s->key], s->when);
			let_go(s);
		}
	}
	for (i = 0; i < in_use; i++)
		places[i].value = places[i].id ? value_of(&objects[i].window[CUSTOM_TABLE]) : 0;
	credit = refused[keyed_first(keyed_hash(&model[works[0].key].key, CUSTOM_SAMPLE))].credit;
	steps_of_turn = 1 + test_random(1 << test_random(6));
	work_all(cpus);
	for (cpu = 0; cpu < cpus; cpu++) {
		struct custom_object *o = object_of(works[cpu].key);

		if (is_span && works[cpu].begins)
			model_begin(&works[cpu]);
		else if (cpus == 1 && !is_span && o)
			TEST_WANT(o->longest >= works[cpu].amount, "a long event is forgotten");
	}
	if (cpus == 1 && !is_span)
		compare_displaced(credit + works[0].amount);
}

static void empty_tables(void)
{
	u32 i, k;

	memset(census, 0, sizeof(census));
	memset(host_user_banks, 0, sizeof(host_user_banks));
	for (i = 0; i < HOST_USER_CPUS * HOST_BANKS; i++)
		for (k = 0; k < TS_BANK_TABLES; k++)
			ts_table_init(obs_table((void *)host_user_banks[i], k), HOST_USER_ENTRIES, i << 8 | k);
}

static void begin_table(u32 mask)
{
	u32 i;

	constants.buckets_mask = mask;
	in_use = (mask + 1) * KEYED_WAYS;
	memset(objects, 0, in_use * sizeof(*objects));
	memset(buckets, 0, (mask + 1) * sizeof(*buckets));
	memset(refused, 0, (mask + 1) * sizeof(*refused));
	memset(places, 0, in_use * sizeof(*places));
	memset(model, 0, sizeof(model));
	memset(spans, 0, sizeof(spans));
	for (i = 0; i < SPANS; i++)
		pending_take(common_of(i), &(struct pending){});
	empty_tables();
	total = unkept = 0;
	running = -1;
	constants.jiffy_ns = HOST_USER_JIFFY_NS;
}

static void number_keys(void)
{
	u32 i;

	for (i = 0; i < KEYS; i++)
		model[i].key.word[0] = i;
}

static void push_alone(u32 i, u64 amount)
{
	model_push(&model[i], amount);
	custom_push(&model[i].key, amount);
}

/*
 * A table that has refused nothing in the period. A key without a place displaces the smallest object, or ends silent ones, while
 * other CPUs push to the same keys. An amount that is lost in between is larger than the refused ones.
 */
static void race(u32 is_span)
{
	u32 is_silent = test_once_in(3), cpu, k, n;
	u64 id;

	begin_table(1);
	for (k = n = 0; n < KEYED_WAYS + 2; k++) { /* the last two keys have only the first bucket */
		u64 hash = keyed_hash(&(struct custom_key){ .word = { k } }, CUSTOM_SAMPLE);

		if (!keyed_first(hash) && keyed_second(hash) == (n < KEYED_WAYS))
			model[n++].key.word[0] = k;
	}
	for (k = 0; k < KEYED_WAYS; k++)
		push_alone(k, 1 + k);
	for (k = 0; k < CUSTOM_SPARES; k++) { /* these places are spare */
		refused[0].credit = 1ULL << 40;
		push_alone(KEYED_WAYS, 1);
	}
	test_time_passes((PERIOD_MS * 3ULL / 2 + 1) * 1000000);
	hurry(test_once_in(4) ? 0 : KEYED_GRACE_MS);
	for (k = 0; k < KEYED_WAYS && !is_silent; k++)
		if (object_of(k))
			push_alone(k, 100000 + 1000 * k);
	/* A key without an object, or the key of the smallest one. */
	k = test_once_in(3) ? 0 : CUSTOM_SPARES;
	TEST_WANT(!object_of(0) && object_of(CUSTOM_SPARES), "the smallest are displaced");
	id = k ? object_of(k)->keyed.object.id : 0;
	memset(works, 0, sizeof(works));
	for (cpu = 0; cpu < HOST_USER_CPUS; cpu++) {
		struct work *w = &works[cpu];

		w->key = cpu && !test_once_in(4) ? k : KEYED_WAYS + test_random(2);
		w->stop = test_random(1 << test_random(10));
		w->span = cpu;
		w->begins = is_span && cpu && test_once_in(2);
		w->pushes = !w->begins;
		w->amount = w->key == k && test_once_in(2) ? 200000 + test_random(1000) : 1;
		if (w->pushes)
			model_push(&model[w->key], w->amount);
	}
	steps_of_turn = 0;
	work_all(HOST_USER_CPUS);
	for (cpu = 0; cpu < HOST_USER_CPUS; cpu++)
		if (works[cpu].begins)
			model_begin(&works[cpu]);
	for (k = 0; k < in_use; k++)
		places[k].tag = KEYED_FREE; /* places were used before the comparison */
	compare();
	if (object_of(k) && object_of(k)->keyed.object.id == id && !missing_of(object_of(k)))
		TEST_WANT(object_of(k)->longest == model[k].longest, "a long event is forgotten");
}

/* Push this amount to a key again and again, until the key has an object. Returns the time that this has taken, in ms. */
static u32 until_object(u32 i, u64 amount)
{
	u32 ms;

	for (ms = 0; ms < 100000 && !object_of(i); ms++) {
		test_time_passes(1000000);
		push_alone(i, amount);
	}
	TEST_WANT(object_of(i), "key %u gets no place", i);
	return ms;
}

/* U5, U6: one bucket, whose objects are worth 100 to 160. */
static void contention(void)
{
	struct custom_object *o;
	u32 i, k, ms, was;

	begin_table(0);
	number_keys();
	for (i = 0; i < KEYED_WAYS; i++)
		custom_push(&model[i].key, 100 + 10 * i);
	for (i = 0; i < 50; i++) /* the keys without a place do not outweigh the smallest object */
		custom_push(&model[10 + i % 50].key, 2);
	for (i = 0; i < KEYED_WAYS; i++)
		TEST_WANT(object_of(i), "key %u is displaced by less than its value", i);
	custom_push(&model[10].key, 1);
	TEST_WANT(!object_of(0), "the smallest is displaced");
	for (i = 1; i < KEYED_WAYS; i++)
		TEST_WANT(object_of(i), "only the smallest is displaced");
	TEST_WANT(most_of(&refused[0].window) == 201, "the window has the refused amounts and the displaced value");
	/* A large key: its amounts of KEYED_GRACE_MS are the limit for the next ones. */
	ms = until_object(9, 150);
	TEST_WANT(ms >= KEYED_GRACE_MS && ms <= 2 * KEYED_GRACE_MS + 1, "after %u ms", ms);
	o = object_of(9);
	TEST_WANT(o->missing >= 201 && value_of(&o->window[0]) == 150, "it has its last amount, and the others are missing");
	/* When no keys contend, a spare place becomes free for all. */
	for (i = was = 0; i < KEYED_WAYS; i++)
		was += buckets[0].tag[i] == KEYED_ENDED;
	TEST_WANT(was, "there is a spare place");
	test_time_passes(KEYED_GRACE_MS * 1000000ULL);
	for (i = k = 0; i < 3; i++) {
		custom_push(&model[20 + i].key, 1);
		k += !!object_of(20 + i);
	}
	TEST_WANT(!k, "spare places are for keys that win");
	test_time_passes(10000000);
	for (i = 0; i < KEYED_WAYS; i++)
		objects[i].keyed.ended -= objects[i].keyed.ended ? CUSTOM_SPARE_MS : 0;
	custom_push(&model[23].key, 1);
	TEST_WANT(object_of(23), "a place that is long spare is free");
}

#include "spans_test.h"
#include "many_test.h"

TEST(custom)
{
	u32 i, steps = 50 + test_random(150), hot = 2 + test_random(2 * KEYED_WAYS), is_span = test_once_in(3), few = 0;

	constants.table.words = 2;
	if (seed < 3) {
		many_keys(seed == 1 ? 50 : 5, seed == 2, seed == 2 ? 20 : 48);
		return;
	}
	test_configure(CUSTOM_SAMPLE, CUSTOM_TABLE, TS_DYNAMIC, PERIOD_MS, 0);
	if (seed == 3)
		contention();
	else if (seed == 4)
		special_spans();
	else if (seed == 5)
		many_spans();
	if (seed < 6)
		return;
	is_parallel = test_random(2);
	grain = is_parallel || is_span;
	constants.table.words = 1;
	for (i = 0; is_parallel && i < 40; i++)
		race(is_span);
	constants.table.words = 1 + test_random(3);
	begin_table((1 << test_random(4)) - 1);
	if (is_parallel && test_random(2)) { /* all CPUs have work with the same few keys */
		begin_table(0);
		few = 1;
	}
	for (i = 0; i < KEYS; i++)
		model[i].key.word[test_random(constants.table.words)] = i + 1;
	for (i = 0; i < steps; i++) {
		host_user_cpu = test_random(HOST_USER_CPUS);
		test_time_passes(1 + test_random(test_once_in(3) ? 150000000 : 1 << test_random(28)));
		if (test_once_in(20)) /* others are pushed from now on */
			hot = few ? 2 + test_random(2 * KEYED_WAYS) : 1 + test_random(KEYS);
		if (is_parallel && test_once_in(2))
			hurry(test_once_in(2) ? CUSTOM_SPARE_MS : KEYED_GRACE_MS);
		step(is_parallel ? 1 + test_random(HOST_USER_CPUS) : 1, hot, is_span);
		host_user_cpu = test_random(HOST_USER_CPUS);
		compare();
	}
}
