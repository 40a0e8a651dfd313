// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A secret that several hosts share, in a file that no other user may read: the key of the lab, and the key of hashes in records.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The bytes of a key: as many as the hash function returns. More would add nothing.
const BYTES: usize = 32;
/// The longest file that is read: the digits of a key and the end of the line.
const MOST_BYTES: u64 = 2 * BYTES as u64 + 2;

/// A key.
#[derive(Clone)]
pub struct Key([u8; BYTES]);

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes that cannot be guessed.
///
/// # Errors
///
/// When the kernel gives no random bytes.
pub fn random() -> Result<[u8; BYTES], String> {
    let mut bytes = [0; BYTES];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(BYTES) => Ok(bytes),
        Ok(_) => Err("the kernel has given too few random bytes".to_owned()),
        Err(e) => Err(format!("the kernel gives no random bytes: {e}")),
    }
}

/// Hexadecimal digits, two for each byte.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits.
pub fn from_hex(text: &str) -> Option<[u8; BYTES]> {
    if text.len() != 2 * BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

impl Key {
    /// Creates a new key in a new file.
    ///
    /// # Errors
    ///
    /// When the file already exists, or can't be written.
    pub fn create(path: &Path) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("cannot write the key {}: {e}", path.display());
        let text = to_hex(&random()?) + "\n";
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)
    }

    /// Reads a key.
    ///
    /// # Errors
    ///
    /// When other users may read the file, or it contains no key.
    pub fn read(path: &Path) -> Result<Self, String> {
        let wrong = |why: &dyn std::fmt::Display| format!("cannot use the key {}: {why}", path.display());
        // Without this flag, opening a pipe without a writer would block.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut file: File = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|e| wrong(&e))?;
        let about = file.metadata().map_err(|e| wrong(&e))?;
        if !about.is_file() {
            return Err(wrong(&"it is no file"));
        }
        if about.mode() & 0o077 != 0 {
            let (mode, name) = (about.mode() & 0o777, path.display());
            return Err(wrong(&format!(
                "others than its owner may read or write it (mode {mode:04o}): chmod 600 {name}"
            )));
        }
        let owner = about.uid();
        if owner != 0 && owner != rustix::process::geteuid().as_raw() {
            return Err(wrong(&format!("it belongs to user {owner}, and neither to this one nor to root")));
        }
        let mut text = String::new();
        let none = "it is none: 'topstat lab key FILE' makes one, and both hosts need the same";
        (&mut file).take(MOST_BYTES + 1).read_to_string(&mut text).map_err(|_| wrong(&none))?;
        from_hex(text.trim_end()).map(Self).ok_or_else(|| wrong(&none))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_that_is_made_is_read_by_nobody_else() {
        let path = std::env::temp_dir().join(format!("topstat-key-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Key::create(&path).unwrap();
        let key = Key::read(&path).unwrap();
        assert_eq!(to_hex(&key.0) + "\n", std::fs::read_to_string(&path).unwrap());
        assert!(key.0 != [0; BYTES]);
        assert!(Key::create(&path).unwrap_err().contains("File exists"));
        let says = || Key::read(&path).map(drop).unwrap_err();
        let allow = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            allow(mode);
            assert!(says().contains(&format!("(mode {mode:04o}): chmod 600")), "{}", says());
        }
        allow(0o600);
        for text in ["", "secret\n", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"0".repeat(1000)] {
            std::fs::write(&path, text).unwrap();
            assert!(says().contains("'topstat lab key FILE' makes one"), "{text}: {}", says());
        }
        std::fs::remove_file(&path).unwrap();
        assert!(says().contains("No such file"), "{}", says());
        assert!(Key::read(Path::new("/")).map(drop).unwrap_err().contains("it is no file"));
    }
}
