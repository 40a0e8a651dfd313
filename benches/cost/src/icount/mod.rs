// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What topstat costs, in instructions.

mod hooks;
pub mod guest;
