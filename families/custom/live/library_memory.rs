// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of the library about memory, beside what a thread of the test has taken and the kernel's counters of that thread.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use topstat_live::cgroup::{self, Limited};
use topstat_live::harness::skip;
use topstat_live::{Case, Scratch, alone, case, note};
use topstat_model::Field;

use super::library::{Known, Worker};

pub fn cases() -> Vec<Case> {
    vec![
        case!(pages_and_faults, Root, Tracefs; EveryKernel),
        case!(faults_that_read_from_a_disk, Root, Tracefs, BlockDevice),
        case!(objects_of_the_kernel, Root, Tracefs; EveryKernel),
        case!(memory_of_the_c_library, Root, Tracefs; EveryKernel),
        case!(kills_for_want_of_memory, Root, Tracefs, MemoryLimit),
        alone!(Shared: memory_that_is_moved_and_freed, Root, Tracefs),
    ]
}

const PAGE: usize = 4096;
const PAGES: usize = 2000;

/// Minor and major faults of a thread of this process.
fn faults(worker: &Worker) -> [u64; 2] {
    let text = std::fs::read_to_string(format!("/proc/self/task/{}/stat", worker.tid)).expect("stat");
    let fields: Vec<_> = text.rsplit(')').next().expect("fields").split_whitespace().collect();
    [fields[7], fields[9]].map(|field| field.parse().expect("a number"))
}

