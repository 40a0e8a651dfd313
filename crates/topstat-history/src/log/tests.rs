// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logs that are cut off, damaged and read while they are written.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::{MAGIC, Part, Writer, lines};

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("topstat-log-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Lines of different lengths, some longer than a block of zstd may be.
fn line(number: u32) -> Vec<u8> {
    let filling = ["", "abc", "some longer text that repeats "][number as usize % 3];
    let times = if number % 10 == 9 { 9000 } else { number as usize % 50 };
    let mut random = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let noise: String = (0..times)
        .map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            format!("{:x}", random >> 40)
        })
        .collect();
    format!("{{\"n\":{number},\"t\":\"{}{noise}\"}}\n", filling.repeat(times)).into_bytes()
}

fn open(path: &Path) -> io::Result<Writer> {
    let mut options = fs::File::options();
    Writer::open(options.read(true).write(true).create(true).truncate(false).open(path)?, path)
}

fn read(path: &Path) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let add = |line: &[u8]| {
        all.push([line, b"\n"].concat());
        true
    };
    lines(&fs::File::open(path).unwrap(), add).unwrap();
    all
}

/// The lines, and the places where some may be missing: before which line, and in the frame at which byte.
fn read_parts(path: &Path) -> (Vec<Vec<u8>>, Vec<(usize, u64)>) {
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    let mut each = |part: Part<'_>| {
        match part {
            Part::Line(line) => all.push([line, b"\n"].concat()),
            Part::Fault(fault) => faults.push((all.len(), fault.at)),
        }
        true
    };
    super::read(&fs::File::open(path).unwrap(), &mut each).unwrap();
    (all, faults)
}

/// Where frames begin.
fn begins_of(bytes: &[u8]) -> Vec<u64> {
    let four = bytes.windows(MAGIC.len()).enumerate();
    four.filter(|(_, four)| *four == MAGIC).map(|(at, _)| at as u64).collect()
}

#[test]
fn cut_off_at_every_byte_it_loses_nothing_that_was_flushed() {
    let scratch = Scratch::new("cut");
    let (whole, cut) = (scratch.0.join("whole"), scratch.0.join("cut"));
    let mut writer = open(&whole).unwrap();
    // How long the file was when this many lines were flushed.
    let mut flushed = vec![0];
    for number in 0..14 {
        writer.append(&line(number)).unwrap();
        flushed.push(writer.length());
        if number % 4 == 3 {
            writer.sync().unwrap();
        }
    }
    let bytes = fs::read(&whole).unwrap();
    let all: Vec<_> = (0..14).map(line).collect();
    assert_eq!(read(&whole), all);
    // The long line makes the file long: away from the ends of lines, only some lengths are tried.
    let near = |length: usize| flushed.iter().any(|end| (*end as usize).abs_diff(length) < 40);
    for length in (0..=bytes.len()).filter(|length| near(*length) || length % 509 == 0) {
        fs::write(&cut, &bytes[..length]).unwrap();
        let certain = flushed.iter().rposition(|end| *end as usize <= length).unwrap();
        let before = read(&cut);
        assert!(before.len() >= certain && all.starts_with(&before), "{length}: {} of {certain}", before.len());
        // And the log goes on.
        let mut writer = open(&cut).unwrap();
        writer.append(b"{\"n\":99}\n").unwrap();
        writer.append(b"{\"n\":100}\n").unwrap();
        drop(writer);
        let after = read(&cut);
        let (old, new) = after.split_at(after.len() - 2);
        assert_eq!(new, [b"{\"n\":99}\n".to_vec(), b"{\"n\":100}\n".to_vec()], "{length}");
        assert!(old.len() >= certain && all.starts_with(old), "{length}: {} of {certain}", old.len());
        // Every tool reads the same lines, once the open frame has ended.
        let mut writer = open(&cut).unwrap();
        writer.sync().unwrap();
        let text = zstd::stream::decode_all(&fs::read(&cut).unwrap()[..]).unwrap();
        assert_eq!(text, after.concat(), "{length}");
    }
}

#[test]
fn what_is_behind_a_power_failure_is_cut_off() {
    let scratch = Scratch::new("power");
    let path = scratch.0.join("log");
    let mut writer = open(&path).unwrap();
    (0..3).for_each(|number| writer.append(&line(number)).unwrap());
    writer.sync().unwrap();
    let length = writer.length();
    for garbage in [vec![0; 4096], vec![0xff; 100], b"\x28\xb5\x2f\xfd\x00".to_vec(), b"PAR1".to_vec()] {
        fs::File::options().write(true).open(&path).unwrap().write_all_at(&garbage, length).unwrap();
        assert_eq!(read(&path).len(), 3);
        assert_eq!(open(&path).unwrap().length(), length);
        assert_eq!(read(&path).len(), 3);
    }
}

