// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The start of a guest: the arguments of QEMU, of the guest's kernel and of the file servers. This module runs nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::deps::{Tools, Virtiofsd};

/// The mode in which a kernel runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Debian's kernel, unchanged.
    Stock,
    /// Debian's kernel with the host's systemd as process 1, for tests that need a service manager.
    Systemd,
    /// Debian's kernel on two NUMA nodes, each with at least two CPUs.
    Numa,
    /// Debian's kernel with checks of every slab object: finds overruns and uses after free of heap memory.
    Slub,
    /// Our own 6.1 with KASAN, lockdep and checks of sleeping in atomic context.
    Debug,
    /// One CPU whose time is the number of instructions executed: repeatable measurements.
    Icount,
    /// Debian's kernel for arm64, on an emulated aarch64 machine, with a small Debian of that architecture as its root.
    Arm64,
    /// As `Arm64`, with pages of 16 KiB: Linux 6.12 and later.
    #[serde(rename = "arm64-16k")]
    #[value(name = "arm64-16k")]
    Arm64Pages16k,
}

impl Tier {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Systemd => "systemd",
            Self::Numa => "numa",
            Self::Slub => "slub",
            Self::Debug => "debug",
            Self::Icount => "icount",
            Self::Arm64 => "arm64",
            Self::Arm64Pages16k => "arm64-16k",
        }
    }

    /// Debian's kernel of the tier.
    pub fn flavour(self) -> Flavour {
        match self {
            Self::Arm64 => Flavour::CloudArm64,
            Self::Arm64Pages16k => Flavour::Arm64Pages16k,
            _ => Flavour::CloudAmd64,
        }
    }

    /// The architecture of its kernel.
    pub fn arch(self) -> Arch {
        self.flavour().arch()
    }

    /// The factor by which a guest may be slower than a stock kernel on two CPUs before it counts as hung.
    pub fn patience(self) -> u32 {
        match self {
            Self::Stock | Self::Systemd | Self::Numa => 1,
            Self::Slub | Self::Icount | Self::Arm64 | Self::Arm64Pages16k => 2,
            Self::Debug => 4,
        }
    }
}

impl Tier {
    /// The approximate factor by which a guest is slower than its host in tests, which mostly run kernel code; commands get
    /// it as `TOPSTAT_SLOWDOWN`.
    pub fn slowdown(self) -> u32 {
        match self {
            Self::Stock | Self::Systemd | Self::Numa | Self::Icount => 16,
            Self::Slub | Self::Arm64 | Self::Arm64Pages16k => 20,
            Self::Debug => 60,
        }
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// An architecture of Debian's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// x86_64.
    Amd64,
    /// aarch64.
    Arm64,
}

impl Arch {
    /// Debian's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// A build of Debian's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// For virtual machines of x86_64.
    CloudAmd64,
    /// For virtual machines of aarch64.
    CloudArm64,
    /// For aarch64, with pages of 16 KiB.
    Arm64Pages16k,
}

impl Flavour {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::CloudAmd64, Self::CloudArm64, Self::Arm64Pages16k];

    /// Debian's name: the end of the names of its packages.
    pub fn name(self) -> &'static str {
        match self {
            Self::CloudAmd64 => "cloud-amd64",
            Self::CloudArm64 => "cloud-arm64",
            Self::Arm64Pages16k => "arm64-16k",
        }
    }

    /// Its architecture.
    pub fn arch(self) -> Arch {
        match self {
            Self::CloudAmd64 => Arch::Amd64,
            Self::CloudArm64 | Self::Arm64Pages16k => Arch::Arm64,
        }
    }
}

/// The control groups that the guest mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Cgroup {
    /// Version 2 at /sys/fs/cgroup.
    #[default]
    V2,
    /// Version 1 controllers, and version 2 without controllers at /sys/fs/cgroup/unified.
    Hybrid,
}

impl Cgroup {
    /// The name on the command line and in the guest's settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::Hybrid => "hybrid",
        }
    }
}

/// The number of NUMA nodes of the numa tier.
const NODES: u32 = 2;

/// The machine of a guest.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The tier.
    pub tier: Tier,
    /// The number of CPUs; the icount tier always has one, the numa tier at least four.
    pub cpus: u32,
    /// Memory in MiB: for the guest's programs, and for the files that they write, which are on a tmpfs.
    pub memory_mib: u32,
    /// Further arguments of the kernel.
    pub append: Vec<String>,
}

