/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of logic_test.c with a million keys, in all buckets. Included there. */
#define MANY 1000000
#define HEAVY 50
#define EVENTS_S 100000
#define SECONDS 4
/* Milliseconds between two events of a heavy key, where it has few of them. */
#define SPARSE_MS 700

static u32 *truth[TS_SLIDES + 2]; /* by slide, for each key */

/* The amounts of a key in the present slide and in this number of slides before it. */
static u64 many_since(u32 key, u32 slides)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i <= slides; i++)
		sum += truth[(slide_now() - i) % (TS_SLIDES + 2)][key];
	return sum;
}

static void many_key(struct custom_key *key, u32 i)
{
	memset(key, 0, sizeof(*key));
	key->word[0] = i;
	key->word[1] = ~(u64)i;
}

static void many_compare(const struct custom_object *o, const struct custom_key *key)
{
	u32 i = key->word[0];
	u64 least = many_since(i, TS_SLIDES - 1), most = many_since(i, TS_SLIDES), value, bound;

	if (!o) {
		bound = most_of(&refused[keyed_first(keyed_hash(key, CUSTOM_SAMPLE))].window);
		TEST_WANT(least <= bound, "key %u without an object: %llu of %llu", i, (unsigned long long)least,
			  (unsigned long long)bound);
		return;
	}
	value = value_of(&o->window[CUSTOM_TABLE]);
	TEST_WANT(value <= most && least <= value + missing_of(o), "key %u: %llu of %llu, and %llu missing", i,
		  (unsigned long long)value, (unsigned long long)least, (unsigned long long)missing_of(o));
}

/* How many of the HEAVY largest keys have objects, and the share of their amounts that these have, in percent; it is a bit low,
 * because the slide that fades counts whole. */
static void many_found(u32 *found, u32 *share)
{
	u64 value[HEAVY] = {}, sum = 0, all = 0;
	u32 top[HEAVY] = {}, i, k;
	struct custom_key key;

	for (i = 0; i < MANY; i++) {
		u64 now = many_since(i, TS_SLIDES - 1);

		if (now <= value[HEAVY - 1])
			continue;
		for (k = HEAVY - 1; k && value[k - 1] < now; k--) {
			value[k] = value[k - 1];
			top[k] = top[k - 1];
		}
		value[k] = now;
		top[k] = i;
	}
	*found = 0;
	for (i = 0; i < HEAVY; i++) {
		many_key(&key, top[i]);
		k = keyed_find(&key, CUSTOM_SAMPLE);
		if (!k)
			continue;
		*found += 1;
		sum += value_of(&objects[k - 1].window[CUSTOM_TABLE]);
		all += many_since(top[i], TS_SLIDES);
	}
	*share = all ? sum * 100 / all : 0;
}

/* The heavy keys have this percentage of all amounts, by Zipf's law. `sparse`: in few events. */
static void many_keys(u32 percent, u32 sparse, u32 least_found)
{
	u32 i, k, found, share, heavy[HEAVY];
	double harmonic = 0, sum = 0;
	u64 slide = 0;

	begin_table(KEYED_BUCKETS - 1);
	test_configure(CUSTOM_SAMPLE, CUSTOM_TABLE, TS_DYNAMIC, 1000, 0);
	for (i = 0; i < TS_SLIDES + 2; i++)
		truth[i] = calloc(MANY, sizeof(u32));
	for (i = 0; i < HEAVY; i++)
		harmonic += 1.0 / (i + 1);
	for (i = 0; i < HEAVY; i++) {
		sum += percent / harmonic / (i + 1);
		heavy[i] = sum * 1000000;
	}
	for (i = 0; i < EVENTS_S * SECONDS; i++) {
		u32 chance = test_random(100000000), n, amount = 1 + test_random(1000);
		struct custom_key key;

		test_time_passes(1000000000 / EVENTS_S);
		host_user_cpu = test_random(HOST_USER_CPUS);
		for (; slide != slide_now(); slide = slide ? slide + 1 : slide_now())
			memset(truth[(slide + 1) % (TS_SLIDES + 2)], 0, slide ? MANY * sizeof(u32) : 0);
		n = HEAVY + test_random(MANY - HEAVY);
		if (sparse && test_once_in(EVENTS_S / 1000 * SPARSE_MS / HEAVY)) {
			n = test_random(HEAVY);
			amount = (heavy[n] - (n ? heavy[n - 1] : 0)) / (100.0 - percent) / 1000000 * 500 * EVENTS_S / 1000 * SPARSE_MS;
		} else if (!sparse && chance < heavy[HEAVY - 1]) {
			for (n = 0; chance >= heavy[n]; n++)
				;
		}
		many_key(&key, n);
		truth[slide % (TS_SLIDES + 2)][n] += amount;
		custom_push(&key, amount);
		if ((i + 1) % (EVENTS_S / 2))
			continue;
		for (k = 0; k < KEYED_PLACES; k++)
			if (objects[k].keyed.object.id)
				many_compare(&objects[k], &objects[k].key);
		for (k = 0; k < MANY; k += k < HEAVY ? 1 : 97) {
			many_key(&key, k);
			n = keyed_find(&key, CUSTOM_SAMPLE);
			many_compare(n ? &objects[n - 1] : NULL, &key);
		}
	}
	many_found(&found, &share);
	for (i = 0; i < TS_SLIDES + 2; i++)
		free(truth[i]);
	TEST_WANT(found >= least_found && share >= 90, "%u %%: %u of %u heavy keys found, with %u %% of their amounts", percent,
		  found, HEAVY, share);
}
