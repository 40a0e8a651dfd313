// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files: the results of reads in pieces, and the effects of writes in pieces.
//!
//! **Reading** works as with a seq_file of the kernel. The first read makes the text, and the handle keeps it until it is closed.
//! So a slow reader gets one consistent snapshot, however small its pieces. Another read from the beginning makes a new text.
//!
//! **Writing** takes whole values. A value that ends with a newline (`echo 5`) takes effect at once. A value without a newline
//! (`printf 5`) takes effect when the file is closed, for more of it may come until then. If more comes, it was half a value, and
//! nothing takes effect. So a value that arrives in pieces (`dd bs=1`) never sets half a number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::{fmt, io};

use memmap2::MmapMut;
use rustix::param::page_size;

use super::Kind;
use super::shares::{Full, Share, Shares};
use super::writing::Writing;
use crate::daemon::trim;
use crate::lock::lock;

/// From this length on a text has its own pages, which go back to the kernel as soon as the text is dropped. The allocator would
/// keep them as long as any later allocation lives.
const MAPPED_FROM: usize = 16 << 10;

/// This many open files with shorter texts leave at most 1 MiB in the allocator when they are closed. From this number on the
/// allocator is made to give memory back to the kernel.
const MANY: usize = 64;

/// Why a new text can't be kept.
#[derive(Debug)]
pub enum NoRoom {
    /// The user's share is used up.
    Full(Full),
    /// The system has no memory for the text.
    Memory(io::Error),
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(full) => full.fmt(f),
            Self::Memory(error) => write!(f, "no memory for the text: {error}"),
        }
    }
}

/// The state of the reads of a handle.
#[derive(Debug, Default)]
pub struct Reading {
    text: Option<Text>,
    /// The beginning of the text was read. The next read of the beginning makes a new text.
    begun: bool,
}

/// A kept text, and the share that it takes.
#[derive(Debug)]
struct Text {
    bytes: Bytes,
    _share: Option<Share>,
}

#[derive(Debug)]
enum Bytes {
    Heap(Vec<u8>),
    Mapped(MmapMut),
}

impl Bytes {
    fn new(bytes: Vec<u8>) -> io::Result<Self> {
        if bytes.len() < MAPPED_FROM {
            return Ok(Self::Heap(bytes));
        }
        let mut mapped = MmapMut::map_anon(bytes.len())?;
        mapped.copy_from_slice(&bytes);
        Ok(Self::Mapped(mapped))
    }

