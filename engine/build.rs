// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C headers are the only source of every structure: the Rust structures are generated from them, with layout tests, and Rust
//! calls the functions that the kernel runs.

use std::env;
use std::path::PathBuf;

/// The compiler and bindgen get equal flags, otherwise structures could differ without an error.
const C_FLAGS: [&str; 2] = ["-Iinclude", "-std=gnu11"];

/// The clang that scripts/fuzz has chosen.
const FUZZ_CLANG: &str = "TOPSTAT_FUZZ_CLANG";

fn main() {
    println!("cargo:rerun-if-changed=include");
    println!("cargo:rerun-if-changed=src/shim.c");
    println!("cargo:rerun-if-changed=src/interleaved.c");
    println!("cargo:rerun-if-changed=src/shim.h");

    let mut build = cc::Build::new();
    build.files(["src/shim.c", "src/interleaved.c"]).opt_level(2).warnings(true).extra_warnings(true);
    for flag in C_FLAGS {
        build.flag(flag);
    }
    // The fuzzer sees which branches of the C are taken, and undefined behaviour ends the run: see scripts/fuzz.
    println!("cargo:rerun-if-env-changed={FUZZ_CLANG}");
    if let Ok(clang) = env::var(FUZZ_CLANG) {
        build.compiler(clang).flag("-fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp");
        build.flag("-fsanitize=undefined").flag("-fsanitize-trap=undefined");
    }
    build.compile("topstat_engine_shim");

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindgen::Builder::default()
        .header("src/shim.h")
        .clang_args(C_FLAGS)
        .allowlist_type("ts_.*")
        .allowlist_var("TS_.*")
        .allowlist_function("topstat_.*")
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_debug(true)
        .layout_tests(true)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .use_core()
        .generate_comments(false)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .generate()
        .unwrap_or_else(|error| panic!("cannot generate bindings of include/topstat: {error}"))
        .write_to_file(out.join("bindings.rs"))
        .expect("cargo's OUT_DIR can be written");
}
