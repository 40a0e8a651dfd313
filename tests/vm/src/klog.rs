// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges a guest's kernel log: finds reports of crashes, bugs, warnings, locks and memory, except allowed ones.

use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use serde::Deserialize;

/// The maximum number of lines of a quoted report: enough for lockdep's longest.
const REPORT_LINES: usize = 400;

/// This number of callers distinguishes the paths to a function.
const CALLERS: usize = 8;

/// A report of several lines ends where the kernel printed nothing for this long.
const REPORT_PAUSE_S: f64 = 1.0;

/// First lines of reports. Case matters: `[Firmware Bug]` is no report.
static REPORT: LazyLock<Regex> = LazyLock::new(|| {
    let patterns = [
        // BUG: of all kinds (KASAN, lockdep, atomic sleep, workqueues); "BUG kmalloc-64 (…): Redzone overwritten" of SLUB.
        r"\bBUG\b[: ]",
        r"kernel BUG at ",
        r"\bWARNING: ",
        r"\bKASAN: |\bUBSAN: |\bKCSAN: |\bKMSAN: |\bKFENCE: ",
        r"Kernel panic - not syncing",
        r"\bOops(: | - |\[)|general protection fault|divide error: |invalid opcode: |stack segment: |double fault: ",
        r"[Uu]nable to handle kernel ",
        r"possible (circular|recursive|irq lock inversion|.*nested lock)|\bpossible irq lock",
        r"inconsistent lock state|(HARD|SOFT)IRQ-safe -> (HARD|SOFT)IRQ-unsafe lock order|bad unlock balance|held lock freed",
        r"lock held when returning to user space|suspicious RCU usage|[Ii]nvalid wait context|trying to register non-static key",
        r"detected stalls? on |self-detected stall|soft lockup|hard LOCKUP|INFO: task .* blocked for more than",
        r"list_(add|del) corruption|refcount_t: |stack-protector: |stack guard page|corrupted stack end",
        r"unreferenced object|new suspected memory leaks|object already (freed|free)|Redzone |Poison overwritten",
        r"scheduling while atomic|sleeping function called from invalid context|workqueue: .* leaked",
        r"Out of memory: Killed process|VFS: Busy inodes",
    ];
    Regex::new(&patterns.map(|pattern| format!("(?:{pattern})")).join("|")).expect("the patterns are constant")
});

/// The lines before a report's headline, and after its last line.
static FRAME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"-+\[ cut here \]-+|={30,}$").expect("the pattern is constant"));
static END: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"---\[ end (trace|Kernel panic)").expect("the pattern is constant"));

/// The kernel's time stamp, `[    1.234567] `, with the thread that CONFIG_PRINTK_CALLER adds.
static STAMP: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\[\s*(\d+\.\d+)\](\[\s*[TC]\d+\])? ?").expect("the pattern is constant"));

/// The position of the CPU, the task on it, and a certain frame of the stack: `RIP: 0010:f+0x1/0x2`, `Comm: sh `, `
/// f+0x1/0x2`.
static PLACE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\bRIP: [0-9a-f]+:([\w.]+)\+0x").expect("the pattern is constant"));
static TASK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bComm: (\S+)").expect("the pattern is constant"));
static CALLER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^ +([\w.]+)\+0x[0-9a-f]+/0x[0-9a-f]+( \[\w+\])?$").expect("the pattern is constant"));

/// The marks that the guest writes to the kernel log around each command.
static MARK: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"topstat-vm: (begin|end) (\d+)$").expect("the pattern is constant"));

/// A report in the kernel log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The command that ran at the time of the report; `None` during boot.
    pub command: Option<usize>,
    /// The line that names the fault, without its time stamp.
    pub headline: String,
    /// The whole report, as printed.
    pub text: String,
    /// Why the report is no failure.
    pub allowed: Option<String>,
}