    fn get(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

/// The user from whose share the texts of a handle are taken.
#[derive(Clone, Debug)]
pub struct Payer {
    shares: Arc<Shares>,
    /// The owner of the uid that has opened the file.
    uid: u32,
    of: Kind,
}

impl Payer {
    /// Takes a share for a text. Settings and types have a few bytes, which the share of the handle itself covers.
    fn pay(&self, bytes: usize) -> Result<Option<Share>, Full> {
        match self.of {
            Kind::Setting(_) | Kind::Type => Ok(None),
            Kind::Own | Kind::OwnJson => self.shares.own.take(self.uid, bytes).map(Some),
            Kind::Stat | Kind::Dump | Kind::Json => self.shares.texts.take(self.uid, bytes).map(Some),
        }
    }

    fn keep(&self, bytes: Vec<u8>) -> Result<Text, NoRoom> {
        // A mapped text takes whole pages.
        let takes = if bytes.len() < MAPPED_FROM { bytes.len() } else { bytes.len().next_multiple_of(page_size()) };
        let share = self.pay(takes).map_err(NoRoom::Full)?;
        Ok(Text { bytes: Bytes::new(bytes).map_err(NoRoom::Memory)?, _share: share })
    }
}

impl Reading {
    /// The bytes from `offset` on, at most `size`; no bytes from the end on. Makes the text if the handle keeps no text yet, and
    /// a new text if the beginning is read again.
    ///
    /// # Errors
    ///
    /// The errors of `make`: then the former text stays. And [`NoRoom`]: then the former text is gone.
    pub fn read<E: From<NoRoom>>(
        &mut self,
        offset: u64,
        size: usize,
        payer: &Payer,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<&[u8], E> {
        if !self.keeps(offset) {
            let bytes = make()?;
            // The former text is dropped first, so that the handle never pays for two texts.
            self.text = None;
            self.text = Some(payer.keep(bytes)?);
        }
        Ok(self.piece(offset, size))
    }

    /// Whether a read at this offset reads from the kept text.
    fn keeps(&self, offset: u64) -> bool {
        // If a reader asks for several pieces at once, its first piece may come last.
        let again = offset == 0 && self.begun;
        self.text.is_some() && !again
    }

    /// A piece of the kept text.
    fn piece(&mut self, offset: u64, size: usize) -> &[u8] {
        self.begun |= offset == 0;
        let bytes = self.text.as_ref().map_or(&[][..], |text| text.bytes.get());
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let to = from.saturating_add(size).min(bytes.len());
        &bytes[from..to]
    }
}

/// An open file.
#[derive(Debug)]
pub struct Handle {
    /// Whether the file was opened to append.
    pub append: bool,
    payer: Payer,
    reading: Mutex<Reading>,
    writing: Mutex<Writing>,
    /// The share of the handle itself.
    _share: Share,
}

impl Handle {
    /// See [`Reading::read`]; `take` gets the bytes. Reads of one handle wait for each other.
    pub fn read<E: From<NoRoom>, T>(
        &self,
        offset: u64,
        size: usize,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, E> {
        lock(&self.reading).read(offset, size, &self.payer, make).map(take)
    }

    /// Reads from the kept text, if there is one for this offset and no other read holds the lock. Otherwise does nothing.
    pub fn read_kept(&self, offset: u64, size: usize, take: impl FnOnce(&[u8])) {
        if let Ok(mut reading) = self.reading.try_lock()
            && reading.keeps(offset)
        {
            take(reading.piece(offset, size));
        }
    }

    /// The user that has opened the file, and pays for it.
    pub fn uid(&self) -> u32 {
        self.payer.uid
    }

    /// The state of its writes.
    pub fn writing(&self) -> MutexGuard<'_, Writing> {
        lock(&self.writing)
    }
}

#[derive(Debug, Default)]
struct Open {
    handles: HashMap<u64, Arc<Handle>>,
    /// The most handles at once since memory was last given back.
    peak: usize,
}

/// All open files, by their number, which the kernel sends with each request.
#[derive(Debug)]
pub struct Handles {
    open: Mutex<Open>,
    last: AtomicU64,
    shares: Arc<Shares>,
}

impl Handles {
    /// Begins without open files. Files will take their shares from `shares`.
    pub fn new(shares: Arc<Shares>) -> Self {
        Self { open: Mutex::default(), last: AtomicU64::new(0), shares }
    }

    /// Opens a file of a kind for the owner of a uid.
    ///
    /// # Errors
    ///
    /// When the user has too many open files.
    pub fn open(&self, uid: u32, of: Kind, append: bool) -> Result<u64, Full> {
        let uid = self.shares.owners.of(uid);
        let share = self.shares.handles.take(uid, 1)?;
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let payer = Payer { shares: Arc::clone(&self.shares), uid, of };
        let handle = Handle { append, payer, reading: Mutex::default(), writing: Mutex::default(), _share: share };
        let mut open = lock(&self.open);
        open.handles.insert(number, Arc::new(handle));
        open.peak = open.peak.max(open.handles.len());
        Ok(number)
    }

    /// The open file of this number.
    pub fn get(&self, number: u64) -> Option<Arc<Handle>> {
        lock(&self.open).handles.get(&number).map(Arc::clone)
    }

    /// Closes the file of this number. `last` gets its handle. If most of many open files are closed by now, memory is given back
    /// to the kernel.
    pub fn close<T>(&self, number: u64, last: impl FnOnce(Arc<Handle>) -> T) -> Option<T> {
        let mut open = lock(&self.open);
        let closed = open.handles.remove(&number)?;
        let many = open.peak >= MANY && open.handles.len() <= open.peak / 8;
        if many {
            open.peak = open.handles.len();
            open.handles.shrink_to_fit();
        }
        drop(open);
        let last = last(closed);
        if many {
            trim();
        }
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::tree::value::Setting;
    use crate::daemon::tree::writing::Refused;

    #[derive(Debug, PartialEq)]
    struct Failed;

    impl From<NoRoom> for Failed {
        fn from(_: NoRoom) -> Self {
            Self
        }
    }

    const UID: u32 = 1000;

    fn payer() -> Payer {
        Payer { shares: Arc::default(), uid: UID, of: Kind::Stat }
    }

    fn handles() -> Handles {
        Handles::new(Arc::default())
    }

    /// Makes texts that show their number.
    fn numbered(count: &mut u8) -> Result<Vec<u8>, Failed> {
        *count += 1;
        Ok(vec![b'0' + *count; 10])
    }

    #[test]
    fn a_reader_in_pieces_gets_one_text_and_one_that_begins_anew_the_next() {
        let (mut reading, payer, mut made) = (Reading::default(), payer(), 0);
        let mut read = |offset, size| {
            let read = reading.read(offset, size, &payer, || numbered(&mut made)).unwrap();
            String::from_utf8(read.to_vec()).unwrap()
        };
        assert_eq!([read(0, 4), read(4, 4), read(8, 4), read(10, 4)].concat(), "1111111111");
        // Reads after the end, as tail -f makes them.
        assert_eq!((read(10, 4), read(11, 4), read(u64::MAX, 4)), (String::new(), String::new(), String::new()));
        // A read of an earlier piece of the same text.
        assert_eq!(read(3, usize::MAX), "1111111");
        assert_eq!(read(0, 100), "2222222222");
        assert_eq!(read(0, 1), "3");
        assert_eq!(read(1, 9), "333333333");
        assert_eq!(read(5, 0), "");
    }

    #[test]
    fn a_first_piece_that_comes_last_is_of_the_same_text() {
        let (mut reading, payer, mut made) = (Reading::default(), payer(), 0);
        for (offset, text) in [(5, b"11111"), (0, b"11111"), (0, b"22222")] {
            assert_eq!(reading.read(offset, 5, &payer, || numbered(&mut made)), Ok(&text[..]));
        }
    }

    #[test]
    fn what_is_kept_is_read_without_making_anything() {
        let handles = handles();
        let handle = handles.get(handles.open(UID, Kind::Stat, false).unwrap()).unwrap();
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
        let (mut reading, payer) = (Reading::default(), payer());
        assert_eq!(reading.read(0, 5, &payer, || Err(Failed)), Err(Failed));
        assert_eq!(reading.read(0, 5, &payer, || Ok::<_, Failed>(b"ab".to_vec())), Ok(&b"ab"[..]));
        assert_eq!(reading.read(0, 5, &payer, || Err(Failed)), Err(Failed));
        assert_eq!(reading.read(1, 5, &payer, || Err(Failed)), Ok(&b"b"[..]));
    }

    #[test]
    fn a_user_who_keeps_too_much_is_refused_and_nobody_else_is() {
        const TEXT: usize = 1 << 20;
        let handles = handles();
        let open = |uid, of| handles.open(uid, of, false).unwrap();
        let read =
            |number, bytes| handles.get(number).unwrap().read(0, 1, || Ok::<_, Failed>(vec![b'x'; bytes]), <[u8]>::len);
        // A ninth of 48 MiB.
        let greedy = [(); 6].map(|()| open(UID, Kind::Stat));
        assert_eq!(greedy.map(|number| read(number, TEXT)), [Ok(1), Ok(1), Ok(1), Ok(1), Ok(1), Err(Failed)]);
        for (uid, of, bytes) in [
            (UID, Kind::Setting(Setting::Period), 10),
            (UID, Kind::Own, 10_000),
            (UID, Kind::OwnJson, 10_000),
            (UID + 1, Kind::Stat, TEXT),
            (0, Kind::Stat, 15 * TEXT),
        ] {
            assert_eq!(read(open(uid, of), bytes), Ok(1), "{uid} {of:?}");
        }
        handles.close(greedy[0], drop);
        assert_eq!(read(greedy[5], TEXT), Ok(1));
        // A second text of this handle: it pays for one text only.
        assert_eq!(read(greedy[5], TEXT), Ok(1));
        for number in 0..100 {
            handles.close(number, drop);
        }
        for pool in [&handles.shares.texts, &handles.shares.own, &handles.shares.handles] {
            assert_eq!(pool.taken(), super::super::shares::Taken::default());
        }
        assert!(handles.get(greedy[1]).is_none());
    }

    #[test]
    fn handles_themselves_are_bounded_by_user() {
        let handles = handles();
        let mut open = Vec::new();
        let full = loop {
            match handles.open(UID, Kind::Type, false) {
                Ok(number) => open.push(number),
                Err(full) => break full.to_string(),
            }
        };
        assert_eq!(open.len(), 1820);
        assert!(full.starts_with("open files of uid 1000 have 1820 handles, and 14564 are left"), "{full}");
        assert!(handles.open(0, Kind::Type, false).is_ok() && handles.open(UID + 1, Kind::Type, false).is_ok());
        for number in open {
            handles.close(number, drop);
        }
        assert!(handles.open(UID, Kind::Type, false).is_ok());
        assert!(lock(&handles.open).handles.capacity() < 1000, "and its memory goes back");
    }

    #[test]
    fn long_texts_are_as_they_were_made() {
        let (mut reading, payer) = (Reading::default(), payer());
        let text: Vec<u8> = (0..=u8::MAX).cycle().take(MAPPED_FROM + 1).collect();
        for length in [0, 1, MAPPED_FROM - 1, MAPPED_FROM, MAPPED_FROM + 1] {
            let read = reading.read(0, usize::MAX, &payer, || Ok::<_, Failed>(text[..length].to_vec()));
            assert_eq!(read, Ok(&text[..length]));
        }
    }

    #[test]
    fn a_line_takes_effect_at_once_and_a_value_without_newline_when_it_is_closed() {
        let mut writing = Writing::default();
        assert_eq!(writing.write(Setting::Period, 0, false, b"50\n"), Ok(Some(50)));
        assert_eq!(writing.close(), None);
        assert_eq!(writing.write(Setting::Period, 0, false, b"60"), Ok(None));
        assert_eq!(writing.close(), Some(60));
        assert_eq!(writing.close(), None, "once");
        // A new value replaces the waiting one.
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
        // The offset is the kernel's assumed end of the file.
        assert_eq!(writing.write(Setting::Enabled, 0, true, b"1\n"), Ok(Some(1)));
        assert_eq!(writing.write(Setting::Enabled, 2, true, b"0\n"), Ok(Some(0)));
    }
}
