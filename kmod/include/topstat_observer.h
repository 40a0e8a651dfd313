/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For observers that are written with observe/obs.h: they have banks, settings and objects of their own
 * (observe/host_kmod.h), which topstat.ko is told of, and shows. Whoever writes a module of another kind uses
 * topstat.h.
 */
#ifndef TOPSTAT_OBSERVER_H
#define TOPSTAT_OBSERVER_H

#include "topstat.h"
#include "topstat/section.h"

/* Another one whenever the engine's structures change, which observer and topstat.ko both use. */
#define TOPSTAT_ENGINE_ABI 2

/**
 * struct topstat_engine - where an observer's state is, which HOST_STATE() of observe/host_kmod.h has made
 * @abi: %TOPSTAT_ENGINE_ABI
 * @banks_of_cpu: how many banks each CPU has
 * @top: how many rows tables keep
 * @settings: the settings; those of the tables follow, four for each bank
 * @shape: what tables were made for
 * @banks: the banks of all CPUs, one behind the other
 * @view: how a table finds its window in an object
 */
struct topstat_engine {
	u32 abi;
	u32 banks_of_cpu;
	u32 top;
	struct ts_settings *settings;
	const struct ts_shape *shape;
	void *banks;
	ts_view (*view)(u32 bank, u32 table);
};

/**
 * struct topstat_observed - a sample of an observer's
 * @info: as of any sample. Its describe callback is not called
 * @engine: where the state is
 * @bank: the bank of the sample's tables
 * @census: how many objects have been
 * @describe: as that of @info, but of an object by its address; the memory may be freed any time, the row is shown only if
 *	the object is still there afterwards
 * @settle_all: pushes, in process context and before any CPU is read or a setting is changed, what objects have used and was
 *	not pushed yet, and orders objects that were not ordered when they were pushed to; NULL: nothing ever is
 * @settle: pushes what has been used and not pushed yet, on this CPU, with interrupts off; NULL: nothing ever is. False: this
 *	has interrupted somebody who does the same
 * @unranked: the value of a row that no table ranks, such as idle time, and what describes it; NULL: there is none. Returns
 *	whether there is one in this table
 * @unranked_describe: describes it
 * @has_opaque: whether `opaque` may be other than 0, so that outputs have it
 */
struct topstat_observed {
	struct topstat_sample_info info;
	const struct topstat_engine *engine;
	u32 bank;
	const struct ts_census *census;
	void (*describe)(u64 object, u64 id, struct topstat_row *row);
	void (*settle_all)(u32 bank);
	bool (*settle)(void);
	bool (*unranked)(u32 table, const struct ts_tick *tick, u64 *value);
	void (*unranked_describe)(struct topstat_row *row);
	bool has_opaque;
};

/**
 * topstat_observer_register() - show the tables of an observer's sample
 * @observed: the sample; it must stay until it is unregistered
 *
 * Return: as topstat_sample_register(); -EPROTO: the engine is of another ABI
 */
struct topstat_sample *topstat_observer_register(const struct topstat_observed *observed);

/**
 * topstat_observer_table() - show one of its tables
 * @sample: of topstat_observer_register()
 * @info: what it is. Its number of rows is that of the engine
 * @number: its number in the bank
 *
 * Return: as topstat_table_add()
 */
struct topstat_table *topstat_observer_table(struct topstat_sample *sample, const struct topstat_table_info *info,
					     unsigned int number);

#endif /* TOPSTAT_OBSERVER_H */
