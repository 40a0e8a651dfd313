/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface for observers that are written with observe/obs.h. They have their own banks, settings and objects
 * (observe/host_kmod.h), which they register with topstat.ko, and which topstat.ko shows. Modules of other kinds use topstat.h.
 */
#ifndef TOPSTAT_OBSERVER_H
#define TOPSTAT_OBSERVER_H

#include "topstat.h"
#include "topstat/section.h"

/* The version of the engine's structures that observer and topstat.ko both use: it changes whenever these structures do. */
#define TOPSTAT_ENGINE_ABI 3

/**
 * struct topstat_engine - the state of an observer, which HOST_STATE() of observe/host_kmod.h has made
 * @abi: %TOPSTAT_ENGINE_ABI
 * @banks_of_cpu: the number of banks of each CPU
 * @top: the number of rows that tables keep
 * @settings: the settings; the settings of the tables follow, four for each bank
 * @shape: the sizes that tables were made for
 * @banks: the banks of all CPUs, one behind the other
 * @view: returns a table's view, by which the table finds its window in an object
 * @section: host_section() of the observer: takes a section with the observer's windows
 * @id: host_id() of the observer: the id that the object of a slot has now
 * @ends: host_ends() of the observer: how many objects of a table have ended on a CPU
 */
struct topstat_engine {
	u32 abi;
	u32 banks_of_cpu;
	u32 top;
	struct ts_settings *settings;
	const struct ts_shape *shape;
	void *banks;
	ts_view (*view)(u32 bank, u32 table);
	void (*section)(struct ts_section *section, struct ts_table *table, const struct ts_config *config, ts_view view,
			u32 read_only, void *rows, u64 size);
	u64 (*id)(struct ts_table *table, u32 slot, u64 object, ts_view view);
	u64 (*ends)(const struct ts_table *table);
};

/**
 * struct topstat_observed - a sample of an observer
 * @info: the sample. Its describe callback is not called
 * @engine: the state of the observer
 * @bank: the bank of the sample's tables
 * @census: the numbers of objects that have begun and ended
 * @describe: describes an object, as the describe callback of @info, but of a row that was found in the table of a CPU.
 *	The memory of @object may be freed at any time; the row is shown only if the object is still there afterwards
 * @settle_all: pushes the amounts that objects have used and that were not pushed yet, and orders objects that were not ordered
 *	when they were pushed to. Context: process context, before any CPU is read or a setting is changed. NULL: no amount or
 *	order is ever outstanding
 * @begins: the table counts from now on, by the settings @to: it is switched on, or its period changes. Context: process context,
 *	after @settle_all and before the settings change. NULL: the observer need not know
 * @changed: settings have changed. Context: process context. NULL: the observer need not know
 * @settle: pushes the amounts that were used on this CPU and not pushed yet. Context: interrupts are off. NULL: no amount is ever
 *	outstanding. Returns false if this has interrupted another settling
 * @unranked: returns whether this table has a row that no table ranks, such as idle time, and the row's value; NULL: no table has
 * one @unranked_describe: describes that row
 * @keeps: whether rows of ended objects are kept (TS_KEEPS)
 * @has_opaque: whether `opaque` may be other than 0, so that outputs have it
 */
struct topstat_observed {
	struct topstat_sample_info info;
	const struct topstat_engine *engine;
	u32 bank;
	const struct ts_census *census;
	void (*describe)(const struct ts_table *table, const struct ts_row *found, u64 object, struct topstat_row *row);
	void (*settle_all)(u32 bank);
	void (*begins)(u32 bank, u32 table, const struct ts_config *to);
	void (*changed)(void);
	bool (*settle)(void);
	bool (*unranked)(u32 table, const struct ts_tick *tick, u64 *value);
	void (*unranked_describe)(struct topstat_row *row);
	bool keeps;
	bool has_opaque;
};

/**
 * topstat_observer_register() - show the tables of an observer's sample
 * @observed: the sample; it must stay valid until it is unregistered
 *
 * Return: as topstat_sample_register(); -EPROTO: the engine has another ABI
 */
#define topstat_observer_register(observed) __topstat_observer_register(observed, THIS_MODULE)

/* See topstat_observer_register(). */
struct topstat_sample *__topstat_observer_register(const struct topstat_observed *observed, struct module *owner);

/**
 * topstat_observer_table() - show a table of an observer's sample
 * @sample: from topstat_observer_register()
 * @info: the table. The number of rows is the engine's, whatever @info says
 * @number: its number in the bank
 *
 * Return: as topstat_table_add()
 */
struct topstat_table *topstat_observer_table(struct topstat_sample *sample, const struct topstat_table_info *info,
					     unsigned int number);

#endif /* TOPSTAT_OBSERVER_H */
