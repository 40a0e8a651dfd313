// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The builds of a family's programs, compiled for kernels that have more or fewer features. Missing features are found by
//! trying: for a family with more than one build, `probe.bpf.c` has programs that need one feature each. They are loaded and
//! never run.

use std::mem::size_of;
use std::sync::OnceLock;

use libbpf_rs::{Object, OpenObject, ProgramAttachType};

use topstat_engine::abi::ts_ended;

use super::{BankId, Refill, TablePlace};
use crate::hooks::Hook;
use crate::maps::Maps;
use crate::report::{Obstacle, obstacle};
use crate::{Error, Options, bpf};

/// A feature that came after the oldest kernel that a family is for, and the consequence of its absence.
#[derive(Clone, Debug)]
pub struct Feature {
    /// How the kernel is probed for it.
    pub probe: Probe,
    /// Its description.
    pub name: &'static str,
    /// The consequence of its absence.
    pub without: &'static str,
}

/// How the kernel is probed for a feature.
#[derive(Clone, Copy, Debug)]
pub enum Probe {
    /// By a program of the family's `probe.bpf.c` that needs it.
    Program(&'static str),
    /// By what the kernel reports about itself.
    Told(fn() -> bool),
}

/// The programs that, before a snapshot, push usage of objects that was not pushed yet, and order these objects, whatever the
/// delay.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The compiled programs.
    pub object: &'static [u8],
    /// The program among them that goes over a map. It writes output for each object whose usage it could not push completely,
    /// because another CPU holds it: then it is run again.
    pub program: &'static str,
    /// The map, one of [`Build::maps`].
    pub over: &'static str,
    /// The number of banks whose programs leave pending amounts: the first ones of the family. Snapshots of other banks run nothing.
    pub banks: u32,
    /// Maps of these programs whose size is known when they are loaded.
    pub sizes: Vec<MapSize>,
    /// Where the kernel itself counts objects (`observe/records.h`): a map of [`Build::maps`] with the moment from which on each
    /// table counts, a u64 for each table of each bank. A static table counts from the beginning, and has the moment when the first
    /// dynamic table of its sample was switched on. The programs then have a map `.data.moment` with the moment of their
    /// latest run, in jiffies and in nanoseconds.
    pub since: Option<&'static str>,
    /// A map of [`Build::maps`] with a u64 that programs compute from the settings. After a change it is 0 until they compute it
    /// again.
    pub computed: Option<&'static str>,
    /// A map of [`Build::maps`] with a u32 that is 0 if no object has pending amounts. Then the program with the ending `_none` runs
    /// instead, and returns 1 if amounts of another run are outstanding. Where sockets are found by several programs
    /// ([`bpf::sockets`](crate::bpf::sockets)), `.data.moment` has a third u64, which is not 0 if the first of them has found all.
    pub listed: Option<&'static str>,
}

/// Maps of another family, the lender, that the programs of a family use beside their own. The lender is loaded first.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// The lender's name.
    pub by: &'static str,
    /// The maps: the name in these programs, which is one of [`Build::maps`], and the name in the lender's.
    pub maps: &'static [(&'static str, &'static str)],
    /// Where the lender takes the lengths of slides of this family's dynamic tables.
    pub grids: Grids,
}

/// A part of the lender's settings: for each length of a slide that the tables have, the configuration of one of them.
#[derive(Clone, Copy, Debug)]
pub struct Grids {
    /// The map, by its name in the borrowing programs.
    pub map: &'static str,
    /// A map with a u64 that the lender's programs compute from the settings: see [`Settle::computed`].
    pub computed: &'static str,
    /// The offset of the first configuration in the map's value.
    pub at: usize,
    /// The number of configurations that there is room for.
    pub most: usize,
}

