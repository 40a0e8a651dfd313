// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The needs of tests: of the host, and of the command that runs them. Each [`Case`](crate::Case) states its own.

use std::os::fd::{AsRawFd as _, FromRawFd as _};

use topstat_kernel::{Error, Options};

use crate::watch::table;
use crate::{cgroup, injected, modules, netns, pace, scratch, taskstats};

/// A need of a test: of the host, or of the command that runs the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Everything that loading eBPF needs.
    Root,
    /// Network namespaces, veth and bridges, by the `ip` command.
    Netns,
    /// A kernel that accepts these commands of `ip`, separated by `; `, in a new network namespace.
    Ip(&'static str),
    /// topstat's own module, built for this kernel: see [`modules`](crate::modules).
    KernelModule,
    /// A module of the kernel that the kernel does not load by itself.
    Module(&'static str),
    /// WireGuard, and `wg`, which sets its keys.
    WireGuard,
    /// TLS in the kernel.
    KernelTls,
    /// Sockets of this type and protocol, of IPv4.
    Protocol(i32, i32),
    /// An IPv6 loopback.
    Ipv6,
    /// A mounted cgroup v2 hierarchy in which a group can be made.
    CgroupV2,
    /// A v1 hierarchy that topstat reads, in which this process is not at the root, while it is at the root of v2.
    CgroupV1,
    /// Hierarchies of both versions in which groups can be made, with this process at the root of v2.
    CgroupsOfBoth,
    /// A kernel that mounts FUSE.
    Fuse,
    /// The kernel's descriptions of its tracepoints, which root can mount.
    Tracefs,
    /// A kernel that lets programs be attached to its functions by perf events.
    Kprobes,
    /// A separate `net.core.optmem_max` for each network namespace.
    OptmemPerNetns,
    /// Delay accounting, and taskstats for the comparison.
    Delays,
    /// Temporary files on a block device, which can be read past the page cache.
    BlockDevice,
    /// A hierarchy of the memory controller in which a group can be made.
    MemoryLimit,
    /// A hierarchy of the CPU controller in which a group can be made.
    CpuLimit,
    /// A controller that throttles reads from the disk of temporary files.
    Throttle,
    /// systemd-analyze, which checks unit files.
    SystemdAnalyze,
    /// systemd as process 1 of a guest, where a service is installed.
    Systemd,
    /// Two CPUs that the test may use.
    TwoCpus,
    /// Two NUMA nodes, and another CPU on the first CPU's node.
    TwoNodes,
    /// A second CPU that may be taken offline: in a guest, since all processes of the machine lose it.
    SpareCpu,
    /// Permission to make processes real-time.
    RealTime,
    /// Permission to choose the next pid.
    NextPid,
    /// A kernel that passes system calls to another process for a decision.
    Notify,
    /// make(1) and a C compiler.
    Compiler,
    /// fio(1), and a free loop device, which losetup(8) sets up.
    LoopDevice,
    /// A cgroup v2 hierarchy with the controller io.
    IoStat,
    /// Permission to make user namespaces, with unshare(1).
    UserNamespace,
    /// A kernel that ends the connection of a FUSE file system that does not answer (Linux 6.15).
    FuseTimeout,
    /// More time than a usual run of the tests should take: `make soak` gives it.
    Minutes,
    /// A kernel that injects faults.
    FaultInjection,
    /// A kernel that detects memory that nothing points to.
    LeakDetector,
    /// Everything that the sample of this table needs of the kernel.
    Sample(&'static str),
    /// Atomics that return a value, which number the events (Linux 5.12).
    Atomics,
    /// Storage of tasks, in which the samples of tasks keep their objects (Linux 5.11).
    TaskStorage,
    /// A CPU that is not emulated: with thousands of sockets an emulated CPU takes too long, and shows only what hundreds
    /// show.
    FullSpeed,
}

/// For how many seconds resources are watched for growth. Unset, the test does not run.
pub const SOAK_SECONDS: &str = "TOPSTAT_SOAK_SECONDS";

/// Set in guests (see tests/vm): the machine belongs to the tests, and ends with them.
const GUEST: &str = "TOPSTAT_VM";

/// Why a test that does this runs in guests only.
fn not_a_guest(does: &str) -> Option<String> {
    let guest = std::env::var_os(GUEST).is_some_and(|said| said == "1");
    (!guest).then(|| format!("{does}: for guests (make vm)"))
}

/// The first version of systemd-analyze that checks a unit which isn't installed.
const SYSTEMD_OFFLINE: u32 = 250;

/// Why systemd-analyze does not meet the need.
/// Mounts tracefs where it is not mounted yet.
fn no_tracefs() -> Option<String> {
    const PATH: &str = "/sys/kernel/tracing";
    if std::path::Path::new(PATH).join("events").is_dir() {
        return None;
    }
    let mounted = rustix::mount::mount("tracefs", PATH, "tracefs", rustix::mount::MountFlags::empty(), None);
    mounted.err().map(|e| format!("needs tracefs, and it can't be mounted at {PATH}: {e}"))
}

fn no_analyze() -> Option<String> {
    let asked = std::process::Command::new("systemd-analyze").arg("--version").output();
    match asked {
        Err(e) => Some(format!("needs systemd-analyze: {e}")),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let version = text.split_whitespace().nth(1).and_then(|number| number.parse::<u32>().ok());
            let old = version.is_none_or(|version| version < SYSTEMD_OFFLINE);
            old.then(|| format!("needs systemd-analyze {SYSTEMD_OFFLINE} or later, not {}", text.trim()))
        }
    }
}

/// Holds the next pid minus one.
pub const NEXT_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// Makes the calling thread real-time: it takes its CPU from all other threads that are not, until it waits.
pub fn real_time() -> std::io::Result<()> {
    // SAFETY: the structure is plain, and lives as long as the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &libc::sched_param { sched_priority: 10 }) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

impl Need {
    /// Why the need is not met.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Need::Root if !rustix::process::geteuid().is_root() => Some("needs root".to_owned()),
            Need::Root => None,
            Need::Netns => netns::missing(),
            Need::Ip(words) => netns::refused(words).map(|e| format!("the kernel does not do this: {e}")),
            Need::KernelModule => modules::missing(),
            Need::Module(name) => {
                // modprobe succeeds for built-in modules, too.
                let loaded = std::process::Command::new("modprobe").args(["-q", name]).status();
                let there = loaded.is_ok_and(|status| status.success());
                (!there).then(|| format!("needs the kernel's module {name}: modprobe {name}"))
            }
            Need::WireGuard => {
                let asked = std::process::Command::new("wg").arg("--version").output();
                let no_tool = asked.err().map(|e| format!("needs wg (wireguard-tools): {e}"));
                no_tool.or_else(|| Need::Ip("link add test type wireguard").missing())
            }
            Need::KernelTls => no_kernel_tls().err().map(|e| format!("needs TLS in the kernel: {e}")),
            Need::Protocol(kind, protocol) => {
                // SAFETY: the call takes numbers only.
                let socket = unsafe { libc::socket(libc::AF_INET, kind | libc::SOCK_CLOEXEC, protocol) };
                if socket < 0 {
                    let e = std::io::Error::last_os_error();
                    return Some(format!("needs sockets of protocol {protocol}: {e}"));
                }
                // SAFETY: the descriptor was just opened, and has no other owner.
                drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(socket) });
                None
            }
            Need::Ipv6 => std::net::UdpSocket::bind("[::1]:0").err().map(|e| format!("needs IPv6 on loopback: {e}")),
            Need::CgroupV2 => cgroup::v2_missing(),
            Need::CgroupV1 => cgroup::v1_missing(),
            Need::CgroupsOfBoth => cgroup::hybrid_missing(),
            Need::Fuse => std::fs::File::open("/dev/fuse").err().map(|e| format!("needs FUSE: /dev/fuse: {e}")),
            Need::Tracefs => no_tracefs(),
            Need::Kprobes => std::fs::metadata("/sys/bus/event_source/devices/kprobe")
                .err()
                .map(|e| format!("needs kprobes: /sys/bus/event_source/devices/kprobe: {e}")),
            Need::OptmemPerNetns => netns::optmem_missing(),
            Need::Delays => taskstats::missing(),
            Need::BlockDevice => scratch::no_device(),
            Need::MemoryLimit => cgroup::memory_missing(),
            Need::CpuLimit => cgroup::cpu_missing(),
            Need::Throttle => cgroup::throttle_missing(),
            Need::SystemdAnalyze => no_analyze(),
            Need::Systemd => not_a_guest("installs a service and restarts it").or_else(|| {
                // As sd_booted(3) does.
                let booted = std::fs::symlink_metadata("/run/systemd/system");
                booted.err().map(|e| format!("needs systemd as process 1: /run/systemd/system: {e}"))
            }),
            Need::TwoCpus => crate::two_cpus().is_none().then(|| "needs two CPUs".to_owned()),
            Need::TwoNodes => {
                let cpus =
                    |node: usize| std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"));
                let (first, second) = (cpus(0).unwrap_or_default(), cpus(1).unwrap_or_default());
                let there = first.contains(['-', ',']) && !second.trim().is_empty();
                (!there).then(|| "needs two NUMA nodes, the first with two CPUs".to_owned())
            }
            Need::SpareCpu => not_a_guest("takes a CPU from all who run here").or_else(|| Need::TwoCpus.missing()),
            Need::RealTime => std::thread::spawn(real_time)
                .join()
                .expect("a thread that becomes a real-time one")
                .err()
                .map(|e| format!("needs real-time processes: {e}")),
            Need::NextPid => {
                let found = std::fs::metadata(NEXT_PID).err();
                found.map(|e| format!("needs a kernel with CONFIG_CHECKPOINT_RESTORE: {NEXT_PID}: {e}"))
            }
            Need::UserNamespace => {
                let asked = std::process::Command::new("unshare").args(["-Ur", "true"]).output();
                let made = asked.is_ok_and(|output| output.status.success());
                (!made).then(|| "needs user namespaces: unshare -Ur".to_owned())
            }
            Need::Notify => {
                let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
                let there = actions.is_ok_and(|actions| actions.split_whitespace().any(|name| name == "user_notif"));
                (!there).then(|| "needs a kernel with CONFIG_SECCOMP_FILTER".to_owned())
            }
            Need::FuseTimeout => {
                let found = std::fs::metadata("/proc/sys/fs/fuse/default_request_timeout").err();
                found.map(|e| format!("needs timeouts of FUSE requests (Linux 6.15): {e}"))
            }
            Need::Minutes => std::env::var_os(SOAK_SECONDS)
                .is_none_or(|said| said.is_empty())
                .then(|| format!("takes minutes: part of make soak, by {SOAK_SECONDS}")),
            Need::FaultInjection => injected::missing(),
            Need::LeakDetector => injected::no_leaks(),
            Need::Sample(path) => match topstat_kernel::load(&[table(path)], &Options::default()) {
                Err(e @ (Error::Lacking { .. } | Error::Unsupported { .. } | Error::SwitchedOff { .. })) => {
                    Some(e.to_string())
                }
                _ => None,
            },
            // This table needs the atomics, and has no fallback.
            Need::Atomics => Need::Sample("net_ports/pps").missing(),
            Need::TaskStorage => {
                // Without root the check can't tell.
                let there = || libbpf_rs::MapType::TaskStorage.is_supported().unwrap_or(true);
                (Need::Root.missing().is_none() && !there())
                    .then(|| "needs a kernel with task storage (Linux 5.11)".to_owned())
            }
            Need::FullSpeed => {
                (pace::slowdown() > 1).then(|| "takes an emulated CPU too long, and shows no more there".to_owned())
            }
            Need::LoopDevice => scratch::loop_missing(),
            Need::IoStat => cgroup::io_stat_missing(),
            Need::Compiler => {
                let there = |tool: &str| {
                    let asked = std::process::Command::new(tool).arg("--version").output();
                    asked.is_ok_and(|output| output.status.success())
                };
                (!there("make") || !there("cc")).then(|| "needs make and cc".to_owned())
            }
        }
    }
}

/// Fails if a connection can't use TLS in the kernel.
fn no_kernel_tls() -> std::io::Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let socket = std::net::TcpStream::connect(listener.local_addr()?)?;
    // SAFETY: the name exists, and has the given length.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_ULP, c"tls".as_ptr().cast(), 4) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
