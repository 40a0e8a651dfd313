// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults that a kernel built for it injects (CONFIG_FAULT_INJECTION; tests/vm has one): allocations that are refused,
//! system calls that fail. What is set is set back when dropped.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Refuses what is allocated from slabs.
const SLAB: &str = "/sys/kernel/debug/failslab";
/// Refuses whole pages.
const PAGES: &str = "/sys/kernel/debug/fail_page_alloc";
/// Has functions fail.
const FUNCTION: &str = "/sys/kernel/debug/fail_function";
/// Of the calling thread: the how manyth call that could fail does.
const NTH: &str = "/proc/thread-self/fail-nth";
/// Says what was allocated, and nothing points to any more.
const LEAKS: &str = "/sys/kernel/debug/kmemleak";
/// Higher than any allocation: no page allocation is refused.
const NO_ORDER: &str = "100";

/// Why faults can't be injected here.
pub(crate) fn missing() -> Option<String> {
    let lacks = |path: &&str| !Path::new(path).exists();
    let path = [SLAB, PAGES, FUNCTION, NTH].into_iter().find(|path| lacks(path))?;
    Some(format!("needs a kernel that injects faults ({path} is missing): make vm, tier debug"))
}

/// Why leaks can't be looked for here.
pub(crate) fn no_leaks() -> Option<String> {
    let on = std::fs::read_to_string("/proc/cmdline").is_ok_and(|line| line.contains("kmemleak=on"));
    (!on || !Path::new(LEAKS).exists()).then(|| "needs a kernel that looks for leaks (kmemleak=on)".to_owned())
}

/// Settings that are set back when dropped.
pub struct Settings(Vec<(PathBuf, String)>);

impl Settings {
    fn new() -> Self {
        let mut settings = Self(Vec::new());
        for of in [SLAB, PAGES, FUNCTION] {
            settings.set(of, "probability", "0");
            settings.set(of, "times", "-1");
            // What is refused on purpose is nothing to be reported: no stacks in the kernel's log.
            settings.set(of, "verbose", "0");
            settings.set(of, "task-filter", "N");
        }
        settings
    }

    fn set(&mut self, of: &str, name: &str, value: &str) {
        let path = Path::new(of).join(name);
        let before = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        std::fs::write(&path, value).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.0.push((path, before.trim().to_owned()));
    }

    /// [`Nth`] counts the allocations of a thread, those that may wait for memory among them.
    pub fn memory() -> Self {
        let mut settings = Self::new();
        settings.set(SLAB, "cache-filter", "N");
        settings.set(SLAB, "ignore-gfp-wait", "N");
        settings.set(PAGES, "ignore-gfp-wait", "N");
        settings.set(PAGES, "min-order", "0");
        settings
    }

    /// [`Nth`] counts the calls of one system call, which then says that there is no memory.
    pub fn system_call(name: &str) -> Self {
        let mut settings = Self::new();
        settings.set(SLAB, "cache-filter", "Y");
        settings.set(PAGES, "min-order", NO_ORDER);
        let function = format!("__x64_sys_{name}");
        std::fs::write(Path::new(FUNCTION).join("inject"), &function).expect("choose a system call to fail");
        let value = i64::from(-libc::ENOMEM).cast_unsigned().to_string();
        std::fs::write(Path::new(FUNCTION).join(&function).join("retval"), value).expect("choose what it returns");
        settings
    }

    /// Of allocations from these slabs that may not wait, whoever makes them, so many in a hundred are refused.
    pub fn slabs(caches: &[&str], percent: u32) -> Self {
        let mut settings = Self::new();
        settings.set(PAGES, "min-order", NO_ORDER);
        for cache in caches {
            // Before Linux 6.2 it can't be written: 7c82b3b308af ("mm/slub: make the failslab writable again").
            let chosen = Path::new("/sys/kernel/slab").join(cache).join("failslab");
            let said = std::fs::read_to_string(&chosen).unwrap_or_else(|e| panic!("{}: {e}", chosen.display()));
            assert_eq!(said.trim(), "1", "{cache}: the kernel's argument slub_debug=A,{cache} lets it be chosen");
        }
        settings.set(SLAB, "cache-filter", "Y");
        settings.set(SLAB, "ignore-gfp-wait", "Y");
        settings.set(SLAB, "probability", &percent.to_string());
        settings
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // First of all nothing fails any more.
        for of in [SLAB, PAGES, FUNCTION] {
            let _ = std::fs::write(Path::new(of).join("probability"), "0");
        }
        for (path, before) in self.0.iter().rev() {
            let _ = std::fs::write(path, before);
        }
        // A line without a name stands for all of them.
        let _ = std::fs::write(Path::new(FUNCTION).join("inject"), "\n");
    }
}

/// The fault of a thread.
pub struct Nth(File);

impl Nth {
    /// The calling thread's. Open it before anything fails.
    pub fn own() -> Self {
        let file = File::options().read(true).write(true).open(NTH);
        Self(file.unwrap_or_else(|e| panic!("{NTH}: {e}")))
    }

    /// Lets this thread's `nth` call from here on fail that can; 0: none does.
    pub fn set(&self, nth: u32) {
        self.0.write_all_at(nth.to_string().as_bytes(), 0).expect(NTH);
    }

    /// How many calls are left until the one that fails; 0: it has.
    pub fn left(&self) -> u32 {
        let mut text = [0; 16];
        let read = self.0.read_at(&mut text, 0).expect(NTH);
        String::from_utf8_lossy(&text[..read]).trim().parse().expect("a number")
    }
}

/// What the kernel has allocated since [`forget_leaks`] and nothing points to any more, as it says it. It takes some seconds.
pub fn leaks() -> String {
    // Younger allocations may be on their way to where they belong.
    std::thread::sleep(std::time::Duration::from_secs(6));
    // The second look has what the first one may have seen in a register.
    for _ in 0..2 {
        std::fs::write(LEAKS, "scan").expect("look for leaks");
    }
    std::fs::read_to_string(LEAKS).expect("read what was found")
}

/// See [`leaks`].
pub fn forget_leaks() {
    std::fs::write(LEAKS, "scan").and_then(|()| std::fs::write(LEAKS, "clear")).expect("forget what was found");
}
