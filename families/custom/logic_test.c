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

#define KEYS 60
#define SPANS 24
#define SLIDES 64
#define PERIOD_MS 200
/* An amount that is spread is rounded in each slide. */
#define ROUNDING 1000

struct slide_model {
	u64 slide;
	u64 amount;
	u64 times;
	u64 ended; /* the time of the spans that have ended in this slide */
};

struct key_model {
	struct custom_key key;
	struct slide_model slide[SLIDES];
	u64 longest;
	u64 held; /* spans that hold its object */
	u64 holding; /* the object's id */
	u64 begun; /* jiffies, when a span that holds it last began */
};

struct span_model {
	u32 on;
	u32 key;
	u64 when;
	u64 holds; /* the id of the object that it holds; 0: none */
};

struct place_model {
	u64 id;
	u64 tag;
	u64 ended;
	u64 value;
};

static struct key_model model[KEYS];
static struct span_model spans[SPANS];
static struct place_model places[KEYED_PLACES];
static u64 total;
static u32 is_parallel, in_use;
/* Slides. An amount that CPUs add at the same time may count to the slide before (W7); a span is spread by jiffies. */
static u32 grain;

/* Pushes of one CPU, one after the other. */
#define PUSHES 4

/* Work of one CPU. */
struct work {
	ucontext_t context;
	u32 key;
	u32 pushes; /* to this key and the next ones */
	u32 stop; /* without steps_of_turn: other CPUs work after this number of steps, and then this one continues */
	u32 span; /* without pushes: this span begins or ends */
	u64 amount;
	u32 begins;
	u32 done;
};

static ucontext_t scheduler;
static struct work works[HOST_USER_CPUS];
static char stacks[HOST_USER_CPUS][65536];
static int running = -1;
static u32 steps_of_turn; /* on average; 0: see struct work */

static void test_step(void)
{
	struct work *w;

	if (running < 0)
		return;
	w = &works[running];
	if (steps_of_turn ? test_once_in(steps_of_turn) : w->stop && !--w->stop)
		swapcontext(&works[running].context, &scheduler);
}

static u64 common_of(u32 span)
{
	return 1000 + span;
}

static void work_on(struct work *w)
{
	u32 i;

	for (i = 0; i < w->pushes; i++)
		custom_push(&model[(w->key + i) % KEYS].key, w->amount);
	if (!w->pushes && w->begins)
		custom_begin(&model[w->key].key, common_of(w->span));
	else if (!w->pushes)
		custom_finish(common_of(w->span));
	w->done = 1;
}

static void work_of_cpu(int cpu)
{
	work_on(&works[cpu]);
}

static void prepare(u32 cpu)
{
	ucontext_t *context = &works[cpu].context;

	getcontext(context);
	context->uc_stack.ss_sp = stacks[cpu];
	context->uc_stack.ss_size = sizeof(stacks[cpu]);
	context->uc_link = &scheduler;
	makecontext(context, (void (*)(void))work_of_cpu, 1, (int)cpu);
}

/* All CPUs work, in any order of their steps. */
static void work_all(u32 cpus)
{
	u32 left = cpus, cpu;

	if (cpus == 1) {
		work_on(&works[0]);
		return;
	}
	for (cpu = 0; cpu < cpus; cpu++)
		prepare(cpu);
	while (left) {
		cpu = test_random(cpus);
		if (works[cpu].done)
			continue;
		host_user_cpu = running = cpu;
		swapcontext(&scheduler, &works[cpu].context);
		running = -1;
		left -= works[cpu].done;
	}
}

static struct custom_object *object_of(u32 i)
{
	u32 place = keyed_find(&model[i].key, CUSTOM_SAMPLE);

	return place ? &objects[place - 1] : NULL;
}

static u64 slide_now(void)
{
	return host_jiffies() / settings.config[CUSTOM_SAMPLE][CUSTOM_TABLE].slide;
}

static struct slide_model *model_slide(struct key_model *m, u64 slide)
{
	struct slide_model *s = &m->slide[slide % SLIDES];

	if (s->slide != slide)
		*s = (struct slide_model){ .slide = slide };
	return s;
}

/* The sum of the present slide and of this number of slides before it. */
static struct slide_model model_since(const struct key_model *m, u32 slides)
{
	struct slide_model sum = {};
	u32 i;

	for (i = 0; i < SLIDES; i++) {
		const struct slide_model *s = &m->slide[i];

		if (!s->slide || s->slide + slides < slide_now())
			continue;
		sum.amount += s->amount;
		sum.times += s->times;
		sum.ended += s->ended;
	}
	return sum;
}

/* The time of a span, to the slides in which it passed. */
static void model_span(struct key_model *m, u64 since)
{
	u64 length = settings.config[CUSTOM_SAMPLE][CUSTOM_TABLE].slide * HOST_USER_JIFFY_NS, from = since, to;

	while (from < host_user_ns) {
		to = (from / length + 1) * length;
		to = to < host_user_ns ? to : host_user_ns;
		if (from / length + SLIDES > slide_now())
			model_slide(m, from / length)->amount += to - from;
		from = to;
	}
	model_slide(m, slide_now())->times++;
	model_slide(m, slide_now())->ended += host_user_ns - since;
	total += host_user_ns - since;
	if (host_user_ns - since > m->longest)
		m->longest = host_user_ns - since;
}

