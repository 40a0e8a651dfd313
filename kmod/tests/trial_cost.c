// SPDX-License-Identifier: GPL-2.0-only
/* The cost of each kind of push. */
#include <linux/irqflags.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/printk.h>
#include "trial.h"

static DEFINE_STATIC_KEY_FALSE(never);

/* `what` takes the same time in each of COST_ROUNDS rounds; the rounds themselves are subtracted. */
#define COST_ROUNDS 1000
#define MEASURE(name, of_a_round, what)                                                                  \
	do {                                                                                             \
		unsigned long flags;                                                                     \
		u64 begun, between;                                                                      \
		int i;                                                                                   \
		local_irq_save(flags);                                                                   \
		what;                                                                                    \
		begun = ktime_get_ns();                                                                  \
		for (i = 0; i < COST_ROUNDS; i++)                                                        \
			barrier();                                                                       \
		between = ktime_get_ns();                                                                \
		for (i = 0; i < COST_ROUNDS; i++) {                                                      \
			what;                                                                            \
			barrier();                                                                       \
		}                                                                                        \
		begun = ktime_get_ns() - between - (between - begun);                                    \
		local_irq_restore(flags);                                                                \
		pr_info("topstat_trial: cost of %s: %llu\n", name, div_u64(begun, COST_ROUNDS * (of_a_round))); \
	} while (0)

int trial_cost(struct topstat_sample *sample, struct topstat_table *rate_table, struct topstat_object *rate,
	       struct topstat_table *sum_table, const struct topstat_amount *amounts)
{
	struct topstat_table *plain, *sums = topstat_table_sums(rate_table);
	struct topstat_object *sum = amounts[0].object;
	static struct topstat_dynamic of_plain;

	plain = topstat_table_add(sample, &(struct topstat_table_info){ .name = "plain" });
	if (IS_ERR(plain))
		return PTR_ERR(plain);
	topstat_dynamic_init(&of_plain);
	MEASURE("topstat_push_if, off", 1, topstat_push_if(&never, plain, &of_plain.object, 1, 0));
	MEASURE("topstat_push, dynamic", 1, topstat_push(plain, &of_plain.object, 1, 0));
	MEASURE("topstat_push, dynamic with sums", 1, topstat_push(rate_table, rate, 1, 0));
	MEASURE("topstat_push, static", 1, topstat_push(sum_table, sum, 1, 0));
	MEASURE("topstat_push_batch of 8, static", TRIAL_BATCH, topstat_push_batch(sum_table, amounts, TRIAL_BATCH));
	topstat_table_set_delay(plain, 100);
	topstat_table_set_delay(rate_table, 100);
	topstat_table_set_delay(sums, 100);
	topstat_table_set_delay(sum_table, 100);
	MEASURE("topstat_push with a delay, dynamic", 1, topstat_push(plain, &of_plain.object, 1, 0));
	MEASURE("topstat_push with a delay, dynamic with sums", 1, topstat_push(rate_table, rate, 1, 0));
	MEASURE("topstat_push with a delay, static", 1, topstat_push(sum_table, sum, 1, 0));
	MEASURE("topstat_push_batch of 8 with a delay, static", TRIAL_BATCH, topstat_push_batch(sum_table, amounts, TRIAL_BATCH));
	topstat_table_set_enabled(plain, false);
	MEASURE("topstat_push, off", 1, topstat_push(plain, &of_plain.object, 1, 0));
	topstat_object_dead(&of_plain.object);
	topstat_table_del(plain);
	return 0;
}
