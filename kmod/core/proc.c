// SPDX-License-Identifier: GPL-2.0-only
/*
 * The files below /proc/topstat. They behave like the files of the daemon's tree. A reader gets one text, even if it reads in
 * small pieces, and a new text when it reads from the beginning again. A written value that ends with a newline takes effect at
 * once, a value without a newline when the file is closed, and a value that comes in pieces never does.
 *
 * An open file keeps topstat.ko, and the module of its sample. If a file is removed while it is open (its module stays, but has
 * unregistered the table), procfs closes it, and waits for reads and writes under way.
 */

#include <linux/module.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "core.h"
#include "compat.h"

/* The longest text that can be a value, with spaces and newline. */
#define VALUE_MAX 32
/* No value waits for the file to be closed. */
#define NOTHING_WAITS U32_MAX

enum tt_kind {
	TT_ENABLED,
	TT_TYPE,
	TT_PERIOD,
	TT_DELAY,
	TT_SYNC,
	TT_STAT,
	TT_DUMP,
	TT_JSON_FILE,
};

/* The setting or text that a file has, and its owner. */
struct tt_file {
	enum tt_kind kind;
	struct topstat_sample *sample; /* NULL: the root */
	struct topstat_table *table; /* NULL: the sample's, or the root's */
};

/* An open file. */
struct tt_open {
	const struct tt_file *file;
	struct mutex lock; /* of readers and writers of one open file */
	struct tt_text text;
	bool has_text;
	bool begun; /* the beginning was read: reading it again makes a new text */
	u32 waiting;
};

static const struct {
	const char *name;
	enum tt_kind kind;
	u32 least;
	u32 most; /* 0: it can't be written */
} kinds[] = {
	/* In the order of the daemon's tree. */
	{ "type", TT_TYPE, 0, 0 },
	{ "period", TT_PERIOD, 1, TT_PERIOD_MS_MAX },
	{ "delay", TT_DELAY, 0, TT_DELAY_MS_MAX },
	{ "enabled", TT_ENABLED, 0, 1 },
	{ "sync", TT_SYNC, 0, 1 },
	{ "stat", TT_STAT, 0, 0 },
	{ "dump", TT_DUMP, 0, 0 },
	{ "json", TT_JSON_FILE, 0, 0 },
};

static struct proc_dir_entry *root;
static struct tt_file root_file = { .kind = TT_ENABLED };

static u32 index_of(enum tt_kind kind)
{
	u32 i = 0;

	while (kinds[i].kind != kind)
		i++;
	return i;
}

static u32 value_of(const struct tt_file *file)
{
	struct tt_values v;

	if (!file->sample)
		return tt_enabled;
	if (!file->table)
		return file->sample->enabled;
	tt_values_of(file->table, &v);
	switch (file->kind) {
	case TT_TYPE:
		return ts_view_type(file->table->view);
	case TT_PERIOD:
		return v.period_ms;
	case TT_DELAY:
		return v.delay_ms;
	case TT_SYNC:
		return v.sync;
	default:
		return v.enabled;
	}
}

static int set_value(const struct tt_file *file, u32 value)
{
	struct tt_values v;
	int error;

	if (!file->sample)
		return tt_switch_root(value);
	if (!file->table) {
		topstat_sample_set_enabled(file->sample, value);
		return 0;
	}
	mutex_lock(&tt_lock);
	tt_values_of(file->table, &v);
	if (file->kind == TT_PERIOD)
		v.period_ms = value;
	else if (file->kind == TT_DELAY)
		v.delay_ms = value;
	else if (file->kind == TT_SYNC)
		v.sync = value;
	else
		v.enabled = value;
	error = tt_values_set(file->table, &v);
	mutex_unlock(&tt_lock);
	return error;
}

static int make_text(const struct tt_file *file, struct tt_text *text)
{
	void (*write)(struct tt_text *text, const struct tt_snapshot *s) = NULL;
	struct tt_snapshot *s;
	struct tt_values v;
	int error;

	if (file->kind == TT_STAT)
		write = tt_stat;
	else if (file->kind == TT_JSON_FILE)
		write = tt_json;
	else if (file->kind == TT_DUMP)
		write = tt_dump;
	if (!write) {
		tt_printf(text, "%u\n", value_of(file));
		return text->failed ? -ENOMEM : 0;
	}
	s = kzalloc(sizeof(*s), GFP_KERNEL);
	if (!s)
		return -ENOMEM;
	tt_values_of(file->table, &v);
	error = tt_snapshot_take(s, file->table, file->kind == TT_DUMP || !v.sync);
	if (!error) {
		write(text, s);
		tt_snapshot_free(s);
	}
	kfree(s);
	return error ? error : text->failed ? -ENOMEM : 0;
}

static int open_file(struct inode *inode, struct file *f)
{
	const struct tt_file *file = pde_data(inode);
	struct module *owner = file->sample ? file->sample->owner : NULL;
	struct tt_open *o;

	/* Without this check, root could open files without write permission for writing. */
	if (f->f_mode & FMODE_WRITE && !kinds[index_of(file->kind)].most)
		return -EACCES;
	o = kzalloc(sizeof(*o), GFP_KERNEL_ACCOUNT);
	if (!o)
		return -ENOMEM;
	if (!try_module_get(THIS_MODULE))
		goto no_module;
	if (!try_module_get(owner)) {
		module_put(THIS_MODULE);
		goto no_module;
	}
	o->file = file;
	o->waiting = NOTHING_WAITS;
	mutex_init(&o->lock);
	f->private_data = o;
	return 0;
no_module:
	kfree(o);
	return -ENOENT;
}