impl Report {
    /// One line with the fault, the function, its callers and the task, as far as the report has them.
    pub fn summary(&self) -> String {
        let mut summary = self.headline.clone();
        if let Some(place) = PLACE.captures(&self.text) {
            summary += &format!(" in {}", &place[1]);
        }
        let stack = self.text.lines().map(|line| STAMP.replace(line, "")).skip_while(|line| line != "Call Trace:");
        let callers: Vec<String> =
            stack.filter_map(|line| Some(CALLER.captures(&line)?[1].to_owned())).take(CALLERS).collect();
        if !callers.is_empty() {
            summary += &format!(" by {}", callers.join(" < "));
        }
        if let Some(task) = TASK.captures(&self.text) {
            summary += &format!(" while {} ran", &task[1]);
        }
        summary
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawList {
    #[serde(default)]
    allow: Vec<RawEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    line: String,
    within: Option<String>,
    reason: String,
}

#[derive(Debug)]
struct Entry {
    line: Regex,
    within: Option<Regex>,
    reason: String,
}

/// Known reports that are no failures.
#[derive(Debug)]
pub struct AllowList(Vec<Entry>);

impl AllowList {
    /// The list of this crate, `allow.toml`.
    pub fn built_in() -> Result<Self> {
        Self::parse(include_str!("../allow.toml")).context("tests/vm/allow.toml")
    }

    /// Reads a list. An entry without a reason is refused.
    pub fn parse(text: &str) -> Result<Self> {
        let raw: RawList = toml::from_str(text).context("cannot read the allow-list")?;
        let entries = raw.allow.into_iter().map(|raw| {
            ensure!(!raw.reason.trim().is_empty(), "the allow-list's entry {:?} has no reason", raw.line);
            let regex = |text: &str| Regex::new(text).with_context(|| format!("the allow-list's entry {text:?}"));
            Ok(Entry {
                line: regex(&raw.line)?,
                within: raw.within.as_deref().map(regex).transpose()?,
                reason: raw.reason,
            })
        });
        Ok(Self(entries.collect::<Result<_>>()?))
    }

    /// Adds the entries of `other`.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    fn reason(&self, headline: &str, text: &str) -> Option<String> {
        let matches = |entry: &&Entry| {
            entry.line.is_match(headline) && entry.within.as_ref().is_none_or(|within| within.is_match(text))
        };
        self.0.iter().find(matches).map(|entry| entry.reason.clone())
    }
}

/// Finds the reports in `log`, each with the command that was running.
pub fn scan(log: &str, allow: &AllowList) -> Vec<Report> {
    let mut reports = Vec::new();
    let mut command = None;
    let lines: Vec<&str> = log.lines().map(|line| line.trim_end_matches('\r')).collect();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        if let Some(mark) = MARK.captures(line) {
            command = mark[2].parse().ok();
        } else if REPORT.is_match(line) {
            let start = if at > 0 && FRAME.is_match(lines[at - 1]) { at - 1 } else { at };
            let end = report_end(&lines, at);
            let text = lines[start..end].join("\n");
            let headline = STAMP.replace(line, "").into_owned();
            reports.push(Report { command, allowed: allow.reason(&headline, &text), headline, text });
            at = end;
            continue;
        }
        at += 1;
    }
    reports
}

/// The line after the report whose headline is at `start`.
fn report_end(lines: &[&str], start: usize) -> usize {
    let limit = lines.len().min(start + REPORT_LINES);
    let mut last = stamp(lines[start]);
    for (at, line) in lines.iter().enumerate().take(limit).skip(start + 1) {
        if MARK.is_match(line) || line.contains("[ cut here ]") {
            return at;
        }
        if END.is_match(line) {
            return at + 1;
        }
        let now = stamp(line);
        if let (Some(now), Some(last)) = (now, last)
            && now - last > REPORT_PAUSE_S
        {
            return at;
        }
        last = now.or(last);
    }
    limit
}

