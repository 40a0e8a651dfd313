// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs of a family, as they were compiled for kernels that have more or less. What a kernel lacks is found out
//! by trying: of a family with more than one build, `probe.bpf.c` has programs that need one thing each, which are
//! loaded and never run.

use std::mem::size_of;
use std::sync::OnceLock;

use libbpf_rs::{Object, OpenObject, ProgramAttachType};

use topstat_engine::abi::ts_ended;

use super::Refill;
use crate::hooks::Hook;
use crate::maps::Maps;
use crate::report::{Obstacle, obstacle};
use crate::{Error, Options, bpf};

/// Something that came after the oldest kernel that a family is for, and what is the case without it.
#[derive(Clone, Debug)]
pub struct Feature {
    /// How it is found out whether the kernel has it.
    pub probe: Probe,
    /// What it is.
    pub name: &'static str,
    /// How things are without it.
    pub without: &'static str,
}

/// How it is found out whether a feature is there.
#[derive(Clone, Copy, Debug)]
pub enum Probe {
    /// By a program that needs it, of the family's `probe.bpf.c`.
    Program(&'static str),
    /// By what the kernel says of itself.
    Told(fn() -> bool),
}

/// What pushes, before a snapshot, what objects have used and was not pushed yet, and orders them, whatever the delay.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The compiled programs.
    pub object: &'static [u8],
    /// The one of them that goes over a map. It writes something for each object of which it could not push all, as another
    /// CPU is at it: then it is run again.
    pub program: &'static str,
    /// The map, one of [`Build::maps`].
    pub over: &'static str,
    /// Maps of these programs whose size is known when they are loaded.
    pub sizes: Vec<MapSize>,
    /// Where objects are counted by the kernel itself (`observe/records.h`): a map of [`Build::maps`] with the moment from which on
    /// each table counts, a u64 for each table of each bank. The programs have a map `.data.moment` then, with the moment of
    /// their latest run, in jiffies and in nanoseconds.
    pub since: Option<&'static str>,
    /// A map of [`Build::maps`] with a u64 that programs compute from the settings: after a change it is 0 until they compute it
    /// again.
    pub computed: Option<&'static str>,
}

/// One way to compile a family's programs.
pub struct Build {
    /// The programs that push.
    pub observer: &'static [u8],
    /// The programs that read: `observe/ranked_snapshot.bpf.h`.
    pub snapshot: &'static [u8],
    /// Where the first are attached, births before pushes, so that nothing is seen without its owner.
    pub hooks: Vec<Hook>,
    /// Finds the objects that were there before the hooks were attached.
    pub adopt: fn(&Object) -> Result<(), Error>,
    /// When: just before this program is attached, or after all are.
    pub adopt_before: Option<&'static str>,
    /// Attaches what orders all objects of a sample again, by its number.
    pub refill: fn(&Object, &Maps, sample: u32) -> Result<Refill, Error>,
    /// Where the programs leave something that is to be settled. They order an object whenever they push to it.
    pub settle: Option<Settle>,
    /// What the programs' constants say that this build is ([`Constant::Build`](super::Constant::Build)), where what it
    /// keeps in objects is not what the others do.
    pub number: u32,
    /// How it counts what samples show, by the sample's name, where builds differ in that.
    pub ways: Vec<(&'static str, &'static str)>,
    /// Maps of its state besides those that all families have, by what their names end with.
    pub maps: Vec<&'static str>,
    /// Maps whose size is known when they are made.
    pub sizes: Vec<MapSize>,
    /// Where rows of what has ended stay until they have aged out.
    pub keeps: Option<Keeps>,
}

/// What is kept of objects that have ended: see the engine's `keep.h`.
#[derive(Clone, Copy, Debug)]
pub struct Keeps {
    /// The samples that keep any, which are the first ones and have one bank each.
    pub samples: u32,
    /// Their tables that do, which are the first ones.
    pub tables: u32,
    /// Bytes of what a slot of a table keeps.
    pub size: usize,
}

impl Keeps {
    /// The map of what is kept, by slot.
    pub const KEPT: &str = "kept";
    /// The map of what is known of what has ended, by table.
    pub const ENDED: &str = "ended";

