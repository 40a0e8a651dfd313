/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests of a few users to two disks are made, reported again, joined to others, and completed in pieces. Some vanish or end
 * without disks_done(), after which the kernel has another request at their address. A model keeps the expected amounts of each
 * user in separate windows.
 */
#include "logic.h"
#include "observe/user_test.h"

#define USERS 12
#define DISKS 2
#define REQUESTS 40

struct request_model {
	u64 start_ns; /* 0: there is no request at this address */
	u32 user;
	u32 disk;
	u32 kind;
	u32 known; /* its beginning was seen */
	u32 by_bio; /* made when there was only its bio */
	u64 left;
};

static struct request_model requests[REQUESTS];
static struct ts_window truth[DISKS_SAMPLES][DISKS][USERS][DISKS_TABLES];
static u64 totals[DISKS_SAMPLES][DISKS_TABLES], unmatched[DISKS_TABLES];

/* Processes; each two share a control group. */
static u64 id_of(u32 sample, u32 user)
{
	return sample == DISKS_PROCS ? 1000 + user : 1 + user / 2;
}

static u64 address_of(u32 i)
{
	return 0xffff888000000000ULL + i * 512;
}

static u64 bio_of(u32 i)
{
	return 0xffff777000000000ULL + i * 192;
}

/* The model's side of disks_count(). */
static void count(const struct request_model *r, u32 table, u64 amount)
{
	u32 part = r->kind == DISKS_IS_READ ? DISKS_READ : DISKS_WRITE, sample;

	if (!amount)
		return;
	unmatched[table] += !r->known;
	for (sample = 0; sample < DISKS_SAMPLES; sample++) {
		u32 user = sample == DISKS_PROCS ? r->user : r->user & ~1U;
		struct ts_window *w = &truth[sample][r->disk][user][table];
		struct ts_tick *tick = &host_bank(host_user_cpu, disks_bank(sample, table))->tick[table % TS_BANK_TABLES];

		totals[sample][table] += amount;
		if (!r->known)
			continue;
		if (w->slide != tick->slide)
			ts_window_begin(w, tick);
		ts_window_add(w, tick, part, amount);
	}
}

static void begin(u32 i)
{
	struct request_model *r = &requests[i];
	struct disks_who who = { .process = { .comm = "user" }, .device = "disk" };

	disks_begin(r->by_bio ? bio_of(i) : address_of(i), r->disk, id_of(DISKS_PROCS, r->user), id_of(DISKS_CGROUPS, r->user), r->kind, &who);
	r->known = 1;
}

static void make(u32 i)
{
	struct request_model *r = &requests[i];

	if (r->start_ns && test_once_in(2)) { /* it is reported again */
		TEST_WANT(!disks_knows(r->by_bio ? bio_of(i) : address_of(i), r->start_ns) == !r->known,
			  "request %u is new", i);
		if (!r->known)
			begin(i);
		return;
	}
	/* The earlier request at this address has vanished. */
	if (r->by_bio)
		disks_gone(bio_of(i), 0);
	test_time_passes(1 + test_random(1000));
	*r = (struct request_model){ .start_ns = host_user_ns, .user = test_random(USERS), .disk = test_random(DISKS),
				     .kind = test_random(DISKS_KINDS) };
	r->left = r->kind == DISKS_IS_FLUSH ? 0 : 512 * (1 + test_random(64));
	TEST_WANT(!disks_knows(address_of(i), r->start_ns), "request %u is not made yet", i);
	r->by_bio = (r->kind == DISKS_IS_WRITE || r->kind == DISKS_IS_FLUSH) && test_once_in(3);
	if (r->by_bio)
		disks_gone(address_of(i), 0);
	if (test_once_in(8)) { /* its beginning is missed; the earlier request's end was seen, so it is not taken for that one */
		disks_gone(address_of(i), 0);
		return;
	}
	begin(i);
}

/* Join a request to another one, which gets the earlier time of the two. */
static void join(u32 i, u32 to)
{
	struct request_model *r = &requests[i], *other = &requests[to];

	if (i == to || !r->start_ns || !other->start_ns || r->kind != other->kind || r->kind == DISKS_IS_FLUSH ||
	    r->by_bio || other->by_bio)
		return;
	other->left += r->left;
	if (r->start_ns < other->start_ns)
		other->start_ns = r->start_ns;
	r->start_ns = 0;
	disks_gone(address_of(i), 0);
}

static void over(struct request_model *r)
{
	u64 wait_ns = (host_user_ns - r->start_ns) | 1;

	r->start_ns = 0;
	if (r->kind == DISKS_IS_DISCARD)
		return;
	count(r, r->kind == DISKS_IS_FLUSH ? DISKS_FLUSHES : DISKS_OPS, 1);
	unmatched[DISKS_WAIT] += !r->known;
	totals[DISKS_PROCS][DISKS_WAIT] += wait_ns;
	totals[DISKS_CGROUPS][DISKS_WAIT] += wait_ns;
}

static void done(u32 i)
{
	struct request_model *r = &requests[i];
	u64 bytes = r->left && test_once_in(3) ? 1 + test_random(r->left) : r->left;
	/* The data of a sequence with flushes are completed before the request. */
	u32 whole = bytes == r->left && !test_once_in(4), kind = r->kind;

	if (r->known && kind == DISKS_IS_WRITE && !(r->left - bytes) && test_once_in(2))
		kind = DISKS_IS_FLUSH; /* a write with a flush looks like this at its end */
	disks_done(address_of(i), test_once_in(2) || r->by_bio ? bio_of(i) : 0, r->start_ns, kind, bytes, whole);
	count(r, r->kind == DISKS_IS_DISCARD ? DISKS_DISCARDS : DISKS_BYTES, bytes);
	if (whole)
		over(r);
	r->left -= bytes;
}

