// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs of a family, as they were compiled for kernels that have more or less. What a kernel lacks is found out
//! by trying: of a family with more than one build, `probe.bpf.c` has programs that need one thing each, which are
//! loaded and never run.

use std::mem::size_of;
use std::sync::OnceLock;

use libbpf_rs::{Link, Object, OpenObject};

use super::Refill;
use crate::bpf::atomics;
use crate::hooks::Hook;
use crate::maps::Maps;
use crate::{Error, Options, bpf};

/// Something that came after the oldest kernel that a family is for, and what is the case without it.
#[derive(Clone, Debug)]
pub struct Feature {
    /// How it is found out whether it is there.
    pub probe: Probe,
    /// What it is.
    pub name: &'static str,
    /// How things are without it.
    pub without: &'static str,
}

/// Attaches an iterator, which settles each time that it is read out.
pub type Settle = fn(&Object, &Maps) -> Result<Link, Error>;

/// How it is found out whether a feature is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// By a program that needs it, of the family's `probe.bpf.c`.
    Program(&'static str),
    /// It is atomics that return a value, which more than one family needs.
    Atomics,
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
    /// Attaches what pushes, before a snapshot, what objects have used and was not pushed yet, where the programs leave
    /// such a rest. It orders all that was pushed, whatever the delay.
    pub settle: Option<Settle>,
    /// Maps of its state besides those that all families have, by what their names end with.
    pub maps: Vec<&'static str>,
    /// Maps whose size is known when they are made.
    pub sizes: Vec<MapSize>,
    /// What is left out since this process lacks a privilege, and which; `None` where nothing is.
    pub less: fn() -> Option<String>,
}

/// The size of a map.
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
}

/// The build for kernels that lack something.
struct Plain {
    build: Build,
    needed: Vec<Feature>,
    probe: &'static [u8],
    since: &'static str,
    lacking: OnceLock<Vec<Feature>>,
}

impl Builds {
    /// The only one: there is no kernel that has BTF and lacks anything that it needs.
    pub fn one(build: Build) -> Self {
        Self { full: build, plain: None }
    }

    /// One for kernels that have these features, and a plain one for those that lack any of them. They came with Linux
    /// `since`, as people are told; `probe` is the compiled `probe.bpf.c`.
    #[must_use]
    pub fn or_plain(self, plain: Build, needed: Vec<Feature>, since: &'static str, probe: &'static [u8]) -> Self {
        Self { plain: Some(Plain { build: plain, needed, probe, since, lacking: OnceLock::new() }), ..self }
    }

    /// Which of the features this kernel lacks, or does not let this user have; asked once.
    pub fn lacking(&self) -> &[Feature] {
        let Some(plain) = &self.plain else { return &[] };
        plain.lacking.get_or_init(|| lacking(&plain.needed, plain.probe))
    }

    /// The one for this kernel.
    pub fn chosen(&self) -> &Build {
        match &self.plain {
            Some(plain) if !self.lacking().is_empty() => &plain.build,
            _ => &self.full,
        }
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
        all.extend(plain.filter(|hook| !self.full.hooks.iter().any(|other| other.program == hook.program)).cloned());
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
            maps: Vec::new(),
            sizes: Vec::new(),
            less: || None,
        }
    }

    /// Sizes the maps that have their size from elsewhere.
    pub fn resize(&self, object: &mut OpenObject, options: &Options, cpus: u32) -> Result<(), Error> {
        for MapSize { map, value, entries } in &self.sizes {
            let entries = match entries {
                Entries::Cpus => cpus,
                Entries::Groups => options.groups,
            };
            bpf::resize(object, map, *value, entries)?;
        }
        Ok(())
    }
}

impl MapSize {
    /// A map of so many `T`.
    pub fn of<T>(map: &'static str, entries: Entries) -> Self {
        Self { map, value: size_of::<T>(), entries }
    }
}

/// Set to anything, everything is taken to be lacking: to try and to test the plain builds on any kernel.
const PLAIN: &str = "TOPSTAT_PLAIN";

fn lacking(needed: &[Feature], probe: &[u8]) -> Vec<Feature> {
    let all = std::env::var_os(PLAIN).is_some_and(|v| !v.is_empty());
    // Mostly there are all; each object that is loaded reads all of the kernel's types.
    let programs = !all && loads(probe, |_| true);
    let has = |feature: &Feature| match feature.probe {
        Probe::Program(program) => programs || loads(probe, |name| name == program),
        Probe::Atomics => atomics::there(),
    };
    needed.iter().filter(|feature| all || !has(feature)).cloned().collect()
}

/// Whether the kernel takes these programs.
fn loads(probe: &[u8], wanted: impl Fn(&str) -> bool) -> bool {
    let Ok(mut object) = bpf::open("probe", probe) else { return false };
    for mut program in object.progs_mut() {
        let wanted = wanted(&program.name().to_string_lossy());
        program.set_autoload(wanted);
    }
    bpf::load("probe", object).is_ok()
}
