// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that run beside the load: tcptop in its two forms, and topstat's view.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use libbpf_rs::query::ProgInfoIter;
use rustix::process::{Pid, Signal, kill_process};

/// The tcptop of libbpf-tools, at the path of its package.
pub const TCPTOP_LIBBPF: &str = "/usr/sbin/tcptop";
/// The tcptop of bcc, under Debian's name.
pub const TCPTOP_BCC: &str = "/usr/sbin/tcptop-bpfcc";
/// Their Debian packages.
pub const PACKAGES: &[&str] = &["libbpf-tools", "bpfcc-tools"];

/// bcc compiles its program first, which takes minutes in an emulated guest.
const START_LIMIT: Duration = Duration::from_secs(900);
/// The time after a peer's last loaded program by which it has also attached that program.
const CALM: Duration = Duration::from_millis(1000);
/// The time limit for printing and ending.
const END_LIMIT: Duration = Duration::from_secs(120);

/// A running program; ended on drop.
pub struct Peer {
    child: Child,
    name: String,
    output: PathBuf,
}

/// All eBPF programs in the kernel, and the list of kprobes.
fn footprint() -> (Vec<u32>, String) {
    let programs = ProgInfoIter::default().map(|info| info.id).collect();
    (programs, fs::read_to_string("/sys/kernel/debug/kprobes/list").unwrap_or_default())
}

impl Peer {
    /// Starts the peer, and waits until its eBPF programs are attached: until it has some, and loads no more. A peer that
    /// `speaks` all the time must also have printed something; a peer that does not speak gives no other sign.
    pub fn start(program: &str, arguments: &[&str], speaks: bool) -> Result<Self> {
        let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
        // On a tmpfs: the host's files are slow to reach.
        let output = std::env::temp_dir().join(format!("topstat-bench-{}-{name}", std::process::id()));
        let before = footprint();
        let file = fs::File::create(&output).with_context(|| format!("cannot create {}", output.display()))?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(file.try_clone()?)
            .stdout(file)
            .spawn()
            .with_context(|| format!("cannot run {program} (Debian packages: {})", PACKAGES.join(", ")))?;
        let mut peer = Self { child, name, output };
        let begun = Instant::now();
        let mut last = before.clone();
        while begun.elapsed() < START_LIMIT {
            sleep(CALM);
            if let Some(status) = peer.child.try_wait()? {
                bail!("{} ended ({status}): {}", peer.name, peer.last_words());
            }
            let now = footprint();
            if now != before && now == last && (!speaks || fs::metadata(&peer.output)?.len() > 0) {
                return Ok(peer);
            }
            last = now;
        }
        bail!("{} has attached nothing within {} s: {}", peer.name, START_LIMIT.as_secs(), peer.last_words())
    }

    /// The last message of the peer, as the reason of its failure.
    fn last_words(&self) -> String {
        let said = fs::read_to_string(&self.output).unwrap_or_default();
        said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned()
    }

    /// Interrupts the interval of the peer, which then prints once more and ends; returns its whole output.
    pub fn finish(mut self) -> Result<String> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::INT).with_context(|| format!("cannot interrupt {}", self.name))?;
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > END_LIMIT {
                bail!("{} does not end within {} s", self.name, END_LIMIT.as_secs());
            }
            sleep(Duration::from_millis(20));
        }
        fs::read_to_string(&self.output).with_context(|| format!("cannot read {}", self.output.display()))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Both fail only if the peer has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.output);
        // The programs of the peer are removed some time after its descriptors.
        sleep(CALM);
    }
}