impl Machine {
    /// The number of CPUs of the guest.
    pub fn cpus(&self) -> u32 {
        match self.tier {
            Tier::Icount => 1,
            Tier::Numa => self.cpus.next_multiple_of(NODES).max(2 * NODES),
            _ => self.cpus,
        }
    }

    /// The NUMA nodes: the memory of each in MiB, and its first and last CPU.
    fn nodes(&self) -> Vec<(u32, u32, u32)> {
        let nodes = if self.tier == Tier::Numa { NODES } else { 1 };
        let (memory, cpus) = (self.memory_mib / nodes, self.cpus() / nodes);
        (0..nodes).map(|node| (memory, node * cpus, (node + 1) * cpus - 1)).collect()
    }
}

/// The files that a guest boots from, and its connections to the host.
#[derive(Debug)]
pub struct Files<'a> {
    /// The kernel image.
    pub kernel: &'a Path,
    /// The initramfs, which runs the first stage.
    pub initramfs: &'a Path,
    /// The socket of the server of the guest's root.
    pub root_socket: PathBuf,
    /// The socket of the server of the host's root, where that is not the guest's.
    pub host_socket: Option<PathBuf>,
    /// The socket of the server of the folder for results.
    pub share_socket: PathBuf,
    /// The file for the serial console; `None` connects the console to the terminal.
    pub console: Option<PathBuf>,
    /// The socket for the control of QEMU.
    pub qmp_socket: PathBuf,
}

/// The kernel's command line.
pub fn kernel_arguments(machine: &Machine, interactive: bool) -> String {
    let mut arguments = vec![
        match machine.tier.arch() {
            Arch::Amd64 => "console=ttyS0",
            Arch::Arm64 => "console=ttyAMA0",
        },
        // A panic ends QEMU (it runs with -no-reboot). So does every fault after which results could not be trusted.
        "panic=-1",
        "oops=panic",
        "softlockup_panic=1",
        "hung_task_panic=1",
        // With an NMI the host makes a hanging guest print where it hangs.
        "unknown_nmi_panic=1",
        // The kernel counts timer interrupts for some ticks during boot, and panics if there are too few, which happens on a
        // busy host ("IO-APIC + timer doesn't work!"). QEMU's timer does work.
        "no_timer_check",
        // No khugepaged: it has the lowest priority. Preempted in a critical section of RCU, it can wait for longer than RCU's limit
        // (21 s) beside tests that keep all CPUs busy, and the kernel reports a stall.
        "transparent_hugepage=never",
        // Both spellings, for kernels before and after 6.2.
        "random.trust_cpu=1",
        "log_buf_len=1M",
        // Interactive: only warnings on the console. Otherwise the console is the kernel log.
        if interactive { "loglevel=5" } else { "loglevel=7" },
    ];
    match machine.tier {
        Tier::Stock | Tier::Systemd | Tier::Numa | Tier::Arm64 | Tier::Arm64Pages16k => {}
        // F: consistency checks, Z: red zones, P: poison, U: the callers that allocated and freed.
        Tier::Slub => arguments.push("slub_debug=FZPU"),
        Tier::Debug => arguments.extend([
            // Every KASAN report, not only the first: commands share a guest.
            "kasan_multi_shot",
            // Local storage of eBPF comes from these slabs; this lets tests inject faults into them
            // (tests/live/src/injected.rs).
            "slub_debug=A,kmalloc-cg-1k,kmalloc-cg-512,kmalloc-cg-256,kmalloc-cg-192",
        ]),
        // The TSC is exact in this tier, and code, stacks and heaps have fixed addresses in every boot.
        Tier::Icount => {
            arguments.extend([
                "tsc=reliable",
                "clocksource=tsc",
                "nokaslr",
                "norandmaps",
                "randomize_kstack_offset=off",
            ]);
        }
    }
    arguments.extend(machine.append.iter().map(String::as_str));
    arguments.join(" ")
}

