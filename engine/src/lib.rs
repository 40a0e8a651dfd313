// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ranking engine of topstat (bindings to the C headers in `include/topstat`).
