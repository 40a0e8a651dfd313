// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files: what a read in pieces gives, and what a write in pieces does.
//!
//! **Reading** is as from a seq_file of the kernel's: the text is made by the first read, and kept until the handle is
//! closed, so that a slow reader gets one consistent snapshot, however small its pieces. Reading from the beginning once
//! more makes a new one.
//!
//! **Writing** takes whole values. One that ends with a newline (`echo 5`) takes effect at once; one without
//! (`printf 5`) when the file is closed, for until then more may come. If more comes it was half a value, and nothing
//! takes effect. So nothing that arrives in pieces (`dd bs=1`) ever sets half a number.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::value::{Bad, Setting};

/// How many bytes of text all open files may keep together. A snapshot of 128 rows on a few CPUs has some 50 KB; without
/// a bound, whoever opens files and does not read on could have the daemon's memory grow.
const MOST_KEPT: usize = 64 << 20;

/// The texts that open files keep, together: how many bytes.
type Kept = Arc<AtomicUsize>;

/// What a handle has read.
#[derive(Debug, Default)]
pub struct Reading {
    text: Option<Text>,
    /// The beginning of the text was read: whoever reads it again wants another one.
    begun: bool,
}

#[derive(Debug)]
struct Text {
    bytes: Vec<u8>,
    kept: Kept,
}

impl Text {
    fn new(bytes: Vec<u8>, kept: &Kept) -> Result<Self, Full> {
        let before = kept.fetch_add(bytes.len(), Ordering::Relaxed);
        // From here on dropping it takes it off again.
        let text = Self { bytes, kept: Arc::clone(kept) };
        if before + text.bytes.len() > MOST_KEPT { Err(Full) } else { Ok(text) }
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        self.kept.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// Open files keep too much text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "open files keep {} MiB of text; close some", MOST_KEPT >> 20)
    }
}

impl Reading {
    /// The bytes from `offset` on, at most `size`; none from the end on. Makes the text where there is none, and a new
    /// one where the beginning is read again.
    ///
    /// # Errors
    ///
    /// Those of `make`, and [`Full`]. What was read before stays.
    pub fn read<E: From<Full>>(
        &mut self,
        offset: u64,
        size: usize,
        kept: &Kept,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<&[u8], E> {
        if !self.keeps(offset) {
            let bytes = make()?;
            self.text = None;
            self.text = Some(Text::new(bytes, kept)?);
        }
        Ok(self.piece(offset, size))
    }

    /// Whether a read at this offset is one of the text that is kept.
    fn keeps(&self, offset: u64) -> bool {
        // A reader that asks for several pieces at once may have its first one come last.
        let again = offset == 0 && self.begun;
        self.text.is_some() && !again
    }

    /// A piece of the text that is kept.
    fn piece(&mut self, offset: u64, size: usize) -> &[u8] {
        self.begun |= offset == 0;
        let bytes = self.text.as_ref().map_or(&[][..], |text| &text.bytes);
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let to = from.saturating_add(size).min(bytes.len());
        &bytes[from..to]
    }
}

/// What a handle has written.
#[derive(Debug, Default)]
pub struct Writing {
    /// Whole, but without a newline: more may come.
    waiting: Option<u32>,
}

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is no value.
    Bad(Bad),
    /// It is not at the beginning.
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
    /// Takes what was written. Gives the value if it takes effect now.
    ///
    /// `append`: the file was opened to append, which all writes to a file without length do wherever they are.
    ///
    /// # Errors
    ///
    /// It is no whole value; what waited for the handle to be closed then waits no longer.
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

    /// The handle is closed: what has waited for that takes effect.
    pub fn close(&mut self) -> Option<u32> {
        self.waiting.take()
    }
}

/// An open file.
#[derive(Debug)]
pub struct Handle {
    /// Opened to append.
    pub append: bool,
    kept: Kept,
    reading: Mutex<Reading>,
    writing: Mutex<Writing>,
}

impl Handle {
    /// See [`Reading::read`]; `take` gets the bytes. Reads of one handle wait for each other.
    pub fn read<E: From<Full>, T>(
        &self,
        offset: u64,
        size: usize,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, E> {
        lock(&self.reading).read(offset, size, &self.kept, make).map(take)
    }

    /// The same, where no text has to be made for it and nobody has to be waited for; else does nothing.
    pub fn read_kept(&self, offset: u64, size: usize, take: impl FnOnce(&[u8])) {
        if let Ok(mut reading) = self.reading.try_lock()
            && reading.keeps(offset)
        {
            take(reading.piece(offset, size));
        }
    }

    /// What it has written.
    pub fn writing(&self) -> MutexGuard<'_, Writing> {
        lock(&self.writing)
    }
}

/// All open files, by the number that the kernel gives back with each request.
#[derive(Debug, Default)]
pub struct Handles {
    open: Mutex<HashMap<u64, Arc<Handle>>>,
    last: AtomicU64,
    kept: Kept,
}

impl Handles {
    /// Opens a file.
    pub fn open(&self, append: bool) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let handle =
            Handle { append, kept: Arc::clone(&self.kept), reading: Mutex::default(), writing: Mutex::default() };
        lock(&self.open).insert(number, Arc::new(handle));
        number
    }

    /// The open file of this number.
    pub fn get(&self, number: u64) -> Option<Arc<Handle>> {
        lock(&self.open).get(&number).map(Arc::clone)
    }

    /// Closes the file of this number.
    pub fn close(&self, number: u64) -> Option<Arc<Handle>> {
        lock(&self.open).remove(&number)
    }
}

