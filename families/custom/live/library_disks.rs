// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of the library about disks and file systems, beside the disk's counters and what the test has done on that disk. Nothing
//! else uses the disk.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::process::Command;
use std::time::{Duration, Instant};

use topstat_live::harness::skip;
use topstat_live::scratch::LoopDevice;
use topstat_live::{Case, Scratch, alone, eventually, mounts, note};
use topstat_model::Field;

use super::library::{Known, Sum, Worker, ns};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Disk: requests_of_a_disk, Root, Tracefs, LoopDevice; EveryKernel),
        alone!(Disk: files_of_a_file_system, Root, Tracefs, LoopDevice; EveryKernel),
    ]
}

/// The number of a device as tables show it: `7:0`.
fn device(disk: &LoopDevice) -> Field {
    let number = fs::metadata(&disk.path).expect("the device").rdev();
    format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number)).into()
}

/// Completed reads, sectors of 512 bytes read, ms of reads; then these three of writes.
fn diskstats(disk: &LoopDevice) -> [u64; 6] {
    let text = fs::read_to_string(format!("/sys/block/{}/stat", disk.name)).expect("the disk's counters");
    let numbers: Vec<u64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    [numbers[0], numbers[2], numbers[3], numbers[4], numbers[6], numbers[7]]
}

/// Reads and writes of one thread, past the page cache.
fn requests_of_a_disk() {
    const READS: u64 = 300;
    const WRITES: u64 = 200;
    let mut tables = ["block-latency", "block-latency-by-process", "block-bytes", "workqueue-time"].map(Known::load);
    let times = Known::try_load("block-io-time");
    let disk = LoopDevice::new(16).expect("a loop device");
    let worker = Worker::new("direct");
    let before = diskstats(&disk);
    let path = disk.path.clone();
    let elapsed = worker.run(move || {
        let begun = Instant::now();
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).expect("the device");
        let mut memory = memmap2::MmapOptions::new().len(4096).map_anon().expect("memory");
        // Every other block, so that no two requests are joined.
        for block in 0..READS {
            file.read_exact_at(&mut memory, block * 8192).expect("a read");
        }
        for block in 0..WRITES {
            file.write_all_at(&memory, block * 8192).expect("a write");
        }
        begun.elapsed()
    });
    let after = diskstats(&disk);
    let truth: Vec<_> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(
        (truth[0], truth[1], truth[3], truth[4]),
        (READS, READS * 8, WRITES, WRITES * 8),
        "only the test uses it"
    );
    let [latency, by_process, bytes, work] = &mut tables;
    let dev = ("dev", device(&disk));
    let kind = |kind: &str| [dev.clone(), ("rwbs", kind.into())];
    note(format!("{:?} in {elapsed:?}, diskstats {truth:?}", latency.sum(std::slice::from_ref(&dev))));
    latency.took(std::slice::from_ref(&dev), READS + WRITES..=READS + WRITES, 1..=ns(elapsed));
    // Requests that a process waits for may be marked as such.
    let reads_of = |table: &mut Known| {
        let [one, other] = ["R", "RS"].map(|name| table.sum(&kind(name)));
        Sum { value: one.value + other.value, events: one.events + other.events, ..one }
    };
    let (of_latency, of_bytes) = (reads_of(latency), reads_of(bytes));
    let counted = |sum: &Sum, found: u64| found <= READS && found + sum.skipped >= READS;
    assert!(counted(&of_latency, of_latency.events), "{of_latency:?}, not {READS} reads");
    assert!(counted(&of_bytes, of_bytes.value / 4096), "{of_bytes:?}, not {READS} times 4,096 bytes");
    // The thread issues its reads itself. Writes may go to a queue, from which a thread of the kernel issues them, as in Linux 6.1.
    by_process.took(&[worker.comm(), dev.clone()], READS..=READS + WRITES, 1..=ns(elapsed));
    bytes.has(&[dev.clone(), worker.comm()], 4096 * (READS - of_bytes.skipped.min(READS))..=4096 * (READS + WRITES));
    if let Some(mut times) = times {
        times.took(&[worker.comm(), dev], READS + WRITES..=READS + WRITES, 1..=ns(elapsed));
    }
    // Work in the background does the requests of a loop device, and may do several at once.
    let found = work.sum(&[]);
    assert!(found.events > 0, "{found:?}");
}

