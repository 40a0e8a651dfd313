// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plain model of a handle and of a value.

use topstat::fuzz::tree::value::Setting;

/// An open file.
#[derive(Clone, Debug)]
pub struct Open {
    pub inode: u64,
    /// Whether the file is open for writing.
    pub writes: bool,
    pub append: bool,
    /// The text of the first read, which later reads continue.
    pub text: Option<Vec<u8>>,
    /// Whether the beginning was read: a second read of the beginning makes another text.
    begun: bool,
    /// The end of the latest piece.
    pub at: u64,
    /// A value without a newline: it is set when the handle is closed.
    pub waiting: Option<u32>,
}

impl Open {
    pub fn new(inode: u64, writes: bool, append: bool) -> Self {
        Self { inode, writes, append, text: None, begun: false, at: 0, waiting: None }
    }

    /// Whether a read at this offset makes a text.
    pub fn makes(&self, offset: u64) -> bool {
        self.text.is_none() || offset == 0 && self.begun
    }

    /// The piece of the text that a read returns.
    pub fn piece(&mut self, offset: u64, size: u32) -> &[u8] {
        self.begun |= offset == 0;
        let text = self.text.as_deref().unwrap_or_default();
        let rest = usize::try_from(offset).ok().and_then(|offset| text.get(offset..)).unwrap_or_default();
        let piece = &rest[..rest.len().min(size as usize)];
        self.at = offset.saturating_add(piece.len() as u64);
        piece
    }
}

/// The written value, if it is valid: at most 32 bytes, decimal digits or a time with white space around them, in range.
pub fn parse(setting: Setting, written: &[u8]) -> Option<u32> {
    let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c);
    let begin = written.iter().position(|byte| !space(byte))?;
    let end = written.iter().rposition(|byte| !space(byte))?;
    let value = match digits(&written[begin..=end]) {
        Some(value) => value,
        None if matches!(setting, Setting::Period | Setting::Delay) => {
            let time = humantime::parse_duration(std::str::from_utf8(&written[begin..=end]).ok()?).ok()?;
            (time.subsec_nanos() % 1_000_000 == 0).then(|| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))?
        }
        None => return None,
    };
    let most = match setting {
        Setting::Enabled | Setting::Sync => 1,
        Setting::Period | Setting::Delay => 3_600_000,
    };
    let least = u64::from(setting == Setting::Period);
    (written.len() <= 32 && (least..=most).contains(&value)).then_some(value as u32)
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        Some(value.saturating_mul(10).saturating_add(digit.into()))
    })
}
