// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts the files of `page/` into the program, whichever there are.

use std::path::Path;
use std::{env, fs};

fn main() {
    let (root, out) = (env::var("CARGO_MANIFEST_DIR").unwrap(), env::var("OUT_DIR").unwrap());
    let page = Path::new(&root).join("page");
    println!("cargo::rerun-if-changed={}", page.display());
    let entries = fs::read_dir(&page).expect("the folder page").map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    let name = |path: &Path| path.file_name().unwrap().to_str().expect("a name in UTF-8").to_owned();
    let file = |path: &std::path::PathBuf| format!("({:?}, include_bytes!({:?})),\n", name(path), path);
    let list: String = files.iter().map(file).collect();
    fs::write(Path::new(&out).join("page.rs"), format!("&[\n{list}]\n")).unwrap();
}