    /// Both maps, for tables of so many entries: the bytes of a value, and how many values.
    pub fn sizes(self, cpus: u32, entries: u32) -> [(&'static str, usize, u32); 2] {
        let tables = cpus.saturating_mul(self.samples * self.tables);
        [(Self::KEPT, self.size, tables.saturating_mul(entries)), (Self::ENDED, size_of::<ts_ended>(), tables)]
    }

    /// The number of a table's entry in the map [`ENDED`](Self::ENDED); `None`: it keeps nothing.
    pub fn place(self, cpu: u32, bank: u32, table: u32) -> Option<usize> {
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
    /// How many there are.
    pub entries: Entries,
}

/// How many values a map has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// One for each CPU.
    Cpus,
    /// One for each group that can be told apart: [`Options::groups`].
    Groups,
}

/// All builds of a family, and which of them this kernel takes.
pub struct Builds {
    full: Build,
    plain: Option<Plain>,
    /// The best one first.
    better: Vec<Better>,
    /// What tells what the kernel has.
    probes: Option<&'static Probes>,
}

/// A compiled `probe.bpf.c`, whose programs need one thing each that a kernel may lack. Families may have one in common.
pub struct Probes {
    object: &'static [u8],
    /// Those of its programs that the kernel does not take; asked once.
    missing: OnceLock<Vec<String>>,
}

impl Probes {
    /// These programs.
    pub const fn new(object: &'static [u8]) -> Self {
        Self { object, missing: OnceLock::new() }
    }

    /// Those that this kernel does not take, or does not let this user have.
    fn missing(&self) -> &[String] {
        self.missing.get_or_init(|| missing(self.object))
    }
}

/// The build for kernels that lack something.
struct Plain {
    build: Build,
    needed: Vec<Feature>,
    since: &'static str,
}

/// A build that is preferred to the full one and to those behind it, where the kernel has what it needs.
struct Better {
    build: Build,
    needed: Vec<Feature>,
    wanted: fn() -> bool,
}

/// One of a family's builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The usual one.
    Full,
    /// See [`Builds::or_plain`].
    Plain,
    /// See [`Builds::or_better`]; 0 is the best one.
    Better(usize),
}

impl Builds {
    /// The only one: there is no kernel that has BTF and lacks anything that it needs.
    pub fn one(build: Build) -> Self {
        Self { full: build, plain: None, better: Vec::new(), probes: None }
    }

    /// One for kernels that have these features, and a plain one for those that lack any of them. They came with Linux
    /// `since`, as people are told.
    #[must_use]
    pub fn or_plain(self, plain: Build, needed: Vec<Feature>, since: &'static str) -> Self {
        Self { plain: Some(Plain { build: plain, needed, since }), ..self }
    }

    /// By what it is found out which features the kernel has.
    #[must_use]
    pub fn probed(self, probes: &'static Probes) -> Self {
        Self { probes: Some(probes), ..self }
    }

    /// One that is taken instead of the full one, and of better ones that are given later, where it is `wanted` and the
    /// kernel has these features, too.
    #[must_use]
    pub fn or_better(mut self, build: Build, needed: Vec<Feature>, wanted: fn() -> bool) -> Self {
        self.better.push(Better { build, needed, wanted });
        self
    }

    /// See [`Probes::missing`].
    fn missing(&self) -> &[String] {
        self.probes.map(Probes::missing).unwrap_or_default()
    }

    fn are_missing(&self, needed: &[Feature]) -> Vec<Feature> {
        let lacks = |feature: &&Feature| match feature.probe {
            Probe::Program(program) => self.missing().iter().any(|name| name == program),
            Probe::Told(has) => is_plain() || !has(),
        };
        needed.iter().filter(lacks).cloned().collect()
    }

    /// Which of the features this kernel lacks that the full build needs, or does not let this user have.
    pub fn lacking(&self) -> Vec<Feature> {
        self.plain.as_ref().map(|plain| self.are_missing(&plain.needed)).unwrap_or_default()
    }

    /// The same of those that a better build needs beyond these.
    pub fn lacking_for_better(&self, which: usize) -> Vec<Feature> {
        self.better.get(which).map(|better| self.are_missing(&better.needed)).unwrap_or_default()
    }

