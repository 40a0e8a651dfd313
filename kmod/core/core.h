/* SPDX-License-Identifier: GPL-2.0-only */
/* The interfaces between the parts of topstat.ko. */
#ifndef TOPSTAT_CORE_H
#define TOPSTAT_CORE_H

#include <linux/bitops.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/proc_fs.h>
#include <linux/ratelimit.h>
#include "topstat.h"
#include "topstat_observer.h"

#define TT_PERIOD_MS_MAX 3600000
#define TT_DELAY_MS_MAX 3600000
#define TT_PERIOD_MS_DEFAULT 1000

/* The kinds of losses of a table, in the order of the outputs. */
enum tt_lost {
	TT_CONTENDED,
	TT_NO_MEMORY,
	TT_CROWDED,
	TT_SKIPPED, /* always 0: tracepoints call a module's probes at every event */
	TT_OPAQUE,
	TT_CUT, /* descriptions that did not fit */
	TT_FOREIGN, /* pushes of objects that another table counts */
	TT_BROKEN, /* pushes to, and rows of, memory that is no object or has ceased to be one */
	TT_LOST,
};

extern const char *const tt_lost_names[TT_LOST];

/* The value of an object of topstat.h lies behind what all objects begin with: a ts_window or a ts_count. */
#define TT_VALUE_AT sizeof(struct topstat_object)

static inline struct ts_window *tt_window(struct topstat_object *o)
{
	return (struct ts_window *)(o + 1);
}

static inline struct ts_count *tt_count(struct topstat_object *o)
{
	return (struct ts_count *)(o + 1);
}

/* Of the value, whatever its type. */
static inline u64 *tt_sums(struct topstat_object *o)
{
	return tt_count(o)->sum;
}

/* The value of `abi` in objects of this type. */
static inline u32 tt_abi(u32 type)
{
	return TOPSTAT_OBJECT_ABI | type << 8;
}

struct topstat_table {
	/* A push reads these fields. */
	struct ts_settings *settings;
	struct ts_config *config; /* the table's */
	struct ts_config *bank_config; /* of all tables of its bank */
	void *banks; /* of all CPUs */
	u64 bank_size; /* bytes from the bank of one CPU to the bank of the next CPU */
	u64 stride; /* bytes from one table of a bank to the next */
	ts_view view;
	u64 instance; /* see struct topstat_object */
	u32 object_abi; /* `abi` of its objects */
	struct topstat_table *sums; /* the table of sums, which is the second one of the bank; or NULL */
	atomic64_t ids;
	/* A push does not read the other fields. */
	struct list_head list;
	struct topstat_sample *sample;
	const char *name;
	const char *value_name;
	enum topstat_unit unit;
	u32 number; /* in its bank */
	u32 top; /* rows that are shown */
	u32 top_most; /* rows that it was made for */
	struct topstat_table *of; /* of a table of sums: the table that it belongs to; NULL: it is no table of sums */
	struct static_key_false *key;
	void (*each)(struct topstat_table *table, void *private);
	struct ts_census census; /* of the objects of topstat.h */
	struct hlist_node live; /* see tt_live(); for tables of topstat.h */
	bool complete; /* it knows all objects that an earlier table has counted: see topstat_table_complete() */
	struct mutex refill_lock; /* of refills, see tt_refill() */
	u32 refills; /* is odd during a refill */
	u64 refill_next; /* jiffies: no refill begins before */
	u64 refill_to; /* objects of at most this id are counted … */
	atomic64_t refilled; /* … here when they are attached or end */
	atomic64_t misused[TT_LOST]; /* losses by its user's mistakes: TT_CUT, TT_FOREIGN, TT_BROKEN */
	unsigned long said; /* bits of enum tt_lost: the kernel's log has a message of this kind; bit TT_LOST: of a refill */
	struct mutex told_lock; /* of `told` */
	u64 told[TT_LOST]; /* the losses up to the previous snapshot */
	struct proc_dir_entry *dir;
	struct tt_file *files;
};

struct topstat_sample {
	struct list_head list;
	struct list_head tables;
	struct topstat_sample_info info;
	struct module *owner;
	const struct topstat_observed *observed; /* NULL: the sample uses topstat.h */
	bool enabled;
	struct proc_dir_entry *dir;
	struct tt_file *files;
};

