// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts the files of `page/` into the program, whichever there are, as they are and compressed.

use std::io::Write as _;
use std::path::Path;
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() {
    let (root, out) = (env::var("CARGO_MANIFEST_DIR").unwrap(), env::var("OUT_DIR").unwrap());
    let page = Path::new(&root).join("page");
    println!("cargo::rerun-if-changed={}", page.display());
    let entries = fs::read_dir(&page).expect("the folder page").map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    let name = |path: &Path| path.file_name().unwrap().to_str().expect("a name in UTF-8").to_owned();
    let packed = |path: &Path| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&fs::read(path).unwrap()).unwrap();
        let to = Path::new(&out).join(format!("{}.gz", name(path)));
        fs::write(&to, encoder.finish().unwrap()).unwrap();
        to
    };
    let file = |path: &std::path::PathBuf| {
        format!("({:?}, include_bytes!({path:?}), include_bytes!({:?})),\n", name(path), packed(path))
    };
    let list: String = files.iter().map(file).collect();
    fs::write(Path::new(&out).join("page.rs"), format!("&[\n{list}]\n")).unwrap();
}
