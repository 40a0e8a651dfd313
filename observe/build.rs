// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles each family's logic for user space, with its tests: `families/<family>/logic_test.c`, any
//! `families/<family>/<name>_test.c`, and any `observe/<name>_test.c`. They define functions
//! `int <test>_test(u64 seed, char *why, size_t bytes)`, where <test> is <family>, <family>_<name> or <name>.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let observe = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = observe.parent().expect("the crate is in the repository");
    for read in ["observe", "families", "engine/include", "kmod/core/container.h"] {
        println!("cargo:rerun-if-changed={}", root.join(read).display());
    }
    let mut tests: Vec<(String, PathBuf)> = Vec::new();
    for entry in entries(&observe) {
        if let Some(name) = file_name(&entry).strip_suffix("_test.c") {
            tests.push((name.to_owned(), entry));
        }
    }
    for family in entries(&root.join("families")).into_iter().filter(|entry| entry.is_dir()) {
        let (logic, test) = (family.join("logic.h"), family.join("logic_test.c"));
        assert!(!logic.exists() || test.exists(), "{} has no logic_test.c beside it", logic.display());
        for entry in entries(&family) {
            match file_name(&entry).strip_suffix("_test.c") {
                Some("logic") => tests.push((file_name(&family), entry)),
                Some(name) => tests.push((format!("{}_{name}", file_name(&family)), entry)),
                None => {}
            }
        }
    }
    let mut build = cc::Build::new();
    build.file(observe.join("host_user.c")).file(observe.join("container.c")).files(tests.iter().map(|(_, file)| file));
    build.include(root).include(root.join("engine/include")).flag("-std=gnu11").opt_level(2);
    build
        .flag("-fno-strict-aliasing")
        .warnings(true)
        .flag("-Wno-unused-function")
        .flag("-Wno-unused-parameter")
        .warnings_into_errors(true);
    build.compile("topstat_observe_tests");

    let mut list = String::from("unsafe extern \"C\" {\n");
    for (name, _) in &tests {
        writeln!(list, "    fn {name}_test(seed: u64, why: *mut core::ffi::c_char, bytes: usize) -> i32;")
            .expect("writes");
    }
    let names = tests.iter().fold(String::new(), |all, (name, _)| all + &format!("(\"{name}\", {name}_test), "));
    writeln!(list, "}}\npub(crate) static TESTS: &[(&str, Test)] = &[{names}];").expect("writes");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("tests.rs"), list).expect("cargo's OUT_DIR can be written");
}

/// The entries of a folder, by name.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    let mut all: Vec<PathBuf> = read.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    all.sort();
    all
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
