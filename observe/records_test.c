/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Events come at random moments, and each one may make a record. The test compares windows, and the shares of slides, with a
 * model that keeps every event.
 */
#include <stdio.h>
#include "observe/records.h"

#define EVENTS 400
#define RINGS 2

struct test_event {
	u64 at; /* ticks */
	struct records_counts more;
};

static struct test_event events[EVENTS];
static u32 count;
static u64 state;

static u32 chance(u32 n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (u32)(state >> 33) % n;
}

static u64 amount(const struct test_event *e, u32 of, u32 part)
{
	if (of == RECORDS_BYTES)
		return e->more.bytes[part];
	if (of == RECORDS_PACKETS)
		return e->more.packets[part];
	return part ? e->more.resent : 0;
}

static void add(struct records_counts *sum, const struct records_counts *more)
{
	u32 part;

	for (part = 0; part < TS_PARTS; part++) {
		sum->bytes[part] += more->bytes[part];
		sum->packets[part] += more->packets[part];
	}
	sum->resent += more->resent;
}

static u32 fraction(const struct ts_config *c, u64 at)
{
	return (at % c->slide * c->fraction) >> 48;
}

/* The sum of a slide's events, from the event with this number on; and the fractions of the slide's first and last event. */
static u64 in_slide(const struct ts_config *c, u64 slide, u32 from, u32 of, u32 part, u32 *first, u32 *last)
{
	u64 sum = 0;
	u32 i, any = 0;

	for (i = 0; i < count; i++) {
		if (events[i].at / c->slide != slide)
			continue;
		if (!any++)
			*first = fraction(c, events[i].at);
		*last = fraction(c, events[i].at);
		if (i >= from)
			sum += amount(&events[i], of, part);
	}
	return any ? sum : 0;
}

/* The sum of all events in the slide of the ring's oldest record, and after it. */
static u64 since_oldest(const struct record_ring *g, const struct ts_config *c, u32 of)
{
	u64 sum = 0, slide = (g->slide & TS_SLIDE_NUMBER) - ts_marks_oldest(ts_done_marks(g->done) & TS_MARKS_ALL);
	u32 i;

	for (i = 0; i < count; i++) {
		if (events[i].at / c->slide >= slide)
			sum += amount(&events[i], of, 0) + amount(&events[i], of, 1);
	}
	return sum;
}

static int compare(const struct record_ring *g, const struct ts_config *c, const struct records_counts *now, u64 at, u64 since,
		   u32 taken, char *why, size_t bytes)
{
	u64 slide = at / c->slide, active = count ? events[count - 1].at : 0, given, untaken;
	struct ts_tick tick = { .end = 0 };
	u32 of, part, age, i, first = 0, last = 0;
	struct ts_window w;
	struct ts_value v;

	ts_tick_to(&tick, c, c->epoch, at);
	for (of = 0; of < RECORDS_TABLES; of++) {
		u64 want = 0, fading = 0, from = 0;

		/* From the first slide on whose record was made at this moment or later (R5). */
		for (age = TS_MARKS; age-- > 0;) {
			u64 number = slide - age;

			first = TS_FRACTIONS;
			in_slide(c, number, 0, of, 0, &first, &last);
			if (first < TS_FRACTIONS &&
			    (number > since / c->slide || (number == since / c->slide && first >= fraction(c, since)))) {
				from = number;
				break;
			}
		}
		for (age = 0; from && age <= TS_SLIDES; age++) {
			u64 sum = 0;

			if (slide - age < from)
				break;
			for (part = 0; part < TS_PARTS; part++)
				sum += in_slide(c, slide - age, 0, of, part, &first, &last);
			if (age < TS_SLIDES)
				want += sum;
			else
				fading = sum;
		}
		want += fading ? ts_fade(fading, tick.fraction, first, last) : 0;
		if (records_window(&w, g, now, of, c, records_tag(c, 0), since, active) != TS_COPY_OK || ts_window_eval(&w, &tick, &v))
			return snprintf(why, bytes, "table %u is busy", of);
		if (v.value != want)
			return snprintf(why, bytes, "table %u has %llu, not %llu", of, (unsigned long long)v.value,
					(unsigned long long)want);
		if (records_are_still(g, now, of, records_tag(c, 0)) != !since_oldest(g, c, of))
			return snprintf(why, bytes, "table %u has %llu since the oldest record", of,
					(unsigned long long)since_oldest(g, c, of));
		if (since)
			continue;
		for (part = 0; part < TS_PARTS; part++) {
			untaken = given = 0;
			for (i = taken; i < count; i++)
				untaken += amount(&events[i], of, part);
			if (slide != g->slide << 16 >> 16)
				continue;
			for (age = 0; age <= TS_SLIDES; age++) {
				u64 share = records_share(&w, age, part, untaken, &given);

				want = in_slide(c, slide - age, taken, of, part, &first, &last);
				if (share != want)
					return snprintf(why, bytes, "table %u, part %u: %llu of slide -%u, not %llu", of, part,
							(unsigned long long)share, age, (unsigned long long)want);
			}
		}
	}
	return 0;
}

