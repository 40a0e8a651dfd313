// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libFuzzer with a target: `TOPSTAT_FUZZ_TARGET=tree topstat-fuzz CORPUS`. scripts/fuzz builds and runs it.
#![no_main]

use std::sync::OnceLock;

static TARGET: OnceLock<topstat_fuzz::Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("TOPSTAT_FUZZ_TARGET").unwrap_or_default();
        topstat_fuzz::find(&name).unwrap_or_else(|| panic!("TOPSTAT_FUZZ_TARGET: no target {name:?}"))
    });
    (target.run)(bytes);
});
