/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a kernel module ranks by topstat: it registers a sample with tables, embeds a struct topstat_object in what is to
 * be ranked, and pushes. /proc/topstat shows the top, without a line of code in user space.
 *
 *	static struct topstat_object of_a_disk;
 *
 *	sample = topstat_sample_register(&info);
 *	table = topstat_table_add(sample, &(struct topstat_table_info){ .name = "requests", .unit = TOPSTAT_COUNT });
 *	topstat_object_init(&of_a_disk);
 *	…
 *	topstat_push(table, &of_a_disk, 1, 0);
 *	…
 *	topstat_object_dead(table, &of_a_disk);
 *	topstat_table_del(table);
 *	topstat_sample_unregister(sample);
 */
#ifndef TOPSTAT_H
#define TOPSTAT_H

#include <linux/types.h>

struct module;
struct topstat_sample;
struct topstat_table;

/* Another one whenever struct topstat_object changes. Objects of another ABI are refused. */
#define TOPSTAT_OBJECT_ABI 1

/* The longest name of a sample, a table, a column or a part; without the zero at its end. Files are called so. */
#define TOPSTAT_NAME_MAX 31
/* The most columns that describe an object. */
#define TOPSTAT_COLUMNS_MAX 16
/* What describes an object takes at most so many bytes: texts their length and 2, an IPv6 address 17, a number 9. */
#define TOPSTAT_ROW_BYTES 232

/* Words of an object that are the engine's: it checks that they are enough. */
#define TOPSTAT_OBJECT_WORDS 48

/**
 * struct topstat_object - what is ranked, embedded in a structure of the caller's
 * @abi: %TOPSTAT_OBJECT_ABI, once it has been initialised
 * @references: see topstat_object_get()
 * @dead: it has ended
 * @pad: zero
 * @table: the table that counts it, by a number that no other table had since boot; 0: none yet
 * @late: what was pushed by other CPUs while one of them entered it into a table, by part
 * @words: the engine's
 *
 * Plain data: it refers to nothing of topstat.ko, so that it may outlive it. An object is counted by one table. What is to
 * be ranked in two ways has two objects. The caller neither reads nor writes any of it, nor moves it.
 *
 * Mistakes are looked for where that costs a push nothing. What is pushed to an object that another table counts has no row
 * there (`lost foreign`); nor has what is pushed to memory that is no object, and what was overwritten or freed too early
 * (`lost broken`). All of it is in the total, rows that it could concern are not proven, and the kernel's log names the table,
 * once for each table and each of the two.
 */
struct topstat_object {
	u32 abi;
	u32 references;
	u32 dead;
	u32 pad;
	u64 table;
	u64 late[2];
	u64 words[TOPSTAT_OBJECT_WORDS];
} __aligned(64);

/**
 * enum topstat_type - how pushes become a value
 * @TOPSTAT_DYNAMIC: the sum of the pushes of the last period
 * @TOPSTAT_STATIC: the sum of all pushes
 */
enum topstat_type {
	TOPSTAT_DYNAMIC = 1,
	TOPSTAT_STATIC = 2,
};

/**
 * enum topstat_unit - what values count
 * @TOPSTAT_COUNT: anything that is in none of the others
 * @TOPSTAT_PACKETS: packets
 * @TOPSTAT_BITS: bits; bytes are pushed, and shown times 8
 * @TOPSTAT_BYTES: bytes
 * @TOPSTAT_SEGMENTS: TCP segments
 * @TOPSTAT_NANOSECONDS: time
 */
enum topstat_unit {
	TOPSTAT_COUNT,
	TOPSTAT_PACKETS,
	TOPSTAT_BITS,
	TOPSTAT_BYTES,
	TOPSTAT_SEGMENTS,
	TOPSTAT_NANOSECONDS,
};

/**
 * struct topstat_column - one column of what describes an object
 * @name: its name in every output: lower case letters, digits and '_'
 * @optional: objects without it are shown without it in JSON; else it is null there
 */
struct topstat_column {
	const char *name;
	bool optional;
};

/* What describes an object, while it is written; see topstat_row_text() and the others. */
struct topstat_row;