static void model_push(struct key_model *m, u64 amount)
{
	model_slide(m, slide_now())->amount += amount;
	model_slide(m, slide_now())->times++;
	total += amount;
	if (amount > m->longest)
		m->longest = amount;
}

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

/* The first and last events of spans in special orders. */
static void special_spans(void)
{
	struct custom_object *o;
	u32 i;
	u64 before;

	begin_table(0);
	number_keys();
	custom_finish(5000);
	TEST_WANT(!test_total(0, 0), "an end without a beginning is nothing");
	custom_begin(&model[0].key, 5000);
	o = object_of(0);
	TEST_WANT(o && o->keyed.held == 1, "a span holds its object");
	test_time_passes(3000000);
	custom_begin(&model[0].key, 5000);
	TEST_WANT(o->keyed.held == 1, "it begins anew");
	test_time_passes(2000000);
	custom_finish(5000);
	TEST_WANT(!o->keyed.held && test_total(0, 0) == 2000000 && o->longest == 2000000, "its time is that since then");
	custom_finish(5000);
	TEST_WANT(test_total(0, 0) == 2000000, "it has ended once");
	for (i = 0; i < KEYED_WAYS + 1; i++)
		custom_begin(&model[i].key, 6000 + i);
	TEST_WANT(!object_of(KEYED_WAYS), "there is no place");
	test_time_passes(4000000);
	for (i = 0; i < KEYED_WAYS + 1; i++)
		custom_finish(6000 + i);
	TEST_WANT(test_total(0, 0) == 2000000 + 8 * 4000000 && most_of(&refused[0].window) >= 4000000, "one time is refused");
	/* U7: a key of long spans displaces the others, though it has no object when they begin. */
	for (i = 0; i < 100 && !object_of(20); i++) {
		custom_begin(&model[20].key, 7000);
		test_time_passes(10000000);
		custom_finish(7000);
	}
	TEST_WANT(object_of(20), "the key gets a place");
	/* U8: spans that never end hold all places, for CUSTOM_LOST_MS. */
	for (i = 0; i < KEYED_WAYS * 2; i++) {
		test_time_passes(300000000);
		custom_begin(&model[30 + i].key, 8000 + i);
	}
	for (i = 0; i < 100; i++) {
		custom_begin(&model[21].key, 9000);
		test_time_passes(10000000);
		custom_finish(9000);
	}
	TEST_WANT(!object_of(21), "all places are held");
	test_time_passes(CUSTOM_LOST_MS * 1000000ULL);
	for (i = 0; i < 100 && !object_of(21); i++) {
		custom_begin(&model[21].key, 9000);
		test_time_passes(10000000);
		custom_finish(9000);
	}
	o = object_of(21);
	TEST_WANT(o && !o->keyed.held, "a key gets the place of a lost span");
	before = test_total(0, 0);
	for (i = 0; i < KEYED_WAYS * 2; i++)
		custom_finish(8000 + i);
	TEST_WANT(test_total(0, 0) > before && !o->keyed.held, "their times go to the total");
	for (i = 0; i < KEYED_PLACES; i++)
		TEST_WANT(!objects[i].keyed.held, "place %u is held for ever", i);
}

/* More spans than there are places for. */
static void many_spans(void)
{
	u32 i, more = PENDING_BUCKETS * PENDING_WAYS + 100;
	struct custom_object *o;
	u64 before;

	begin_table(0);
	number_keys();
	for (i = 0; i < more; i++)
		custom_begin(&model[0].key, 10000 + i);
	o = object_of(0);
	TEST_WANT(o && unkept >= 100 && o->keyed.held == more - unkept, "%llu of %u spans are not kept",
		  (unsigned long long)unkept, more);
	before = unkept;
	test_time_passes(CUSTOM_LOST_MS * 1000000ULL);
	for (i = 0; i < PENDING_BUCKETS; i++)
		custom_begin(&model[1].key, 50000 + i);
	TEST_WANT(unkept == before && o->keyed.held < more - unkept, "they get the places of old spans");
	for (i = 0; i < more; i++)
		custom_finish(10000 + i);
	for (i = 0; i < PENDING_BUCKETS; i++)
		custom_finish(50000 + i);
	for (i = 0; i < KEYED_PLACES; i++)
		TEST_WANT(!objects[i].keyed.held, "place %u is held for ever", i);
}

/* Many keys, in all buckets. */
#define MANY 1000000
#define HEAVY 50
#define EVENTS_S 100000
#define SECONDS 4
/* Milliseconds between two events of a heavy key, where it has few of them. */
#define SPARSE_MS 700

static u32 *truth[TS_SLIDES + 2]; /* by slide, for each key */

/* The amounts of a key in the present slide and in this number of slides before it. */
static u64 many_since(u32 key, u32 slides)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i <= slides; i++)
		sum += truth[(slide_now() - i) % (TS_SLIDES + 2)][key];
	return sum;
}

