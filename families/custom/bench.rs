// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other side of a measurement: tables whose programs were written for them.

use std::sync::Arc;

use topstat_model::definition::Definition;

use super::{System, Trouble, family_of};
use topstat_kernel::family::Family;

/// The definitions that `by_hand.bpf.c` was written for: numbers, and a text.
pub const DEFINITIONS: [&str; 2] =
    ["syscalls:sys_enter_write by pid, fd add count", "syscalls:sys_enter_write by comm, fd add count"];

/// As [`super::add`], for one of [`DEFINITIONS`], with the program that reads its fields by hand.
///
/// # Errors
/// As [`super::add`].
pub fn add_by_hand(
    sample: &str,
    table: &str,
    definition: &Definition,
    system: &System,
) -> Result<Arc<Family>, Trouble> {
    let family = family_of(sample, table, definition, system, object!("custom/by_hand.bpf.o"))?;
    crate::catalogue().add(family).map_err(Trouble::Other)
}
