/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface for kernel code whose objects topstat ranks: docs/kmod-api.md explains it, and kmod/example uses it. A module
 * registers a sample with tables, embeds an object in each structure that it ranks, and pushes amounts to these objects.
 * /proc/topstat shows the largest objects, without any code in user space.
 *
 *	struct queue {
 *		struct topstat_dynamic counted;
 *		struct rcu_head rcu;
 *		…
 *	};
 *
 *	sample = topstat_sample_register(&info);
 *	table = topstat_table_add(sample, &(struct topstat_table_info){ .name = "requests", .unit = TOPSTAT_COUNT });
 *	topstat_dynamic_init(&queue->counted);
 *	…
 *	topstat_push(table, &queue->counted.object, 1, 0);
 *	…
 *	topstat_object_dead(&queue->counted.object);
 *	kfree_rcu(queue, rcu);
 *	…
 *	topstat_sample_unregister(sample);
 *
 * A caller does not have to check for errors: every function accepts a sample or a table that is NULL or an error, and then does
 * nothing, as debugfs does.
 */
#ifndef TOPSTAT_H
#define TOPSTAT_H

#include <linux/jump_label.h>
#include <linux/types.h>

struct module;
struct net;
struct topstat_sample;
struct topstat_table;

/* The version of the objects' structures: it changes whenever they do. topstat.ko refuses objects of another version. */
#define TOPSTAT_OBJECT_ABI 2

/*
 * The longest name of a sample, a table, a column or a part, without the terminating zero. Samples and tables have folders named
 * so.
 */
#define TOPSTAT_NAME_MAX 31
/* The largest number of columns that describe an object. */
#define TOPSTAT_COLUMNS_MAX 16
/*
 * The largest size of an object's description in bytes: a text takes its length and 2, an IPv6 address 17, an IPv4 address 5, a
 * number, control group, container or network namespace 9.
 */
#define TOPSTAT_ROW_BYTES 232

/* The number of words of a value: topstat.ko checks when it is built that they are enough. */
#define TOPSTAT_DYNAMIC_WORDS 32
#define TOPSTAT_STATIC_WORDS 3

/**
 * struct topstat_object - what all objects begin with
 * @abi: %TOPSTAT_OBJECT_ABI, and above it the &enum topstat_type, once the object has been initialised
 * @dead: the object has ended
 * @table: the number of the table that counts the object, unique since boot; 0: no table has counted it yet
 * @late: amounts that other CPUs pushed while one CPU entered the object into a table, by part
 * @id: its number in the table; 0: it has no number
 * @self: its own address
 * @quiet: the time until which a push only adds to sums
 * @refill: the number of the latest pass over all objects that has found it
 *
 * Objects are plain data: they refer to nothing in topstat.ko, so an object may outlive topstat.ko. One table counts an object.
 * The caller neither reads nor writes any field, and does not move the object.
 *
 * topstat detects mistakes where that costs a push nothing. A push to an object that another table counts gets no row (`lost
 * foreign`). A push to memory that is no object, or that was overwritten or freed too early, gets no row either (`lost broken`).
 * Both pushes are in the total, and rows that they could affect are not proven. The kernel's log names the table, once for each
 * table and each of the two kinds. With the parameter debug=1 of topstat.ko, the log shows the callers of all such pushes,
 * and topstat also looks for the mistakes that docs/kmod-api.md lists.
 */
struct topstat_object {
	u32 abi;
	u32 dead;
	u64 table;
	u64 late[2];
	u64 id;
	u64 self;
	u64 quiet;
	u64 refill;
};

/**
 * struct topstat_dynamic - an object of a dynamic table, embedded in a structure of the caller
 * @object: for the functions that take an object
 * @words: its value
 *
 * 320 bytes, for one table or two: see @sums of struct topstat_table_info. Initialised by topstat_dynamic_init().
 */