static void many_key(struct custom_key *key, u32 i)
{
	memset(key, 0, sizeof(*key));
	key->word[0] = i;
	key->word[1] = ~(u64)i;
}

static void many_compare(const struct custom_object *o, const struct custom_key *key)
{
	u32 i = key->word[0];
	u64 least = many_since(i, TS_SLIDES - 1), most = many_since(i, TS_SLIDES), value, bound;

	if (!o) {
		bound = most_of(&refused[keyed_first(keyed_hash(key, CUSTOM_SAMPLE))].window);
		TEST_WANT(least <= bound, "key %u without an object: %llu of %llu", i, (unsigned long long)least,
			  (unsigned long long)bound);
		return;
	}
	value = value_of(&o->window[CUSTOM_TABLE]);
	TEST_WANT(value <= most && least <= value + missing_of(o), "key %u: %llu of %llu, and %llu missing", i,
		  (unsigned long long)value, (unsigned long long)least, (unsigned long long)missing_of(o));
}

/* How many of the HEAVY largest keys have objects, and the share of their amounts that these have, in percent; it is a bit low,
 * because the slide that fades counts whole. */
static void many_found(u32 *found, u32 *share)
{
	u64 value[HEAVY] = {}, sum = 0, all = 0;
	u32 top[HEAVY] = {}, i, k;
	struct custom_key key;

	for (i = 0; i < MANY; i++) {
		u64 now = many_since(i, TS_SLIDES - 1);

		if (now <= value[HEAVY - 1])
			continue;
		for (k = HEAVY - 1; k && value[k - 1] < now; k--) {
			value[k] = value[k - 1];
			top[k] = top[k - 1];
		}
		value[k] = now;
		top[k] = i;
	}
	*found = 0;
	for (i = 0; i < HEAVY; i++) {
		many_key(&key, top[i]);
		k = keyed_find(&key, CUSTOM_SAMPLE);
		if (!k)
			continue;
		*found += 1;
		sum += value_of(&objects[k - 1].window[CUSTOM_TABLE]);
		all += many_since(top[i], TS_SLIDES);
	}
	*share = all ? sum * 100 / all : 0;
}

/* The heavy keys have this percentage of all amounts, by Zipf's law. `sparse`: in few events. */
static void many_keys(u32 percent, u32 sparse, u32 least_found)
{
	u32 i, k, found, share, heavy[HEAVY];
	double harmonic = 0, sum = 0;
	u64 slide = 0;

	begin_table(KEYED_BUCKETS - 1);
	test_configure(CUSTOM_SAMPLE, CUSTOM_TABLE, TS_DYNAMIC, 1000, 0);
	for (i = 0; i < TS_SLIDES + 2; i++)
		truth[i] = calloc(MANY, sizeof(u32));
	for (i = 0; i < HEAVY; i++)
		harmonic += 1.0 / (i + 1);
	for (i = 0; i < HEAVY; i++) {
		sum += percent / harmonic / (i + 1);
		heavy[i] = sum * 1000000;
	}
	for (i = 0; i < EVENTS_S * SECONDS; i++) {
		u32 chance = test_random(100000000), n, amount = 1 + test_random(1000);
		struct custom_key key;

		test_time_passes(1000000000 / EVENTS_S);
		host_user_cpu = test_random(HOST_USER_CPUS);
		for (; slide != slide_now(); slide = slide ? slide + 1 : slide_now())
			memset(truth[(slide + 1) % (TS_SLIDES + 2)], 0, slide ? MANY * sizeof(u32) : 0);
		n = HEAVY + test_random(MANY - HEAVY);
		if (sparse && test_once_in(EVENTS_S / 1000 * SPARSE_MS / HEAVY)) {
			n = test_random(HEAVY);
			amount = (heavy[n] - (n ? heavy[n - 1] : 0)) / (100.0 - percent) / 1000000 * 500 * EVENTS_S / 1000 * SPARSE_MS;
		} else if (!sparse && chance < heavy[HEAVY - 1]) {
			for (n = 0; chance >= heavy[n]; n++)
				;
		}
		many_key(&key, n);
		truth[slide % (TS_SLIDES + 2)][n] += amount;
		custom_push(&key, amount);
		if ((i + 1) % (EVENTS_S / 2))
			continue;
		for (k = 0; k < KEYED_PLACES; k++)
			if (objects[k].keyed.object.id)
				many_compare(&objects[k], &objects[k].key);
		for (k = 0; k < MANY; k += k < HEAVY ? 1 : 97) {
			many_key(&key, k);
			n = keyed_find(&key, CUSTOM_SAMPLE);
			many_compare(n ? &objects[n - 1] : NULL, &key);
		}
	}
	many_found(&found, &share);
	for (i = 0; i < TS_SLIDES + 2; i++)
		free(truth[i]);
	TEST_WANT(found >= least_found && share >= 90, "%u %%: %u of %u heavy keys found, with %u %% of their amounts", percent,
		  found, HEAVY, share);
}

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
