/* SPDX-License-Identifier: GPL-2.0-only */
/* For logic.h: the amounts of one object, which are pushed together (NU2). */
#ifndef TOPSTAT_NET_BATCH_H
#define TOPSTAT_NET_BATCH_H

/* The object of a batch; NULL: the batch has no place, or the object has ended. */
TS_INLINE struct net_object *net_object_of(const struct net_batch *b)
{
	struct net_object *o = net_object_at(b->place);

	return o && ts_read(o->keyed.object.id) == b->id ? o : NULL;
}

/* Order the object, whatever the delay: batches are rare, and there may be no later push that would order it. */
TS_INLINE void net_order(struct keyed *k, u32 table)
{
	if (k->obs.id)
		obs_order_next(&k->obs, table);
}

/* The age of a moment (jiffies) in slides of the table; at most NET_AGES - 1. */
TS_INLINE u32 net_age_of(const struct obs *x, u32 table, u32 when)
{
	const struct ts_tick *tick = &x->bank->tick[table];
	u64 ago = (u32)((u32)x->now - when), length = tick->end - tick->start;

	if (x->config[table].precise)
		ago *= constants.jiffy_ns;
	if (ago <= tick->now - tick->start || !length)
		return 0;
	ago = (ago - (tick->now - tick->start) - 1) / length + 1;
	return ago < NET_AGES ? ago : NET_AGES - 1;
}

/* The grid of a table; the first one while the settings change. */
TS_INLINE u32 net_grid_of(const struct ts_config *c)
{
	u32 grid;

	for (grid = INET_GUESTS - 1; grid; grid--)
		if (ts_read(lender.guest[grid].enabled) && records_are_alike(&lender.guest[grid], c))
			return grid;
	return 0;
}

/* The age of a batch's age 0 in slides of the table; at most NET_AGES - 1. */
TS_INLINE u32 net_age(const struct obs *x, u32 table, const struct net_batch *b)
{
	u64 ago;

	if (b->grid == NET_NO_GRID)
		return net_age_of(x, table, b->when);
	ago = (x->bank->tick[table].slide & TS_SLIDE_NUMBER) - b->when;
	if (ago < NET_AGES)
		return ago;
	/* The clock of the CPU that made the batch is ahead of this one's; or the table has just got another period. */
	return ago >> 63 || !records_are_alike(&x->config[table], &lender.guest[ts_bound(b->grid, INET_GUESTS - 1)]) ? 0 : NET_AGES - 1;
}

TS_INLINE struct net_amounts *net_used(struct net_batch *b, u32 age)
{
	return (void *)((char *)b->used + host_item_at(age, NET_AGES, sizeof(struct net_amounts)));
}

/* The amount of a batch for a part of a dynamic table. */
TS_INLINE u64 net_amount(struct net_batch *b, u32 table, u32 part, u32 age)
{
	const struct net_amounts *used = net_used(b, age);

	if (table == NET_PPS)
		return part == NET_RX ? used->in : used->out;
	if (table == NET_BPS)
		return part == NET_RX ? used->rx : used->tx;
	if (table == NET_RETRANS)
		return part == NET_RX ? 0 : used->resent;
	return used->opened[part & 1];
}

/*
 * Push the amounts of one age to a dynamic table, if the table has the batch's grid. Amounts older than the period go to the sums alone. (One
 * table a call, and amounts are read where they are needed: stack is scarce.)
 */
TS_GLOBAL_FN int net_push_to(struct net_batch *b, u32 sample, u32 table, u32 age)
{
	struct keyed k;

	if (!b || sample >= NET_SAMPLES || table >= NET_BYTES)
		return 0;
	if (!(net_amount(b, table, NET_RX, age) | net_amount(b, table, NET_TX, age)))
		return 0;
	table = ts_bound(table, TS_BANK_TABLES - 1);
	if (b->grid != NET_NO_GRID && b->grid != net_grid_of(&settings.config[ts_bound(net_bank(sample, NET_PPS), NET_BANKS - 1)][table]))
		return 0;
	if (!keyed_begin_of(&k, net_bank(sample, NET_PPS), net_object_of(b)))
		return 0;
	net_order(&k, table);
	keyed_add_ago(&k, table, net_amount(b, table, NET_RX, age), net_amount(b, table, NET_TX, age),
		      net_age(&k.obs, table, b) + age);
	keyed_end(&k);
	return 0;
}