/**
 * struct topstat_sample_info - a sample: tables whose objects are of one kind
 * @name: the name of its folder: lower case letters, digits and '_', %TOPSTAT_NAME_MAX at most
 * @owner: %THIS_MODULE: it can't be removed while a file of the sample is open
 * @columns: the columns that describe an object
 * @column_count: how many there are
 * @parts: the names of the parts that an amount may have, such as "rx" and "tx"; both NULL: values have no parts
 * @describe: writes what describes the object, one field for each column and in their order, by topstat_row_text() and
 *	the others. Context: process context inside of an RCU read section; it must not sleep. The object has not ended when
 *	it is called, and its memory stays until it returns (see topstat_object_dead()). Fields that do not fit are cut,
 *	and fields beyond the last column are left out; `lost cut` says how often that has happened.
 */
struct topstat_sample_info {
	const char *name;
	struct module *owner;
	const struct topstat_column *columns;
	unsigned int column_count;
	const char *parts[2];
	void (*describe)(const struct topstat_object *object, struct topstat_row *row);
};

/**
 * struct topstat_table_info - a table of a sample
 * @name: the name of its folder; as that of a sample
 * @value_name: the title of the value's column; NULL: the name of the unit
 * @type: 0 is %TOPSTAT_DYNAMIC
 * @unit: what values count
 * @top: how many rows it keeps, 1 to 1024; 0: 128
 */
struct topstat_table_info {
	const char *name;
	const char *value_name;
	enum topstat_type type;
	enum topstat_unit unit;
	unsigned int top;
};

/**
 * topstat_sample_register() - make the folder of a sample
 * @info: what it is. The names and columns it refers to must stay until the sample is unregistered; @info need not.
 *
 * Context: process context; sleeps.
 * Return: the sample, which topstat_sample_unregister() takes back; or an error: -EINVAL a name is empty, too long or has
 * other characters than allowed, or there are too many columns; -EEXIST there is a sample of this name; -ENOMEM.
 */
struct topstat_sample *topstat_sample_register(const struct topstat_sample_info *info);

/**
 * topstat_sample_unregister() - remove a sample, and the tables that it still has
 * @sample: of topstat_sample_register(); not to be used any more
 *
 * Waits for pushes and reads that are under way. As for topstat_table_del(), nobody may begin another push.
 *
 * Context: process context; sleeps.
 */
void topstat_sample_unregister(struct topstat_sample *sample);

/**
 * topstat_table_add() - add a table to a sample
 * @sample: the sample
 * @info: what it is; its names must stay until the table is deleted
 *
 * Context: process context; sleeps.
 * Return: the table, which topstat_table_del() or topstat_sample_unregister() takes back; or an error: -EINVAL a name, the
 * type, the unit or the number of rows is not allowed; -EEXIST the sample has a table, or a file, of this name; -ENOMEM.
 */
struct topstat_table *topstat_table_add(struct topstat_sample *sample, const struct topstat_table_info *info);

/**
 * topstat_table_complete() - the table knows all objects that earlier tables have counted
 * @table: the table
 *
 * Objects that outlive a static table keep their values, and topstat has no list of them. So in a static table no row is
 * proven until this is called: at once by modules that keep no objects, else when each kept object was given to
 * topstat_object_attach() or pushed. If the table finds another kept one later, no row is proven until the next call. Tables of
 * the other type need none.
 *
 * Context: any.
 */
void topstat_table_complete(struct topstat_table *table);

/**
 * topstat_table_del() - delete a table
 * @table: of topstat_table_add(); not to be used any more
 *
 * Pushes that have begun come to an end, and reads, too, before this returns. The caller sees to it that no push begins after
 * it has returned. Objects stay as they are: another table, of another topstat.ko even, may count them.
 *
 * Context: process context; sleeps.
 */
void topstat_table_del(struct topstat_table *table);

/**
 * topstat_object_init() - make an object of zeroed or any memory
 * @object: the caller's memory, which nobody else uses yet
 *
 * It has one reference, the caller's. For an object that has been kept since it was initialised, do not call this again:
 * it goes on from where it was. Memory that has an object which a table counts, for it was freed without
 * topstat_object_dead(), is `lost broken` of that table.
 *
 * Context: any.
 */
void topstat_object_init(struct topstat_object *object);

/**
 * topstat_object_get() - take one more reference
 * @object: an object of which the caller has a reference
 *
 * Topstat itself keeps no references. They are for callers whose object several of their own structures refer to.
 *
 * Context: any.
 */
void topstat_object_get(struct topstat_object *object);

