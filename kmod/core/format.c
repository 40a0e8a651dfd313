// SPDX-License-Identifier: GPL-2.0-only
/* A snapshot as text: `stat`, `json`, `dump`. Each is equal, byte for byte, to the text in the daemon's tree. */

#include <linux/time.h>
#include <linux/time64.h>
#include "core.h"

static u64 scaled(const struct tt_snapshot *s, u64 amount)
{
	u64 scale = tt_scale(s->table);

	return amount > div64_u64(U64_MAX, scale) ? U64_MAX : amount * scale;
}

static void line(struct tt_text *text, const char *key, u64 value)
{
	tt_printf(text, "%s\t%llu\n", key, value);
}

static void header(struct tt_text *text, const struct tt_snapshot *s)
{
	tt_printf(text, "name\t%s\n", s->table->name);
	line(text, "type", ts_view_type(s->table->view));
	line(text, "delay", s->config.delay_ms);
	line(text, "period", s->config.period_ms);
	line(text, "enabled", !!(s->config.switches & TS_SWITCH_TABLE));
	tt_printf(text, "owner\t%s\n", s->table->sample->info.name);
	line(text, "owner enabled", !!(s->config.switches & TS_SWITCH_SAMPLE));
	line(text, "topstat enabled", !!(s->config.switches & TS_SWITCH_ROOT));
}

/* The names of columns, each with a tab behind it. */
static void put_columns(struct tt_text *text, const struct topstat_sample_info *info)
{
	u32 i;

	for (i = 0; i < info->column_count; i++)
		tt_printf(text, "%s\t", info->columns[i].name);
}

static void put_fields(struct tt_text *text, const struct tt_snapshot *s, const struct tt_row *row, const char *before,
		       const char *after)
{
	struct tt_field field;
	size_t at = 0;
	u32 i;

	for (i = 0; i < s->table->sample->info.column_count; i++) {
		field = tt_field(text, &row->described, &at);
		tt_puts(text, before);
		tt_field_put(text, TT_PLAIN, &field);
		tt_puts(text, after);
	}
}

static void stat_row(struct tt_text *text, const struct tt_snapshot *s, const struct tt_row *row, u64 value)
{
	put_fields(text, s, row, "", "\t");
	tt_number(text, scaled(s, value));
	tt_puts(text, "\n");
}

static void stat_titles(struct tt_text *text, const struct tt_snapshot *s)
{
	put_columns(text, &s->table->sample->info);
	tt_printf(text, "%s\n", s->table->value_name);
}

static void stat_sums(struct tt_text *text, const struct tt_snapshot *s)
{
	const char *before = "stale cpus\t";
	u32 i;

	tt_puts(text, "\n");
	line(text, "total", scaled(s, s->total));
	line(text, "other", scaled(s, s->other));
	for (i = 0; i < TT_LOST; i++)
		if (s->lost[i] && tt_shows_lost(s->table, i))
			tt_printf(text, "lost %s\t%llu\n", tt_lost_names[i], s->lost[i]);
	if (s->proven < s->rows)
		line(text, "proven", s->proven);
	for (i = 0; i < s->section_count; i++) {
		if (!s->sections[i].stale)
			continue;
		tt_printf(text, "%s%u", before, s->sections[i].cpu);
		before = " ";
	}
	if (*before == ' ')
		tt_puts(text, "\n");
}

void tt_stat(struct tt_text *text, const struct tt_snapshot *s)
{
	u32 i, k;

	header(text, s);
	for (i = 0; i < s->section_count; i++) {
		const struct tt_section *section = &s->sections[i];

		if (!section->keyed)
			continue;
		tt_printf(text, "\ncpu %u:\n", section->cpu);
		stat_titles(text, s);
		for (k = 0; k < section->keyed; k++)
			stat_row(text, s, section->by_key[k], section->by_key[k]->head.key);
	}
	tt_puts(text, "\nall:\n");
	stat_titles(text, s);
	for (i = 0; i < s->rows; i++)
		stat_row(text, s, s->merged[i].row, s->merged[i].row->head.value);
	stat_sums(text, s);
}

