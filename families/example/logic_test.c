/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Signals on several CPUs, beside a count of each. */
#include "logic.h"
#include "observe/user_test.h"

#define SIGNALS 64

TEST(example)
{
	u64 sent[SIGNALS] = {}, all = 0, row = 0;
	u32 i, place, steps = test_random(500);

	memset(objects, 0, sizeof(objects));
	memset(buckets, 0, sizeof(buckets));
	constants.jiffy_ns = HOST_USER_JIFFY_NS;
	/* Nothing ages out. */
	test_configure(0, EXAMPLE_SENT, TS_DYNAMIC, 3600000, 0);
	for (i = 0; i < steps; i++) {
		u32 signal = 1 + test_random(1 + test_random(SIGNALS - 1));

		host_user_cpu = test_random(HOST_USER_CPUS);
		test_time_passes(test_random(1000000));
		example_sent(signal);
		sent[signal]++;
		all++;
	}
	TEST_WANT(test_total(0, EXAMPLE_SENT) == all && !test_refused(0, EXAMPLE_SENT), "the total is not the number of signals");
	for (i = 0; i < SIGNALS; i++) {
		struct example_key key = { .signal = i };

		place = keyed_find(&key, 0);
		TEST_WANT(!place == !sent[i], "signal %u: an object without a signal, or none for one", i);
		if (!place)
			continue;
		TEST_WANT(test_value(0, EXAMPLE_SENT, &objects[place - 1].window[EXAMPLE_SENT]) == sent[i],
			  "signal %u: not its count", i);
		if (sent[i] > test_missed(0, EXAMPLE_SENT))
			TEST_WANT(test_row(0, EXAMPLE_SENT, objects[place - 1].keyed.object.id, &row) && row == sent[i],
				  "signal %u: no row", i);
	}
}
