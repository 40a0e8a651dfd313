// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Probes at places that a program has marked. The program of these tests has one itself.

#[cfg(target_arch = "x86_64")]
use std::sync::atomic::AtomicU16;

use topstat_live::{Case, case};

pub fn cases() -> Vec<Case> {
    vec![case!(marked_places_of_a_program, Root, Tracefs; EveryKernel)]
}

/// The number of the probe's users, which the kernel keeps.
#[cfg(target_arch = "x86_64")]
#[unsafe(link_section = ".probes")]
static USERS: AtomicU16 = AtomicU16::new(0);

#[cfg(target_arch = "x86_64")]
mod probe {
    use std::ffi::CStr;

    use super::USERS;

    /// The probe `topstat_live:called`: an instruction that does nothing, and a note, as <sys/sdt.h> makes both.
    #[inline(never)]
    pub fn called(number: u64, small: i32, text: &CStr, amounts: &[i64; 3]) {
        // SAFETY: the instruction does nothing; the note is no part of the program's memory.
        unsafe {
            std::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt,\"\",\"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b, 0, {users}",
                ".asciz \"topstat_live\"",
                ".asciz \"called\"",
                ".asciz \"8@{number} -4@{small:e} 8@{text} -8@16({amounts}) 8@$7\"",
                "994: .balign 4",
                ".popsection",
                users = sym USERS,
                number = in(reg) number,
                small = in(reg) small,
                text = in(reg) text.as_ptr(),
                amounts = in(reg) amounts,
                options(att_syntax, nostack, preserves_flags),
            );
        }
    }
}

/// How often the kernel puts a probe at this function into this process: once for each mapping of its place in the file that is
/// private and not writable. There are two after an earlier test has panicked here, for the standard library maps the program to
/// name the functions of a backtrace, and keeps that mapping.
#[cfg(target_arch = "x86_64")]
fn places_in_memory(function: usize) -> usize {
    use procfs::process::{MMPermissions, Process};

    let function = function as u64;
    let all = Process::myself().and_then(|own| own.maps()).expect("the mappings of this process");
    let holds = |(from, to): (u64, u64), place: u64| (from..to).contains(&place);
    let own = all.iter().find(|map| holds(map.address, function)).expect("a mapping has the function");
    let place = own.offset + (function - own.address.0);
    let is_probed = |map: &&procfs::process::MemoryMap| {
        let end = map.offset + (map.address.1 - map.address.0);
        let is_private = map.perms.contains(MMPermissions::PRIVATE) && !map.perms.contains(MMPermissions::WRITE);
        (map.dev, map.inode) == (own.dev, own.inode) && is_private && holds((map.offset, end), place)
    };
    all.iter().filter(is_probed).count()
}

#[cfg(target_arch = "x86_64")]
fn marked_places_of_a_program() {
    use std::sync::atomic::Ordering;

    use super::counted::{field, number, path, watch, whole};
    use topstat_live::role;
    use topstat_live::watch::snapshot;

    assert_eq!(USERS.load(Ordering::Relaxed), 0);
    let program = role::program().display();
    let event = format!("usdt:{program}:topstat_live:called");
    let mut source =
        watch(&format!("{event} by arg0, arg1, str.arg2 add arg3 where pid = $PID and arg1 != -9 period 10m"));
    let places = places_in_memory(probe::called as *const () as usize);
    assert_eq!(usize::from(USERS.load(Ordering::Relaxed)), places, "the kernel has counted the table in each place");
    for amount in 1..=100 {
        probe::called(1 << 40, -5, c"one", &[0, 0, amount]);
        probe::called(7, 5, c"two", &[0, 0, 2 * amount]);
        probe::called(7, -9, c"left out", &[0, 0, amount]);
    }
    let found = snapshot(&mut *source, &path());
    whole(&found);
    let [first, second] = &found.rows[..] else { panic!("{:?}", found.rows) };
    assert_eq!((first.value, number(&found, first, "arg0"), number(&found, first, "arg1")), (10_100, 7, 5));
    assert_eq!(field(&found, first, "arg2"), "two".into());
    assert_eq!((second.value, number(&found, second, "arg0")), (5050, 1 << 40));
    assert_eq!((field(&found, second, "arg1"), field(&found, second, "arg2")), ((-5_i64).into(), "one".into()));
    assert_eq!(number(&found, second, "events"), 100);
    drop(source);
    assert_eq!(USERS.load(Ordering::Relaxed), 0, "the kernel has counted down");
}

#[cfg(not(target_arch = "x86_64"))]
fn marked_places_of_a_program() {
    topstat_live::harness::skip("the test's own probe is written for x86-64");
}