/**
 * topstat_object_put() - give a reference back
 * @object: the object
 *
 * Context: any.
 * Return: whether that was the last one. Then the caller calls topstat_object_dead(), and frees the memory as that says.
 */
bool topstat_object_put(struct topstat_object *object);

/**
 * topstat_object_dead() - what the object stands for has ended
 * @table: the table that it was pushed to, or NULL where there is none any more
 * @object: the object
 *
 * It leaves the table at once. What was pushed stays in the table's total, and what is pushed from now on counts to
 * that alone. Readers may be looking at the object just now, so its memory must stay until an RCU grace period is over: use
 * kfree_rcu() or call_rcu().
 *
 * Context: any up to hardirq.
 */
void topstat_object_dead(struct topstat_table *table, struct topstat_object *object);

/**
 * topstat_object_attach() - have a table count an object before it is pushed
 * @table: the table
 * @object: an object, as for topstat_push()
 *
 * Its value is in the table's total from then on, and it has a row where it is large enough. It is for objects that have
 * outlived an earlier table: see topstat_table_complete(). It also works while the table is switched off.
 *
 * Context: any up to hardirq.
 * Return: whether the table counts it now. False: it is dead, broken or another table's, or another CPU attaches it.
 */
bool topstat_object_attach(struct topstat_table *table, struct topstat_object *object);

/**
 * topstat_push() - add to an object
 * @table: the table
 * @object: an object that is pushed to no other table
 * @amount: how much; in the last period, below 2^55 in all
 * @part: 0 or 1, see struct topstat_sample_info; 0 where there are no parts
 *
 * Allocates nothing, waits for nothing and takes no lock that another CPU may have. It may interrupt another push, to the
 * same table and object, too: both count.
 *
 * Context: any up to hardirq.
 * Return: the object's value after this push; 0 where the table, its sample or all of topstat is switched off, the object is
 * dead, broken, of another ABI or another table's.
 */
u64 topstat_push(struct topstat_table *table, struct topstat_object *object, u64 amount, unsigned int part);

/**
 * topstat_table_set_period() - set over which time a dynamic table sums, as the file `period` does
 * @table: the table
 * @ms: 1 to 3600000
 *
 * Context: process context; sleeps.
 * Return: 0, or -EINVAL: out of range, and nothing has changed.
 */
int topstat_table_set_period(struct topstat_table *table, unsigned int ms);

/**
 * topstat_table_set_delay() - set for how long ordering an object may be put off, as the file `delay` does
 * @table: the table
 * @ms: 0 to 3600000
 *
 * Context: process context; sleeps.
 * Return: 0, or -EINVAL: out of range, and nothing has changed.
 */
int topstat_table_set_delay(struct topstat_table *table, unsigned int ms);

/**
 * topstat_table_set_enabled() - switch a table on or off, as its file `enabled` does
 * @table: the table
 * @enabled: whether pushes count
 *
 * Context: process context; sleeps.
 */
void topstat_table_set_enabled(struct topstat_table *table, bool enabled);

/**
 * topstat_sample_set_enabled() - switch all tables of a sample on or off, as its file `enabled` does
 * @sample: the sample
 * @enabled: whether pushes count
 *
 * Context: process context; sleeps.
 */
void topstat_sample_set_enabled(struct topstat_sample *sample, bool enabled);

/**
 * topstat_row_number() - the next field is a number
 * @row: of the describe callback
 * @number: the number
 */
void topstat_row_number(struct topstat_row *row, u64 number);

/**
 * topstat_row_text() - the next field is a text
 * @row: of the describe callback
 * @text: any bytes; what a terminal would obey is escaped when it is shown
 * @most: no more bytes than that, and none from a zero on; 255 at most
 */
void topstat_row_text(struct topstat_row *row, const char *text, size_t most);

/**
 * topstat_row_ip() - the next field is an address
 * @row: of the describe callback
 * @family: AF_INET or AF_INET6
 * @address: 4 or 16 bytes, in network order
 */
void topstat_row_ip(struct topstat_row *row, int family, const void *address);

/**
 * topstat_row_cgroup() - the next field is the path of a control group
 * @row: of the describe callback
 * @id: its id in the hierarchy of version 2
 */
void topstat_row_cgroup(struct topstat_row *row, u64 id);

/**
 * topstat_row_none() - the next field is not known
 * @row: of the describe callback
 */
void topstat_row_none(struct topstat_row *row);

#endif /* TOPSTAT_H */
