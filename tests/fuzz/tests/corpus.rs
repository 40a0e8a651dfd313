// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the fuzzer has found, or was given to begin with, in every test run.

use std::path::Path;

/// One after the other: they measure what the process holds.
#[test]
fn every_input_of_every_corpus() {
    for target in topstat_fuzz::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
        let mut inputs = 0;
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            (target.run)(&std::fs::read(&path).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "{} is empty", folder.display());
        println!("{}: {inputs} inputs", target.name);
    }
}
