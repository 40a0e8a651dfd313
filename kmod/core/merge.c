// SPDX-License-Identifier: GPL-2.0-only
/* Merges the sections of a snapshot: the rows of one object on several CPUs become one row, and the largest rows are chosen. */

#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include "core.h"

static int by_id(const void *a, const void *b)
{
	const struct tt_found *x = a, *y = b;

	if (x->row->head.id != y->row->head.id)
		return x->row->head.id < y->row->head.id ? -1 : 1;
	return x->cpu < y->cpu ? -1 : x->cpu > y->cpu;
}

static int descending(u64 a, u64 b, u64 id_a, u64 id_b)
{
	if (a != b)
		return a > b ? -1 : 1;
	/* Equal values are in the order of age, so that their order is stable. */
	return id_a < id_b ? -1 : id_a > id_b;
}

static int by_value(const void *a, const void *b)
{
	const struct ts_row *x = &((const struct tt_merged *)a)->row->head, *y = &((const struct tt_merged *)b)->row->head;

	return descending(x->value, y->value, x->id, y->id);
}

static int by_key(const void *a, const void *b)
{
	const struct ts_row *x = &(*(const struct tt_row *const *)a)->head, *y = &(*(const struct tt_row *const *)b)->head;

	return descending(x->key, y->key, x->id, y->id);
}

/* Sort the rows of one CPU by the values that the table had ordered them by. */
static int order_section(struct tt_section *section, u32 top)
{
	u32 i;

	section->by_key = kvmalloc_array(section->head->rows + 1, sizeof(*section->by_key), GFP_KERNEL);
	if (!section->by_key)
		return -ENOMEM;
	section->keyed = 0;
	for (i = 0; i < section->head->rows; i++)
		if (section->rows[i].head.key)
			section->by_key[section->keyed++] = &section->rows[i];
	sort(section->by_key, section->keyed, sizeof(*section->by_key), by_key, NULL);
	section->keyed = min(section->keyed, top);
	return 0;
}

/*
 * Merge the rows of each object. Its values on the CPUs differ only by pushes in between, which only add: the largest is the
 * latest.
 */
static u32 merge_found(struct tt_snapshot *s, u32 count)
{
	u32 i, k, objects = 0;

	sort(s->found, count, sizeof(*s->found), by_id, NULL);
	for (i = 0; i < count; i = k) {
		struct tt_merged *m = &s->merged[objects++];

		m->row = s->found[i].row;
		m->found = &s->found[i];
		for (k = i + 1; k < count && s->found[k].row->head.id == m->row->head.id; k++)
			if (s->found[k].row->head.value > m->row->head.value)
				m->row = s->found[k].row;
		m->count = k - i;
	}
	return objects;
}

/*
 * Choose the largest objects that fit in the total, up to the table's number of rows. A row that does not fit belongs to a broken
 * object.
 */
static void choose_rows(struct tt_snapshot *s, u32 objects)
{
	u64 shown = 0, value;
	u32 i;

	s->rows = 0;
	for (i = 0; i < objects && s->rows < s->table->top; i++) {
		const struct tt_merged *m = &s->merged[i];

		value = m->row->head.value;
		if (!value)
			break;
		if (value > s->most - shown) {
			tt_leave_out(s, m->found, m->count);
			continue;
		}
		shown += value;
		s->merged[s->rows++] = *m;
	}
	s->hidden = i < objects ? s->merged[i].row->head.value : 0;
	s->other = s->total - min(s->total, shown);
}

int tt_merge(struct tt_snapshot *s)
{
	u32 i, k, rows = 0, count = 0, objects;
	int error;

	for (i = 0; i < s->section_count + s->again; i++)
		rows += s->sections[i].head->rows;
	s->found = kvmalloc_array(rows + 1, sizeof(*s->found), GFP_KERNEL);
	s->merged = kvmalloc_array(rows + 1, sizeof(*s->merged), GFP_KERNEL);
	if (!s->found || !s->merged)
		return -ENOMEM;
	for (i = 0; i < s->section_count + s->again; i++) {
		struct tt_section *section = &s->sections[i];

		for (k = 0; k < section->head->rows; k++)
			s->found[count++] = (struct tt_found){ &section->rows[k], section->cpu };
		error = i < s->section_count ? order_section(section, s->table->top) : 0;
		if (error)
			return error;
	}
	objects = merge_found(s, count);
	s->seen = objects;
	if (s->unranked.head.id)
		s->merged[objects++] = (struct tt_merged){ &s->unranked, NULL, 0 };
	sort(s->merged, objects, sizeof(*s->merged), by_value, NULL);
	choose_rows(s, objects);
	return 0;
}
