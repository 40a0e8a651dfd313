/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of logic_test.c about spans: their events in special orders, and more spans than there are places for. Included there. */
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
