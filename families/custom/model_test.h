/* SPDX-License-Identifier: GPL-2.0-only */
/* The model of logic_test.c, and the CPUs that work at the same time in it. Included there, after logic.h. */
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
