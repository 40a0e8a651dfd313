// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps of another family that the programs of a family use: see [`Lent`].

use std::mem::{offset_of, size_of};

use libbpf_rs::{MapCore, MapHandle, OpenObject};
use topstat_engine::abi::ts_config;

use super::RankedFamily;
use crate::bpf::{self, Shared};
use crate::family::{Grids, Lent};
use crate::maps::Maps;
use crate::{Error, catalogue};

/// The family that lends maps to this one.
pub fn lender(of: &RankedFamily) -> Result<Option<RankedFamily>, Error> {
    let Some(lent) = of.build().lent else { return Ok(None) };
    let found = catalogue::families().into_iter().find(|family| family.name == lent.by);
    found.and_then(|family| RankedFamily::of(&family)).map(Some).ok_or_else(|| Error::NotLoaded(lent.by.to_owned()))
}

/// The borrowed maps, by their names in the borrowing programs. (libbpf gives a map that is used again the name that it was made with, so
/// loaded programs have these maps under the lender's names.)
#[derive(Default)]
pub struct Borrowed(Vec<(&'static str, MapHandle)>);

impl Borrowed {
    /// The maps that the build of a family borrows from these; none if it borrows nothing.
    pub fn from(lent: Option<Lent>, lender: Option<&Maps>) -> Result<Self, Error> {
        let Some((lent, lender)) = lent.zip(lender) else { return Ok(Self::default()) };
        Self::of(lent, |_, name| {
            let missing =
                || Error::Kernel { what: format!("use the map {name} of {}", lent.by), why: "it has none".to_owned() };
            let found = lender.named(name).ok_or_else(missing)?;
            MapHandle::try_from(found)
                .map_err(|e| Error::Kernel { what: format!("use the map {name}"), why: format!("{e:#}") })
        })
    }

    /// The maps that `get` finds by the name in the borrowing programs and by the lender's.
    pub fn of(lent: Lent, get: impl Fn(&str, &str) -> Result<MapHandle, Error>) -> Result<Self, Error> {
        lent.maps.iter().map(|(own, name)| Ok((*own, get(own, name)?))).collect::<Result<_, _>>().map(Self)
    }

    /// Makes programs that are about to be loaded use these maps.
    pub fn share(&self, object: &mut OpenObject) -> Result<(), Error> {
        self.0.iter().try_for_each(|(own, map)| bpf::reuse(object, own, map))
    }

    /// The maps, by their names in the borrowing programs.
    pub fn maps(&self) -> impl Iterator<Item = (&'static str, &MapHandle)> {
        self.0.iter().map(|(own, map)| (*own, map))
    }

    /// Whether a map of loaded programs is one of these.
    pub fn has(&self, map: &impl MapCore) -> Result<bool, Error> {
        let id = id(map)?;
        self.0.iter().try_fold(false, |found, (_, own)| Ok(found || self::id(own)? == id))
    }

    /// Whether the borrowed maps among these are the same ones.
    pub fn are(&self, own: &Maps) -> Result<bool, Error> {
        self.0.iter().try_fold(true, |are, (name, map)| Ok(are && own.get(name).map(id).transpose()? == Some(id(map)?)))
    }
}

fn id(map: &impl MapCore) -> Result<u32, Error> {
    let failed = |why: String| Error::Kernel { what: "ask for the id of a map".to_owned(), why };
    map.info().map(|info| info.info.id).map_err(|e| failed(format!("{e:#}")))
}

/// The lengths of slides that the lender makes records for.
pub struct SharedGrids {
    memory: Shared,
    at: usize,
    most: usize,
    computed: Shared,
}

impl SharedGrids {
    /// The grids in these maps; `None`: the family borrows nothing.
    pub fn of(maps: &Maps, lent: Option<Lent>) -> Result<Option<Self>, Error> {
        let Some(Lent { grids: Grids { map, computed, at, most }, .. }) = lent else { return Ok(None) };
        let missing = |map| Error::Kernel { what: format!("use the map {map}"), why: "it is not there".to_owned() };
        let shared = |map| Shared::new(maps.get(map).ok_or_else(|| missing(map))?);
        Ok(Some(Self { memory: shared(map)?, at, most, computed: shared(computed)? }))
    }

    /// Whether there is room for these tables.
    ///
    /// # Errors
    /// Their periods are too many.
    pub fn check(&self, tables: &[ts_config]) -> Result<(), Error> {
        let count = grids(tables).len();
        if count <= self.most {
            return Ok(());
        }
        Err(Error::Option(format!(
            "tables of these samples may have {} different periods at a time, and this is another one: give this table the \
             period of another table, or set another table first",
            self.most
        )))
    }

    /// Has the lender make records for these tables: the dynamic ones that are on, or any one if all are off.
    pub fn write(&self, tables: &[ts_config]) {
        let wanted = grids(tables);
        for place in 0..self.most {
            let at = self.at + place * size_of::<ts_config>();
            let now: ts_config = self.memory.read(0, at);
            let to = wanted.get(place);
            if to.is_some_and(|to| now.enabled != 0 && grid(&now) == grid(to)) {
                continue;
            }
            // A program that sees it enabled sees the rest.
            self.memory.write::<u32>(0, at + offset_of!(ts_config, enabled), 0);
            if let Some(to) = to {
                self.memory.write(0, at, ts_config { enabled: 0, ..*to });
                self.memory.write::<u32>(0, at + offset_of!(ts_config, enabled), 1);
            }
        }
        self.computed.write(0, 0, 0_u64);
    }
}

/// What two tables with one length of slides have in common.
fn grid(table: &ts_config) -> (u64, u32) {
    (table.slide, table.precise)
}

/// One table for each length of slides, the shortest first.
fn grids(tables: &[ts_config]) -> Vec<ts_config> {
    let on = |table: &&ts_config| table.enabled != 0;
    let mut wanted: Vec<_> = tables.iter().filter(on).copied().collect();
    if wanted.is_empty() {
        wanted.extend(tables.first());
    }
    // Slides by the finer clock are the shorter ones.
    wanted.sort_by_key(|table| (table.precise == 0, table.slide));
    wanted.dedup_by_key(|table| grid(table));
    wanted
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    fn table(slide: u64, precise: u32, enabled: u32) -> ts_config {
        ts_config { slide, precise, enabled, ..ts_config::default() }
    }

    #[test]
    fn the_lender_has_the_grids_of_the_tables_that_are_on() {
        const MOST: usize = 2;
        let memory =
            |bytes| Shared::of_file(&File::from(memfd_create("grids", MemfdFlags::CLOEXEC).unwrap()), bytes, 1);
        let computed = memory(size_of::<u64>());
        computed.write(0, 0, 7_u64);
        let shared = SharedGrids { memory: memory(MOST * size_of::<ts_config>()), at: 0, most: MOST, computed };
        let has = || {
            let place = |place| shared.memory.read::<ts_config>(0, place * size_of::<ts_config>());
            (0..MOST).map(place).filter(|config| config.enabled != 0).map(|config| config.slide).collect::<Vec<_>>()
        };
        let mut tables = vec![table(100, 0, 1), table(25, 0, 1), table(7, 0, 0)];
        shared.check(&tables).unwrap();
        shared.write(&tables);
        assert_eq!(has(), [25, 100]);
        assert_eq!(shared.computed.read::<u64>(0, 0), 0, "the lender computes again");
        tables[2].enabled = 1;
        let refused = shared.check(&tables).unwrap_err().to_string();
        assert!(refused.contains("2 different periods"), "{refused}");
        tables.iter_mut().for_each(|table| table.enabled = 0);
        shared.write(&tables);
        assert_eq!(has(), [100], "one stays, so that connections stay listed");
    }

    #[test]
    fn each_length_of_slides_is_one_grid() {
        let of = |tables: &[ts_config]| grids(tables).iter().map(grid).collect::<Vec<_>>();
        let all = [table(100, 0, 1), table(25, 0, 1), table(100, 0, 1), table(7, 0, 0), table(1000, 1, 1)];
        assert_eq!(of(&all), [(1000, 1), (25, 0), (100, 0)]);
        assert_eq!(of(&[table(25, 0, 0), table(100, 0, 0)]), [(25, 0)], "all are off");
        assert_eq!(of(&[]), []);
    }
}