fn stamp(line: &str) -> Option<f64> {
    STAMP.captures(line)?[1].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> AllowList {
        AllowList(Vec::new())
    }

    fn headlines(log: &str) -> Vec<String> {
        scan(log, &none()).into_iter().map(|report| report.headline).collect()
    }

    #[test]
    fn an_ordinary_boot_has_no_report() {
        let log = "[    0.000000] Linux version 6.1.0-52-cloud-amd64\n\
                   [    0.000000] [Firmware Bug]: TSC doesn't count with P0 frequency!\n\
                   [    0.000000] Kernel command line: console=ttyS0 panic=-1 oops=panic softlockup_panic=1 hung_task_panic=1\n\
                   [    0.100000] debug: unmapping init [mem 0xffffffff82f6c000-0xffffffff82f6dfff]\n\
                   [    0.100000] Spectre V2 : Mitigation: Retpolines\n\
                   [    0.200000] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar\n\
                   [    0.300000] kasan: KernelAddressSanitizer initialized\n\
                   [    0.300000] rcu: RCU lockdep checking is enabled.\n\
                   [    0.300000] RCU CPU stall warnings timeout set to 60 (rcu_cpu_stall_timeout).\n";
        assert_eq!(headlines(log), [""; 0]);
    }

    /// The message of an injected fault is no report; the kernel's reaction to the fault may be one.
    #[test]
    fn injected_faults_are_none() {
        let log = "[   20.1] FAULT_INJECTION: forcing a failure.\n\
                   [   20.1] name failslab, interval 1, probability 0, space 0, times -1\n\
                   [   20.1] CPU: 1 PID: 77 Comm: live Not tainted 6.1.192 #1\n[   20.1] Call Trace:\n\
                   [   20.1]  should_fail_ex+0x1/0x2\n\
                   [   20.2] live: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null)\n\
                   [   20.2] SLUB: Unable to allocate memory on node -1, gfp=0xcc0(GFP_KERNEL)\n";
        assert_eq!(headlines(log), [""; 0]);
        let then = format!("{log}[   20.3] BUG: KASAN: use-after-free in bpf_map_put+0x1/0x2\n");
        assert_eq!(headlines(&then), ["BUG: KASAN: use-after-free in bpf_map_put+0x1/0x2"]);
    }

    #[test]
    fn each_kind_of_report_is_found() {
        for line in [
            "BUG: KASAN: slab-out-of-bounds in foo+0x1/0x2",
            "BUG kmalloc-64 (Tainted: G           O      ): Left Redzone overwritten",
            "BUG: kernel NULL pointer dereference, address: 0000000000000000",
            "BUG: sleeping function called from invalid context at mm/slab.h:420",
            "kernel BUG at mm/slub.c:305!",
            "WARNING: CPU: 0 PID: 77 at kernel/bpf/verifier.c:1 do_check+0x1/0x2",
            "WARNING: possible circular locking dependency detected",
            "WARNING: HARDIRQ-safe -> HARDIRQ-unsafe lock order detected",
            "WARNING: suspicious RCU usage",
            "UBSAN: array-index-out-of-bounds in net/core/filter.c:1:2",
            "Oops: 0000 [#1] PREEMPT SMP",
            "general protection fault, probably for non-canonical address",
            "Kernel panic - not syncing: sysrq triggered crash",
            "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [sh:77]",
            "INFO: task sh:77 blocked for more than 120 seconds.",
            "rcu: INFO: rcu_preempt self-detected stall on CPU",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "refcount_t: underflow; use-after-free.",
            "list_del corruption. prev->next should be ffff, but was 0000",
            "INFO: trying to register non-static key.",
            "Out of memory: Killed process 77 (sh)",
            "kmemleak: 2 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
        ] {
            assert_eq!(headlines(&format!("[   12.345678] {line}\n")), [line], "{line}");
            assert_eq!(headlines(&format!("[   12.345678][   T77] {line}\r\n")), [line], "{line}");
        }
    }

    #[test]
    fn a_report_belongs_to_the_command_that_ran() {
        let log = "[    1.0] WARNING: at boot\n[    2.0] topstat-vm: begin 0\n[    2.1] topstat-vm: end 0\n\
                   [    3.0] topstat-vm: begin 1\n[    3.1] BUG: first\n[    9.0] BUG: second\n[    9.1] topstat-vm: end 1\n";
        let reports = scan(log, &none());
        let found: Vec<_> = reports.iter().map(|report| (report.command, report.headline.as_str())).collect();
        assert_eq!(found, [(None, "WARNING: at boot"), (Some(1), "BUG: first"), (Some(1), "BUG: second")]);
    }

    #[test]
    fn a_summary_has_the_place() {
        let log = "[    1.0] BUG: kernel NULL pointer dereference, address: 0000000000000088\n\
                   [    1.0] #PF: supervisor read access in kernel mode\n[    1.0] Oops: 0000 [#1] SMP NOPTI\n\
                   [    1.0] CPU: 1 UID: 0 PID: 77 Comm: live Not tainted 7.3.4 #1\n\
                   [    1.0] RIP: 0010:inner.part.0+0x1/0x2\n[    1.0] Call Trace:\n[    1.0]  <TASK>\n\
                   [    1.0]  ? __die_body.cold+0x19/0x27\n[    1.0]  middle+0x1/0x2\n[    1.0]  outer+0x1/0x2 [fuse]\n\
                   [    1.0]  </TASK>\n[    1.0] Kernel panic - not syncing: Fatal exception\n";
        let summaries: Vec<_> = scan(log, &none()).iter().map(Report::summary).collect();
        assert_eq!(
            summaries,
            [
                "BUG: kernel NULL pointer dereference, address: 0000000000000088 in inner.part.0 by middle < outer while live ran"
            ]
        );
        assert_eq!(scan("[ 1.0] WARNING: x\n", &none())[0].summary(), "WARNING: x");
    }

    #[test]
    fn a_report_is_quoted_whole_and_once() {
        let log = "[    1.0] ------------[ cut here ]------------\n[    1.0] WARNING: CPU: 0 PID: 1 at x.c:1\n\
                   [    1.0] Call Trace:\n[    1.0]  WARNING: nested words\n[    1.0] ---[ end trace 0000000000000000 ]---\n\
                   [    1.0] after\n";
        let reports = scan(log, &none());
        assert_eq!(reports.len(), 1);
        assert!(reports[0].text.starts_with("[    1.0] ------------[ cut here ]"));
        assert!(reports[0].text.ends_with("[ end trace 0000000000000000 ]---"));
    }

    #[test]
    fn the_allow_list_needs_a_reason_and_matches_within() {
        assert!(AllowList::parse("[[allow]]\nline = 'x'\nreason = ' '\n").is_err());
        assert!(AllowList::parse("[[allow]]\nline = 'x'\n").is_err());
        assert!(AllowList::parse("[[allow]]\nline = '('\nreason = 'r'\n").is_err());
        let allow =
            AllowList::parse("[[allow]]\nline = '^WARNING: lock'\nwithin = 'storage->lock'\nreason = 'known'\n")
                .unwrap();
        let of = |log: &str| scan(log, &allow).pop().unwrap().allowed;
        assert_eq!(of("[ 1.0] WARNING: lock order\n[ 1.0] storage->lock\n").as_deref(), Some("known"));
        assert_eq!(of("[ 1.0] WARNING: lock order\n[ 1.0] other->lock\n"), None);
    }

    #[test]
    fn the_built_in_allow_list_is_sound() {
        AllowList::built_in().unwrap();
    }
}
