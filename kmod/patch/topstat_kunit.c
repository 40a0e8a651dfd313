// SPDX-License-Identifier: GPL-2.0-only
/* KUnit tests of topstat: the engine beside a plain model, and the interface beside sums that the test keeps. */

#include <kunit/test.h>
#include <linux/topstat.h>
#include "core.h"

static void name_of(const struct tt_test *test, char *name)
{
	strscpy(name, test->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(engine, tt_tests, name_of);

static void test_engine(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, tt_test_run(test->param_value), 0);
}

#define OBJECTS 40
#define TOP 16

static void describe(struct topstat_table *table, const struct topstat_object *object, struct topstat_row *row, void *private)
{
	topstat_row_number(row, container_of(object, struct topstat_dynamic, object) - (struct topstat_dynamic *)private);
}

static const struct topstat_column columns[] = { { "number" } };

/* A dynamic table with a period of an hour, and the table of its sums: object i gets i + 1. */
static void test_interface(struct kunit *test)
{
	struct topstat_dynamic *objects = kunit_kcalloc(test, OBJECTS, sizeof(*objects), GFP_KERNEL);
	struct topstat_sample_info info = { .name = "kunit", .columns = columns, .column_count = 1, .describe = describe };
	struct tt_snapshot *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);
	struct topstat_sample *sample;
	struct topstat_table *table;
	u64 parts[2];
	int i;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, objects);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, s);
	info.private = objects;
	sample = topstat_sample_register(&info);
	table = topstat_table_add(sample, &(struct topstat_table_info){ .name = "rate", .sums = "sum", .top = TOP });
	if (IS_ERR(table))
		topstat_sample_unregister(sample);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, table);
	topstat_table_complete(table);
	KUNIT_EXPECT_EQ(test, topstat_table_set_period(table, 3600000), 0);
	for (i = 0; i < OBJECTS; i++) {
		topstat_dynamic_init(&objects[i]);
		KUNIT_EXPECT_EQ(test, topstat_push(table, &objects[i].object, i + 1, 0), i + 1);
	}
	KUNIT_EXPECT_EQ(test, tt_snapshot_take(s, table, false), 0);
	KUNIT_EXPECT_EQ(test, s->total, OBJECTS * (OBJECTS + 1) / 2);
	KUNIT_EXPECT_EQ(test, s->rows, TOP);
	KUNIT_EXPECT_EQ(test, s->proven, TOP);
	for (i = 0; i < TOP; i++)
		KUNIT_EXPECT_EQ(test, s->merged[i].row->head.value, OBJECTS - i);
	tt_snapshot_free(s);
	KUNIT_EXPECT_TRUE(test, topstat_object_reset(&objects[OBJECTS - 1].object));
	KUNIT_EXPECT_TRUE(test, topstat_object_value(topstat_table_sums(table), &objects[OBJECTS - 1].object, parts));
	KUNIT_EXPECT_EQ(test, parts[0], 0);
	topstat_object_dead(&objects[0].object);
	KUNIT_EXPECT_FALSE(test, topstat_object_value(table, &objects[0].object, parts));
	KUNIT_EXPECT_EQ(test, tt_snapshot_take(s, topstat_table_sums(table), false), 0);
	KUNIT_EXPECT_EQ(test, s->total, OBJECTS * (OBJECTS + 1) / 2);
	KUNIT_EXPECT_EQ(test, s->objects, OBJECTS - 1);
	KUNIT_EXPECT_EQ(test, s->merged[0].row->head.value, OBJECTS - 1);
	tt_snapshot_free(s);
	topstat_sample_unregister(sample);
}

static struct kunit_case cases[] = {
	KUNIT_CASE_PARAM(test_engine, engine_gen_params),
	KUNIT_CASE(test_interface),
	{}
};

static struct kunit_suite suite = { .name = "topstat", .test_cases = cases };

kunit_test_suite(suite);
