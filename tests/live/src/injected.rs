// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults that a kernel with CONFIG_FAULT_INJECTION injects (tests/vm has one): allocations that are refused, and system
//! calls that fail. The settings are restored on drop.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Refuses allocations from slabs.
const SLAB: &str = "/sys/kernel/debug/failslab";
/// Refuses allocations of whole pages.
const PAGES: &str = "/sys/kernel/debug/fail_page_alloc";
/// Makes functions fail.
const FUNCTION: &str = "/sys/kernel/debug/fail_function";
/// The fault of the calling thread: the number of the fallible call that fails.
const NTH: &str = "/proc/thread-self/fail-nth";
/// Reports allocated memory that nothing points to.
const LEAKS: &str = "/sys/kernel/debug/kmemleak";
/// Higher than any allocation: no page allocation is refused.
const NO_ORDER: &str = "100";

/// Why faults can't be injected here.
pub(crate) fn missing() -> Option<String> {
    let lacks = |path: &&str| !Path::new(path).exists();
    let path = [SLAB, PAGES, FUNCTION, NTH].into_iter().find(|path| lacks(path))?;
    Some(format!("needs a kernel that injects faults ({path} is missing): make vm, tier debug"))
}

/// Why leaks can't be detected here.
pub(crate) fn no_leaks() -> Option<String> {
    let on = std::fs::read_to_string("/proc/cmdline").is_ok_and(|line| line.contains("kmemleak=on"));
    (!on || !Path::new(LEAKS).exists()).then(|| "needs a kernel that looks for leaks (kmemleak=on)".to_owned())
}

/// Settings that are restored on drop: the path of each, and its value before.
pub struct Settings(Vec<(PathBuf, String)>);

impl Settings {
    fn new() -> Self {
        let mut settings = Self(Vec::new());
        for of in [SLAB, PAGES, FUNCTION] {
            settings.set(of, "probability", "0");
            settings.set(of, "times", "-1");
            // Refusals on purpose are not reported: no stacks in the kernel's log.
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

    /// [`Nth`] counts the allocations of a thread, including allocations that may wait for memory.
    pub fn memory() -> Self {
        let mut settings = Self::new();
        settings.set(SLAB, "cache-filter", "N");
        settings.set(SLAB, "ignore-gfp-wait", "N");
        settings.set(PAGES, "ignore-gfp-wait", "N");
        settings.set(PAGES, "min-order", "0");
        settings
    }

    /// [`Nth`] counts the calls of one system call, which then fails for lack of memory.
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

    /// Refuses `percent` of the allocations from these slabs that may not wait, in all threads.
    pub fn slabs(caches: &[&str], percent: u32) -> Self {
        let mut settings = Self::new();
        settings.set(PAGES, "min-order", NO_ORDER);
        for cache in caches {
            // Not writable before Linux 6.2: 7c82b3b308af ("mm/slub: make the failslab writable again").
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
        // First switch all failures off.
        for of in [SLAB, PAGES, FUNCTION] {
            let _ = std::fs::write(Path::new(of).join("probability"), "0");
        }
        for (path, before) in self.0.iter().rev() {
            let _ = std::fs::write(path, before);
        }
        // A line without a name removes all functions.
        let _ = std::fs::write(Path::new(FUNCTION).join("inject"), "\n");
    }
}

/// The fault of a thread.
pub struct Nth(File);

impl Nth {
    /// The fault of the calling thread. Open it before any call fails.
    pub fn own() -> Self {
        let file = File::options().read(true).write(true).open(NTH);
        Self(file.unwrap_or_else(|e| panic!("{NTH}: {e}")))
    }

    /// Makes the `nth` fallible call of this thread from here on fail; 0: no call fails.
    pub fn set(&self, nth: u32) {
        self.0.write_all_at(nth.to_string().as_bytes(), 0).expect(NTH);
    }

    /// The number of calls before the one that fails; 0: it has failed.
    pub fn left(&self) -> u32 {
        let mut text = [0; 16];
        let read = self.0.read_at(&mut text, 0).expect(NTH);
        String::from_utf8_lossy(&text[..read]).trim().parse().expect("a number")
    }
}

/// The kernel's report of memory that was allocated since [`forget_leaks`] and that nothing points to. It takes some seconds.
pub fn leaks() -> String {
    // The owner of a younger allocation may not have stored the pointer yet.
    std::thread::sleep(std::time::Duration::from_secs(6));
    // The second scan sees pointers that were in a register during the first.
    for _ in 0..2 {
        std::fs::write(LEAKS, "scan").expect("look for leaks");
    }
    std::fs::read_to_string(LEAKS).expect("read what was found")
}

/// Makes [`leaks`] ignore everything found up to now.
pub fn forget_leaks() {
    std::fs::write(LEAKS, "scan").and_then(|()| std::fs::write(LEAKS, "clear")).expect("forget what was found");
}
