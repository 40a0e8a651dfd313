// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the writers through the public API: one program, so that fixtures are built once.

mod counters;
mod fixtures;
mod golden;
mod merged;
mod order;
mod outputs;
mod properties;
