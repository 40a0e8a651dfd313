/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions of trial_cost.c and trial_tables.c, which trial.c calls. Each function returns 0, or an error. */
#ifndef TOPSTAT_TRIAL_H
#define TOPSTAT_TRIAL_H

#include <linux/atomic.h>
#include "topstat.h"

/* The objects of a batch. */
#define TRIAL_BATCH 8

/* Another table, while there is one. Pushes to it are in an RCU read section. */
struct trial_extra {
	struct topstat_table __rcu *table;
	struct topstat_static object;
	atomic64_t pushed;
	/* The amounts of pushes that began while it was being deleted, and returned 0: the object may have them or not. */
	atomic64_t unsure;
};

/* Log how many nanoseconds each kind of push takes. `amounts`: TRIAL_BATCH of them, of the table `sum_table`. */
int trial_cost(struct topstat_sample *sample, struct topstat_table *rate_table, struct topstat_object *rate,
	       struct topstat_table *sum_table, const struct topstat_amount *amounts);

/* Register names and values that must be refused. */
int trial_names(struct topstat_sample *sample, struct topstat_table *sum);
/* Register another sample with a table, and remove it. */
int trial_register_another(void);
/* Register an observer with an engine of another ABI. */
int trial_refuse_engine(void);
/* Add the table, and delete it, this number of times. The object must have all pushes but the unsure ones. */
int trial_add_and_delete(struct topstat_sample *sample, struct trial_extra *extra, u32 times);
/* Every function accepts the result of a registration that has failed. */
int trial_without_handles(struct topstat_object *object);

#endif /* TOPSTAT_TRIAL_H */