#[test]
fn a_log_is_read_while_it_is_written() {
    let scratch = Scratch::new("both");
    let path = scratch.0.join("log");
    let mut writer = open(&path).unwrap();
    for number in 0..40 {
        writer.append(&line(number)).unwrap();
        assert_eq!(read(&path).len(), number as usize + 1);
    }
}
#[test]
fn every_tool_reads_all_that_was_flushed_at_any_time() {
    let scratch = Scratch::new("whole");
    let path = scratch.0.join("log");
    let mut writer = open(&path).unwrap();
    let mut all = Vec::new();
    for number in 0..40 {
        writer.append(&line(number)).unwrap();
        all.extend(line(number));
        if number % 7 == 6 {
            writer.sync().unwrap();
        }
        // A recorder that is killed here leaves the file as it is.
        let text = zstd::stream::decode_all(&fs::read(&path).unwrap()[..]).unwrap();
        assert!(text == all, "{number}");
    }
}

#[test]
fn damage_costs_no_more_than_the_rest_of_its_frame_and_is_told() {
    let scratch = Scratch::new("damaged");
    let path = scratch.0.join("log");
    let mut writer = open(&path).unwrap();
    let mut ends = vec![];
    for number in 0..40 {
        writer.append(&line(number)).unwrap();
        ends.push(writer.length());
        if number % 8 == 7 {
            writer.sync().unwrap();
        }
    }
    let bytes = fs::read(&path).unwrap();
    let begins = begins_of(&bytes);
    let all: Vec<_> = (0..40).map(line).collect();
    assert_eq!(read_parts(&path), (all.clone(), vec![]));
    let mut faults = 0;
    for at in (0..bytes.len() - 40).filter(|at| at % 37 == 0) {
        let mut damaged = bytes.clone();
        damaged[at..at + 3].iter_mut().for_each(|byte| *byte ^= 0xff);
        fs::write(&path, &damaged).unwrap();
        let (found, told) = read_parts(&path);
        let frame = begins.iter().rposition(|begin| *begin as usize <= at).unwrap();
        // Damage may reach into the next frame by two bytes.
        let last = begins.iter().rposition(|begin| *begin as usize <= at + 2).unwrap();
        for (number, line) in all.iter().enumerate() {
            let before = ends[number] as usize <= at;
            let own = begins.iter().rposition(|begin| *begin < ends[number]).unwrap();
            assert!(!before && (frame..=last).contains(&own) || found.contains(line), "{at}: line {number}");
        }
        // Text that is not compressed may change without a fault.
        faults += told.len();
        assert!(told.iter().all(|(_, begin)| begins[frame..=last].contains(begin)), "{at}: {told:?}");
    }
    assert!(faults > 20, "{faults}");
}

/// The most memory that this process has taken so far.
fn most_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Two logs of each of 88 tables, with documents of 1 to 8 KB.
#[test]
fn the_logs_of_all_tables_take_little_memory() {
    let scratch = Scratch::new("many");
    let before = most_memory();
    let open = |number: usize| open(&scratch.0.join(number.to_string())).unwrap();
    let mut writers: Vec<_> = (0..2 * 88).map(open).collect();
    for record in 0..20 {
        for (number, writer) in writers.iter_mut().enumerate() {
            let rows: String = (0..10 + number % 70).map(|row| format!("{{\"rank\":{row},\"value\":{record},\"comm\":\"a process of this host\",\"cgroup\":\"/system.slice/{}.service\"}},", row * number)).collect();
            writer.append(format!("{{\"rows\":[{rows}]}}\n").as_bytes()).unwrap();
        }
    }
    let took = most_memory() - before;
    assert!(took < 24 << 20, "{took} bytes");
}

#[test]
fn a_line_that_is_longer_than_the_window_begins_a_frame() {
    let scratch = Scratch::new("longer");
    let path = scratch.0.join("log");
    let mut writer = open(&path).unwrap();
    let lines: Vec<_> =
        [10, 100, 9, 100_000, 10, 1_000_000].map(|length| [&vec![b'x'; length][..], b"\n"].concat()).into();
    for line in &lines {
        writer.append(line).unwrap();
    }
    assert_eq!(read(&path), lines);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(zstd::stream::decode_all(&bytes[..]).unwrap(), lines.concat());
    assert_eq!(begins_of(&bytes).len(), 2);
}

#[test]
fn a_bomb_takes_no_memory() {
    let scratch = Scratch::new("bomb");
    let path = scratch.0.join("log");
    let bomb = |letter: u8, bytes: u64| {
        let content = io::Read::take(io::repeat(letter), bytes);
        zstd::stream::encode_all(content, 1).unwrap()
    };
    let before = most_memory();
    // 33 KB that decode to 1 GiB without a line, and as many that decode to empty lines; then a line.
    for letter in [b'x', b'\n'] {
        let mut bytes = bomb(letter, 1 << 30);
        bytes.extend(zstd::stream::encode_all(&b"{\"n\":1}\n"[..], 1).unwrap());
        fs::write(&path, &bytes).unwrap();
        let (found, faults) = read_parts(&path);
        assert_eq!((found, faults), (vec![b"{\"n\":1}\n".to_vec()], vec![(0, 0)]), "{letter}");
    }
    let took = most_memory() - before;
    assert!(took < 64 << 20, "{took} bytes");
}
