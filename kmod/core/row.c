// SPDX-License-Identifier: GPL-2.0-only
/*
 * The description of an object, from the callback that writes it to the text. In a row, the fields are one behind the other: a
 * byte for the kind (enum tt_field_kind), and the value; a text has its length, in a byte, before its bytes.
 */

#include <linux/cgroup.h>
#include <linux/in6.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/socket.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include "core.h"
#include "compat.h"
#include "container.h"

static void put(struct topstat_row *row, enum tt_field_kind kind, const void *value, size_t length)
{
	if (row->fields == row->columns || row->used + 1 + length > sizeof(row->bytes)) {
		row->cut = true;
		return;
	}
	row->bytes[row->used] = kind;
	memcpy(row->bytes + row->used + 1, value, length);
	row->used += 1 + length;
	row->fields++;
}

void topstat_row_number(struct topstat_row *row, u64 number)
{
	put(row, TT_FIELD_NUMBER, &number, sizeof(number));
}
EXPORT_SYMBOL_GPL(topstat_row_number);

void topstat_row_cgroup(struct topstat_row *row, u64 id)
{
	put(row, TT_FIELD_CGROUP, &id, sizeof(id));
}
EXPORT_SYMBOL_GPL(topstat_row_cgroup);

void topstat_row_container(struct topstat_row *row, u64 id)
{
	put(row, TT_FIELD_CONTAINER, &id, sizeof(id));
}
EXPORT_SYMBOL_GPL(topstat_row_container);

void topstat_row_netns(struct topstat_row *row, const struct net *net)
{
	if (net)
		topstat_row_number(row, net->ns.inum);
	else
		topstat_row_none(row);
}
EXPORT_SYMBOL_GPL(topstat_row_netns);

void topstat_row_true(struct topstat_row *row)
{
	put(row, TT_FIELD_TRUE, "", 0);
}
EXPORT_SYMBOL_GPL(topstat_row_true);

void topstat_row_none(struct topstat_row *row)
{
	put(row, TT_FIELD_NONE, "", 0);
}
EXPORT_SYMBOL_GPL(topstat_row_none);

void topstat_row_ip(struct topstat_row *row, int family, const void *address)
{
	if (family == AF_INET6 && !ipv6_addr_v4mapped(address))
		put(row, TT_FIELD_IP6, address, 16);
	else
		put(row, TT_FIELD_IP4, family == AF_INET6 ? address + 12 : address, 4);
}
EXPORT_SYMBOL_GPL(topstat_row_ip);

void topstat_row_text(struct topstat_row *row, const char *text, size_t most)
{
	size_t length = strnlen(text, most), room = sizeof(row->bytes) - row->used;
	u8 *bytes = row->bytes + row->used;

	if (length > U8_MAX || length + 2 > room) {
		row->cut = true;
		length = min_t(size_t, U8_MAX, room > 2 ? room - 2 : 0);
	}
	if (row->fields == row->columns || room < 2) {
		row->cut = true;
		return;
	}
	bytes[0] = TT_FIELD_TEXT;
	bytes[1] = length;
	memcpy(bytes + 2, text, length);
	row->used += 2 + length;
	row->fields++;
}
EXPORT_SYMBOL_GPL(topstat_row_text);

/*
 * The path of a control group, in the reader's cgroup namespace. A row has it in two fields, the second time from `text`. NULL:
 * there is no memory, the cgroup was removed, or the kernel has no function for modules that finds it.
 */
static const char *path_of(struct tt_text *text, u64 id)
{
#ifdef HAVE_CGROUP_GET_FROM_ID
	struct cgroup *cgroup;
	int length = -ENOMEM;

	if (id && text->path_id == id)
		return text->path;
	text->path_id = 0;
	cgroup = cgroup_get_from_id(id);
	if (IS_ERR_OR_NULL(cgroup))
		return NULL;
	if (!text->path)
		text->path = kmalloc(PATH_MAX, GFP_KERNEL);
	if (text->path)
		length = cgroup_path_ns(cgroup, text->path, PATH_MAX, current->nsproxy->cgroup_ns);
	else
		text->failed = true;
	cgroup_put(cgroup);
	if (length < 0)
		return NULL;
	text->path_id = id;
	return text->path;
#else
	return NULL;
#endif
}