/* The lock of samples, tables and settings. Pushes and reads do not take it. */
extern struct mutex tt_lock;
extern struct list_head tt_samples;
extern bool tt_enabled;
extern bool tt_debug;

/* The existing table that has this number; or NULL. The caller has preemption off, which keeps the table. */
struct topstat_table *tt_live(u64 instance);

/* The table's bank on a CPU. */
static inline struct ts_bank *tt_bank(const struct topstat_table *t, u32 cpu)
{
	return t->banks + cpu * t->bank_size;
}

static inline struct ts_table *tt_table_on(const struct topstat_table *t, u32 cpu)
{
	return ts_bank_table(tt_bank(t, cpu), t->number, t->stride);
}

static inline bool tt_is_static(const struct topstat_table *t)
{
	return ts_view_type(t->view) == TS_STATIC;
}

/* The table that objects are pushed to. */
static inline struct topstat_table *tt_of(struct topstat_table *t)
{
	return t->of ? t->of : t;
}

/* The table and its table of sums know all objects that earlier tables have counted. */
static inline void tt_complete(struct topstat_table *t)
{
	WRITE_ONCE(t->complete, true);
	if (t->sums)
		WRITE_ONCE(t->sums->complete, true);
}

static inline const struct ts_census *tt_census(struct topstat_table *t)
{
	return t->sample->observed ? t->sample->observed->census : &tt_of(t)->census;
}

/* The factor from pushed amounts to shown values. */
static inline u64 tt_scale(const struct topstat_table *t)
{
	return t->unit == TOPSTAT_BITS ? 8 : 1;
}

/*
 * Count a mistake of the table's user. True: the caller logs it, because it is the table's first one of this kind, or for debug=1.
 */
static inline bool tt_misused(struct topstat_table *t, enum tt_lost how)
{
	atomic64_inc(&t->misused[how]);
	if (t->sums)
		atomic64_inc(&t->sums->misused[how]);
	return (!test_bit(how, &t->said) && !test_and_set_bit(how, &t->said)) || tt_debug;
}

/* Log a mistake of a module that uses topstat.h; for debug=1 all of them, at most ten in five seconds, with the caller. */
#define tt_mistake(...)                                                                                        \
	do {                                                                                                   \
		static DEFINE_RATELIMIT_STATE(limit, DEFAULT_RATELIMIT_INTERVAL, DEFAULT_RATELIMIT_BURST);     \
		if (!tt_debug || __ratelimit(&limit)) {                                                        \
			pr_warn(__VA_ARGS__);                                                                  \
			if (tt_debug)                                                                          \
				dump_stack();                                                                  \
		}                                                                                              \
	} while (0)

/* refill.c: orders all objects of a static table, or of a table with sums, again. */
bool tt_refill(struct topstat_table *t);

/* settings.c */

struct tt_values {
	u32 period_ms;
	u32 delay_ms;
	bool enabled;
	bool sync;
};

int tt_config(struct ts_config *c, u32 period_ms, u32 delay_ms, u32 type, u32 epoch, u32 hz);
u32 tt_entries_for(u32 top);
void tt_values_of(const struct topstat_table *t, struct tt_values *v);
int tt_values_set(struct topstat_table *t, const struct tt_values *v);
void tt_key(const struct topstat_table *t, bool enabled);
void tt_distrust(struct topstat_table *t);
int tt_switch_root(bool enabled);
int tt_parse(const char *text, size_t length, u32 least, u32 most, u32 *value);

/* text.c: a text that grows. After an allocation has failed, nothing more is added. */

struct tt_text {
	char *bytes;
	size_t length;
	size_t room;
	char *path; /* of the control group with this id; 0: of none */
	u64 path_id;
	bool failed;
};

void tt_text_free(struct tt_text *text);
void tt_put(struct tt_text *text, const char *bytes, size_t length);
void tt_puts(struct tt_text *text, const char *string);
void tt_number(struct tt_text *text, u64 number);
__printf(2, 3) void tt_printf(struct tt_text *text, const char *format, ...);

enum tt_style {
	TT_PLAIN, /* `stat`: one line, safe for a terminal */
	TT_JSON, /* within quotes */
};

void tt_escaped(struct tt_text *text, enum tt_style style, const char *bytes, size_t length);

/* row.c: the description of an object */

