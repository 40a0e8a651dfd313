// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results: a JSON document for each run, in a directory with a file that describes the experiment.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use topstat_model::histograms::Histogram;

use crate::error::Error;

/// The file that marks a directory of results.
const MARK: &str = "lab.json";
/// The number of the documents' form.
const FORM: u32 = 1;
/// The longest document that is read: a run has some kilobytes.
const MOST_BYTES: u64 = 1 << 20;

/// The description of all runs in a directory.
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
    /// The number of the run; the first is 1.
    pub run: u32,
    /// Why the run could not be measured.
    pub unavailable: Option<String>,
    /// How long throughput and CPU time were measured.
    pub seconds: f64,
    /// Bytes that receivers have read in that time.
    pub bytes: u64,
    /// Responses that have come back in that time.
    pub responses: u64,
    /// The CPU time of the sending threads, in seconds.
    pub sender_seconds: f64,
    /// The CPU time of the receiving threads, in seconds.
    pub receiver_seconds: f64,
    /// The CPU time of the kernel's threads that run softirqs, in seconds.
    pub ksoftirqd_seconds: f64,
    /// Packets that arrived while packets were lost on purpose; 0 without such loss.
    pub arrived: u64,
    /// Packets that were lost on purpose.
    pub dropped: u64,
    /// Samples by side and category, from a separate run; empty without samples.
    pub sides: BTreeMap<String, BTreeMap<String, u64>>,
    /// Samples whose stack could not be stored.
    pub samples_lost: u64,
    /// How the kernel samples of the experiment were classified.
    #[serde(default)]
    pub classified: Classified,
    /// The congestion control of the senders' sockets, as the kernel reports it.
    #[serde(default)]
    pub congestion: String,
    /// Bytes that senders have written from the first to the last.
    #[serde(default)]
    pub sent: u64,
    /// Bytes that receivers have read from the first to the last. Data on its way at the end is read, for two seconds at most.
    #[serde(default)]
    pub read: u64,
    /// The figures of the sender's and the receiver's host; empty if both ends are on one host.
    #[serde(default)]
    pub hosts: Vec<HostFigures>,
    /// Histograms of packets by name, from a separate run; empty without histograms.
    #[serde(default)]
    pub histograms: BTreeMap<String, Histogram>,
    /// Other counts of that run, above all of packets that are in no histogram.
    #[serde(default)]
    pub besides: BTreeMap<String, u64>,
}

/// The figures of one of two hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFigures {
    /// The name of the host.
    pub host: String,
    /// The kernel of the host.
    pub kernel: String,
    /// The device of the host.
    pub device: String,
    /// CPU time of the threads that send or receive.
    pub threads_seconds: f64,
    /// CPU time of the kernel's threads that run softirqs.
    pub ksoftirqd_seconds: f64,
    /// CPU time of everything that the CPUs have run in the measured time.
    pub busy_seconds: f64,
    /// The samples of the host, by side and category.
    pub sides: BTreeMap<String, BTreeMap<String, u64>>,
}

/// How kernel samples were classified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classified {
    /// All samples.
    pub samples: u64,
    /// Samples that were classified by the name of the function.
    pub by_name: u64,
    /// Samples that were classified by the name of a caller.
    pub by_caller: u64,
}

impl Classified {
    /// Adds the counts of another host.
    pub fn add(&mut self, others: &Self) {
        self.samples += others.samples;
        self.by_name += others.by_name;
        self.by_caller += others.by_caller;
    }
}

impl Run {
    /// Whether any data was carried. Without data, no figure says what could have been carried.
    pub fn has_carried(&self) -> bool {
        self.bytes > 0
    }

    /// Gigabits a second.
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    pub fn gbps(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8.0 / 1e9 / self.seconds } else { 0.0 }
    }

    /// Gigabits per second of CPU time, of both ends together. For two hosts the CPU time is everything that their CPUs have run,
    /// since softirqs on an idle CPU are in no thread's time.
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    pub fn gbps_per_core(&self) -> f64 {
        let cpu = match self.hosts.is_empty() {
            true => self.sender_seconds + self.receiver_seconds + self.ksoftirqd_seconds,
            false => self.hosts.iter().map(|host| host.busy_seconds).sum(),
        };
        if cpu > 0.0 { self.bytes as f64 * 8.0 / 1e9 / cpu } else { 0.0 }
    }
}

/// The contents of a directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// The description of the results.
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
    /// Makes the directory. An existing directory must be empty.
    ///
    /// # Errors
    ///
    /// When the directory can't be made, or is not empty.
    pub fn create(path: &Path, mark: &Mark) -> Result<Self, Error> {
        fs::create_dir_all(path).map_err(|e| failed(path, e))?;
        if fs::read_dir(path).map_err(|e| failed(path, e))?.next().is_some() {
            return Err(failed(path, "there is something in it: name a directory that is empty, or not there"));
        }
        write(&path.join(MARK), mark)?;
        Ok(Self { path: path.to_owned(), written: 0 })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the results of a run.
    ///
    /// # Errors
    ///
    /// When the results can't be written.
    pub fn add(&mut self, run: &Run) -> Result<(), Error> {
        self.written += 1;
        write(&self.path.join(format!("run-{:04}.json", self.written)), run)
    }
}

/// Writes a file under another name first, so that a reader never finds a part of a document.
fn write(path: &Path, document: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(document).map_err(|e| failed(path, e))?;
    let partial = path.with_extension("partial");
    fs::write(&partial, text + "\n").map_err(|e| failed(path, e))?;
    fs::rename(&partial, path).map_err(|e| failed(path, e))
}

impl Results {
    /// Reads the results in a directory.
    ///
    /// # Errors
    ///
    /// When the directory has no results, or a document can't be read.
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

/// The description that a new directory begins with.
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