/// One way to compile a family's programs.
pub struct Build {
    /// The pushing programs.
    pub observer: &'static [u8],
    /// The reading programs: `observe/ranked_snapshot.bpf.h`.
    pub snapshot: &'static [u8],
    /// Where the pushing programs are attached: births before pushes, so that no push is seen without its owner.
    pub hooks: Vec<Hook>,
    /// Finds the objects that existed before the hooks were attached.
    pub adopt: fn(&Object) -> Result<(), Error>,
    /// When objects are adopted: just before this program is attached, or (`None`) after all are.
    pub adopt_before: Option<&'static str>,
    /// Attaches the iterators that order all objects of a sample again. The sample is given by its number.
    pub refill: fn(&Object, &Maps, sample: u32) -> Result<Refill, Error>,
    /// How pending amounts are settled, where the programs leave any. `None`: the programs order an object at each push.
    pub settle: Option<Settle>,
    /// The number of this build in the programs' constants ([`Constant::Build`](super::Constant::Build)), where its objects hold
    /// other data than in other builds.
    pub number: u32,
    /// How it counts the values of samples, by the sample's name, where builds differ in that.
    pub ways: Vec<(&'static str, &'static str)>,
    /// Maps of its state in addition to the maps that all families have, by the ends of their names.
    pub maps: Vec<&'static str>,
    /// Maps whose size is known when they are made.
    pub sizes: Vec<MapSize>,
    /// State that is kept of ended objects, whose rows stay until they have aged out.
    pub keeps: Option<Keeps>,
    /// Maps of another family that its programs use.
    pub lent: Option<Lent>,
    /// Hooks of the compiled programs that are not for this family.
    pub unused: Vec<Hook>,
}

/// State that is kept of ended objects: see the engine's `keep.h`.
#[derive(Clone, Copy, Debug)]
pub struct Keeps {
    /// The number of samples that keep any. They are the first ones, and have one bank each.
    pub samples: u32,
    /// The number of tables of each sample that keep any. They are the first ones.
    pub tables: u32,
    /// Bytes that are kept for a slot of a table.
    pub size: usize,
}

impl Keeps {
    /// The map of the kept state, by slot.
    pub const KEPT: &str = "kept";
    /// The map of the `ts_ended` structures, by table.
    pub const ENDED: &str = "ended";

    /// Both maps, for tables of `entries` entries: the name, the bytes of a value, and the number of values.
    pub fn sizes(self, cpus: u32, entries: u32) -> [(&'static str, usize, u32); 2] {
        let tables = cpus.saturating_mul(self.samples * self.tables);
        [(Self::KEPT, self.size, tables.saturating_mul(entries)), (Self::ENDED, size_of::<ts_ended>(), tables)]
    }

    /// The index of a table's entry in the map [`ENDED`](Self::ENDED); `None`: the table keeps nothing.
    pub fn entry(self, cpu: u32, place: TablePlace) -> Option<usize> {
        let TablePlace { bank: BankId(bank), table } = place;
        let keeps = bank < self.samples && table < self.tables;
        keeps.then(|| ((cpu * self.samples + bank) * self.tables + table) as usize)
    }
}

/// The size of a map.
#[derive(Clone, Debug)]
pub struct MapSize {
    /// Its name.
    pub map: &'static str,
    /// Bytes of a value.
    pub value: usize,
    /// The number of values.
    pub entries: Entries,
}

/// The number of values in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// One for each CPU.
    Cpus,
    /// One for each group that can be told apart: [`Options::groups`].
    Groups,
    /// This number.
    Fixed(u32),
}

/// All builds of a family, and the choice of one for this kernel.
pub struct Builds {
    usual: Build,
    fallback: Option<Fallback>,
    /// Preferred builds, the best one first.
    preferred: Vec<Preferred>,
    /// The programs that probe the kernel.
    probes: Option<&'static Probes>,
}

/// A compiled `probe.bpf.c`, whose programs need one feature each that a kernel may lack. Families may share one.
pub struct Probes {
    object: &'static [u8],
    /// The programs that the kernel refuses, tried once.
    missing: OnceLock<Vec<String>>,
}

impl Probes {
    /// Probes by these programs.
    pub const fn new(object: &'static [u8]) -> Self {
        Self { object, missing: OnceLock::new() }
    }

    /// The programs that this kernel refuses, or does not let this user load.
    fn missing(&self) -> &[String] {
        self.missing.get_or_init(|| missing(self.object))
    }
}

/// The build for kernels that lack a feature.
struct Fallback {
    build: Build,
    needed: Vec<Feature>,
    since: &'static str,
}

/// A build that is preferred to the usual one, and to the preferred ones after it, where the kernel has the features that it needs.
struct Preferred {
    build: Build,
    needed: Vec<Feature>,
    wanted: fn() -> bool,
}

/// One of a family's builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildKind {
    /// The usual build.
    Usual,
    /// See [`Builds::or_fallback`].
    Fallback,
    /// See [`Builds::or_preferred`]; 0 is the best one.
    Preferred(usize),
}

