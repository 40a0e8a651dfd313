/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests of a few users to two disks are made, made again, done in pieces, and some vanish, after which the kernel has
 * another request at their address. What each user should have is kept beside, in windows of its own.
 */
#include "logic.h"
#include "observe/user_test.h"

#define USERS 12
#define DISKS 2
#define REQUESTS 40

struct request_model {
	u64 start_ns; /* 0: none is at this address */
	u32 user;
	u32 disk;
	u32 part;
	u64 left;
};

static struct request_model requests[REQUESTS];
static struct ts_window truth[DISKS_SAMPLES][DISKS][USERS][DISKS_TABLES];
static u64 totals[DISKS_SAMPLES][DISKS_TABLES];

/* Processes, each with a control group that it shares with another one. */
static u64 id_of(u32 sample, u32 user)
{
	return sample == DISKS_PROCS ? 1000 + user : 1 + user / 2;
}

static u64 address_of(u32 i)
{
	return 0xffff888000000000ULL + i * 512;
}

/* The model's side of disks_count(). */
static void count(const struct request_model *r, u32 table, u64 amount)
{
	u32 sample;

	for (sample = 0; sample < DISKS_SAMPLES; sample++) {
		u32 user = sample == DISKS_PROCS ? r->user : r->user & ~1U;
		struct ts_window *w = &truth[sample][r->disk][user][table];
		struct ts_tick *tick = &host_bank(host_user_cpu, sample)->tick[table];

		if (w->slide != tick->slide)
			ts_window_begin(w, tick);
		ts_window_add(w, tick, r->part, amount);
		totals[sample][table] += amount;
	}
}

static void make(u32 i)
{
	struct request_model *r = &requests[i];
	struct disks_who who = { .process = { .comm = "user" }, .device = "disk" };
	int again = r->start_ns && test_once_in(2);

	if (!again) /* whatever was there has vanished */
		*r = (struct request_model){ host_user_ns, test_random(USERS), test_random(DISKS),
					     test_random(DISKS_PARTS), 512 * (1 + test_random(64)) };
	if (disks_knows(address_of(i), r->start_ns)) {
		TEST_WANT(again, "request %u is new", i);
		return;
	}
	TEST_WANT(!again, "request %u is not known any more", i);
	disks_begin(address_of(i), r->start_ns, r->disk, id_of(DISKS_PROCS, r->user), id_of(DISKS_CGROUPS, r->user), &who);
}

static void done(u32 i)
{
	struct request_model *r = &requests[i];
	u64 bytes = test_once_in(3) ? 1 + test_random(r->left) : r->left;

	disks_done(address_of(i), r->start_ns, r->part, bytes, bytes == r->left);
	count(r, DISKS_BYTES, bytes);
	if (bytes == r->left) {
		count(r, DISKS_OPS, 1);
		totals[DISKS_PROCS][DISKS_WAIT] += (host_user_ns - r->start_ns) | 1;
		totals[DISKS_CGROUPS][DISKS_WAIT] += (host_user_ns - r->start_ns) | 1;
		r->start_ns = 0;
	}
	r->left -= bytes;
}

static u64 in_flight(u32 sample, u32 disk, u32 user)
{
	u64 held = 0;
	u32 i;

	for (i = 0; i < REQUESTS; i++)
		held += requests[i].start_ns && requests[i].disk == disk &&
			id_of(sample, requests[i].user) == id_of(sample, user);
	return held;
}

static void compare_user(u32 sample, u32 disk, u32 user)
{
	struct disks_key key = { .device = disk, .id = id_of(sample, user) };
	u32 table, place = keyed_find(&key, sample);
	struct disks_object *o = place ? &objects[place - 1] : NULL;
	u64 held = o ? o->keyed.held : 0;

	TEST_WANT(held == in_flight(sample, disk, user), "user %u: %llu requests in flight", user, (unsigned long long)held);
	for (table = DISKS_BYTES; table <= DISKS_OPS; table++) {
		u64 value = o ? test_value(sample, table, &o->window[table]) : 0;
		u64 real = test_value(sample, table, &truth[sample][disk][user][table]);

		TEST_WANT(value == real, "user %u, table %u: %llu, not %llu", user, table, (unsigned long long)value,
			  (unsigned long long)real);
	}
}

static void compare(void)
{
	u32 sample, disk, user, table;

	for (sample = 0; sample < DISKS_SAMPLES; sample++) {
		for (table = 0; table < DISKS_TABLES; table++) {
			TEST_WANT(test_total(sample, table) == totals[sample][table], "table %u: total %llu, not %llu",
				  table, (unsigned long long)test_total(sample, table),
				  (unsigned long long)totals[sample][table]);
			TEST_WANT(!test_refused(sample, table), "there is a place for all");
		}
		for (disk = 0; disk < DISKS; disk++)
			for (user = 0; user < USERS; user += sample == DISKS_PROCS ? 1 : 2)
				compare_user(sample, disk, user);
	}
}

TEST(disks)
{
	u32 i, table, steps = 50 + test_random(300);

	memset(requests, 0, sizeof(requests));
	memset(truth, 0, sizeof(truth));
	memset(totals, 0, sizeof(totals));
	memset(objects, 0, sizeof(objects));
	memset(buckets, 0, sizeof(buckets));
	memset(pending, 0, sizeof(pending));
	constants.jiffy_ns = HOST_USER_JIFFY_NS;
	for (i = 0; i < DISKS_SAMPLES; i++)
		for (table = 0; table < DISKS_TABLES; table++)
			test_configure(i, table, TS_DYNAMIC, 200, 0);
	for (i = 0; i < steps; i++) {
		u32 n = test_random(REQUESTS);

		host_user_cpu = test_random(HOST_USER_CPUS);
		test_time_passes(1 + test_random(1 << test_random(27)));
		if (requests[n].start_ns && !test_once_in(5))
			done(n);
		else
			make(n);
		compare();
	}
}
