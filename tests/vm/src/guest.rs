// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One boot of a guest: its files, its processes, and the observation from outside.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fs4::FileExt;

use crate::Unavailable;
use crate::deps::{self, Tools};
use crate::kernel::{Kernel, Series};
use crate::qemu::{self, Cgroup, Files, Machine, Tier};
use crate::watch::{Begun, Stream, Watch};

/// The interval at which the guest's files are read, which is the maximum delay of output.
const POLL: Duration = Duration::from_millis(10);

/// A stock guest boots in 2 to 3 s; on a busy machine it takes longer, but never this long.
const BOOT_LIMIT: Duration = Duration::from_secs(90);

/// How long a hanging guest may take to print where it hangs, and a finished guest to end.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How long a file server may take to open its socket.
const SERVER_LIMIT: Duration = Duration::from_secs(10);

/// The wait of the icount tier before the first command. Until 3 s after boot the kernel is busy itself, which doubled the
/// cost of a request over loopback. Virtual time in which nothing is executed passes at once.
const SETTLE_S: u32 = 5;

/// The parent of the folders of running guests. Not below TMPDIR: the path of a socket must be short.
const RUN_PARENT: &str = "/tmp";
const RUN_PREFIX: &str = "topstat-vm-";

/// Where a guest that boots another root mounts the host's root.
const HOST: &str = "/run/topstat-vm/host";

/// Variables of the environment that a command in the guest always gets.
const ENVIRONMENT: &[&str] = &["PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "SHELL"];

/// The beginnings of the names of further such variables.
const ENVIRONMENT_PREFIXES: &[&str] = &["TOPSTAT_", "RUST_", "CARGO_"];

/// The scripts that run after the initramfs.
const STAGES: [(&str, &str); 3] = [
    ("stage2.sh", include_str!("../guest/stage2.sh")),
    ("systemd.sh", include_str!("../guest/systemd.sh")),
    ("commands.sh", include_str!("../guest/commands.sh")),
];

/// A command for the guest.
#[derive(Debug, Clone)]
pub struct Job {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The folder to run it in: the path is the same on the host and in the guest.
    pub cwd: PathBuf,
    /// The variables of the command.
    pub env: Vec<(String, String)>,
}

impl Job {
    /// `argv` in the current folder, with the standard environment and `extra` (`NAME=VALUE`, or `NAME` to take the current
    /// value).
    pub fn new(argv: Vec<String>, extra: &[String]) -> Result<Self> {
        let passes = |name: &str| {
            ENVIRONMENT.contains(&name) || ENVIRONMENT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        };
        // A variable that is not text can't be passed on.
        let mut env: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            // Cargo sets variables with a dash, which no shell can export.
            .filter(|(name, _)| passes(name) && is_name(name))
            .collect();
        for variable in extra {
            let (name, value) = match variable.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => (variable.as_str(), std::env::var(variable).with_context(|| format!("--env {variable}"))?),
            };
            ensure!(is_name(name), "--env {variable}: {name:?} is no name of a variable");
            env.push((name.to_owned(), value));
        }
        let cwd = std::env::current_dir().context("cannot tell the current folder")?;
        Ok(Self { argv, cwd, env })
    }

    /// The job with variables that name the series and the tier.
    #[must_use]
    pub fn on(&self, series: Series, tier: Tier) -> Self {
        let mut job = self.clone();
        job.env.push(("TOPSTAT_VM_KERNEL".to_owned(), series.name().to_owned()));
        job.env.push(("TOPSTAT_VM_TIER".to_owned(), tier.name().to_owned()));
        job
    }

    /// The script that a shell in the guest runs.
    fn script(&self, tier: Tier) -> Result<String> {
        // The command's own variables come later, and may override this one.
        let mut script = format!("export TOPSTAT_SLOWDOWN={}\n", tier.slowdown());
        for (name, value) in &self.env {
            script += &format!("export {name}={}\n", quote(value)?);
        }
        script += "export TOPSTAT_VM=1 TOPSTAT_VM_OUT=/run/topstat-vm/share/out\n";
        script += &format!("cd {} || exit 125\n", quote(&self.cwd.to_string_lossy())?);
        if !self.argv.is_empty() {
            let words = self.argv.iter().map(|word| quote(word)).collect::<Result<Vec<_>>>()?;
            script += &format!("exec {}\n", words.join(" "));
        }
        Ok(script)
    }
}