struct topstat_dynamic {
	struct topstat_object object;
	u64 words[TOPSTAT_DYNAMIC_WORDS];
} __aligned(64);

/**
 * struct topstat_static - an object of a static table, embedded in a structure of the caller
 * @object: for the functions that take an object
 * @words: its value
 *
 * 88 bytes. Initialised by topstat_static_init().
 */
struct topstat_static {
	struct topstat_object object;
	u64 words[TOPSTAT_STATIC_WORDS];
};

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
 * enum topstat_unit - the unit of values
 * @TOPSTAT_COUNT: any unit that is not in this list
 * @TOPSTAT_PACKETS: packets
 * @TOPSTAT_BITS: bits; the caller pushes bytes, and the output shows them times 8
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
 * struct topstat_column - one column of the description of an object
 * @name: its name in every output: lower case letters, digits and '_'
 * @optional: for objects without a value in this column, JSON omits the field if true, and has null if false
 */
struct topstat_column {
	const char *name;
	bool optional;
};

/* The description of an object, while the describe callback writes it; see topstat_row_text() and the other functions. */
struct topstat_row;

/**
 * struct topstat_sample_info - a sample: tables with objects of one kind
 * @name: the name of its folder: lower case letters, digits and '_', at most %TOPSTAT_NAME_MAX characters
 * @columns: the columns that describe an object; their names differ from each other
 * @column_count: the number of columns
 * @parts: the names of the two parts that an amount may have, such as "rx" and "tx"; both NULL: values have no parts
 * @describe: writes the description of an object by topstat_row_text() and the other functions, one field for each column and in
 *	the order of columns. It gets the table that the object was pushed to, and @private. Context: process context inside an
 *	RCU read section; it must not sleep. When it is called, the object has not ended, and the object's memory stays until it
 *	returns (see topstat_object_dead()). Fields that do not fit are cut, and fields beyond the last column are left out;
 *	`lost cut` counts the descriptions with either.
 * @private: for the callbacks
 */
struct topstat_sample_info {
	const char *name;
	const struct topstat_column *columns;
	unsigned int column_count;
	const char *parts[2];
	void (*describe)(struct topstat_table *table, const struct topstat_object *object, struct topstat_row *row,
			 void *private);
	void *private;
};

/**
 * struct topstat_table_info - a table of a sample
 * @name: the name of its folder, with the rules of a sample's name
 * @value_name: the title of the value's column; NULL: the name of the unit
 * @type: %TOPSTAT_DYNAMIC or %TOPSTAT_STATIC; 0: %TOPSTAT_DYNAMIC
 * @unit: the unit of values
 * @top: the number of rows that it keeps, 1 to 1024; 0: 128
 * @sums: the name of one more table, which ranks the objects of this dynamic table by the sum of all pushes, in bytes if @unit is
 *	%TOPSTAT_BITS; NULL: no such table
 * @off: the table is off at first
 * @key: is true while the table is on: see topstat_push_if(); NULL: there is no key
 * @each: calls topstat_object_attach() for all existing objects of the table; it gets @private of the sample. topstat calls it
 *	when the table is added, and when a reader needs it to prove the rows of a static table. Context: process context; it may
 *	sleep. Without this callback, see topstat_table_complete().
 */
struct topstat_table_info {
	const char *name;
	const char *value_name;
	enum topstat_type type;
	enum topstat_unit unit;
	unsigned int top;
	const char *sums;
	bool off;
	struct static_key_false *key;
	void (*each)(struct topstat_table *table, void *private);
};

/**
 * topstat_sample_register() - make the folder of a sample
 * @info: the sample. The names and columns that it refers to must stay valid until the sample is unregistered; @info itself may
 *	be freed after the call.
 *
 * The calling module can't be removed while a file of the sample is open.
 *
 * Context: process context; sleeps.
 * Return: the sample, which topstat_sample_unregister() frees; or an error: -EINVAL: a name is empty, is too long or has a
 * character that is not allowed, or there are too many columns, or two columns of one name, or columns without a describe
 * callback; -EEXIST: there is a sample, or a file, of this name; -ENOMEM: there is no memory.
 */
