fn main() {
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR").unwrap());
    bindgen::Builder::default().header("include/topstat/push.h").allowlist_type("ts_.*").allowlist_var("TS_.*").default_enum_style(bindgen::EnumVariation::Consts).prepend_enum_name(false).derive_default(true).use_core().generate().unwrap().write_to_file(out.join("abi.rs")).unwrap();
    std::fs::write(out.join("shim.c"), "#include \"topstat/push.h\"\nu64 ts_precise_now; int shim_eval(struct ts_window*w,struct ts_tick*t,struct ts_value*v){return ts_window_eval(w,t,v);}").unwrap();
    cc::Build::new().file(out.join("shim.c")).include("include").compile("shim");
    println!("cargo:rerun-if-changed=include");
}