static void json_object(struct tt_text *text, const struct tt_snapshot *s, const struct tt_row *row)
{
	const struct topstat_sample_info *info = &s->table->sample->info;
	const char *before = "";
	struct tt_field field;
	const char *quote;
	size_t at = 0;
	u32 i;

	for (i = 0; i < info->column_count; i++) {
		field = tt_field(text, &row->described, &at);
		if (field.kind == TT_FIELD_NONE && info->columns[i].optional)
			continue;
		tt_printf(text, "%s\"%s\":", before, info->columns[i].name);
		before = ",";
		if (field.kind == TT_FIELD_NONE) {
			tt_puts(text, "null");
			continue;
		}
		quote = field.kind == TT_FIELD_NUMBER || field.kind == TT_FIELD_TRUE ? "" : "\"";
		tt_puts(text, quote);
		tt_field_put(text, TT_JSON, &field);
		tt_puts(text, quote);
	}
}

static void json_row(struct tt_text *text, const struct tt_snapshot *s, u32 rank)
{
	const struct tt_merged *m = &s->merged[rank];
	const struct topstat_sample_info *info = &s->table->sample->info;
	const char *before = "";
	u32 i;

	tt_printf(text, "{\"rank\":%u,\"value\":%llu,\"object\":{", rank + 1, scaled(s, m->row->head.value));
	json_object(text, s, m->row);
	tt_puts(text, "}");
	for (i = 0; i < TS_PARTS && info->parts[i]; i++)
		tt_printf(text, ",\"%s\":%llu", info->parts[i], scaled(s, m->row->head.part[i]));
	tt_puts(text, ",\"cpus\":[");
	for (i = 0; i < m->count; i++) {
		if (i && m->found[i].cpu == m->found[i - 1].cpu) /* from the second section of the CPU */
			continue;
		/* Static tables: all CPUs. Dynamic tables: CPUs that have pushed within the period. */
		if (!tt_is_static(s->table) && m->found[i].row->head.pushed < s->since)
			continue;
		tt_printf(text, "%s%u", before, m->found[i].cpu);
		before = ",";
	}
	tt_puts(text, "]}");
}

static void json_lost(struct tt_text *text, const struct tt_snapshot *s, const char *name, const u64 *lost)
{
	const char *before = "";
	u32 i;

	tt_printf(text, "\"%s\":{", name);
	for (i = 0; i < TT_LOST; i++) {
		if (!tt_shows_lost(s->table, i))
			continue;
		tt_printf(text, "%s\"%s\":%llu", before, tt_lost_names[i], lost[i]);
		before = ",";
	}
	tt_puts(text, "},");
}

/* RFC 3339 in UTC, with milliseconds. */
static void json_time(struct tt_text *text, const struct timespec64 *time)
{
	struct tm at;

	time64_to_tm(time->tv_sec, 0, &at);
	tt_printf(text, "{\"time\":\"%04ld-%02d-%02dT%02d:%02d:%02d.%03ldZ\",", at.tm_year + 1900, at.tm_mon + 1,
		  at.tm_mday, at.tm_hour, at.tm_min, at.tm_sec, time->tv_nsec / NSEC_PER_MSEC);
}

static void json_cpus(struct tt_text *text, const struct tt_snapshot *s)
{
	const char *before = "],\"cpu_totals\":{";
	bool stale = false;
	u32 i;

	for (i = 0; i < s->section_count; i++) {
		tt_printf(text, "%s\"%u\":%llu", before, s->sections[i].cpu, scaled(s, s->sections[i].total));
		before = ",";
	}
	tt_puts(text, "}");
	before = ",\"stale_cpus\":[";
	for (i = 0; i < s->section_count; i++) {
		if (!s->sections[i].stale)
			continue;
		tt_printf(text, "%s%u", before, s->sections[i].cpu);
		before = ",";
		stale = true;
	}
	tt_puts(text, stale ? "]}\n" : "}\n");
}