/* Push to the static table. Amounts come once in each grid. */
TS_GLOBAL_FN int net_push_bytes(struct net_batch *b, u32 sample)
{
	const u32 table = NET_BYTES % TS_BANK_TABLES;
	u64 rx = 0, tx = 0;
	struct keyed k;
	u32 age;

	if (!b || sample >= NET_SAMPLES || (b->grid && b->grid != NET_NO_GRID))
		return 0;
	for (age = 0; age < NET_AGES; age++) {
		if (b->any >> age & 1) {
			rx += net_used(b, age)->rx;
			tx += net_used(b, age)->tx;
		}
	}
	if (!(rx | tx) || !keyed_begin_of(&k, net_bank(sample, NET_BYTES), net_object_of(b)))
		return 0;
	net_order(&k, table);
	if (rx)
		keyed_add(&k, table, NET_RX, rx);
	net_order(&k, table);
	if (tx)
		keyed_add(&k, table, NET_TX, tx);
	keyed_end(&k);
	return 0;
}

/* Push a batch to all tables. */
TS_INLINE void net_push(struct net_batch *b, u32 sample)
{
	u32 i;

	for (i = 0; i < NET_AGES * NET_BYTES; i++)
		if (b->any >> (i / NET_BYTES) & 1)
			net_push_to(b, sample, i % NET_BYTES, i / NET_BYTES);
	net_push_bytes(b, sample);
	b->any = 0;
}

TS_INLINE struct net_batches *net_level(struct net_cpu *cpu, u32 i)
{
	return (void *)((char *)cpu->level + host_item_at(i, NET_LEVELS, sizeof(struct net_batches)));
}

/* The only batch that the object in this place may use. */
TS_INLINE struct net_batch *net_batch_of(struct net_batches *all, u32 sample, u32 place)
{
	u32 i = ts_bound(sample, NET_SAMPLES - 1) * NET_BATCHES + ts_bound(place, NET_BATCHES - 1);

	return (void *)((char *)all->of + host_item_at(i, NET_SAMPLES * NET_BATCHES, sizeof(struct net_batch)));
}

TS_INLINE struct net_waiting *net_waiting_of(struct net_batches *all, u32 sample)
{
	return (void *)((char *)all->waiting + host_item_at(sample, NET_SAMPLES, sizeof(struct net_waiting)));
}

/* NU2. Look once more for the place of a batch that has no place. */
TS_INLINE void net_place_again(struct net_batches *all, struct net_batch *b, u32 sample)
{
	struct net_waiting *w = net_waiting_of(all, sample);
	u32 place = keyed_place_of(&w->key, sample);
	struct net_object *o = net_object_at(place);

	if (!o)
		return;
	b->place = place;
	b->id = ts_read(o->keyed.object.id);
	if (sample != NET_HOSTS && w->owner.pid)
		o->owner = w->owner;
}

/* NU2. Push a batch. Under the claim of its level. */
TS_INLINE void net_flush(struct net_batches *all, struct net_batch *b, u32 sample)
{
	if (!b->any)
		return;
	if (ts_unlikely(!b->place))
		net_place_again(all, b, sample);
	net_push(b, sample);
}

/* Claim one of this CPU's levels. NULL: all are taken. */
TS_INLINE struct net_batches *net_claim(struct net_cpu *cpu)
{
	struct net_batches *all;
	u32 i;

	for (i = 0; i < NET_LEVELS; i++) {
		all = net_level(cpu, i);
		if (ts_claim(&all->claim))
			return all;
	}
	return NULL;
}

/* A reader's tries to get a claim: they take longer than a look that runs on another CPU. */
#define NET_TRIES 512

/* NU2. Push a batch, unless its level is claimed by a preempted look. (`number`: sample after sample.) */
TS_GLOBAL_FN int net_flush_one(struct net_batches *all, u32 number)
{
	u32 sample = number / NET_BATCHES;

	if (!all || sample >= NET_SAMPLES || !obs_claim_soon(&all->claim, NET_TRIES))
		return 0;
	net_flush(all, net_batch_of(all, sample, number), sample);
	ts_release(&all->claim);
	return 0;
}

/*
 * NU2. Push the batches of a CPU, in all samples, from this CPU. A reader flushes all CPUs before it takes the first section. 0: there is
 * no such CPU.
 */
TS_INLINE int net_flush_of(u32 number)
{
	struct net_cpu *cpu = host_on(batches, number);
	struct net_batches *all;
	u32 i, batch;

	if (!cpu)
		return 0;
	for (i = 0; i < NET_LEVELS; i++) {
		all = net_level(cpu, i);
		/* A look that is under way adds to batches: it is waited for. Levels of preempted looks are left out. */
		if (!obs_claim_soon(&all->claim, NET_TRIES))
			continue;
		ts_release(&all->claim);
		for (batch = 0; batch < NET_SAMPLES * NET_BATCHES; batch++)
			if (net_batch_of(all, batch / NET_BATCHES, batch)->any)
				net_flush_one(all, batch);
	}
	return 1;
}

#endif /* TOPSTAT_NET_BATCH_H */
