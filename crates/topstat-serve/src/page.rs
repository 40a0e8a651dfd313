// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of the page.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The files: the name, the bytes, and the bytes compressed by gzip.
const FILES: &[(&str, &[u8], &[u8])] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// A file as it is served.
pub struct File {
    /// Its bytes, compressed if `packed` says so.
    pub bytes: &'static [u8],
    /// The bytes are compressed by gzip.
    pub packed: bool,
    /// Its content type.
    pub kind: &'static str,
    /// A tag that changes with the bytes.
    pub tag: String,
}

/// The file of a path; `/` is `/index.html`. `packs`: the client understands gzip.
pub fn file(path: &str, packs: bool) -> Option<File> {
    let name = if path == "/" { "index.html" } else { path.strip_prefix('/')? };
    let (_, plain, gzip) = FILES.iter().find(|(known, ..)| *known == name)?;
    let kind = match name.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" => "application/json",
        "woff2" => "font/woff2",
        _ => "text/plain; charset=utf-8",
    };
    let packed = packs && gzip.len() < plain.len();
    let bytes = if packed { gzip } else { plain };
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Some(File { bytes, packed, kind, tag: format!("{:016x}", hasher.finish()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most bytes that a browser transfers for the whole page, the first time.
    const MOST: usize = 100_000;

    #[test]
    fn the_page_is_small_as_browsers_get_it() {
        let files = || FILES.iter().map(|(name, ..)| file(&format!("/{name}"), true).expect("a file"));
        let bytes: usize = files().map(|file| file.bytes.len()).sum();
        assert!(bytes <= MOST, "{bytes} bytes");
        // Small pictures may not get smaller.
        assert!(files().all(|file| file.packed || file.bytes.len() < 1000));
    }

    #[test]
    fn the_page_is_there_and_nothing_else() {
        let page = file("/", false).expect("a page");
        assert_eq!((page.kind, &page.tag), ("text/html; charset=utf-8", &file("/index.html", false).unwrap().tag));
        let packed = file("/", true).expect("a page");
        assert!(packed.packed && packed.bytes.starts_with(&[0x1f, 0x8b]) && packed.bytes.len() < page.bytes.len());
        assert_ne!(packed.tag, page.tag);
        for path in ["/../Cargo.toml", "//index.html", "/none.js", "index.html", ""] {
            assert!(file(path, true).is_none(), "{path}");
        }
    }
}