#define topstat_sample_register(info) __topstat_sample_register(info, THIS_MODULE)

/* See topstat_sample_register(). */
struct topstat_sample *__topstat_sample_register(const struct topstat_sample_info *info, struct module *owner);

/**
 * topstat_sample_unregister() - remove a sample, and the tables that it still has
 * @sample: from topstat_sample_register(); the caller must not use it any more
 *
 * Waits for the end of pushes and reads that have begun. The caller ensures that no other push begins, as for
 * topstat_table_del().
 *
 * Context: process context; sleeps.
 */
void topstat_sample_unregister(struct topstat_sample *sample);

/**
 * topstat_table_add() - add a table to a sample
 * @sample: the sample; NULL or an error: the function returns the error, or -EINVAL
 * @info: the table; its names and its key must stay valid until the table is deleted
 *
 * Context: process context; sleeps.
 * Return: the table, which topstat_table_del() or topstat_sample_unregister() frees; or an error: -EINVAL: a name, the type, the
 * unit or the number of rows is not allowed, or a static table has @sums; -EEXIST: the sample has a table, or a file, of one of
 * the names; -ENOMEM: there is no memory.
 */
struct topstat_table *topstat_table_add(struct topstat_sample *sample, const struct topstat_table_info *info);

/**
 * topstat_table_sums() - the table that @sums of struct topstat_table_info names
 * @table: the table that was added with it
 *
 * The function is for the settings of that table: pushes go to @table alone.
 *
 * Context: any.
 * Return: the table, which lives as long as @table; or NULL.
 */
struct topstat_table *topstat_table_sums(struct topstat_table *table);

/**
 * topstat_table_complete() - declare that the table knows all objects that earlier tables have counted
 * @table: the table
 *
 * Only for tables without an @each callback. Objects that outlive a static table keep their values, and topstat has no list of
 * these kept objects. So no row of such a table, or of a table of sums, is proven until this call. A module that keeps no objects
 * calls it at once. A module that keeps objects calls it after it has given each of them to topstat_object_attach() or
 * topstat_push(). If the table finds another kept object later, no row is proven until the next call. Dynamic tables without
 * @sums do not need the call.
 *
 * Context: any.
 */
void topstat_table_complete(struct topstat_table *table);

/**
 * topstat_table_del() - delete a table, and the table of its sums
 * @table: from topstat_table_add(); the caller must not use it any more
 *
 * Waits for the end of pushes and reads that have begun. The caller ensures that no push begins after the function has returned.
 * A push that begins before that counts, or returns 0 and counts nothing. Objects stay unchanged: another table may count them,
 * even a table of another topstat.ko.
 *
 * Context: process context; sleeps.
 */
void topstat_table_del(struct topstat_table *table);

/* See topstat_dynamic_init() and topstat_static_init(). */
void __topstat_object_init(struct topstat_object *object, enum topstat_type type);

/**
 * topstat_dynamic_init() - make an object of zeroed or any memory, for a dynamic table
 * @object: memory of the caller that no other context uses yet
 *
 * Do not call this again for an object that was kept since it was initialised: the object continues with its values. If the memory
 * holds an object that a table still counts, because it was freed without topstat_object_dead(), that table counts it in `lost
 * broken`.
 *
 * Context: any.
 */
static inline void topstat_dynamic_init(struct topstat_dynamic *object)
{
	__topstat_object_init(&object->object, TOPSTAT_DYNAMIC);
}

/**
 * topstat_static_init() - make an object of zeroed or any memory, for a static table
 * @object: as for topstat_dynamic_init()
 *
 * Context: any.
 */
static inline void topstat_static_init(struct topstat_static *object)
{
	__topstat_object_init(&object->object, TOPSTAT_STATIC);
}