/// Whether a shell can have a variable of this name.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
}

fn quote(word: &str) -> Result<String> {
    Ok(shlex::try_quote(word).with_context(|| format!("cannot pass {word:?} to a guest"))?.into_owned())
}

/// The end of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The guest reported that it was done.
    Done,
    /// The guest stopped without a report: a panic, or QEMU failed.
    Died,
    /// The guest did not come up in time.
    BootTimeOut,
    /// A command exceeded its limit.
    TimeOut,
}

/// The observations of a guest.
#[derive(Debug)]
pub struct Seen {
    /// From the start of QEMU until the guest's system was ready.
    pub boot: Option<Duration>,
    /// From the start to the end of QEMU.
    pub total: Duration,
    /// The commands that were started, in order.
    pub begun: Vec<Begun>,
    /// The end of the guest.
    pub end: End,
    /// The kernel log, from the serial console.
    pub log: String,
    /// The error messages of QEMU.
    pub complaint: String,
}

/// A guest's kernel, machine and files, before it is started.
#[derive(Debug)]
pub struct Guest<'a> {
    tools: &'a Tools,
    kernel: &'a Kernel,
    machine: &'a Machine,
    run: tempfile::TempDir,
    /// Held while the guest lives; see [`sweep`].
    _lock: File,
}

