// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads documents of tables again and again from files that stay open: opening and closing a file takes as much time as reading
//! it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::{pread, retry_on_intr};

/// The fewest bytes that are read at once.
const LEAST_READ: usize = 4096;
/// The most bytes of documents that the daemon keeps for files which are open here: less than half of the share of a user
/// other than root.
const MOST_KEPT: usize = 2 << 20;

/// An open file.
struct Open {
    file: File,
    /// Bytes of the last document.
    length: usize,
}

/// The files that are open, by their paths.
#[derive(Default)]
pub struct Documents {
    open: HashMap<PathBuf, Open>,
    /// Bytes of documents that the daemon keeps for them.
    kept: usize,
    buffer: Vec<u8>,
}

impl Documents {
    /// Closes all: an unmounted tree goes once no file of it is open.
    pub fn close(&mut self) {
        self.open.clear();
        self.kept = 0;
    }

    /// A document of at most `most` bytes.
    ///
    /// # Errors
    ///
    /// Errors of the file. [`io::ErrorKind::UnexpectedEof`]: the document is not whole, or longer.
    pub fn read(&mut self, path: &Path, most: usize) -> io::Result<&[u8]> {
        let mut read = None;
        if let Some(Open { file, length }) = self.open.remove(path) {
            self.kept -= length;
            // If the daemon has ended, the read fails, and the next daemon mounts another tree.
            read = document(&file, length, most, &mut self.buffer).ok().map(|length| (file, length, true));
        }
        let (file, length, made) = match read {
            Some(read) => read,
            None => {
                let file = File::open(path)?;
                // A file of a tree has no size before it is read. Another file may take the place of a file with a size.
                let made = file.metadata()?.len() == 0;
                let length = document(&file, 0, most, &mut self.buffer)?;
                (file, length, made)
            }
        };
        if made && self.kept + length <= MOST_KEPT {
            self.kept += length;
            self.open.insert(path.to_owned(), Open { file, length });
        }
        Ok(&self.buffer[..length])
    }
}

/// Reads a document into a buffer, and returns its length. `before` is the length of the document before it. A document is whole
/// lines. A read that gets less than it asked for is the last one, which saves another request.
fn document(file: &File, before: usize, longest: usize, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let (mut length, mut most) = (0, (before + before / 4).max(LEAST_READ));
    loop {
        if buffer.len() < most {
            buffer.resize(most, 0);
        }
        let asked = most - length;
        let read = retry_on_intr(|| pread(file, &mut buffer[length..most], length as u64))?;
        length += read;
        let ends = read < asked;
        if ends && buffer[..length].ends_with(b"\n") {
            return Ok(length);
        }
        if read == 0 || length >= longest {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the document is not whole"));
        }
        most += if ends { 0 } else { most };
    }
}