enum tt_field_kind {
	TT_FIELD_NONE,
	TT_FIELD_NUMBER,
	TT_FIELD_IP4,
	TT_FIELD_IP6,
	TT_FIELD_TEXT,
	TT_FIELD_CGROUP,
	TT_FIELD_CONTAINER, /* of the control group with this id */
	TT_FIELD_TRUE, /* a mark */
};

struct topstat_row {
	u8 columns; /* the largest number of fields */
	u8 fields;
	u8 used;
	bool cut;
	u8 bytes[TOPSTAT_ROW_BYTES];
};

struct tt_field {
	enum tt_field_kind kind;
	u64 number;
	const char *bytes;
	size_t length;
};

/*
 * The field at *at; advances *at to the next field. After the last field it returns fields of the kind TT_FIELD_NONE. A container
 * is a text, which is valid until the next call of tt_field() or tt_field_put() with this text.
 */
struct tt_field tt_field(struct tt_text *text, const struct topstat_row *row, size_t *at);
void tt_field_put(struct tt_text *text, enum tt_style style, const struct tt_field *field);

/* A snapshot, in parts */

/* Begins as a struct ts_found. */
struct tt_row {
	struct ts_row head;
	u64 object;
	struct topstat_row described;
};

struct tt_section {
	u32 cpu;
	bool stale;
	u64 total;
	struct ts_section *head;
	struct tt_row *rows;
	const struct tt_row **by_key; /* rows that are shown in the CPU's section */
	u32 keyed;
};

struct tt_merged {
	const struct tt_row *row;
	const struct tt_found *found; /* the CPUs whose tables have the object */
	u32 count;
};

struct tt_found {
	const struct tt_row *row;
	u32 cpu;
};

struct tt_snapshot {
	struct topstat_table *table;
	struct ts_config config;
	struct timespec64 time;
	struct ts_tick tick;
	struct tt_section *sections;
	u32 section_count; /* one for each CPU that was used; and behind them … */
	u32 again; /* … the second sections of CPUs on which objects have ended since the first one (T9) */
	struct tt_found *found;
	struct tt_merged *merged;
	u32 rows; /* of `merged`, that are shown */
	u64 hidden; /* the value of the largest object that is not shown */
	u32 seen; /* objects that are in the table of a CPU */
	u64 alive_least; /* at least this number of objects lived during the whole snapshot, for tables of topstat.h … */
	u64 alive_most; /* … and at most this number at any time */
	bool doubted; /* a row was left out, because it can't be right, or a refill was under way */
	u32 refills; /* of the table, before the sections were taken */
	bool only_read;
	u64 objects;
	u64 total; /* as pushed; the outputs multiply it by the scale */
	u64 most; /* upper bound of the sum of all rows */
	u64 other;
	u32 proven;
	u64 since; /* the beginning of the period, in ticks */
	u64 lost[TT_LOST];
	u64 lost_now[TT_LOST];
	struct tt_row unranked;
};

/* section.c; an error leaves sections to be freed */
int tt_take_sections(struct tt_snapshot *s, bool only_read);
void tt_leave_out(struct tt_snapshot *s, const struct tt_found *found, u32 count);

/* merge.c */
int tt_merge(struct tt_snapshot *s);

/* snapshot.c */
int tt_snapshot_take(struct tt_snapshot *s, struct topstat_table *t, bool only_read);
void tt_snapshot_free(struct tt_snapshot *s);
void tt_settle_all(const struct topstat_sample *s);

/* The formats. Their only error is text->failed. */
void tt_stat(struct tt_text *text, const struct tt_snapshot *s);
void tt_json(struct tt_text *text, const struct tt_snapshot *s);
void tt_dump(struct tt_text *text, const struct tt_snapshot *s);
bool tt_shows_lost(const struct topstat_table *t, enum tt_lost lost);

/* proc.c */

int tt_proc_init(void);
void tt_proc_exit(void);
int tt_proc_add_sample(struct topstat_sample *s);
void tt_proc_remove_sample(struct topstat_sample *s);
int tt_proc_add_table(struct topstat_table *t);
void tt_proc_remove_table(struct topstat_table *t);

/* selftest.c */

struct rig;

struct tt_test {
	const char *name;
	int (*run)(struct rig *rig);
	u32 type;
};

#define TT_TESTS 6
extern const struct tt_test tt_tests[TT_TESTS];
int tt_test_run(const struct tt_test *test);
int tt_selftest(void);

#endif /* TOPSTAT_CORE_H */