/* The switches that are off. */
static void json_off(struct tt_text *text, const struct tt_snapshot *s)
{
	static const struct {
		u32 bit;
		const char *name;
	} switches[] = { { TS_SWITCH_ROOT, "topstat" }, { TS_SWITCH_SAMPLE, "sample" }, { TS_SWITCH_TABLE, "table" } };
	const char *before = "\"off\":[";
	u32 i;

	if ((s->config.switches & TS_SWITCH_ALL) == TS_SWITCH_ALL)
		return;
	for (i = 0; i < ARRAY_SIZE(switches); i++) {
		if (s->config.switches & switches[i].bit)
			continue;
		tt_printf(text, "%s\"%s\"", before, switches[i].name);
		before = ",";
	}
	tt_puts(text, "],");
}

void tt_json(struct tt_text *text, const struct tt_snapshot *s)
{
	static const char *const units[] = { "count", "packets", "bits", "bytes", "segments", "nanoseconds" };
	const struct topstat_table *t = s->table;
	u32 i;

	json_time(text, &s->time);
	tt_printf(text, "\"sample\":\"%s\",\"table\":\"%s\",", t->sample->info.name, t->name);
	tt_printf(text, "\"type\":\"%s\",\"unit\":\"%s\",\"period_ms\":%u,\"delay_ms\":%u,",
		  tt_is_static(t) ? "static" : "dynamic", units[t->unit], s->config.period_ms, s->config.delay_ms);
	json_off(text, s);
	tt_printf(text, "\"top\":%u,\"objects\":%llu,", t->top, s->objects);
	tt_printf(text, "\"total\":%llu,\"other\":%llu,\"proven\":%u,", scaled(s, s->total), scaled(s, s->other),
		  s->proven);
	json_lost(text, s, "lost", s->lost);
	json_lost(text, s, "lost_now", s->lost_now);
	tt_puts(text, "\"rows\":[");
	for (i = 0; i < s->rows; i++) {
		if (i)
			tt_puts(text, ",");
		json_row(text, s, i);
	}
	json_cpus(text, s);
}

/* Bit i % 64 of word i / 64: slot i is in use. Rows are in the order of slots. */
static void dump_slots(struct tt_text *text, const struct tt_section *section, u32 entries)
{
	u32 from, i = 0;
	u64 word;

	tt_puts(text, "slots\t");
	for (from = 0; from < entries; from += 64) {
		word = 0;
		for (; i < section->head->rows && section->rows[i].head.slot < from + 64; i++)
			word |= 1ULL << (section->rows[i].head.slot - from);
		tt_printf(text, "%s%016llx", from ? " " : "", word);
	}
	tt_puts(text, "\n");
}

void tt_dump(struct tt_text *text, const struct tt_snapshot *s)
{
	u32 i, k, entries = ts_view_mask(s->table->view) + 1;
	u64 unkept = 0;

	header(text, s);
	line(text, "slide", s->tick.end - s->tick.start);
	line(text, "now", s->tick.now);
	line(text, "objects", s->objects);
	line(text, "entries", entries);
	for (i = 0; i < s->section_count; i++)
		unkept += s->sections[i].head->unkept;
	if (s->table->sample->observed && s->table->sample->observed->keeps)
		line(text, "unkept", unkept);
	for (i = 0; i < TT_LOST; i++)
		if (tt_shows_lost(s->table, i))
			tt_printf(text, "lost %s\t%llu\n", tt_lost_names[i], s->lost[i]);
	for (i = 0; i < s->section_count; i++) {
		const struct tt_section *section = &s->sections[i];

		tt_printf(text, "\ncpu %u:\n", section->cpu);
		dump_slots(text, section, entries);
		tt_puts(text, "slot\tvalue\ttime\tcount");
		for (k = 0; k < s->table->sample->info.column_count; k++)
			tt_printf(text, "\t%s", s->table->sample->info.columns[k].name);
		tt_puts(text, "\n");
		for (k = 0; k < section->head->rows; k++) {
			const struct tt_row *row = &section->rows[k];

			tt_printf(text, "%u\t%llu\t%llu\t%u", row->head.slot, scaled(s, row->head.key), row->head.pushed,
				  row->head.count);
			put_fields(text, s, row, "\t", "");
			tt_puts(text, "\n");
		}
	}
}