/// Whoever panicked with the lock held has left nothing half done: every change here is a single assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Failed;

    impl From<Full> for Failed {
        fn from(_: Full) -> Self {
            Self
        }
    }

    /// Texts that tell which one they are.
    fn numbered(count: &mut u8) -> Result<Vec<u8>, Failed> {
        *count += 1;
        Ok(vec![b'0' + *count; 10])
    }

    #[test]
    fn a_reader_in_pieces_gets_one_text_and_one_that_begins_anew_the_next() {
        let (mut reading, kept, mut made) = (Reading::default(), Kept::default(), 0);
        let mut read = |offset, size| {
            let read = reading.read(offset, size, &kept, || numbered(&mut made)).unwrap();
            String::from_utf8(read.to_vec()).unwrap()
        };
        assert_eq!([read(0, 4), read(4, 4), read(8, 4), read(10, 4)].concat(), "1111111111");
        // After the end, as tail -f does.
        assert_eq!((read(10, 4), read(11, 4), read(u64::MAX, 4)), (String::new(), String::new(), String::new()));
        // Back into the same text.
        assert_eq!(read(3, usize::MAX), "1111111");
        assert_eq!(read(0, 100), "2222222222");
        assert_eq!(read(0, 1), "3");
        assert_eq!(read(1, 9), "333333333");
        assert_eq!(read(5, 0), "");
    }

    #[test]
    fn a_first_piece_that_comes_last_is_of_the_same_text() {
        let (mut reading, kept, mut made) = (Reading::default(), Kept::default(), 0);
        for (offset, text) in [(5, b"11111"), (0, b"11111"), (0, b"22222")] {
            assert_eq!(reading.read(offset, 5, &kept, || numbered(&mut made)), Ok(&text[..]));
        }
    }

    #[test]
    fn what_is_kept_is_read_without_making_anything() {
        let handles = Handles::default();
        let handle = handles.get(handles.open(false)).unwrap();
        let kept = |offset| {
            let mut read = None;
            handle.read_kept(offset, 5, |bytes| read = Some(bytes.to_vec()));
            read
        };
        assert_eq!((kept(0), kept(5)), (None, None));
        assert_eq!(handle.read(0, 5, || Ok::<_, Failed>(b"abcdefg".to_vec()), <[u8]>::len), Ok(5));
        assert_eq!((kept(5), kept(7)), (Some(b"fg".to_vec()), Some(vec![])));
        assert_eq!(kept(0), None, "from the beginning: another one");
        let held = handle.reading.lock().unwrap();
        assert_eq!(kept(5), None, "somebody else reads");
        drop(held);
    }

    #[test]
    fn a_failed_read_can_be_tried_again() {
        let (mut reading, kept) = (Reading::default(), Kept::default());
        assert_eq!(reading.read(0, 5, &kept, || Err(Failed)), Err(Failed));
        assert_eq!(reading.read(0, 5, &kept, || Ok::<_, Failed>(b"ab".to_vec())), Ok(&b"ab"[..]));
        assert_eq!(reading.read(0, 5, &kept, || Err(Failed)), Err(Failed));
        assert_eq!(reading.read(1, 5, &kept, || Err(Failed)), Ok(&b"b"[..]));
    }

    #[test]
    fn the_text_of_all_open_files_is_bounded() {
        let handles = Handles::default();
        let half = || Ok::<_, Failed>(vec![0; MOST_KEPT / 2]);
        let read = |number| handles.get(number).unwrap().read(0, 1, half, <[u8]>::len);
        let open = [(); 3].map(|()| handles.open(false));
        assert_eq!(open.map(read), [Ok(1), Ok(1), Err(Failed)]);
        handles.close(open[0]);
        assert_eq!(read(open[2]), Ok(1));
        for number in open {
            handles.close(number);
        }
        assert_eq!(handles.kept.load(Ordering::Relaxed), 0);
        assert!(handles.get(open[1]).is_none());
    }

    #[test]
    fn a_line_takes_effect_at_once_and_a_value_without_newline_when_it_is_closed() {
        let mut writing = Writing::default();
        assert_eq!(writing.write(Setting::Period, 0, false, b"50\n"), Ok(Some(50)));
        assert_eq!(writing.close(), None);
        assert_eq!(writing.write(Setting::Period, 0, false, b"60"), Ok(None));
        assert_eq!(writing.close(), Some(60));
        assert_eq!(writing.close(), None, "once");
        // A value instead of the one that waits.
        assert_eq!(writing.write(Setting::Period, 0, false, b"70"), Ok(None));
        assert_eq!(writing.write(Setting::Period, 0, false, b"80"), Ok(None));
        assert_eq!(writing.close(), Some(80));
    }

    #[test]
    fn pieces_set_nothing() {
        for append in [false, true] {
            let mut writing = Writing::default();
            assert_eq!(writing.write(Setting::Period, 0, append, b"5"), Ok(None));
            assert_eq!(writing.write(Setting::Period, 1, append, b"0"), Err(Refused::Piece(1)));
            assert_eq!(writing.close(), None);
        }
        let mut writing = Writing::default();
        assert_eq!(writing.write(Setting::Period, 4096, false, b"5\n"), Err(Refused::Piece(4096)));
        assert_eq!(writing.write(Setting::Period, 0, false, b"5"), Ok(None));
        assert!(matches!(writing.write(Setting::Period, 0, false, b"x"), Err(Refused::Bad(_))));
        assert_eq!(writing.close(), None, "what follows a bad value is not trusted either");
    }

    #[test]
    fn lines_are_appended_one_by_one() {
        let mut writing = Writing::default();
        // Where the kernel believes the end to be.
        assert_eq!(writing.write(Setting::Enabled, 0, true, b"1\n"), Ok(Some(1)));
        assert_eq!(writing.write(Setting::Enabled, 2, true, b"0\n"), Ok(Some(0)));
    }
}