int records_test(u64 seed, char *why, size_t bytes);
int records_test(u64 seed, char *why, size_t bytes)
{
	struct ts_config config[RINGS] = {}, *c;
	struct records_counts now = {}, began;
	struct record_ring ring[RINGS] = {};
	u64 at, active = 0, since = 0, begun = 0, until = 0;
	u32 part, taken = 0, i;

	state = seed * 0x9E3779B97F4A7C15ULL + 1;
	count = 0;
	for (i = 0; i < RINGS; i++) {
		c = &config[i];
		*c = (struct ts_config){ .enabled = 1, .type = TS_DYNAMIC, .epoch = 7 };
		/* The second ring has slides of about the length of those of the first one. */
		c->slide = 1 + (i ? chance(3 * config[0].slide) : chance(1 << (1 + chance(20))));
		c->fraction = (1ULL << 56) / c->slide;
	}
	at = (1ULL << 32) + chance(1U << 31);
	/* Counters may be about to wrap. */
	now.bytes[0] = chance(2) ? (1ULL << 56) - chance(100000) : chance(1000);
	now.packets[1] = chance(2) ? ~0U - chance(1000) : 0;
	now.resent = chance(2) ? ~0U - chance(10) : 0;
	while (count < EVENTS) {
		struct test_event *e = &events[count];
		u32 reach = 1 << chance(10);

		c = &config[chance(RINGS)];
		at += chance(4) ? chance((u32)(c->slide / reach) + 1) : chance(4) ? chance(2) * c->slide : chance(30) * c->slide;
		e->at = at;
		if (host_slide_start(at, c->slide) != (u32)(at / c->slide * c->slide))
			return snprintf(why, bytes, "a slide of %llu begins at another tick than its record's", (unsigned long long)c->slide);
		e->more = (struct records_counts){};
		for (part = 0; part < TS_PARTS; part++) {
			e->more.packets[part] = chance(3);
			e->more.bytes[part] = chance(2) ? chance(1 << chance(24)) : 0;
		}
		e->more.resent = !chance(9);
		began = now;
		if (at >= until) {
			struct records_cell cell = { ~0U, ~0U, ~0U };

			for (i = 0; i < RINGS; i++)
				records_within(&cell, &config[i], at);
			begun = at - cell.ago;
			until = at + cell.left;
		}
		/* Only the first event in a cell makes records. */
		for (i = 0; i < RINGS && active < begun; i++)
			records_add(&ring[i], &config[i], records_tag(&config[i], 0), &began, at, active, count % 8);
		add(&now, &e->more);
		now.bytes[0] &= (1ULL << 56) - 1;
		active = at;
		count++;
		if (!chance(20))
			taken = count;
		if (!chance(40))
			since = at;
		if (chance(4))
			continue;
		i = chance(RINGS);
		c = &config[i];
		if (compare(&ring[i], c, &now, at + (chance(2) ? 0 : chance(12) * c->slide / 2), 0, taken, why, bytes) ||
		    compare(&ring[i], c, &now, at, since, taken, why, bytes))
			return 1;
	}
	return 0;
}