/// Files of a new file system of ext4: made, put on the disk, read, and deleted.
fn files_of_a_file_system() {
    const FILES: u64 = 20;
    const BYTES: u64 = 1 << 20;
    let disk = LoopDevice::new(64).expect("a loop device");
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk.path).status();
    if !made.is_ok_and(|status| status.success()) {
        skip("needs mkfs.ext4");
    }
    let Some(mut syncs) = Known::try_load("ext-fsync-time") else { skip("needs ext4") };
    let mut tables = ["ext-deletions", "page-cache-misses", "dirty-pages", "writeback-bytes"].map(Known::load);
    let [deletions, misses, dirty, written] = &mut tables;
    let mut waits = Known::load("fsync-time");
    let scratch = Scratch::new("ext4");
    let folder = scratch.path().to_owned();
    let (worker, path) = (Worker::new("files"), disk.path.clone());
    let (dev, inodes, other, elapsed) = worker.run(move || {
        mounts::keep_to_this_thread();
        rustix::mount::mount(&path, &folder, "ext4", rustix::mount::MountFlags::empty(), None).expect("mount ext4");
        let begun = Instant::now();
        let mut inodes = Vec::new();
        for i in 0..FILES {
            let mut file = File::create(folder.join(i.to_string())).expect("a file");
            file.write_all(&vec![1; usize::try_from(BYTES).expect("small")]).expect("a write");
            file.sync_all().expect("the file is on the disk");
            inodes.push(file.metadata().expect("metadata").ino());
        }
        // The kernel writes this file when it is asked to write the whole file system, and not for the thread.
        let mut other = File::create(folder.join("other")).expect("a file");
        other.write_all(&vec![1; usize::try_from(BYTES).expect("small")]).expect("a write");
        rustix::fs::syncfs(&other).expect("all is on the disk");
        let other = other.metadata().expect("metadata").ino();
        let dev = fs::metadata(&folder).expect("metadata").dev();
        for i in 0..FILES {
            fs::remove_file(folder.join(i.to_string())).expect("remove a file");
        }
        let elapsed = begun.elapsed();
        rustix::mount::unmount(&folder, rustix::mount::UnmountFlags::DETACH).expect("unmount");
        (dev, inodes, other, elapsed)
    });
    let number = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let own = [worker.comm(), ("dev", number.as_str().into())];
    waits.took(&[worker.comm(), ("pid", std::process::id().into())], FILES..=FILES, 1..=ns(elapsed));
    syncs.took(&own, FILES..=FILES, 1..=ns(elapsed));
    // std removes files by unlink(2), ext4 sees them all.
    deletions.has(&own, FILES..=FILES);
    let pages = FILES * BYTES / 4096;
    let bdi = ("name", Field::from(number.as_str()));
    note(format!("{pages} pages: {:?}, {:?}", misses.sum(&[worker.comm()]), dirty.sum(&[worker.comm(), bdi.clone()])));
    // A folio has one page or many.
    let mut of_files = 0;
    for inode in &inodes {
        let found = misses.sum(&[worker.comm(), ("i_ino", format!("{inode:#x}").into())]).value;
        assert!((1..=BYTES / 4096).contains(&found), "{found} folios of inode {inode}");
        of_files += found;
    }
    // The inode may be written once more, without pages.
    let key = [bdi.clone(), ("ino", other.into())];
    assert!(eventually(Duration::from_secs(5), || written.sum(&key).value >= BYTES), "{:?}", written.sum(&key));
    written.has(&key, BYTES..=BYTES);
    let found = dirty.sum(&[worker.comm(), bdi]).value;
    assert!(found >= of_files, "{found} dirty pieces, {of_files} in the cache");
}