/// A process that ends when this value is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl<'a> Guest<'a> {
    /// Prepares a guest; its files are removed on drop.
    pub fn new(tools: &'a Tools, kernel: &'a Kernel, machine: &'a Machine, cgroup: Cgroup) -> Result<Self> {
        if !is_root() {
            bail!(Unavailable(
                "guests share the host's root, and only root may serve all of it; run as root".to_owned()
            ));
        }
        sweep();
        let run = tempfile::Builder::new()
            .prefix(RUN_PREFIX)
            .tempdir_in(RUN_PARENT)
            .with_context(|| format!("cannot create a folder in {RUN_PARENT}"))?;
        let lock = File::create(run.path().join("lock"))?;
        FileExt::lock(&lock).context("cannot lock a guest's folder")?;
        let guest = Self { tools, kernel, machine, run, _lock: lock };
        fs::create_dir_all(guest.share().join("out"))?;
        // Where the guest sees the host's files.
        let host = if kernel.root.is_some() { HOST } else { "" };
        let modules = kernel.modules().map(|dir| format!("{host}{}", dir.display())).unwrap_or_default();
        let settle = if machine.tier == Tier::Icount { SETTLE_S } else { 0 };
        let init = match machine.tier {
            Tier::Systemd => deps::systemd()?.display().to_string(),
            _ => String::new(),
        };
        let config = quote(&format!("{host}{}", kernel.dir.join("config").display()))?;
        let settings = format!(
            "cgroup={}\nmodules={}\nconfig={config}\nsettle={settle}\ninit={}\nhost={host}\n",
            cgroup.name(),
            quote(&modules)?,
            quote(&init)?
        );
        fs::write(guest.share().join("settings"), settings)?;
        guest.pack_initramfs()?;
        Ok(guest)
    }

    /// The folder that the guest can write to; `$TOPSTAT_VM_OUT` of the commands is `out` in it.
    pub fn share(&self) -> PathBuf {
        self.run.path().join("share")
    }

    fn pack_initramfs(&self) -> Result<()> {
        let tree = self.run.path().join("initramfs");
        for dir in ["bin", "dev", "modules", "new", "ro", "rw"] {
            fs::create_dir_all(tree.join(dir))?;
        }
        let busybox = self.kernel.root.as_ref().map(|root| root.join("usr/bin/busybox"));
        let busybox = busybox.as_ref().unwrap_or(&self.tools.busybox);
        fs::copy(busybox, tree.join("bin/busybox")).with_context(|| format!("cannot copy {}", busybox.display()))?;
        for module in self.kernel.boot_modules()? {
            fs::copy(&module, tree.join("modules").join(module.file_name().unwrap_or_default()))?;
        }
        fs::write(tree.join("init"), include_str!("../guest/initramfs.sh"))?;
        for (name, script) in STAGES {
            fs::write(tree.join(name), script)?;
        }
        let packed = Command::new("sh")
            .args(["-ec", "chmod 755 init; find . | cpio --quiet -o -H newc >../initramfs.cpio"])
            .current_dir(&tree)
            .output()
            .context("cannot run sh")?;
        ensure!(packed.status.success(), "cannot pack the initramfs: {}", String::from_utf8_lossy(&packed.stderr));
        Ok(())
    }

    fn add_settings(&self, text: &str) -> Result<()> {
        let path = self.share().join("settings");
        let old = fs::read_to_string(&path)?;
        fs::write(&path, old + text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn start(&self, interactive: bool) -> Result<(Ended, Vec<Ended>)> {
        let path = |name: &str| self.run.path().join(name);
        let files = Files {
            kernel: &self.kernel.image(),
            initramfs: &path("initramfs.cpio"),
            root_socket: path("root.sock"),
            host_socket: self.kernel.root.is_some().then(|| path("host.sock")),
            share_socket: path("share.sock"),
            console: (!interactive).then(|| path("console")),
            qmp_socket: path("qmp.sock"),
        };
        let serve = |socket: &Path, dir: &Path, view: Option<&Path>| -> Result<Ended> {
            let log = socket.with_extension("log");
            let mut server = qemu::virtiofsd(self.tools, socket, dir, view);
            server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
            let mut server = Ended(server.spawn().context("cannot run virtiofsd")?);
            let start = Instant::now();
            while !socket.exists() {
                if server.0.try_wait()?.is_some() || start.elapsed() > SERVER_LIMIT {
                    let complaint = fs::read_to_string(&log).unwrap_or_default();
                    bail!("cannot share {} with a guest: virtiofsd failed: {}", dir.display(), complaint.trim());
                }
                thread::sleep(POLL);
            }
            Ok(server)
        };
        let view = path("root");
        fs::create_dir_all(&view)?;
        let root = self.kernel.root.as_deref().unwrap_or(Path::new("/"));
        let mut servers =
            vec![serve(&files.root_socket, root, Some(&view))?, serve(&files.share_socket, &self.share(), None)?];
        if let Some(socket) = &files.host_socket {
            let view = path("host");
            fs::create_dir_all(&view)?;
            servers.push(serve(socket, Path::new("/"), Some(&view))?);
        }
        let mut command = qemu::qemu(self.tools, self.machine, &files);
        if !interactive {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(path("qemu.log"))?);
        }
        Ok((Ended(command.spawn().context("cannot run qemu")?), servers))
    }

    /// Boots, and connects the terminal to a shell in `job`'s folder.
    pub fn shell(&self, job: &Job, tty_size: &str) -> Result<()> {
        let work = quote(&job.cwd.to_string_lossy())?;
        self.add_settings(&format!("mode=shell\ntty_size={}\nwork={work}\n", quote(tty_size)?))?;
        fs::write(self.share().join("0.sh"), job.script(self.machine.tier)?)?;
        let (mut qemu, _servers) = self.start(true)?;
        let status = qemu.0.wait().context("cannot wait for qemu")?;
        ensure!(status.success(), "qemu failed ({status})");
        Ok(())
    }

    /// Boots, and runs the `jobs` with these `indices`, each for at most `limit`; `output` receives their output.
    pub fn run(
        &self,
        jobs: &[Job],
        indices: &[usize],
        limit: Duration,
        output: &mut dyn FnMut(usize, Stream, &[u8]),
    ) -> Result<Seen> {
        for &index in indices {
            fs::write(self.share().join(format!("{index}.sh")), jobs[index].script(self.machine.tier)?)?;
        }
        let list = indices.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        let work = jobs.first().map(|job| job.cwd.to_string_lossy()).unwrap_or_default();
        self.add_settings(&format!("mode=run\ncommands={}\nwork={}\n", quote(&list)?, quote(&work)?))?;

        let start = Instant::now();
        let (mut qemu, _servers) = self.start(false)?;
        let mut watch = Watch::new(self.share());
        let boot_limit = BOOT_LIMIT * self.machine.tier.patience();
        let end = loop {
            let gone = qemu.0.try_wait().context("cannot wait for qemu")?.is_some();
            watch.look(start, indices, output)?;
            if self.share().join("done").exists() {
                break End::Done;
            }
            if gone {
                break End::Died;
            }
            if watch.boot.is_none() && start.elapsed() > boot_limit {
                break End::BootTimeOut;
            }
            // Between commands the guest has little to do, so the same limit applies.
            if watch.boot.is_some() && watch.since.elapsed() > limit {
                break End::TimeOut;
            }
            thread::sleep(POLL);
        };
        if matches!(end, End::BootTimeOut | End::TimeOut) {
            self.inject_nmi();
        }
        let last = Instant::now();
        while qemu.0.try_wait().context("cannot wait for qemu")?.is_none() && last.elapsed() < LAST_WORDS {
            thread::sleep(POLL);
        }
        drop(qemu);
        watch.look(start, indices, output)?;
        let read = |name: &str| {
            let bytes = fs::read(self.run.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(Seen {
            boot: watch.boot,
            total: start.elapsed(),
            begun: watch.begun,
            end,
            log: read("console"),
            complaint: read("qemu.log").trim().to_owned(),
        })
    }

    /// Makes a hanging guest panic, which prints where its CPUs are. A guest may hang so that this has no effect.
    fn inject_nmi(&self) {
        let Ok(mut socket) = UnixStream::connect(self.run.path().join("qmp.sock")) else {
            return;
        };
        let _ = socket.set_read_timeout(Some(Duration::from_secs(1)));
        let mut answer = [0; 4096];
        for request in ["", r#"{"execute":"qmp_capabilities"}"#, r#"{"execute":"inject-nmi"}"#] {
            let _ = socket.write_all(request.as_bytes());
            let _ = socket.read(&mut answer);
        }
    }
}

/// Removes the files of guests whose runner was killed: their lock is free. Files that can't be removed stay.
fn sweep() {
    for entry in fs::read_dir(RUN_PARENT).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(RUN_PREFIX);
        // A folder without a lock is being made at this moment.
        if ours
            && let Ok(lock) = File::open(entry.path().join("lock"))
            && FileExt::try_lock(&lock).is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether this process has all privileges: its effective user is 0.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_quotes_everything() {
        let job = Job {
            argv: vec!["echo".into(), "it's $HOME".into()],
            cwd: "/a b".into(),
            env: vec![("NAME".into(), "x;y".into())],
        };
        let script = job.script(Tier::Stock).unwrap();
        assert!(script.contains("\nexport NAME='x;y'\n"), "{script}");
        assert!(script.contains("cd '/a b' || exit 125\n"), "{script}");
        let shown = Command::new("sh").args(["-c", &script.replace("/a b", "/")]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&shown.stdout), "it's $HOME\n");
    }

    #[test]
    fn names_of_variables_are_checked() {
        assert!(Job::new(vec![], &["A B=1".to_owned()]).is_err());
        assert!(Job::new(vec![], &["=1".to_owned()]).is_err());
        assert!(Job::new(vec![], &["1A=1".to_owned()]).is_err());
        let job = Job::new(vec![], &["X=a=b".to_owned()]).unwrap();
        assert_eq!(job.env.last().unwrap(), &("X".to_owned(), "a=b".to_owned()));
    }
}