/**
 * topstat_object_dead() - end an object
 * @object: the object; its table may have been deleted
 *
 * The object leaves the table at once. Its earlier pushes stay in the table's total, and its later pushes count to the total
 * alone. Readers may still access the object, so its memory must stay until an RCU grace period is over: use kfree_rcu() or
 * call_rcu().
 *
 * Context: any up to hardirq.
 */
void topstat_object_dead(struct topstat_object *object);

/**
 * topstat_object_attach() - let a table count an object before it is pushed
 * @table: the table
 * @object: an object, as for topstat_push()
 *
 * From then on, the object's value is in the table's total, and the object has a row if it is large enough. The function is for
 * objects that have outlived an earlier table, and for the @each callback of struct topstat_table_info. It also works while the
 * table is switched off.
 *
 * Context: any up to hardirq.
 * Return: true if the table now counts the object; false if the object is dead or broken, or another table counts it, or another
 * CPU is attaching it.
 */
bool topstat_object_attach(struct topstat_table *table, struct topstat_object *object);

/**
 * topstat_object_value() - the value that a row of the object would have now
 * @table: the table that counts the object, or its table of sums
 * @object: the object
 * @parts: is set to the value of each part; 0 if the function returns false
 *
 * Context: any up to hardirq.
 * Return: true; or false if the table does not count the object, or a CPU is writing to it.
 */
bool topstat_object_value(struct topstat_table *table, struct topstat_object *object, u64 parts[2]);

/**
 * topstat_object_reset() - begin the values of an object anew
 * @object: the object
 *
 * The object has the value 0 in its table, and in the table of sums. The totals keep its earlier pushes. Pushes that other
 * contexts make during the call count before or after it.
 *
 * Context: any up to hardirq.
 * Return: true; or false if no table counts the object, or another CPU is attaching or resetting it.
 */
bool topstat_object_reset(struct topstat_object *object);

/**
 * topstat_push() - add an amount to an object
 * @table: the table
 * @object: an object of the table's type that is pushed to no other table
 * @amount: the amount; the sum of the last period must be below 2^55
 * @part: 0 or 1, see struct topstat_sample_info; 0 if values have no parts
 *
 * The function does not allocate memory, does not wait, and takes no lock that another CPU may hold. It may interrupt another
 * push, even to the same table and object: both count.
 *
 * Context: any up to hardirq.
 * Return: the object's value after this push; 0 if the table, its sample or all of topstat is switched off, or if the object is
 * dead, broken, or of another ABI or type, or another table counts it.
 */
u64 topstat_push(struct topstat_table *table, struct topstat_object *object, u64 amount, unsigned int part);

/**
 * topstat_push_if() - topstat_push(), where a table that is off costs one instruction
 * @key: from DEFINE_STATIC_KEY_FALSE(), and named in the table's &struct topstat_table_info
 * @table: as for topstat_push()
 * @object: as for topstat_push()
 * @amount: as for topstat_push()
 * @part: as for topstat_push()
 *
 * While the table is off, the code has a no-op here, and none of the other arguments is evaluated.
 *
 * Context: any up to hardirq.
 */
#define topstat_push_if(key, table, object, amount, part)              \
	do {                                                           \
		if (static_branch_unlikely(key))                       \
			topstat_push(table, object, amount, part);     \
	} while (0)

/**
 * struct topstat_amount - a push of topstat_push_batch()
 * @object: as for topstat_push()
 * @amount: as for topstat_push()
 * @part: as for topstat_push()
 */
struct topstat_amount {
	struct topstat_object *object;
	u64 amount;
	unsigned int part;
};

/**
 * topstat_push_batch() - make several pushes at once
 * @table: the table
 * @amounts: the pushes
 * @count: the number of pushes
 *
 * The function makes the pushes in this order, and looks at the clock and at the settings once for all of them. Preemption is off
 * until the last push, so a caller passes at most some hundred.
 *
 * Context: any up to hardirq.
 */
