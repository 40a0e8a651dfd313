// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures how much work the kernel's verifier has with each program. It may look at a million instructions (all paths
//! together), and older kernels need more of them for the same program.

use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{AsRawLibbpf as _, OpenObject};

/// A program that this kernel has verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The object that the program is part of.
    pub object: String,
    /// The program's name.
    pub program: String,
    /// The number of instructions that the verifier processed; `None` if the kernel does not report it.
    pub instructions: Option<u64>,
}

/// The programs that were verified since [`record`] began; `None` while it does not run.
static RECORD: Mutex<Option<Vec<Verified>>> = Mutex::new(None);

/// `BPF_LOG_STATS` of the kernel: a program's log has only its statistics.
const LOG_STATS: u32 = 4;
/// Room for two or three lines, and on newer kernels for one line per call of a global function. If the log does not fit, the
/// kernel refuses the program.
const LOG_BYTES: usize = 1 << 20;

/// Runs `work`, and returns the programs that any thread has verified in that time.
pub fn record(work: impl FnOnce()) -> Vec<Verified> {
    let record = || RECORD.lock().unwrap_or_else(PoisonError::into_inner);
    *record() = Some(Vec::new());
    work();
    record().take().unwrap_or_default()
}

/// The logs of an object's programs, while they are loaded.
pub(super) struct Logs {
    object: String,
    logs: Vec<(String, Vec<u8>)>,
}

impl Logs {
    /// Has the kernel write statistics about each program, while [`record`] runs. The value must outlive the loading.
    pub(super) fn ask(name: &str, object: &mut OpenObject) -> Option<Self> {
        RECORD.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?;
        let mut logs = Self { object: name.to_owned(), logs: Vec::new() };
        for mut program in object.progs_mut().filter(|program| program.autoload()) {
            let mut log = vec![0; LOG_BYTES];
            program.set_log_level(LOG_STATS);
            let pointer = log.as_mut_ptr().cast::<c_char>();
            // SAFETY: the program exists, and the buffer of that size stays in place, on the heap, until after the loading: the
            // caller keeps it.
            let refused = unsafe {
                libbpf_sys::bpf_program__set_log_buf(program.as_libbpf_object().as_ptr(), pointer, LOG_BYTES as _)
            };
            if refused == 0 {
                logs.logs.push((program.name().to_string_lossy().into_owned(), log));
            }
        }
        Some(logs)
    }

    /// Records the statistics that the kernel has written. The programs are loaded by now.
    pub(super) fn take(self) {
        let mut record = RECORD.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(record) = record.as_mut() else { return };
        for (program, log) in self.logs {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(LOG_BYTES);
            let instructions = processed(&String::from_utf8_lossy(&log[..end]));
            record.push(Verified { object: self.object.clone(), program, instructions });
        }
    }
}

/// The number in `processed 1234 insns (limit 1000000) …`.
fn processed(log: &str) -> Option<u64> {
    log.lines().find_map(|line| line.strip_prefix("processed ")?.split_once(" insns")?.0.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::processed;

    #[test]
    fn the_number_is_found() {
        let log = "verification time 81 usec\nstack depth 40+0\n\
                   processed 1234 insns (limit 1000000) max_states_per_insn 4 total_states 9 peak_states 9 mark_read 2\n";
        assert_eq!(processed(log), Some(1234));
        assert_eq!(processed(""), None);
    }
}
