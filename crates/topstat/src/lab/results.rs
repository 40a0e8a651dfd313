// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was measured: a JSON document for each run, in a directory that says what it is.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use topstat_model::histograms::Histogram;

use crate::error::Error;

/// What makes a directory one of results.
const MARK: &str = "lab.json";
/// The form of what is in it.
const FORM: u32 = 1;
/// The longest document that is read: a run has some kilobytes.
const MOST_BYTES: u64 = 1 << 20;

/// Of all runs in a directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The form of the documents.
    pub form: u32,
    /// The experiment.
    pub experiment: String,
    /// The kernel that it ran on.
    pub kernel: String,
    /// When it began.
    pub time: String,
}

/// One run of one variant under one configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The configuration.
    pub configuration: String,
    /// The variant.
    pub variant: String,
    /// The first is 1.
    pub run: u32,
    /// Why it could not be measured.
    pub unavailable: Option<String>,
    /// How long throughput and CPU time were measured.
    pub seconds: f64,
    /// Bytes that receivers have read.
    pub bytes: u64,
    /// Responses that have come back.
    pub responses: u64,
    /// CPU time, in seconds, of the threads that send, of those that receive, and of the kernel's that run softirqs.
    pub sender_seconds: f64,
    /// See there.
    pub receiver_seconds: f64,
    /// See there.
    pub ksoftirqd_seconds: f64,
    /// Packets that arrived while some were lost on purpose, and those that were; 0 where none is to be lost.
    pub arrived: u64,
    /// See there.
    pub dropped: u64,
    /// Samples by side and category, of a run of its own; empty where none was made.
    pub sides: BTreeMap<String, BTreeMap<String, u64>>,
    /// Samples whose stack could not be kept.
    pub samples_lost: u64,
    /// How the experiment's samples in the kernel were classified.
    #[serde(default)]
    pub classified: Classified,
    /// The congestion control of the senders' sockets, as the kernel tells it.
    #[serde(default)]
    pub congestion: String,
    /// Bytes that senders have written, and that receivers have read, from the first to the last: what was on its way at the
    /// end is read, but no longer than for two seconds.
    #[serde(default)]
    pub sent: u64,
    /// See there.
    #[serde(default)]
    pub read: u64,
    /// Of two hosts, that of the sender and that of the receiver; empty where both ends are on one.
    #[serde(default)]
    pub hosts: Vec<HostFigures>,
    /// Of packets, of a run of its own, by their names; empty where none was made.
    #[serde(default)]
    pub histograms: BTreeMap<String, Histogram>,
    /// What else was counted beside them: what is in none of them, above all.
    #[serde(default)]
    pub besides: BTreeMap<String, u64>,
}

/// One of two hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFigures {
    /// Its name.
    pub host: String,
    /// Its kernel.
    pub kernel: String,
    /// Its device.
    pub device: String,
    /// CPU time of the threads that send or receive.
    pub threads_seconds: f64,
    /// Of the kernel's threads that run softirqs.
    pub ksoftirqd_seconds: f64,
    /// Of all that its CPUs have run meanwhile.
    pub busy_seconds: f64,
    /// Its samples by side and category.
    pub sides: BTreeMap<String, BTreeMap<String, u64>>,
}

/// How samples in the kernel, at work, were classified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classified {
    /// All.
    pub samples: u64,
    /// By the name of the function.
    pub by_name: u64,
    /// By that of a caller.
    pub by_caller: u64,
}

impl Classified {
    /// Adds those of another host.
    pub fn add(&mut self, others: &Self) {
        self.samples += others.samples;
        self.by_name += others.by_name;
        self.by_caller += others.by_caller;
    }
}

impl Run {
    /// Whether anything was carried: where not, no figure says what could have been.
    pub fn has_carried(&self) -> bool {
        self.bytes > 0
    }

    /// Gigabits a second.
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    pub fn gbps(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8.0 / 1e9 / self.seconds } else { 0.0 }
    }

    /// Gigabits for each second of CPU time, of both ends together. Of two hosts it is all that they have run, since softirqs
    /// that come while a CPU has nothing else to do are in no thread's.
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    pub fn gbps_per_core(&self) -> f64 {
        let cpu = match self.hosts.is_empty() {
            true => self.sender_seconds + self.receiver_seconds + self.ksoftirqd_seconds,
            false => self.hosts.iter().map(|host| host.busy_seconds).sum(),
        };
        if cpu > 0.0 { self.bytes as f64 * 8.0 / 1e9 / cpu } else { 0.0 }
    }
}

/// All of a directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// What they are of.
    pub mark: Mark,
    /// Runs in the order in which they were made.
    pub runs: Vec<Run>,
}

/// A directory that results are written to.
pub struct Directory {
    path: PathBuf,
    written: u32,
}

fn failed(path: &Path, why: impl ToString) -> Error {
    Error::File { path: path.to_owned(), why: why.to_string() }
}

