// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The roles of other processes in the tests of delays: they wait for a disk, or for memory.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use memmap2::{MmapMut, MmapOptions};
use rustix::param::page_size;
use topstat_live::role::{say, told};

/// Plays a role; `None`: there is no role of that name.
pub fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    let argument = |i: usize| arguments.get(i).map(String::as_str).expect("an argument");
    match role {
        "disk-reader" => disk_reader(Path::new(argument(0)), argument(1).parse().expect("threads")),
        "presser" => presser(Path::new(argument(0))),
        "copier" => copier(),
        "swapper" => swapper(),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

/// The bytes of one read past the page cache (`BLOCK`), and the alignment of its address (`ALIGN`).
const BLOCK: usize = 64 << 10;
const ALIGN: usize = 4096;

fn direct(path: &Path) -> File {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).expect("open the file for direct reads")
}

/// Reads blocks from the file's beginning on, and begins again at its end.
fn read_blocks(file: &File, blocks: u64) {
    let size = file.metadata().expect("the file's size").len();
    // A mapping begins at a page.
    let mut buffer = MmapMut::map_anon(BLOCK).expect("memory");
    for block in 0..blocks {
        file.read_exact_at(&mut buffer, block * BLOCK as u64 % size).expect("read");
    }
}

/// Each thread reads the number of blocks that the line on the input says.
fn disk_reader(path: &Path, threads: usize) {
    let file = direct(path);
    say("ready");
    while let Some(line) = told() {
        let blocks = line.parse().expect("how many blocks");
        if threads == 1 {
            read_blocks(&file, blocks);
        } else {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| read_blocks(&file, blocks));
                }
            });
        }
        say("read");
    }
}

/// Reads a file that is larger than the memory for it, for the milliseconds on the input.
fn presser(path: &Path) {
    let file = File::open(path).expect("open the file");
    // No reading ahead. (For a mapping with this advice, the kernel would not know which pages are in use.)
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).expect("no reading ahead");
    let pages = file.metadata().expect("the file's size").len() / ALIGN as u64;
    say("ready");
    while let Some(line) = told() {
        let until = Instant::now() + Duration::from_millis(line.parse().expect("milliseconds"));
        let mut at = 1_u64;
        while Instant::now() < until {
            for _ in 0..100 {
                // Each page is as likely as any other, so that many pages are evicted while in use.
                at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                file.read_exact_at(&mut [0], (at >> 33) % pages * ALIGN as u64).expect("read");
            }
        }
        say("pressed");
    }
}

/// Writes to pages that a child shares; their number is on the input.
fn copier() {
    say("ready");
    while let Some(line) = told() {
        let pages: usize = line.parse().expect("how many pages");
        let mut memory = MmapOptions::new().len(pages * page_size()).map_anon().expect("memory");
        memory.advise(memmap2::Advice::NoHugePage).expect("small pages");
        for page in 0..pages {
            memory[page * page_size()] = 1;
        }
        // SAFETY: the child does nothing but wait for a signal that ends it.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            }
        }
        assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
        for page in 0..pages {
            memory[page * page_size()] = 2;
        }
        // SAFETY: a child of this process, which has not been waited for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        say("copied");
    }
}

/// Writes pages and reads them again; their number is on the input, and is larger than the memory.
fn swapper() {
    say("ready");
    while let Some(line) = told() {
        let pages: usize = line.parse().expect("how many pages");
        let mut memory = MmapOptions::new().len(pages * page_size()).map_anon().expect("memory");
        for page in 0..pages {
            memory[page * page_size()..][..8].copy_from_slice(&page.to_ne_bytes());
        }
        for page in 0..pages {
            assert_eq!(memory[page * page_size()..][..8], page.to_ne_bytes());
        }
        say("swapped");
    }
}