impl Builds {
    /// A single build: every kernel that has BTF has all that it needs.
    pub fn one(build: Build) -> Self {
        Self { usual: build, fallback: None, preferred: Vec::new(), probes: None }
    }

    /// Adds a fallback build for kernels that lack any of these features, which the usual build needs. They came with Linux `since`,
    /// in a form for people.
    #[must_use]
    pub fn or_fallback(self, fallback: Build, needed: Vec<Feature>, since: &'static str) -> Self {
        Self { fallback: Some(Fallback { build: fallback, needed, since }), ..self }
    }

    /// Sets the programs that probe the kernel.
    #[must_use]
    pub fn probed(self, probes: &'static Probes) -> Self {
        Self { probes: Some(probes), ..self }
    }

    /// Adds a build that replaces the usual one, and preferred ones that are added later, where it is `wanted` and the kernel also
    /// has these features.
    #[must_use]
    pub fn or_preferred(mut self, build: Build, needed: Vec<Feature>, wanted: fn() -> bool) -> Self {
        self.preferred.push(Preferred { build, needed, wanted });
        self
    }

    /// See [`Probes::missing`].
    fn missing(&self) -> &[String] {
        self.probes.map(Probes::missing).unwrap_or_default()
    }

    fn are_missing(&self, needed: &[Feature]) -> Vec<Feature> {
        let lacks = |feature: &&Feature| match feature.probe {
            Probe::Program(program) => self.missing().iter().any(|name| name == program),
            Probe::Told(has) => is_fallback_wanted() || !has(),
        };
        needed.iter().filter(lacks).cloned().collect()
    }

    /// The features that the usual build needs, and that this kernel lacks or does not let this user have.
    pub fn lacking(&self) -> Vec<Feature> {
        self.fallback.as_ref().map(|fallback| self.are_missing(&fallback.needed)).unwrap_or_default()
    }

    /// The features that a preferred build needs in addition, and that this kernel lacks or does not let this user have.
    pub fn lacking_for_preferred(&self, which: usize) -> Vec<Feature> {
        self.preferred.get(which).map(|preferred| self.are_missing(&preferred.needed)).unwrap_or_default()
    }

    /// The obstacle that hides which build this kernel takes: programs were refused to this process, and not because the kernel
    /// lacks a feature.
    pub fn unknown(&self) -> Option<Obstacle> {
        let preferred = |which| !self.lacking_for_preferred(which).is_empty();
        let refused = !self.lacking().is_empty() || (0..self.preferred.len()).any(preferred);
        obstacle().filter(|_| refused && !is_fallback_wanted())
    }

    /// The build for this kernel.
    pub fn chosen(&self) -> BuildKind {
        if !self.lacking().is_empty() {
            return BuildKind::Fallback;
        }
        let is_taken = |preferred: &Preferred| (preferred.wanted)() && self.are_missing(&preferred.needed).is_empty();
        self.preferred.iter().position(is_taken).map_or(BuildKind::Usual, BuildKind::Preferred)
    }

    /// The build whose programs made the pinned state, by the number in their constants. If several builds have that number, and
    /// differ in their hooks, it is the one with the most programs of its hooks in place. If the programs are lost, it is the one
    /// for this kernel.
    pub fn numbered(&self, number: u32, is_there: impl Fn(&str) -> bool) -> BuildKind {
        let there = |which| self.build(which).hooks.iter().filter(|hook| is_there(&hook.program)).count();
        let usual = if self.lacking().is_empty() { BuildKind::Usual } else { BuildKind::Fallback };
        let chosen = self.chosen();
        let all = (0..self.preferred.len()).map(BuildKind::Preferred).chain([usual]);
        let numbered = all.filter(|which| self.build(*which).number == number);
        numbered.max_by_key(|which| (there(*which), *which == chosen)).unwrap_or(usual)
    }

    /// One of the builds.
    pub fn build(&self, which: BuildKind) -> &Build {
        match which {
            BuildKind::Fallback => self.fallback.as_ref().map_or(&self.usual, |fallback| &fallback.build),
            BuildKind::Preferred(which) => self.preferred.get(which).map_or(&self.usual, |preferred| &preferred.build),
            BuildKind::Usual => &self.usual,
        }
    }

    /// The hooks of a build that apply to this kernel.
    pub fn hooks_of(&self, which: BuildKind) -> Vec<Hook> {
        let has = |probe: &str| !self.missing().iter().any(|name| name == probe);
        self.build(which).hooks.iter().filter(|hook| hook.is_for(has)).cloned().collect()
    }

