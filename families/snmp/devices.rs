// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The drivers' counters of network devices, as `/proc/PID/net/dev` shows them. Each driver counts in its own way; there are only
//! sums.

use std::io;
use std::path::Path;

/// Devices that are read of a namespace, at most; the text for this number has 2 MiB. The others are only counted.
pub const MOST: usize = 16_384;
/// The numbers behind a device's name.
pub const NUMBERS: usize = 16;

/// A device of a namespace, and its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub name: String,
    pub numbers: [u64; NUMBERS],
}

/// Reads the devices of a namespace, below its `/proc/PID/net`. Returns them, and the number of the devices beyond [`MOST`].
///
/// # Errors
/// When the file can't be read.
pub fn read(net: &Path) -> io::Result<(Vec<Device>, u64)> {
    // A name may contain any bytes: users choose it.
    let text = std::fs::read(net.join("dev"))?;
    Ok(parse(&text))
}

fn parse(text: &[u8]) -> (Vec<Device>, u64) {
    let mut devices: Vec<_> = Vec::new();
    let mut beyond = 0;
    for device in text.split(|byte| *byte == b'\n').filter_map(device) {
        if devices.len() < MOST { devices.push(device) } else { beyond += 1 }
    }
    (devices, beyond)
}

/// Parses a line: a name without blanks and colons, a colon, and the numbers. The two title lines have no numbers.
fn device(line: &[u8]) -> Option<Device> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, rest) = line.split_at(colon);
    let mut words = std::str::from_utf8(&rest[1..]).ok()?.split_ascii_whitespace();
    let mut numbers = [0; NUMBERS];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    Some(Device { name: String::from_utf8_lossy(name.trim_ascii()).into_owned(), numbers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_names() {
        let text = b"Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 100 2 0 0 0 0 0 0 100 2 0 0 0 0 0 0
o.d-d@1:18446744073709551615 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
 \xff|\x1b[:1 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
 short: 1 2 3
";
        let (devices, beyond) = parse(text);
        let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["lo", "o.d-d@1", "\u{fffd}|\u{1b}["]);
        assert_eq!((devices[1].numbers[0], devices[1].numbers[15], beyond), (u64::MAX, 15, 0));
    }

    #[test]
    fn more_than_there_is_room_for_are_counted() {
        let line = "d: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n";
        let (devices, beyond) = parse(line.repeat(MOST + 3).as_bytes());
        assert_eq!((devices.len(), beyond), (MOST, 3));
    }
}
