// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments with the network stack, on one host: what it can carry, and where its CPU time goes.

pub mod ethtool;
pub mod host;
pub mod measure;
pub mod plan;
pub mod plot;
pub mod report;
pub mod results;
pub mod traffic;