void topstat_push_batch(struct topstat_table *table, const struct topstat_amount *amounts, unsigned int count);

/**
 * topstat_table_set_period() - set the time over which a dynamic table sums, as the file `period` does
 * @table: the table
 * @ms: the period in milliseconds, 1 to 3600000
 *
 * Context: process context; sleeps.
 * Return: 0; or -EINVAL: @ms is out of range, and nothing has changed.
 */
int topstat_table_set_period(struct topstat_table *table, unsigned int ms);

/**
 * topstat_table_set_delay() - set the time for which the ordering of an object may be put off, as the file `delay` does
 * @table: the table
 * @ms: the delay in milliseconds, 0 to 3600000
 *
 * Context: process context; sleeps.
 * Return: 0; or -EINVAL: @ms is out of range, and nothing has changed.
 */
int topstat_table_set_delay(struct topstat_table *table, unsigned int ms);

/**
 * topstat_table_set_sync() - set whether a read brings a table up to date, as the file `sync` does
 * @table: the table
 * @sync: true: each CPU brings its part up to date when the table is read; false: the table is read as it is
 *
 * Context: process context; sleeps.
 */
void topstat_table_set_sync(struct topstat_table *table, bool sync);

/**
 * topstat_table_set_top() - set the number of rows that are shown
 * @table: the table
 * @rows: the number of rows, 1 to @top of its &struct topstat_table_info
 *
 * Context: any.
 * Return: 0; or -EINVAL: @rows is out of range, and nothing has changed.
 */
int topstat_table_set_top(struct topstat_table *table, unsigned int rows);

/**
 * topstat_table_set_enabled() - switch a table on or off, as its file `enabled` does
 * @table: the table
 * @enabled: whether pushes count
 *
 * A table of sums counts as long as the table that it belongs to does. While it is off, it does not order its objects, and no row
 * of it is proven.
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
 * topstat_row_number() - write a number to the next field
 * @row: from the describe callback
 * @number: the number
 */
void topstat_row_number(struct topstat_row *row, u64 number);

/**
 * topstat_row_text() - write a text to the next field
 * @row: from the describe callback
 * @text: any bytes; the output escapes characters that a terminal would obey
 * @most: the largest number of bytes to take, at most 255; the text ends earlier at a zero
 */
void topstat_row_text(struct topstat_row *row, const char *text, size_t most);

/**
 * topstat_row_ip() - write an IP address to the next field
 * @row: from the describe callback
 * @family: AF_INET or AF_INET6
 * @address: 4 or 16 bytes, in network order
 */
void topstat_row_ip(struct topstat_row *row, int family, const void *address);

/**
 * topstat_row_cgroup() - write the path of a control group to the next field
 * @row: from the describe callback
 * @id: its id in the hierarchy of version 2
 */
void topstat_row_cgroup(struct topstat_row *row, u64 id);

/**
 * topstat_row_container() - write the container of a control group to the next field
 * @row: from the describe callback
 * @id: the id of the control group in the hierarchy of version 2
 *
 * The field has the id that the runtime has put into the control group's path, or the name of an LXC container; no value if the
 * path names neither, or is not known.
 */
void topstat_row_container(struct topstat_row *row, u64 id);

/**
 * topstat_row_netns() - write a network namespace to the next field
 * @row: from the describe callback
 * @net: the namespace; the field has the inode number that `ls -L -i` shows for /proc/PID/ns/net. NULL: no value
 */
void topstat_row_netns(struct topstat_row *row, const struct net *net);

/**
 * topstat_row_true() - write a mark to the next field: `yes`, and true in JSON
 * @row: from the describe callback
 */
void topstat_row_true(struct topstat_row *row);

/**
 * topstat_row_none() - leave the next field without a value
 * @row: from the describe callback
 */
void topstat_row_none(struct topstat_row *row);

#endif /* TOPSTAT_H */
