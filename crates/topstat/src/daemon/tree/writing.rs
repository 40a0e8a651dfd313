// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The effects of writes in pieces: see [`super::handle`].

use std::fmt;

use super::value::{Bad, Setting};

/// The state of the writes of a handle.
#[derive(Debug, Default)]
pub struct Writing {
    /// A value without a newline: more of it may come.
    waiting: Option<u32>,
}

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The text is no value.
    Bad(Bad),
    /// The write does not begin a value, but is a later piece at this offset.
    Piece(u64),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad(bad) => bad.fmt(f),
            Self::Piece(at) => write!(f, "a piece at offset {at}; a value is written whole, at once"),
        }
    }
}

impl Writing {
    /// Takes a write. Returns the value if it takes effect now.
    ///
    /// `append`: the file was opened to append. Then the offset does not matter: each write to a file without length is at its
    /// end.
    ///
    /// # Errors
    ///
    /// When the text is no whole value. A value that waited for the close of the handle is dropped then.
    pub fn write(
        &mut self,
        setting: Setting,
        offset: u64,
        append: bool,
        written: &[u8],
    ) -> Result<Option<u32>, Refused> {
        let before = self.waiting.take();
        if append && before.is_some() || !append && offset != 0 {
            return Err(Refused::Piece(offset));
        }
        let value = setting.parse(written).map_err(Refused::Bad)?;
        if written.ends_with(b"\n") {
            return Ok(Some(value));
        }
        self.waiting = Some(value);
        Ok(None)
    }

    /// Closes the handle. Returns the value that has waited for this, and takes effect now.
    pub fn close(&mut self) -> Option<u32> {
        self.waiting.take()
    }
}
