// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The maps that hold a family's state. A process that has them open can read and set the state.

use std::mem::size_of;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, OpenObject};
use topstat_engine::abi::ts_shape;

use crate::{Error, bpf};

/// See the module.
pub struct Maps {
    /// The banks, by CPU and sample.
    pub banks: MapHandle,
    /// `ts_settings` and the configurations.
    pub settings: MapHandle,
    /// The numbers of objects.
    pub census: MapHandle,
    /// The constants, which begin with `ts_shape`.
    pub constants: MapHandle,
    /// The objects' storage.
    pub objects: MapHandle,
    /// See [`Build::maps`](crate::family::Build::maps).
    further: Vec<(String, MapHandle)>,
}

impl Maps {
    /// The ends of their names, in eBPF objects.
    const NAMES: [&'static str; 5] = ["banks", ".data.settings", ".data.census", ".rodata.constants", "objects"];

    /// The names of all maps of a family that has these further ones.
    pub fn names<'a>(further: &'a [&str]) -> impl Iterator<Item = &'a str> {
        Self::NAMES.into_iter().chain(further.iter().copied())
    }

    /// The maps that `get` finds by their names.
    pub fn from(further: &[&str], mut get: impl FnMut(&str) -> Result<MapHandle, Error>) -> Result<Self, Error> {
        let [banks, settings, census, constants, objects] = Self::NAMES;
        Ok(Self {
            banks: get(banks)?,
            settings: get(settings)?,
            census: get(census)?,
            constants: get(constants)?,
            objects: get(objects)?,
            further: further.iter().map(|name| Ok(((*name).to_owned(), get(name)?))).collect::<Result<_, Error>>()?,
        })
    }

    /// One of the family's further maps.
    pub fn get(&self, name: &str) -> Option<&MapHandle> {
        self.further.iter().find(|(own, _)| own == name).map(|(_, map)| map)
    }

    /// Any of the maps, by the end of its name in eBPF objects.
    pub fn named(&self, name: &str) -> Option<&MapHandle> {
        self.all().find(|(own, _)| *own == name).map(|(_, map)| map)
    }

    /// All maps, by the ends of their names in eBPF objects.
    fn all(&self) -> impl Iterator<Item = (&str, &MapHandle)> {
        let common = [&self.banks, &self.settings, &self.census, &self.constants, &self.objects];
        let further = self.further.iter().map(|(name, map)| (name.as_str(), map));
        Self::NAMES.into_iter().zip(common).chain(further)
    }

    /// Makes programs that are about to be loaded use these maps. Maps that the programs lack are left out.
    pub fn share(&self, object: &mut OpenObject) -> Result<(), Error> {
        for (name, map) in self.all() {
            if object.maps().any(|m| m.name().to_string_lossy().ends_with(name)) {
                bpf::reuse(object, name, map)?;
            }
        }
        Ok(())
    }

    /// The bytes of the constants; empty if they can't be read.
    pub fn constants(&self) -> Vec<u8> {
        first(&self.constants).unwrap_or_default()
    }

    /// The shape that the tables were made for.
    pub fn shape(&self) -> Result<ts_shape, Error> {
        shape_in(&self.constants)
    }

    /// The number in one of the family's further maps.
    pub fn number(&self, name: &str) -> Option<u64> {
        first(self.get(name)?)?.first_chunk().copied().map(u64::from_ne_bytes)
    }
}

/// The first value of a map.
pub fn first(map: &MapHandle) -> Option<Vec<u8>> {
    map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten()
}

/// The shape at the beginning of these constants.
fn shape_in(constants: &MapHandle) -> Result<ts_shape, Error> {
    let failed = |why: &dyn std::fmt::Display| Error::Kernel {
        what: "read the constants of the loaded programs".to_owned(),
        why: why.to_string(),
    };
    let bytes = constants
        .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| failed(&e))?
        .filter(|bytes| bytes.len() >= size_of::<ts_shape>())
        .ok_or_else(|| failed(&"they are too short"))?;
    Ok(bpf::from_bytes(&bytes))
}

/// The rows that tables keep with these constants, if the number of entries fits: a process that can write to pinned state can
/// write anything there.
pub fn rows_of(shape: &ts_shape) -> Result<u32, String> {
    let made = topstat_engine::entries_for(shape.top).map_err(|e| e.to_string())?;
    let entries = shape.entries_mask.wrapping_add(1);
    if entries == made { Ok(shape.top) } else { Err(format!("{entries} entries are not what {} rows take", shape.top)) }
}

/// The number of rows that tables with these constants keep.
pub fn top_of(constants: &MapHandle) -> Option<u32> {
    shape_in(constants).ok().map(|shape| shape.top)
}