impl Directory {
    /// Makes it; one that is there must be empty.
    ///
    /// # Errors
    ///
    /// When it can't be made, or there is something in it.
    pub fn create(path: &Path, mark: &Mark) -> Result<Self, Error> {
        fs::create_dir_all(path).map_err(|e| failed(path, e))?;
        if fs::read_dir(path).map_err(|e| failed(path, e))?.next().is_some() {
            return Err(failed(path, "there is something in it: name a directory that is empty, or not there"));
        }
        write(&path.join(MARK), mark)?;
        Ok(Self { path: path.to_owned(), written: 0 })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what a run has measured.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn add(&mut self, run: &Run) -> Result<(), Error> {
        self.written += 1;
        write(&self.path.join(format!("run-{:04}.json", self.written)), run)
    }
}

/// Under another name first: whoever finds the document finds all of it.
fn write(path: &Path, document: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(document).map_err(|e| failed(path, e))?;
    let partial = path.with_extension("partial");
    fs::write(&partial, text + "\n").map_err(|e| failed(path, e))?;
    fs::rename(&partial, path).map_err(|e| failed(path, e))
}

impl Results {
    /// Reads those of a directory.
    ///
    /// # Errors
    ///
    /// When it is none of results, or one of them can't be read.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |why: String| Error::Lab(format!("{} has no results of 'topstat lab': {why}", path.display()));
        let mark = path.join(MARK);
        if let Err(e) = fs::metadata(&mark)
            && e.kind() != ErrorKind::PermissionDenied
        {
            return Err(wrong(format!("there is no {MARK} in it")));
        }
        let mark: Mark = read(&mark)?;
        if mark.form != FORM {
            return Err(wrong(format!("they are of form {}, this topstat reads form {FORM}", mark.form)));
        }
        let entries = fs::read_dir(path).map_err(|e| wrong(e.to_string()))?;
        let is_run = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with("run-") && path.extension().is_some_and(|ending| ending == "json")
        };
        let mut files: Vec<PathBuf> =
            entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).filter(is_run).collect();
        files.sort();
        let runs = files.iter().map(|file| read(file)).collect::<Result<Vec<Run>, Error>>()?;
        if runs.is_empty() {
            return Err(wrong("no run was finished".to_owned()));
        }
        Ok(Self { mark, runs })
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let wrong = |why: String| Error::Lab(format!("cannot read {}: {why}", path.display()));
    let length = fs::metadata(path).map_err(|e| wrong(e.to_string()))?.len();
    if length > MOST_BYTES {
        return Err(wrong(format!("it has {length} bytes, of at most {MOST_BYTES}")));
    }
    let text = fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))
}

/// What a directory begins with.
pub fn mark(experiment: &str) -> Mark {
    Mark {
        form: FORM,
        experiment: experiment.to_owned(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        time: topstat_model::rfc3339(std::time::SystemTime::now()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("topstat-lab-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn what_is_written_is_read() {
        let path = folder("whole");
        let mark = mark("single-flow");
        let mut directory = Directory::create(&path, &mark).unwrap();
        let run = |number| Run { configuration: "no-opts".to_owned(), run: number, bytes: 5, ..Run::default() };
        for number in 1..=11 {
            directory.add(&run(number)).unwrap();
        }
        let results = Results::read(&path).unwrap();
        assert_eq!(results.mark, mark);
        assert_eq!(results.runs, (1..=11).map(run).collect::<Vec<_>>());
        let again = Directory::create(&path, &mark).map(|_| ()).unwrap_err().to_string();
        assert!(again.contains("there is something in it"), "{again}");
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn what_is_no_directory_of_results_is_refused() {
        let path = folder("other");
        let says = || Results::read(&path).unwrap_err().to_string();
        assert!(says().contains("there is no lab.json in it"));
        drop(Directory::create(&path, &mark("loss")).unwrap());
        assert!(says().contains("no run was finished"));
        fs::write(path.join("run-0001.json"), "{").unwrap();
        assert!(says().contains("run-0001.json: EOF"), "{}", says());
        fs::write(path.join("lab.json"), r#"{"form":9,"experiment":"","kernel":"","time":""}"#).unwrap();
        assert!(says().contains("they are of form 9"));
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn throughput_is_by_time_and_by_cpu_time() {
        let run = Run {
            seconds: 2.0,
            bytes: 1_000_000_000,
            sender_seconds: 1.0,
            receiver_seconds: 0.5,
            ksoftirqd_seconds: 0.5,
            ..Run::default()
        };
        assert_eq!((run.gbps(), run.gbps_per_core()), (4.0, 4.0));
        let busy = |busy_seconds| HostFigures { busy_seconds, ..HostFigures::default() };
        assert_eq!(Run { hosts: vec![busy(3.0), busy(1.0)], ..run }.gbps_per_core(), 2.0);
        assert_eq!((Run::default().gbps(), Run::default().gbps_per_core()), (0.0, 0.0));
    }
}