static void find_container(struct tt_text *text, struct tt_field *field)
{
	const char *path = path_of(text, field->number);
	struct tt_part id;

	field->kind = TT_FIELD_NONE;
	if (!path || !tt_container_of(path, strlen(path), &id))
		return;
	field->kind = TT_FIELD_TEXT;
	field->bytes = id.at;
	field->length = id.length;
}

struct tt_field tt_field(struct tt_text *text, const struct topstat_row *row, size_t *at)
{
	static const u8 sizes[] = {
		[TT_FIELD_NUMBER] = 8,
		[TT_FIELD_IP4] = 4,
		[TT_FIELD_IP6] = 16,
		[TT_FIELD_CGROUP] = 8,
		[TT_FIELD_CONTAINER] = 8,
		[TT_FIELD_TRUE] = 0,
	};
	struct tt_field field = { TT_FIELD_NONE };

	if (*at >= row->used)
		return field;
	field.kind = row->bytes[(*at)++];
	if (field.kind == TT_FIELD_TEXT)
		field.length = row->bytes[(*at)++];
	else
		field.length = sizes[field.kind];
	field.bytes = row->bytes + *at;
	*at += field.length;
	if (field.kind == TT_FIELD_NUMBER || field.kind == TT_FIELD_CGROUP || field.kind == TT_FIELD_CONTAINER)
		memcpy(&field.number, field.bytes, sizeof(field.number));
	if (field.kind == TT_FIELD_CONTAINER)
		find_container(text, &field);
	/* An empty text is a missing value. */
	if (field.kind == TT_FIELD_TEXT && !field.length)
		field.kind = TT_FIELD_NONE;
	return field;
}

/* RFC 5952: the longest run of zeroes is left out, if it has more than one; of several runs of this length, the first. */
static void put_ip6(struct tt_text *text, const u8 *bytes)
{
	int at, run, best = 8, longest = 1;
	u16 group[8];

	for (at = 0; at < 8; at++)
		group[at] = bytes[2 * at] << 8 | bytes[2 * at + 1];
	for (at = 0; at < 8; at += run ? run : 1) {
		for (run = 0; at + run < 8 && !group[at + run]; run++)
			;
		if (run > longest) {
			longest = run;
			best = at;
		}
	}
	for (at = 0; at < 8; at++) {
		if (at == best) {
			tt_puts(text, "::");
			at += longest - 1;
			continue;
		}
		if (at && at != best + longest)
			tt_puts(text, ":");
		tt_printf(text, "%x", group[at]);
	}
}

static void put_cgroup(struct tt_text *text, enum tt_style style, u64 id)
{
	const char *path = path_of(text, id);

	if (path)
		tt_escaped(text, style, path, strlen(path));
	else
		tt_printf(text, "cgroup:%llu", id);
}

/* Write the value; in JSON without quotes. */
void tt_field_put(struct tt_text *text, enum tt_style style, const struct tt_field *field)
{
	const u8 *ip = (const u8 *)field->bytes;

	switch (field->kind) {
	case TT_FIELD_NUMBER:
		tt_number(text, field->number);
		break;
	case TT_FIELD_IP4:
		tt_printf(text, "%u.%u.%u.%u", ip[0], ip[1], ip[2], ip[3]);
		break;
	case TT_FIELD_IP6:
		put_ip6(text, ip);
		break;
	case TT_FIELD_TEXT:
		tt_escaped(text, style, field->bytes, field->length);
		break;
	case TT_FIELD_CGROUP:
		put_cgroup(text, style, field->number);
		break;
	case TT_FIELD_TRUE:
		tt_puts(text, style == TT_JSON ? "true" : "yes");
		break;
	case TT_FIELD_CONTAINER: /* tt_field() has found it */
	case TT_FIELD_NONE:
		tt_puts(text, "-");
		break;
	}
}