    /// Advice about the missing features.
    pub fn advice(&self) -> String {
        let Some(fallback) = &self.fallback else { return String::new() };
        let what = if fallback.needed.len() == 1 { "has it" } else { "has all of it" };
        format!("a kernel of {} or later {what}", fallback.since)
    }

    /// Every place where programs may be attached, in any build.
    pub fn hooks(&self) -> Vec<Hook> {
        let mut all = self.usual.hooks.clone();
        let fallback = self.fallback.iter().flat_map(|fallback| &fallback.build.hooks);
        for hook in fallback.chain(self.preferred.iter().flat_map(|preferred| &preferred.build.hooks)) {
            if !all.iter().any(|other| other.program == hook.program) {
                all.push(hook.clone());
            }
        }
        all
    }
}

impl Build {
    /// Programs that find no earlier objects, and keep only the maps that all families have.
    pub fn new(
        observer: &'static [u8],
        snapshot: &'static [u8],
        hooks: Vec<Hook>,
        refill: fn(&Object, &Maps, sample: u32) -> Result<Refill, Error>,
    ) -> Self {
        Self {
            observer,
            snapshot,
            hooks,
            adopt: |_| Ok(()),
            adopt_before: None,
            refill,
            settle: None,
            number: 0,
            ways: Vec::new(),
            maps: Vec::new(),
            sizes: Vec::new(),
            keeps: None,
            lent: None,
            unused: Vec::new(),
        }
    }

    /// Sizes the maps whose size depends on the options or on the number of CPUs.
    pub fn resize(&self, object: &mut OpenObject, options: &Options, cpus: u32) -> Result<(), Error> {
        for size in &self.sizes {
            size.set(object, cpus, options.groups)?;
        }
        if let Some(keeps) = self.keeps {
            let entries = topstat_engine::entries_for(options.top).map_err(|e| Error::Option(e.to_string()))?;
            for (map, size, entries) in keeps.sizes(cpus, entries) {
                bpf::resize(object, map, size, entries)?;
            }
        }
        Ok(())
    }
}

impl MapSize {
    /// Sizes the map of an object that is about to be loaded.
    pub fn set(&self, object: &mut OpenObject, cpus: u32, groups: u32) -> Result<(), Error> {
        let entries = match self.entries {
            Entries::Cpus => cpus,
            Entries::Groups => groups,
            Entries::Fixed(entries) => entries,
        };
        bpf::resize(object, self.map, self.value, entries)
    }

    /// A map of `entries` values of the type `T`.
    pub fn of<T>(map: &'static str, entries: Entries) -> Self {
        Self { map, value: size_of::<T>(), entries }
    }
}

/// If this is set to any text, all features count as missing: to try and to test the fallback builds on any kernel.
const FALLBACK: &str = "TOPSTAT_PLAIN";

fn is_fallback_wanted() -> bool {
    std::env::var_os(FALLBACK).is_some_and(|v| !v.is_empty())
}

fn missing(probe: &[u8]) -> Vec<String> {
    let Ok(object) = bpf::open("probe", probe) else { return Vec::new() };
    let names: Vec<_> = object.progs().map(|program| program.name().to_string_lossy().into_owned()).collect();
    if is_fallback_wanted() {
        return names;
    }
    // Mostly the kernel takes them all. They are tried together first, since each object that is loaded reads all of the kernel's
    // types.
    if let Some(refused) = refused(probe, |_| true) {
        return refused;
    }
    let one = |name: &String| refused(probe, |program| program == name).is_none_or(|refused| !refused.is_empty());
    names.into_iter().filter(one).collect()
}

/// The programs that can't be attached; `None` if any of these programs does not load. A kernel may load programs at functions
/// that it can't attach any to.
fn refused(probe: &[u8], wanted: impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let mut object = bpf::open("probe", probe).ok()?;
    for mut program in object.progs_mut() {
        let wanted = wanted(&program.name().to_string_lossy());
        program.set_autoload(wanted);
    }
    let object = bpf::load("probe", object).ok()?;
    let at_function = |attach| matches!(attach, ProgramAttachType::TraceFentry | ProgramAttachType::TraceFexit);
    let tried = object.progs_mut().filter(|program| {
        wanted(&program.name().to_string_lossy()) && at_function(program.attach_type()) && program.attach().is_err()
    });
    Some(tried.map(|program| program.name().to_string_lossy().into_owned()).collect())
}