/* The request ends, and disks_done() misses it. */
static void end(u32 i)
{
	struct request_model *r = &requests[i];

	disks_ended(address_of(i), r->start_ns, r->kind);
	if (r->known)
		over(r);
	else
		r->start_ns = 0;
}

static u64 in_flight(u32 sample, u32 disk, u32 user)
{
	u64 held = 0;
	u32 i;

	for (i = 0; i < REQUESTS; i++)
		held += requests[i].start_ns && requests[i].known && requests[i].disk == disk &&
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
	for (table = 0; table < DISKS_TABLES; table++) {
		u32 number = disks_bank(sample, table), of_bank = table % TS_BANK_TABLES;
		u64 value = o ? test_value(number, of_bank, &o->window[table]) : 0;
		u64 real = test_value(number, of_bank, &truth[sample][disk][user][table]);

		TEST_WANT(value == real || table == DISKS_WAIT, "user %u, table %u: %llu, not %llu", user, table,
			  (unsigned long long)value, (unsigned long long)real);
	}
}

/* The number of pushes to a table without an object, for want of a place and for an unknown user. */
static void causes(u32 number, u32 table, u64 *full, u64 *unknown)
{
	struct ts_section s = {};
	u32 cpu;

	*full = *unknown = 0;
	for (cpu = 0; cpu < HOST_USER_CPUS; cpu++) {
		ts_section_end(&s, obs_table(host_bank(cpu, number), table));
		*full += s.full;
		*unknown += s.unmatched;
		TEST_WANT(!s.no_memory, "no memory is taken");
	}
}

static void compare(void)
{
	u32 sample, disk, user, table;

	for (sample = 0; sample < DISKS_SAMPLES; sample++) {
		for (table = 0; table < DISKS_TABLES; table++) {
			u32 number = disks_bank(sample, table), of_bank = table % TS_BANK_TABLES;
			u64 full, unknown;

			TEST_WANT(test_total(number, of_bank) == totals[sample][table], "table %u: total %llu, not %llu",
				  table, (unsigned long long)test_total(number, of_bank),
				  (unsigned long long)totals[sample][table]);
			causes(number, of_bank, &full, &unknown);
			TEST_WANT(!full, "there is a place for all");
			TEST_WANT(unknown == unmatched[table], "table %u: %llu were not known, not %llu", table,
				  (unsigned long long)unknown, (unsigned long long)unmatched[table]);
			TEST_WANT(!unknown == !test_refused(number, of_bank), "rows are proven without what was refused");
		}
		for (disk = 0; disk < DISKS; disk++)
			for (user = 0; user < USERS; user += sample == DISKS_PROCS ? 1 : 2)
				compare_user(sample, disk, user);
	}
}

/* More requests than places: requests without a place count as TS_FULL. After all requests are completed, no object is held. */
static void overflow(void)
{
	static u64 made[PENDING_BUCKETS * PENDING_WAYS * 2];
	u32 most = sizeof(made) / sizeof(made[0]), i, table = DISKS_OPS;
	struct disks_who who = { .process = { .comm = "user" }, .device = "disk" };
	struct disks_key key = { .device = 0, .id = 1 };
	u64 full, unknown, before;
	struct disks_object *o;

	causes(disks_bank(DISKS_PROCS, table), table, &full, &before);
	for (i = 0; i < most; i++) {
		made[i] = host_user_ns;
		disks_begin(0xffff999000000000ULL + i * 320, 0, 1, 1, DISKS_IS_READ, &who);
	}
	TEST_WANT(unkept >= most - PENDING_BUCKETS * PENDING_WAYS, "%llu found no place", (unsigned long long)unkept);
	test_time_passes(1000);
	i = keyed_find(&key, DISKS_PROCS);
	o = i ? &objects[i - 1] : NULL;
	TEST_WANT(o && o->keyed.held == most - unkept, "requests are held that are not pending");
	before = unkept;
	for (i = 0; i < most; i++)
		disks_done(0xffff999000000000ULL + i * 320, 0, made[i], DISKS_IS_READ, 512, 1);
	causes(disks_bank(DISKS_PROCS, table), table, &full, &unknown);
	TEST_WANT(full == before && !unkept, "%llu of %llu are told as full", (unsigned long long)full,
		  (unsigned long long)before);
	TEST_WANT(!o->keyed.held, "%llu requests are in flight for ever", (unsigned long long)o->keyed.held);
}

TEST(disks)
{
	u32 i, table, steps = 50 + test_random(300);

	memset(requests, 0, sizeof(requests));
	memset(truth, 0, sizeof(truth));
	memset(totals, 0, sizeof(totals));
	memset(unmatched, 0, sizeof(unmatched));
	memset(objects, 0, sizeof(objects));
	memset(buckets, 0, sizeof(buckets));
	memset(pending, 0, sizeof(pending));
	unkept = 0;
	constants.jiffy_ns = HOST_USER_JIFFY_NS;
	for (i = 0; i < DISKS_SAMPLES; i++)
		for (table = 0; table < DISKS_TABLES; table++)
			test_configure(disks_bank(i, table), table % TS_BANK_TABLES, TS_DYNAMIC, 200, 0);
	for (i = 0; i < steps; i++) {
		u32 n = test_random(REQUESTS);

		host_user_cpu = test_random(HOST_USER_CPUS);
		test_time_passes(1 + test_random(1 << test_random(27)));
		if (!requests[n].start_ns || test_once_in(5))
			make(n);
		else if (test_once_in(6))
			join(n, test_random(REQUESTS));
		else if (!requests[n].by_bio && test_once_in(6))
			end(n);
		else
			done(n);
		compare();
	}
	if (test_once_in(50))
		overflow();
}
