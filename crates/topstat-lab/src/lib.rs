// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments with the network stack, on one host or between two: how much traffic it carries, and where its CPU time goes.

#![warn(missing_docs)]

pub mod cpu;
mod error;
pub mod ethtool;
mod groups;
pub mod key;
pub mod measure;
pub mod place;
pub mod plan;
pub mod plot;
pub mod remote;
pub mod report;
pub mod results;
pub mod saved;
pub mod settings;
pub mod side;
pub mod traffic;
pub mod wire;

pub use error::Error;