/// QEMU's arguments.
pub fn qemu_arguments(machine: &Machine, files: &Files<'_>) -> Vec<String> {
    let mut cpus = machine.cpus().to_string();
    // A socket for each node: Linux warns if the CPUs of one socket are on two nodes.
    if machine.tier == Tier::Numa {
        cpus += &format!(",sockets={NODES}");
    }
    let mut arguments: Vec<String> = Vec::new();
    let mut push = |words: &[&str]| arguments.extend(words.iter().map(|&word| word.to_owned()));

    push(&["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none"]);
    let (board, cpu) = match machine.tier.arch() {
        // Five-level page tables only make every memory access slower.
        Arch::Amd64 => ("q35", "max,la57=off"),
        // A cheaper algorithm than the architecture's own authenticates pointers.
        Arch::Arm64 => ("virt", "max,pauth-impdef=on"),
    };
    // One thread for all CPUs: with a thread for each CPU, 5.10 hung now and then.
    push(&["-machine", board, "-accel", "tcg,thread=single", "-smp", &cpus, "-cpu", cpu]);
    if machine.tier == Tier::Icount {
        push(&["-icount", "shift=0,sleep=off", "-rtc", "base=2025-01-01T00:00:00,clock=vm", "-seed", "1"]);
    }
    // The file servers read and write the guest's memory.
    let nodes = machine.nodes();
    push(&["-m", &format!("{}M", nodes.iter().map(|(memory, ..)| memory).sum::<u32>())]);
    for (node, (memory, first, last)) in nodes.iter().enumerate() {
        push(&["-object", &format!("memory-backend-memfd,id=mem{node},size={memory}M,share=on")]);
        push(&["-numa", &format!("node,memdev=mem{node},cpus={first}-{last}")]);
    }
    let host = files.host_socket.iter().map(|socket| ("host", socket));
    for (tag, socket) in [("root", &files.root_socket), ("share", &files.share_socket)].into_iter().chain(host) {
        push(&["-chardev", &format!("socket,id={tag},path={}", escaped(socket))]);
        push(&["-device", &format!("vhost-user-fs-pci,queue-size=1024,chardev={tag},tag={tag}")]);
    }
    match &files.console {
        Some(console) => push(&["-serial", &format!("file:{}", console.display())]),
        // Ctrl-C goes to the guest; Ctrl-A X ends it.
        None => push(&["-chardev", "stdio,id=tty,mux=on,signal=off", "-serial", "chardev:tty", "-mon", "chardev=tty"]),
    }
    push(&["-qmp", &format!("unix:{},server=on,wait=off", escaped(&files.qmp_socket))]);
    push(&["-kernel", &files.kernel.display().to_string(), "-initrd", &files.initramfs.display().to_string()]);
    push(&["-append", &kernel_arguments(machine, files.console.is_none())]);
    arguments
}

