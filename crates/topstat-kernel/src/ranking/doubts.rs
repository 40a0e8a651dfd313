// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The amounts that were refused to objects without a place, by the bucket of the object's key: see [`Doubt`].

use topstat_engine::abi::ts_tick;
use topstat_engine::window_most;
use topstat_model::TableType;

use super::banks::window;
use crate::bpf::Shared;
use crate::error::Error;
use crate::family::Doubt;
use crate::maps::Maps;

/// See the module.
pub struct Doubts {
    memory: Shared,
}

impl Doubts {
    /// The windows in these maps, where the family has any.
    ///
    /// # Errors
    /// The memory can't be mapped, or the map is missing.
    pub fn of(maps: &Maps, doubt: Option<Doubt>) -> Result<Option<Self>, Error> {
        let Some(doubt) = doubt else { return Ok(None) };
        let map = maps.get(doubt.refused).ok_or_else(|| Error::NotLoaded(doubt.refused.to_owned()))?;
        Ok(Some(Self { memory: Shared::new(map)? }))
    }

    /// The largest window at this moment. `None`: a window has advanced by two slides since then.
    pub fn most(&self, tick: &ts_tick) -> Option<u64> {
        let of = |bucket| window(&self.memory, bucket, 0, TableType::Dynamic, |window| window_most(window, tick));
        (0..self.memory.entries()).try_fold(0, |most, bucket| Some(most.max(of(bucket)?)))
    }
}