static int release_file(struct inode *inode, struct file *f)
{
	struct tt_open *o = f->private_data;
	struct module *owner = o->file->sample ? o->file->sample->owner : NULL;

	if (o->waiting != NOTHING_WAITS)
		set_value(o->file, o->waiting);
	tt_text_free(&o->text);
	kfree(o);
	module_put(owner);
	module_put(THIS_MODULE);
	return 0;
}

static int renew_text(struct tt_open *o)
{
	struct tt_text text = {};
	int error = make_text(o->file, &text);

	if (error) { /* the previous text stays */
		tt_text_free(&text);
		return error;
	}
	tt_text_free(&o->text);
	o->text = text;
	o->has_text = true;
	return 0;
}

static ssize_t read_file(struct file *f, char __user *to, size_t size, loff_t *at)
{
	struct tt_open *o = f->private_data;
	ssize_t done = 0;

	if (mutex_lock_interruptible(&o->lock))
		return -EINTR;
	if (!o->has_text || (!*at && o->begun))
		done = renew_text(o);
	if (!done) {
		o->begun |= !*at;
		done = simple_read_from_buffer(to, size, at, o->text.bytes, o->text.length);
	}
	mutex_unlock(&o->lock);
	return done;
}

/* Parse a written value. *value: the value that takes effect now, or NOTHING_WAITS. Returns 0 or an error. */
static int take_value(struct tt_open *o, const char *written, size_t size, bool append, loff_t at, u32 *value)
{
	u32 before = o->waiting, kind = index_of(o->file->kind);
	int error;

	o->waiting = NOTHING_WAITS;
	*value = NOTHING_WAITS;
	if (append ? before != NOTHING_WAITS : at != 0)
		return -EINVAL;
	error = tt_parse(written, size, kinds[kind].least, kinds[kind].most, value);
	if (!error && written[size - 1] != '\n') { /* more bytes may come */
		o->waiting = *value;
		*value = NOTHING_WAITS;
	}
	return error;
}

static ssize_t write_file(struct file *f, const char __user *from, size_t size, loff_t *at)
{
	struct tt_open *o = f->private_data;
	char written[VALUE_MAX];
	u32 value;
	int error;

	if (!size) /* an empty write has no effect */
		return 0;
	if (size > sizeof(written))
		return -EINVAL;
	if (copy_from_user(written, from, size))
		return -EFAULT;
	if (mutex_lock_interruptible(&o->lock))
		return -EINTR;
	error = take_value(o, written, size, f->f_flags & O_APPEND, *at, &value);
	if (!error && value != NOTHING_WAITS)
		error = set_value(o->file, value);
	mutex_unlock(&o->lock);
	if (error)
		return error;
	*at += size;
	return size;
}

static const struct proc_ops operations = {
	.proc_open = open_file,
	.proc_read = read_file,
	.proc_write = write_file,
	.proc_lseek = default_llseek,
	.proc_release = release_file,
};

static int add_file(struct proc_dir_entry *dir, struct tt_file *file, u32 kind, struct topstat_sample *s,
		    struct topstat_table *t)
{
	*file = (struct tt_file){ kinds[kind].kind, s, t };
	return proc_create_data(kinds[kind].name, kinds[kind].most ? 0600 : 0400, dir, &operations, file) ? 0 : -ENOMEM;
}

/*
 * A file can be opened and written to as soon as it is made. A write may wait for tt_lock, while proc_remove() waits for the
 * write. So no file is removed under tt_lock, not even after a failed allocation in the middle: the functions that add return the
 * error, and the caller calls the function that removes.
 */

int tt_proc_add_sample(struct topstat_sample *s)
{
	s->files = kzalloc(sizeof(*s->files), GFP_KERNEL);
	if (!s->files)
		return -ENOMEM;
	s->dir = proc_mkdir_mode(s->info.name, 0700, root);
	return s->dir && !add_file(s->dir, s->files, index_of(TT_ENABLED), s, NULL) ? 0 : -ENOMEM;
}

void tt_proc_remove_sample(struct topstat_sample *s)
{
	lockdep_assert_not_held(&tt_lock);
	proc_remove(s->dir);
	kfree(s->files);
}

int tt_proc_add_table(struct topstat_table *t)
{
	u32 kind;

	t->files = kcalloc(ARRAY_SIZE(kinds), sizeof(*t->files), GFP_KERNEL);
	if (!t->files)
		return -ENOMEM;
	t->dir = proc_mkdir_mode(t->name, 0700, t->sample->dir);
	if (!t->dir)
		return -ENOMEM;
	for (kind = 0; kind < ARRAY_SIZE(kinds); kind++)
		if (add_file(t->dir, &t->files[kind], kind, t->sample, t))
			return -ENOMEM;
	return 0;
}

void tt_proc_remove_table(struct topstat_table *t)
{
	lockdep_assert_not_held(&tt_lock);
	proc_remove(t->dir);
	kfree(t->files);
}

int tt_proc_init(void)
{
	root = proc_mkdir_mode("topstat", 0700, NULL);
	if (!root)
		return -ENOMEM;
	if (!add_file(root, &root_file, index_of(TT_ENABLED), NULL, NULL))
		return 0;
	proc_remove(root);
	return -ENOMEM;
}

void tt_proc_exit(void)
{
	proc_remove(root);
}
