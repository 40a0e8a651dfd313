// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of the user's own: any event, ranked by its fields. `README.md` has the language and its limits.
//!
//! A definition becomes a family, with one sample and one table, that is loaded, pinned and read like a built-in one. One compiled
//! program serves all of them: constants describe the fields, and the verifier removes the code for all others.

abi!("custom");
#[cfg(feature = "bench")]
pub mod bench;
mod constant;
mod described;
mod place;
pub mod resolve;

use std::mem::{offset_of, size_of};
use std::sync::Arc;

use libbpf_rs::MapHandle;
use topstat_model::ColumnKind;
use topstat_model::definition::{Definition, Fault, Source};

use described::Described;
pub use resolve::{Listed, System, list as events};
use topstat_kernel::bpffs::{self, Locked, MAPS, Pins, abi_name};
use topstat_kernel::family::{
    Build, Builds, Constant, Constants, Defined, Doubt, Entries, Family, FieldAt, MapSize, Objects, OwnLost,
    OwnOptions, Ranked, Refill, RowColumn, columns,
};
use topstat_kernel::hooks::Hook;
use topstat_kernel::maps::first;
use topstat_kernel::{Error, SampleInfo, TableInfo, process};

/// The beginning of the names of these families. The name of the sample follows.
const PREFIX: &str = "custom_";
/// The keys that a table has places for, unless its definition says more: twice as many places are made, 3,584.
pub const DEFAULT_KEYS: u32 = 1792;

/// The most memory of a table's objects, in bytes. It is allocated when the table is loaded, and stays.
pub const MOST_BYTES: u64 = 256 << 20;

/// Why a table can't be made of a definition.
#[derive(Debug)]
pub enum Trouble {
    /// The definition is wrong, at a character.
    Definition(Fault),
    /// The kernel, or the catalogue, refuses.
    Other(Error),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Definition(fault)
    }
}

/// Adds a table to the catalogue: it is listed, loaded, pinned and read like a built-in one from now on.
///
/// # Errors
/// The definition names an event or a field that this kernel lacks, or the name is taken or can't be a directory's name.
pub fn add(sample: &str, table: &str, definition: &Definition, system: &System) -> Result<Arc<Family>, Trouble> {
    let family = family_of(sample, table, definition, system, object!("custom/custom.bpf.o"))?;
    crate::catalogue().add(family).map_err(Trouble::Other)
}

/// The memory of a table's objects in the kernel, in bytes, without the tables of its CPUs.
pub fn memory(definition: &Definition) -> u64 {
    let buckets = u64::from(buckets(definition));
    let objects = size_of::<abi::custom_object>() * abi::CUSTOM_WAYS as usize;
    buckets * (objects + abi::CUSTOM_BUCKET as usize + size_of::<abi::custom_refused>()) as u64
}

/// Buckets for twice the keys, a power of two.
fn buckets(definition: &Definition) -> u32 {
    let keys = definition.places.unwrap_or(DEFAULT_KEYS);
    (keys.saturating_mul(2)).div_ceil(abi::CUSTOM_WAYS).next_power_of_two()
}

/// The family of a definition, whose events this object of programs counts.
///
/// # Errors
/// As [`add`].
fn family_of(
    sample: &str,
    table: &str,
    definition: &Definition,
    system: &System,
    programs: &'static [u8],
) -> Result<Family, Fault> {
    let described = described::describe(definition, system)?;
    if memory(definition) > MOST_BYTES {
        let why = format!(
            "'keys {}' takes {} MiB of the kernel's memory, and at most {} are allowed",
            definition.places.unwrap_or(DEFAULT_KEYS),
            memory(definition) >> 20,
            MOST_BYTES >> 20
        );
        return Err(Fault { at: definition.text.rfind("keys").map_or(1, |at| at + 1), why });
    }
    let buckets = buckets(definition);
    let hooks = described.hooks.clone();
    let all = ["custom_event", "custom_first", "custom_last"];
    let unused = all.into_iter().filter(|program| !hooks.iter().any(|hook| hook.program == *program));
    let size = |map, value, entries| MapSize { map, value, entries: Entries::Fixed(entries) };
    let build = Build {
        maps: vec!["buckets", "pending", "refused", ".data.unkept", ".data.negative", ".data.faulted"],
        sizes: vec![
            size("objects", size_of::<abi::custom_object>(), buckets * abi::CUSTOM_WAYS),
            size("buckets", abi::CUSTOM_BUCKET as usize, buckets),
            size("refused", size_of::<abi::custom_refused>(), buckets),
        ],
        unused: unused.map(|program| Hook::tracepoint(program, "none")).collect(),
        ..Build::new(programs, object!("custom/snapshot.bpf.o"), hooks, |object, maps, _| {
            Refill::over_places(object, &maps.objects, "custom_refill")
        })
    };
    let path = format!("{sample}/{table}");
    let lost = ["unkept", "negative", "faulted"];
    let lost = lost.map(|name| OwnLost { table: path.clone(), name: name.into(), map: format!(".data.{name}") });
    let ranked = Ranked {
        full: true,
        lost: lost.into(),
        doubt: Some(Doubt { missing: offset_of!(abi::custom_row, missing), refused: "refused" }),
        definition: Some(Defined { text: definition.text.clone(), at: offset_of!(abi::custom_constants, definition) }),
        own: OwnOptions { top: definition.top, period_ms: definition.period_ms },
        ..Ranked::new::<abi::custom_section, abi::custom_row>(
            Builds::one(build),
            constants(&described, &path, definition, buckets),
        )
    };
    let sample = sample_info(sample, table, definition, described);
    Ok(Family::ranked(&format!("{PREFIX}{}", sample.name), abi::CUSTOM_ABI, (6, 1), [sample], ranked))
}