/// A path inside an option of QEMU, where a comma separates options.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// A command that the kernel kills when this program ends, however it ends.
fn tied(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// The command that runs QEMU.
pub fn qemu(tools: &Tools, machine: &Machine, files: &Files<'_>) -> Command {
    let program = match machine.tier.arch() {
        Arch::Amd64 => &tools.qemu,
        Arch::Arm64 => Path::new(crate::deps::QEMU_ARM64),
    };
    let mut command = tied(program);
    command.args(qemu_arguments(machine, files));
    command
}

/// The command that serves `dir` at `socket`.
///
/// With `read_only` the server serves a read-only view of `dir`, mounted at the given folder in the server's mount namespace:
/// a guest that remounts its root can't change the host's.
pub fn virtiofsd(tools: &Tools, socket: &Path, dir: &Path, read_only: Option<&Path>) -> Command {
    let (Virtiofsd::Qemu(program) | Virtiofsd::Rust(program)) = &tools.virtiofsd;
    let mut command = match read_only {
        None => tied(program),
        Some(view) => {
            let mut command = tied(Path::new("unshare"));
            command.args(["--mount", "--propagation", "private", "--", "sh", "-ec"]);
            command.arg(r#"mount --rbind "$1" "$2"; mount -o remount,bind,ro "$2"; shift 2; exec "$@""#);
            command.arg("sh").args([dir, view, program.as_path()]);
            command
        }
    };
    // Read-only files can be cached for good; the host reads results while the guest writes them.
    let cache = if read_only.is_some() { "always" } else { cache_never(&tools.virtiofsd) };
    let socket = socket.display();
    let dir = read_only.unwrap_or(dir).display();
    match &tools.virtiofsd {
        Virtiofsd::Qemu(_) => command.args([
            "-f",
            &format!("--socket-path={socket}"),
            "-o",
            "sandbox=chroot",
            "-o",
            &format!("source={dir}"),
            "-o",
            &format!("cache={cache}"),
        ]),
        Virtiofsd::Rust(_) => command.args([
            &format!("--socket-path={socket}"),
            &format!("--shared-dir={dir}"),
            "--sandbox=chroot",
            // Other file systems of the host must appear as plain folders: an overlay can't stand on mount points that appear
            // later.
            "--no-announce-submounts",
            &format!("--cache={cache}"),
            "--log-level=error",
        ]),
    };
    command
}

fn cache_never(virtiofsd: &Virtiofsd) -> &'static str {
    match virtiofsd {
        Virtiofsd::Qemu(_) => "none",
        Virtiofsd::Rust(_) => "never",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(tier: Tier) -> Machine {
        Machine { tier, cpus: 2, memory_mib: 2048, append: vec!["extra=1".to_owned()] }
    }

    fn arguments(tier: Tier, console: Option<&str>) -> String {
        let files = Files {
            kernel: Path::new("/k/vmlinuz"),
            initramfs: Path::new("/r/initramfs"),
            root_socket: "/r,1/root".into(),
            host_socket: (tier == Tier::Arm64).then(|| "/r/host".into()),
            share_socket: "/r/share".into(),
            console: console.map(PathBuf::from),
            qmp_socket: "/r/qmp".into(),
        };
        qemu_arguments(&machine(tier), &files).join(" ")
    }

    #[test]
    fn a_stock_guest_has_its_cpus_and_stops_on_a_panic() {
        let all = arguments(Tier::Stock, Some("/r/console"));
        assert!(all.contains("-smp 2 "), "{all}");
        assert!(all.contains("-no-reboot") && all.contains("panic=-1") && all.contains("softlockup_panic=1"));
        assert!(all.contains("-serial file:/r/console"));
        assert!(!all.contains("-icount"));
        assert!(all.ends_with("extra=1"));
    }

    #[test]
    fn the_numa_tier_has_two_nodes() {
        let all = arguments(Tier::Numa, Some("/r/console"));
        assert!(all.contains("-smp 4,sockets=2 ") && all.contains("-m 2048M "), "{all}");
        assert!(all.contains("id=mem1,size=1024M") && all.contains("node,memdev=mem1,cpus=2-3"), "{all}");
        assert!(arguments(Tier::Stock, None).contains("-numa node,memdev=mem0,cpus=0-1 "));
    }

    #[test]
    fn icount_counts_on_one_cpu() {
        let all = arguments(Tier::Icount, Some("/r/console"));
        assert!(all.contains("-smp 1 ") && all.contains("-icount shift=0,sleep=off"), "{all}");
        assert!(all.contains("tsc=reliable clocksource=tsc nokaslr"));
    }

    #[test]
    fn an_arm64_guest_has_a_root_of_its_own_and_the_hosts() {
        let all = arguments(Tier::Arm64, Some("/r/console"));
        assert!(all.contains("-machine virt ") && all.contains("console=ttyAMA0"), "{all}");
        assert!(all.contains("id=host,path=/r/host") && all.contains("tag=root"), "{all}");
        assert!(!arguments(Tier::Stock, None).contains("id=host"));
    }

    #[test]
    fn tiers_add_their_checks() {
        assert!(arguments(Tier::Slub, None).contains("slub_debug=FZPU"));
        assert!(arguments(Tier::Debug, None).contains("kasan_multi_shot"));
        assert!(!arguments(Tier::Stock, None).contains("slub_debug"));
    }

    #[test]
    fn a_shell_keeps_the_terminal() {
        let all = arguments(Tier::Stock, None);
        assert!(all.contains("-serial chardev:tty") && all.contains("loglevel=5"), "{all}");
    }

    #[test]
    fn commas_in_paths_do_not_end_an_option() {
        assert!(arguments(Tier::Stock, None).contains("path=/r,,1/root"));
    }

    #[test]
    fn only_the_root_is_served_read_only() {
        let tools = Tools {
            qemu: "/q".into(),
            busybox: "/b".into(),
            virtiofsd: Virtiofsd::Qemu("/usr/lib/qemu/virtiofsd".into()),
        };
        let text = |view| format!("{:?}", virtiofsd(&tools, Path::new("/s"), Path::new("/d"), view));
        let root = text(Some(Path::new("/view")));
        assert!(root.contains("remount,bind,ro") && root.contains("source=/view") && root.contains("cache=always"));
        let share = text(None);
        assert!(!share.contains("mount") && share.contains("source=/d") && share.contains("cache=none"));
    }
}
