// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the programs of a family are told before they are loaded, and what is read of it from those that are.

use topstat_engine::abi::ts_shape;

use crate::{Error, MAX_GROUPS, Options, bpf, clock, process};

/// The structure of a family's constants. It begins with a `ts_shape`, and is 0 where nothing is said.
pub struct Constants {
    size: usize,
    fields: Vec<(usize, Constant)>,
}

/// What a field of the constants holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    /// `u32`: whether objects are threads, where they would be processes.
    ByThread,
    /// `u32`: the v1 hierarchy to ask for cgroups.
    V1Controller,
    /// `u32`: control groups that can be told apart where the kernel has no storage for them.
    Groups,
    /// `u32`: [`Build::number`](super::Build::number).
    Build,
    /// `u64`: how long a jiffy is.
    JiffyNs,
    /// `u32`: a number of the family's own.
    Number(u32),
}

impl Constants {
    /// Of so many bytes, with these fields at these offsets.
    pub fn new(size: usize, fields: impl IntoIterator<Item = (usize, Constant)>) -> Self {
        Self { size, fields: fields.into_iter().collect() }
    }

    /// Its bytes, for tables of this shape and programs of this build.
    pub fn bytes(&self, shape: &ts_shape, options: &Options, build: u32) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.size];
        let mut put = |at: usize, value: &[u8]| {
            let field = bytes.get_mut(at..at + value.len());
            field.expect("a field of the structure").copy_from_slice(value);
        };
        put(0, bpf::as_bytes(shape));
        for &(at, constant) in &self.fields {
            let number = match constant {
                Constant::ByThread => options.threads.into(),
                Constant::V1Controller => process::v1_controller(),
                Constant::Build => build,
                Constant::Groups if (1..=MAX_GROUPS).contains(&options.groups) => options.groups,
                Constant::Groups => {
                    return Err(Error::Option(format!("groups must be 1 to {MAX_GROUPS}, not {}", options.groups)));
                }
                Constant::Number(number) => number,
                Constant::JiffyNs => {
                    put(at, &clock::jiffy_ns().to_ne_bytes());
                    continue;
                }
            };
            put(at, &number.to_ne_bytes());
        }
        Ok(bytes)
    }

    /// A number in the constants of programs that are loaded; `None`: the family has no such field.
    pub fn read(&self, constant: Constant, bytes: &[u8]) -> Option<u32> {
        let (at, _) = self.fields.iter().find(|(_, field)| *field == constant)?;
        bytes.get(*at..)?.first_chunk().copied().map(u32::from_ne_bytes)
    }
}
