// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of the engine in the running kernel: known cases, then random pushes, which are compared with a plain model that keeps all
 * pushes. The tests set the clock themselves.
 */

#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/socket.h>
#include "core.h"
#include "topstat/push.h"

#define ENTRIES 16
#define OBJECTS 64
#define ROUNDS 20000
/* The number of pushes that the model remembers: more than come in two periods. */
#define REMEMBERED 4096
#define SLIDE 25 /* ticks */

static int expected(bool holds, const char *what, int line)
{
	if (!holds)
		pr_err("topstat: self-test failed: %s, line %d\n", what, line);
	return holds ? 0 : -EIO;
}

/* Returns from the calling test if the condition is false. */
#define EXPECT(condition)                                              \
	do {                                                           \
		if (expected(condition, #condition, __LINE__))         \
			return -EIO;                                   \
	} while (0)

struct push {
	u64 at;
	u64 amount;
	u32 object;
};

struct rig_object {
	struct ts_object head;
	union {
		struct ts_window window;
		struct ts_count count;
	};
};

struct rig {
	struct ts_config config[TS_BANK_TABLES];
	struct ts_bank *bank;
	ts_view view;
	u64 ids;
	struct rig_object *objects; /* more than the ENTRIES that a table ranks */
	u64 sums[OBJECTS];
	struct push *pushes; /* a ring */
	u64 pushed;
	u64 total;
	u64 random;
};

/* Knuth's generator, with the shift of PCG's: good enough, and with equal numbers in each boot. */
static u32 random_below(struct rig *rig, u32 most)
{
	rig->random = rig->random * 6364136223846793005ULL + 1442695040888963407ULL;
	return (rig->random >> 33) % most;
}

static struct ts_table *rig_table(struct rig *rig)
{
	return ts_bank_table(rig->bank, 0, ts_table_size(ENTRIES));
}

static u64 push(struct rig *rig, u32 object, u64 amount, u64 now)
{
	struct rig_object *e = &rig->objects[object];
	bool is_static = ts_view_type(rig->view) == TS_STATIC;
	int claimed;
	u64 value;

	if (!e->head.id) {
		e->head.self = (u64)(unsigned long)e;
		e->head.id = ++rig->ids;
	}
	ts_bank_to(rig->bank, ts_table_size(ENTRIES), rig->config, 1, now);
	claimed = ts_bank_enter(rig->bank);
	if (is_static)
		value = ts_push_static(rig_table(rig), &rig->bank->tick[0], rig->config, rig->view, claimed, e->head.self,
				       e->head.id, &e->count, 0, amount);
	else
		value = ts_push(rig_table(rig), &rig->bank->tick[0], rig->config, rig->view, claimed, e->head.self,
				e->head.id, &e->window, 0, amount);
	ts_bank_leave(rig->bank, claimed);
	rig->sums[object] += amount;
	rig->total += amount;
	rig->pushes[rig->pushed++ % REMEMBERED] = (struct push){ now, amount, object };
	return value;
}

static int rig_make(struct rig *rig, u32 type)
{
	memset(rig, 0, sizeof(*rig));
	rig->random = 42;
	rig->bank = kvzalloc(sizeof(struct ts_bank) + ts_table_size(ENTRIES), GFP_KERNEL);
	rig->objects = kvcalloc(OBJECTS, sizeof(*rig->objects), GFP_KERNEL);
	rig->pushes = kvcalloc(REMEMBERED, sizeof(*rig->pushes), GFP_KERNEL);
	if (!rig->bank || !rig->objects || !rig->pushes)
		return -ENOMEM;
	tt_config(&rig->config[0], 1000, 0, type, 1, 250);
	rig->config[0].enabled = 1;
	rig->view = ts_view_of(ENTRIES - 1, type, offsetof(struct rig_object, window), offsetof(struct rig_object, head.id));
	ts_table_init(rig_table(rig), ENTRIES, 0);
	return 0;
}

static void rig_free(struct rig *rig)
{
	kvfree(rig->bank);
	kvfree(rig->objects);
	kvfree(rig->pushes);
}

/*
 * The bounds of the object's value. Least: its pushes in the slides that lie in the period; most: also those in the fading slide.
 */
static void model(struct rig *rig, u32 object, u64 now, u64 *least, u64 *most)
{
	u64 i, from = rig->pushed > REMEMBERED ? rig->pushed - REMEMBERED : 0;

	*least = *most = 0;
	for (i = from; i < rig->pushed; i++) {
		const struct push *p = &rig->pushes[i % REMEMBERED];

		if (p->object != object)
			continue;
		if (p->at / SLIDE + TS_SLIDES > now / SLIDE)
			*least += p->amount;
		if (p->at / SLIDE + TS_SLIDES >= now / SLIDE)
			*most += p->amount;
	}
}

/* T1, T2: slots and heap satisfy the invariants of table.h. */
static int check_heap(struct rig *rig)
{
	struct ts_table *t = rig_table(rig);
	u32 i;

	EXPECT(t->n <= ENTRIES);
	for (i = 0; i < t->n; i++) {
		EXPECT(t->entry[t->entry[i].order].pos == i);
		EXPECT(!i || t->entry[(i - 1) / 2].key <= t->entry[i].key);
	}
	return 0;
}

/* Whether the objects in the table are the largest ones. */
static int check_top(struct rig *rig, const u64 *values)
{
	struct ts_table *t = rig_table(rig);
	u64 least = U64_MAX;
	u32 i, k;

	for (i = 0; i < t->n; i++) {
		const struct ts_entry *e = &t->entry[t->entry[i].order];

		least = min(least, values[(struct rig_object *)(unsigned long)e->obj - rig->objects]);
	}
	for (k = 0; k < OBJECTS; k++) {
		bool found = false;

		for (i = 0; i < ENTRIES; i++)
			found |= t->entry[i].obj == (u64)(unsigned long)&rig->objects[k];
		EXPECT(found || values[k] <= least);
	}
	return 0;
}

static int known_static(struct rig *rig)
{
	u32 i;

	for (i = 0; i < OBJECTS; i++)
		EXPECT(push(rig, i, 1 + i, 1000) == 1 + i);
	EXPECT(push(rig, 3, 100, 1000) == 104);
	EXPECT(rig_table(rig)->total.sum[0] == OBJECTS * (OBJECTS + 1) / 2 + 100);
	EXPECT(rig_table(rig)->n == ENTRIES);
	return check_top(rig, rig->sums);
}

static int random_static(struct rig *rig)
{
	int error = 0;
	u32 i;

	for (i = 0; i < ROUNDS && !error; i++) {
		u32 object = min(random_below(rig, OBJECTS), random_below(rig, OBJECTS));

		EXPECT(push(rig, object, 1 + random_below(rig, 1500), 1000 + i) == rig->sums[object]);
		error = check_heap(rig);
	}
	EXPECT(rig_table(rig)->total.sum[0] == rig->total);
	return error ? error : check_top(rig, rig->sums);
}

/* W1: a burst counts whole for the period after it, and not at all a period and a slide after it. */
static int known_dynamic(struct rig *rig)
{
	u64 at = 1000 * SLIDE;

	EXPECT(push(rig, 0, 10, at) == 10);
	EXPECT(push(rig, 0, 5, at + 3) == 15);
	EXPECT(push(rig, 0, 1, at + TS_SLIDES * SLIDE) == 16);
	EXPECT(push(rig, 0, 1, at + (TS_SLIDES + 1) * SLIDE) == 2);
	EXPECT(push(rig, 0, 0, at + 100 * SLIDE) == 0);
	EXPECT(rig->config[0].slide == SLIDE && !rig->config[0].precise);
	return 0;
}

static int random_dynamic(struct rig *rig)
{
	u64 now = 2000 * SLIDE, value, least, most;
	int error = 0;
	u32 i;

	for (i = 0; i < ROUNDS && !error; i++) {
		u32 object = min(random_below(rig, OBJECTS), random_below(rig, OBJECTS));

		now += random_below(rig, 200) ? random_below(rig, 2) : random_below(rig, 400);
		value = push(rig, object, random_below(rig, 1500), now);
		if (i % 16)
			continue;
		model(rig, object, now, &least, &most);
		EXPECT(value >= least && value <= most + 1);
		error = check_heap(rig);
	}
	EXPECT(rig_table(rig)->total.sum[0] == rig->total);
	return error;
}

/* The expectations are equal to those in the tests of the engine's Rust side, with 250 jiffies a second. */
static int known_settings(struct rig *rig)
{
	struct ts_config *c = &rig->config[1];
	u32 value;

	EXPECT(!tt_config(c, 1000, 5, TS_DYNAMIC, 1, 250) && !c->precise && c->slide == 25 && c->delay == 2);
	EXPECT(!tt_config(c, 10, 2, TS_DYNAMIC, 1, 250) && c->precise && c->slide == 1000000 && c->delay == 2);
	EXPECT(!tt_config(c, 1005, 0, TS_DYNAMIC, 1, 250) && !c->precise && c->slide == 25);
	EXPECT(!tt_config(c, 1095, 0, TS_DYNAMIC, 1, 100) && c->precise && c->slide == 109500000);
	EXPECT(!tt_config(c, 3600000, 3600000, TS_DYNAMIC, 1, 1000) && c->slide == 360000 && c->delay == 3600000);
	EXPECT(tt_config(c, 0, 0, TS_DYNAMIC, 1, 250) && tt_config(c, 3600001, 0, TS_DYNAMIC, 1, 250));
	EXPECT(tt_config(c, 1, 3600001, TS_DYNAMIC, 1, 250));
	memset(c, 0, sizeof(*c));
	EXPECT(!tt_parse(" \t0005\r\n", 8, 1, 10, &value) && value == 5);
	EXPECT(tt_parse("", 0, 0, 1, &value) && tt_parse("\n", 1, 0, 1, &value) && tt_parse("-1", 2, 0, 1, &value));
	EXPECT(tt_parse("99999999999999999999", 20, 0, 3600000, &value) && tt_parse("1 2", 3, 0, 9, &value));
	EXPECT(tt_entries_for(1) == 2 && tt_entries_for(128) == 256 && tt_entries_for(1024) == 2048 && !tt_entries_for(1025));
	return 0;
}

static int known_texts(struct rig *rig)
{
	static const u8 ips[][16] = {
		{ 0x20, 1, 0xd, 0xb8, [15] = 1 },
		{ 0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1 },
		{ 0x20, 1, 0, 0, 0, 0, 0, 1, [15] = 1 },
		{ [15] = 0 },
		{ [10] = 0xff, 0xff, 192, 0, 2, 1 },
	};
	static const char *const written[] = { "2001:db8::1", "2001:db8:0:1:1:1:1:1", "2001:0:0:1::1", "::", "192.0.2.1" };
	struct tt_text text = {};
	struct topstat_row row;
	struct tt_field field;
	bool same;
	size_t at;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(ips); i++) {
		row = (struct topstat_row){ .columns = 1 };
		topstat_row_ip(&row, AF_INET6, ips[i]);
		at = 0;
		field = tt_field(&text, &row, &at);
		text.length = 0;
		tt_field_put(&text, TT_PLAIN, &field);
		same = text.length == strlen(written[i]) && !memcmp(text.bytes, written[i], text.length);
		if (!same)
			pr_err("topstat: %.*s is not %s\n", (int)text.length, text.bytes, written[i]);
		EXPECT(same);
	}
	text.length = 0;
	tt_escaped(&text, TT_PLAIN, "a\x1b[31m\xc2\x9b\xff\\", 10);
	tt_escaped(&text, TT_JSON, "\"\n\x7f", 3);
	tt_put(&text, "", 1);
	same = !text.failed && !strcmp(text.bytes, "a\\x1b[31m\\xc2\\x9b\xef\xbf\xbd\\\\\"\\n\\u007f");
	if (!same)
		pr_err("topstat: escaped: %s\n", text.bytes);
	tt_text_free(&text);
	EXPECT(same);
	row = (struct topstat_row){ .columns = 1 };
	topstat_row_number(&row, 1);
	EXPECT(!row.cut);
	topstat_row_number(&row, 2);
	EXPECT(row.cut && row.fields == 1);
	return 0;
}

const struct tt_test tt_tests[TT_TESTS] = {
	{ "known settings", known_settings, TS_DYNAMIC },
	{ "known texts", known_texts, TS_DYNAMIC },
	{ "known static values", known_static, TS_STATIC },
	{ "random static values", random_static, TS_STATIC },
	{ "known dynamic values", known_dynamic, TS_DYNAMIC },
	{ "random dynamic values", random_dynamic, TS_DYNAMIC },
};

/* Returns 0 or an error. */
int tt_test_run(const struct tt_test *test)
{
	struct rig *rig = kzalloc(sizeof(*rig), GFP_KERNEL);
	int error;

	if (!rig)
		return -ENOMEM;
	error = rig_make(rig, test->type);
	if (!error)
		error = test->run(rig);
	rig_free(rig);
	kfree(rig);
	return error;
}

int tt_selftest(void)
{
	int error = 0;
	u32 i;

	for (i = 0; i < TT_TESTS && !error; i++)
		error = tt_test_run(&tt_tests[i]);
	if (!error)
		pr_info("topstat: self-test passed\n");
	return error;
}
