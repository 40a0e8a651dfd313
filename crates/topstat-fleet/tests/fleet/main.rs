// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fleets whose truth is known.

mod compacting;
mod engines;
mod fixtures;
mod scanning;
mod truth;
