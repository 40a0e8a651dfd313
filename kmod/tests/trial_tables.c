// SPDX-License-Identifier: GPL-2.0-only
/* Samples and tables that come and go, or that must be refused. */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/rcupdate.h>
#include "topstat_observer.h"
#include "trial.h"

static int refuse(struct topstat_sample_info *info, int expected)
{
	struct topstat_sample *s = topstat_sample_register(info);

	if (!IS_ERR(s))
		topstat_sample_unregister(s);
	return PTR_ERR_OR_ZERO(s) == expected ? 0 : -EIO;
}

static int refuse_table(struct topstat_sample *sample, struct topstat_table_info *info, int expected)
{
	struct topstat_table *t = topstat_table_add(sample, info);

	if (!IS_ERR(t))
		topstat_table_del(t);
	return PTR_ERR_OR_ZERO(t) == expected ? 0 : -EIO;
}

static void describe(struct topstat_table *t, const struct topstat_object *o, struct topstat_row *row, void *private)
{
}

int trial_names(struct topstat_sample *sample, struct topstat_table *sum)
{
	static const char *const bad[] = { NULL, "", "a/b", "..", "A", "a b", "12345678901234567890123456789012", "a\n" };
	struct topstat_sample_info of_sample = {};
	static const struct topstat_column twice[] = { { "a" }, { "a" } };
	struct topstat_table_info of_table = {};
	int error = 0, i;

	for (i = 0; i < ARRAY_SIZE(bad) && !error; i++) {
		of_sample.name = bad[i];
		of_table.name = bad[i];
		error = refuse(&of_sample, -EINVAL);
		if (!error)
			error = refuse_table(sample, &of_table, -EINVAL);
	}
	of_sample.name = "trial";
	error = error ? error : refuse(&of_sample, -EEXIST);
	of_sample.name = "enabled";
	error = error ? error : refuse(&of_sample, -EEXIST);
	of_table.name = "sum";
	error = error ? error : refuse_table(sample, &of_table, -EEXIST);
	of_table = (struct topstat_table_info){ .name = "x", .top = 1025 };
	error = error ? error : refuse_table(sample, &of_table, -EINVAL);
	of_sample = (struct topstat_sample_info){ .name = "x", .columns = twice, .column_count = 2, .describe = describe };
	error = error ? error : refuse(&of_sample, -EINVAL);
	of_table = (struct topstat_table_info){ .name = "x", .sums = "sum" };
	error = error ? error : refuse_table(sample, &of_table, -EEXIST);
	of_table = (struct topstat_table_info){ .name = "x", .sums = "x" };
	error = error ? error : refuse_table(sample, &of_table, -EEXIST);
	of_table = (struct topstat_table_info){ .name = "x", .sums = "y", .type = TOPSTAT_STATIC };
	error = error ? error : refuse_table(sample, &of_table, -EINVAL);
	of_table = (struct topstat_table_info){ .name = "x", .type = 3 };
	error = error ? error : refuse_table(sample, &of_table, -EINVAL);
	of_table = (struct topstat_table_info){ .name = "x", .unit = 6 };
	error = error ? error : refuse_table(sample, &of_table, -EINVAL);
	if (!error && (topstat_table_set_period(sum, 0) != -EINVAL ||
		       topstat_table_set_delay(sum, 3600001) != -EINVAL))
		error = -EIO;
	return error;
}

int trial_register_another(void)
{
	static const struct topstat_sample_info info = { .name = "another" };
	struct topstat_sample *s = topstat_sample_register(&info);
	struct topstat_table *t;
	int error;

	if (IS_ERR(s))
		return PTR_ERR(s);
	t = topstat_table_add(s, &(struct topstat_table_info){ .name = "table" });
	error = PTR_ERR_OR_ZERO(t);
	topstat_sample_unregister(s);
	return error;
}

int trial_refuse_engine(void)
{
	static const struct topstat_engine engine = { .abi = TOPSTAT_ENGINE_ABI + 1 };
	static const struct topstat_observed observed = {
		.info = { .name = "another" },
		.engine = &engine,
	};
	struct topstat_sample *s = topstat_observer_register(&observed);

	if (!IS_ERR(s))
		topstat_sample_unregister(s);
	return PTR_ERR_OR_ZERO(s) == -EPROTO ? 0 : -EIO;
}

int trial_add_and_delete(struct topstat_sample *sample, struct trial_extra *extra, u32 times)
{
	static const struct topstat_table_info info = { .name = "extra", .type = TOPSTAT_STATIC };
	struct topstat_table *t;
	u64 value = 0, pushed;
	u32 i;

	/* One time more than other contexts push: the last one reads the value. */
	for (i = 0; i <= times; i++) {
		t = topstat_table_add(sample, &info);
		if (IS_ERR(t))
			return PTR_ERR(t);
		if (i < times) {
			rcu_assign_pointer(extra->table, t);
			msleep(20);
			RCU_INIT_POINTER(extra->table, NULL);
		} else {
			synchronize_rcu(); /* all pushes are also in `pushed` */
			value = topstat_push(t, &extra->object.object, 0, 0);
		}
		topstat_table_del(t);
	}
	pushed = atomic64_read(&extra->pushed);
	return value && value >= pushed && value - pushed <= atomic64_read(&extra->unsure) ? 0 : -EIO;
}

/* Every function accepts what a registration that has failed returns. */
int trial_without_handles(struct topstat_object *object)
{
	static const struct topstat_table_info info = { .name = "nothing" };
	struct topstat_amount amount = { object, 1, 0 };
	struct topstat_sample *no_sample[] = { NULL, ERR_PTR(-ENOMEM) };
	struct topstat_table *no_table[] = { NULL, ERR_PTR(-ENOMEM) };
	u64 parts[2] = { 1, 1 };
	int i, done = 0;

	for (i = 0; i < 2; i++) {
		done |= !IS_ERR(topstat_table_add(no_sample[i], &info));
		topstat_sample_set_enabled(no_sample[i], true);
		topstat_sample_unregister(no_sample[i]);
		done |= topstat_push(no_table[i], amount.object, 1, 0) != 0;
		topstat_push_batch(no_table[i], &amount, 1);
		done |= topstat_object_attach(no_table[i], amount.object);
		done |= topstat_object_value(no_table[i], amount.object, parts) || parts[0] || parts[1];
		done |= !!topstat_table_sums(no_table[i]);
		done |= topstat_table_set_period(no_table[i], 1) || topstat_table_set_delay(no_table[i], 1) ||
			topstat_table_set_top(no_table[i], 1);
		topstat_table_set_sync(no_table[i], true);
		topstat_table_set_enabled(no_table[i], true);
		topstat_table_complete(no_table[i]);
		topstat_table_del(no_table[i]);
	}
	return done ? -EIO : 0;
}
