// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The constants of a family's programs: set before the programs are loaded, and read from loaded ones.

use topstat_engine::abi::ts_shape;

use crate::{Error, MAX_GROUPS, Options, bpf, cgroup, clock};

/// The structure of a family's constants. It begins with a `ts_shape`, and is 0 where no field sets it.
pub struct Constants {
    size: usize,
    fields: Vec<(usize, Constant)>,
    /// The bytes where no field sets others, from an offset on.
    given: (usize, Vec<u8>),
}

/// The meaning of a field of the constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    /// `u32`: whether objects are threads instead of processes.
    ByThread,
    /// `u32`: the v1 hierarchy to ask for cgroups.
    V1Controller,
    /// `u32`: control groups that can be told apart where the kernel has no storage for them.
    Groups,
    /// `u32`: [`Build::number`](super::Build::number).
    Build,
    /// `u64`: the length of a jiffy, in ns.
    JiffyNs,
    /// `u32`: a number that the family defines.
    Number(u32),
}

impl Constants {
    /// A structure of `size` bytes, with these fields at these offsets.
    pub fn new(size: usize, fields: impl IntoIterator<Item = (usize, Constant)>) -> Self {
        Self { size, fields: fields.into_iter().collect(), given: (0, Vec::new()) }
    }

    /// These constants, with these bytes at this offset.
    #[must_use]
    pub fn with(self, at: usize, bytes: Vec<u8>) -> Self {
        Self { given: (at, bytes), ..self }
    }

    /// Whether the constants of loaded programs have the bytes of [`Self::with`].
    pub fn are_given(&self, bytes: &[u8]) -> bool {
        let (at, given) = &self.given;
        bytes.get(*at..).is_some_and(|bytes| bytes.starts_with(given))
    }

    /// Its bytes, for tables of this shape and programs of this build.
    pub fn bytes(&self, shape: &ts_shape, options: &Options, build: u32) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.size];
        let mut put = |at: usize, value: &[u8]| {
            let field = bytes.get_mut(at..at + value.len());
            field.expect("a field of the structure").copy_from_slice(value);
        };
        put(self.given.0, &self.given.1);
        put(0, bpf::as_bytes(shape));
        for &(at, constant) in &self.fields {
            let number = match constant {
                Constant::ByThread => options.threads.into(),
                Constant::V1Controller => cgroup::v1_number(),
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

    /// A number in the constants of loaded programs; `None`: the family has no such field.
    pub fn read(&self, constant: Constant, bytes: &[u8]) -> Option<u32> {
        let (at, _) = self.fields.iter().find(|(_, field)| *field == constant)?;
        bytes.get(*at..)?.first_chunk().copied().map(u32::from_ne_bytes)
    }
}
