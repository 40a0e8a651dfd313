// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Snapshots of ranked tables, and how they are written.