fn own(worker: &Worker) -> [(&'static str, Field); 2] {
    [worker.comm(), ("pid", std::process::id().into())]
}

fn pages_and_faults() {
    let mut tables = ["page-faults", "page-allocations"].map(Known::load);
    let worker = Worker::new("toucher");
    let before = faults(&worker);
    worker.run(|| {
        let mut memory = memmap2::MmapOptions::new().len(PAGES * PAGE).map_anon().expect("memory");
        memory.advise(memmap2::Advice::NoHugePage).expect("small pages");
        memory.chunks_mut(PAGE).for_each(|page| page[0] = 1);
    });
    let truth = faults(&worker);
    assert!(truth[0] - before[0] >= PAGES as u64);
    let [faults, pages] = &mut tables;
    let all = truth[0] + truth[1];
    note(format!("{:?}, {:?} of {all}", faults.sum(&own(&worker)), pages.sum(&own(&worker))));
    // The kernel counts a fault for the thread once it is done. A fault that waits for a lock begins anew, and is an event each time.
    faults.has(&own(&worker), all - all / 50..=all + all / 50);
    // Page tables take a page for 512, and the kernel's own structures some more.
    let single = [own(&worker)[0].clone(), own(&worker)[1].clone(), ("order", 0_u64.into())];
    pages.has(&single, PAGES as u64..=PAGES as u64 * 11 / 10);
}

fn faults_that_read_from_a_disk() {
    let scratch = Scratch::new("faults");
    let path = scratch.path().join("file");
    std::fs::write(&path, vec![1; 64 * PAGE]).expect("a file");
    let file = File::open(&path).expect("a file");
    file.sync_all().expect("the file is on the disk");
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
    let mut table = Known::load("major-faults");
    let worker = Worker::new("reader");
    worker.run(move || {
        // SAFETY: nothing changes the file.
        let memory = unsafe { memmap2::Mmap::map(&file) }.expect("a mapping");
        memory.advise(memmap2::Advice::Random).expect("no reading ahead");
        let sum: u64 = memory.chunks(PAGE).map(|page| u64::from(page[0])).sum();
        assert_eq!(sum, 64);
    });
    let [_, truth] = faults(&worker);
    assert!(truth > 0, "nothing was read from the disk");
    table.has(&own(&worker), truth..=truth);
}

/// Each open file is one object of the cache `filp`, and each pipe has two objects.
fn objects_of_the_kernel() {
    const FILES: u64 = 500;
    let mut tables = ["slab-allocations", "kernel-allocations"].map(Known::load);
    let caches = Known::try_load("slab-caches");
    let worker = Worker::new("holder");
    worker.run(|| {
        let files: Vec<_> = (0..FILES).map(|_| File::open("/dev/null").expect("a file")).collect();
        let pipes: Vec<_> = (0..FILES / 2).map(|_| std::io::pipe().expect("a pipe")).collect();
        drop((files, pipes));
    });
    let [slab, kernel] = &mut tables;
    let size: u64 = match std::fs::read_to_string("/sys/kernel/slab/filp/slab_size") {
        Ok(text) => text.trim().parse().expect("a number"),
        Err(e) => skip(format!("needs the sizes of caches: {e}")),
    };
    // A pipe has two files.
    let files = 2 * FILES * size;
    let found = slab.sum(&[worker.comm()]);
    note(format!("{found:?}, {files} bytes in files, {:?}", kernel.sum(&[worker.comm()])));
    assert!(found.value >= files && found.events >= 2 * FILES, "{found:?}");
    // 16 buffers of 40 bytes for each pipe. The kernel also allocates the table of descriptors, and memory in interrupts.
    kernel.has(&[worker.comm()], FILES / 2 * 640..=u64::MAX);
    if let Some(mut caches) = caches {
        let found = caches.sum(&[worker.comm(), ("name", "filp".into())]);
        assert!(found.events >= 2 * FILES && found.events <= 2 * FILES + 10, "{found:?}");
        assert_eq!(found.value, found.events * size);
    }
}

fn memory_of_the_c_library() {
    let Some(mut table) = Known::try_load("malloc-bytes") else { skip("needs glibc") };
    let worker = Worker::new("taker");
    worker.run(|| {
        for _ in 0..100 {
            // SAFETY: freed at once.
            unsafe { libc::free(std::hint::black_box(libc::malloc(1_000_003))) };
        }
    });
    table.has(&own(&worker), 100_000_300..=100_500_000);
}

/// A process in a group with little memory reads files, then takes more memory than the group may have.
fn kills_for_want_of_memory() {
    let mut tables = ["oom-kills", "cgroup-reclaim-time"].map(Known::load);
    let scratch = Scratch::new("reclaim");
    let path = scratch.path().join("file");
    let mut file = File::create(&path).expect("a file");
    for _ in 0..64 {
        file.write_all(&[1; 1 << 20]).expect("a write");
    }
    file.sync_all().expect("the file is on the disk");
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
    let limited = Limited::memory("library", 24 << 20).expect("a group with little memory");
    let script = format!("read go; cat {}; exec tail /dev/zero", path.display());
    let mut shell = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let shell = shell.as_mut().expect("a shell");
    limited.take(shell.id());
    let group = cgroup::expected(shell.id()).expect("its group");
    let begun = Instant::now();
    writeln!(shell.stdin.as_mut().expect("its input"), "go").expect("the shell reads");
    let mut read = Vec::new();
    shell.stdout.as_mut().expect("its output").read_to_end(&mut read).expect("its output");
    assert_eq!(read.len(), 64 << 20);
    let ended = shell.wait().expect("the shell ends");
    assert_eq!(ended.signal(), Some(libc::SIGKILL), "{ended:?}");
    let [kills, reclaim] = &mut tables;
    kills.has(&[("pid", shell.id().into())], 1..=1);
    let found = reclaim.sum(&[("cgroup", group.as_str().into())]);
    note(format!("{found:?} in {:?}", begun.elapsed()));
    assert!(found.events > 0 && u128::from(found.value) <= begun.elapsed().as_nanos(), "{found:?} of {group}");
}

/// Root asks the kernel to join free memory, and to free its caches.
fn memory_that_is_moved_and_freed() {
    const COMPACT: &str = "/proc/sys/vm/compact_memory";
    let mut tables = ["compaction-time", "shrinker-time"].map(Known::load);
    if !std::path::Path::new(COMPACT).exists() {
        skip(format!("needs {COMPACT}"));
    }
    let worker = Worker::new("cleaner");
    let took = worker.run(|| {
        let begun = Instant::now();
        std::fs::write(COMPACT, "1").expect(COMPACT);
        let middle = Instant::now();
        std::fs::write("/proc/sys/vm/drop_caches", "2").expect("drop_caches");
        [middle - begun, middle.elapsed()].map(|time| u64::try_from(time.as_nanos()).expect("a short time"))
    });
    let [compaction, shrinker] = &mut tables;
    compaction.took(&own(&worker), 1..=1000, 1..=took[0]);
    let found = shrinker.sum(&[]);
    note(format!("{:?} of {took:?} ns; {found:?}", compaction.sum(&own(&worker))));
    assert!(found.events > 0 && found.value > 0, "{found:?}");
}