    /// What keeps it from being known which build this kernel takes: programs that were refused were refused to this
    /// process, and not by what the kernel lacks.
    pub fn unknown(&self) -> Option<Obstacle> {
        let better = |which| !self.lacking_for_better(which).is_empty();
        let refused = !self.lacking().is_empty() || (0..self.better.len()).any(better);
        obstacle().filter(|_| refused && !is_plain())
    }

    /// The one for this kernel.
    pub fn chosen(&self) -> Which {
        if !self.lacking().is_empty() {
            return Which::Plain;
        }
        let is_taken = |better: &Better| (better.wanted)() && self.are_missing(&better.needed).is_empty();
        self.better.iter().position(is_taken).map_or(Which::Full, Which::Better)
    }

    /// The one whose programs have made what is pinned, by what their constants say; where that is true of several, which
    /// differ in their hooks, the one with the most programs of its hooks in place. If the programs are lost, the one for this kernel.
    pub fn numbered(&self, number: u32, is_there: impl Fn(&str) -> bool) -> Which {
        let there = |which| self.build(which).hooks.iter().filter(|hook| is_there(&hook.program)).count();
        let usual = if self.lacking().is_empty() { Which::Full } else { Which::Plain };
        let chosen = self.chosen();
        let all = (0..self.better.len()).map(Which::Better).chain([usual]);
        let numbered = all.filter(|which| self.build(*which).number == number);
        numbered.max_by_key(|which| (there(*which), *which == chosen)).unwrap_or(usual)
    }

    /// One of them.
    pub fn build(&self, which: Which) -> &Build {
        match which {
            Which::Plain => self.plain.as_ref().map_or(&self.full, |plain| &plain.build),
            Which::Better(which) => self.better.get(which).map_or(&self.full, |better| &better.build),
            Which::Full => &self.full,
        }
    }

    /// Those of a build's hooks that this kernel has a use for.
    pub fn hooks_of(&self, which: Which) -> Vec<Hook> {
        let has = |probe: &str| !self.missing().iter().any(|name| name == probe);
        self.build(which).hooks.iter().filter(|hook| hook.is_for(has)).cloned().collect()
    }

    /// What to do about what is lacking.
    pub fn advice(&self) -> String {
        let Some(plain) = &self.plain else { return String::new() };
        let what = if plain.needed.len() == 1 { "has it" } else { "has all of it" };
        format!("a kernel of {} or later {what}", plain.since)
    }

    /// Every place where programs may be attached, whichever the build.
    pub fn hooks(&self) -> Vec<Hook> {
        let mut all = self.full.hooks.clone();
        let plain = self.plain.iter().flat_map(|plain| &plain.build.hooks);
        for hook in plain.chain(self.better.iter().flat_map(|better| &better.build.hooks)) {
            if !all.iter().any(|other| other.program == hook.program) {
                all.push(hook.clone());
            }
        }
        all
    }
}

impl Build {
    /// Programs that find no objects from before, and keep no maps but those that all families have.
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
        }
    }

    /// Sizes the maps that have their size from elsewhere.
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
        };
        bpf::resize(object, self.map, self.value, entries)
    }

    /// A map of so many `T`.
    pub fn of<T>(map: &'static str, entries: Entries) -> Self {
        Self { map, value: size_of::<T>(), entries }
    }
}

/// Set to anything, everything is taken to be lacking: to try and to test the plain builds on any kernel.
const PLAIN: &str = "TOPSTAT_PLAIN";

fn is_plain() -> bool {
    std::env::var_os(PLAIN).is_some_and(|v| !v.is_empty())
}

fn missing(probe: &[u8]) -> Vec<String> {
    let Ok(object) = bpf::open("probe", probe) else { return Vec::new() };
    let names: Vec<_> = object.progs().map(|program| program.name().to_string_lossy().into_owned()).collect();
    if is_plain() {
        return names;
    }
    // Mostly there are all; each object that is loaded reads all of the kernel's types.
    if let Some(refused) = refused(probe, |_| true) {
        return refused;
    }
    let one = |name: &String| refused(probe, |program| program == name).is_none_or(|refused| !refused.is_empty());
    names.into_iter().filter(one).collect()
}

/// Those of these programs that can't be attached, where all of them load. A kernel may load programs at functions that it
/// can't attach any to.
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