/// Removes the pinned tables of users' own whose paths are not among these, which ends their statistics. Returns their paths.
///
/// # Errors
/// It is not permitted, or the directory is not on a BPF file system.
pub fn keep(pins: &Pins, paths: &[&str]) -> Result<Vec<String>, Error> {
    let surplus: Vec<_> = pinned(pins)?.into_iter().filter(|table| !paths.contains(&table.name.as_str())).collect();
    if surplus.is_empty() {
        return Ok(Vec::new());
    }
    let Some(locked) = Locked::existing(pins.dir())? else { return Ok(Vec::new()) };
    let Some(abi) = locked.dir().dir(&abi_name(abi::CUSTOM_ABI))? else { return Ok(Vec::new()) };
    for table in &surplus {
        locked.remove_family(&abi, &table.family, &mut Vec::new())?;
    }
    Ok(surplus.into_iter().map(|table| table.name).collect())
}

/// The constants: all that tells this table from others.
fn constants(described: &Described, path: &str, definition: &Definition, buckets: u32) -> Constants {
    let mut given = abi::custom_constants {
        buckets_mask: buckets - 1,
        table: described.table,
        name: [0; abi::CUSTOM_NAME as usize],
        definition: [0; abi::CUSTOM_DEFINITION as usize],
        ..Default::default()
    };
    put(&mut given.name, path);
    put(&mut given.definition, &definition.text);
    let from = offset_of!(abi::custom_constants, buckets_mask);
    let bytes = topstat_kernel::bpf::as_bytes(&given)[from..].to_vec();
    let fields = [
        (offset_of!(abi::custom_constants, jiffy_ns), Constant::JiffyNs),
        (offset_of!(abi::custom_constants, v1_controller), Constant::V1Controller),
    ];
    Constants::new(size_of::<abi::custom_constants>(), fields).with(from, bytes)
}

/// Writes a text, and leaves at least one zero behind it. Definitions and names are checked to be shorter.
fn put(to: &mut [core::ffi::c_char], text: &str) {
    let room = to.len() - 1;
    for (to, byte) in to.iter_mut().zip(text.bytes().take(room)) {
        *to = core::ffi::c_char::from_ne_bytes([byte]);
    }
}

/// The sample, with the columns of its rows.
fn sample_info(sample: &str, table: &str, definition: &Definition, described: Described) -> SampleInfo {
    const KEY: usize = offset_of!(abi::custom_row, key);
    const TIMES: usize = offset_of!(abi::custom_row, times);
    let Described { keys, unit, value_name, about, .. } = described;
    let mut all: Vec<RowColumn> = keys
        .into_iter()
        .map(|key| {
            let from = FieldAt::Event(KEY + key.word * size_of::<u64>(), Arc::new(key.shown));
            match key.name.as_str() {
                "pid" => columns::pid(from),
                name => RowColumn { column: topstat_model::Column::new(name.to_owned(), key.kind), from, filter: None },
            }
        })
        .collect();
    let own = |name: &'static str, from| RowColumn::new(name, ColumnKind::Id, from);
    let is_amount = definition.amount.is_some() || matches!(definition.source, Source::Span { .. });
    if is_amount {
        all.push(own("events", FieldAt::U64(TIMES)));
        all.push(own("mean", FieldAt::Mean(TIMES)));
        all.push(own("longest", FieldAt::U64(offset_of!(abi::custom_row, longest))));
    }
    all.push(RowColumn::optional("at_most", ColumnKind::Id, FieldAt::AtMost(offset_of!(abi::custom_row, missing))));
    let table = TableInfo::dynamic(abi::CUSTOM_TABLE, table, unit, &value_name, &about);
    SampleInfo::new(sample, &definition.text, Objects::Keyed, all, [table])
}

/// A table of the user's own that is pinned: its name and its definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedTable {
    /// The name of its family, which is the name of its directory.
    pub family: String,
    /// `sample/table`.
    pub name: String,
    /// The text.
    pub definition: String,
}

/// The tables of users' own that are pinned. A table that can't be read is left out.
///
/// # Errors
/// It is not permitted, or the directory is not on a BPF file system.
pub fn pinned(pins: &Pins) -> Result<Vec<PinnedTable>, Error> {
    let Some(dir) = bpffs::open(pins.dir())? else { return Ok(Vec::new()) };
    let Some(abi) = dir.dir(&abi_name(abi::CUSTOM_ABI))? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for family in abi.names()?.into_iter().filter(|name| name.starts_with(PREFIX)) {
        let Some(maps) = abi.dir(&family)?.and_then(|dir| dir.dir(MAPS).transpose()).transpose()? else { continue };
        let Some(file) = maps.pinned("constants")? else { continue };
        let bytes = MapHandle::from_pinned_path(file.object()).ok().and_then(|map| first(&map));
        let text = |at: usize, size: u32| process::text(bytes.as_ref()?.get(at..at + size as usize)?);
        let name = text(offset_of!(abi::custom_constants, name), abi::CUSTOM_NAME);
        let definition = text(offset_of!(abi::custom_constants, definition), abi::CUSTOM_DEFINITION);
        if let (Some(name), Some(definition)) = (name, definition) {
            found.push(PinnedTable { family, name, definition });
        }
    }
    Ok(found)
}
