// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What another program with the unit of the daemon may not do.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::ExitCode;

use topstat_live::{Case, case};

use crate::systemd_unit::{SERVICE, SOCKETS_ALONE, Service, systemctl};

pub fn cases() -> Vec<Case> {
    vec![case!(what_it_may_not_do_is_refused, Root, Systemd; Service)]
}

/// Plays a role of these tests.
pub fn play(role: &str, _arguments: &[String]) -> Option<ExitCode> {
    match role {
        "confined" => confined(),
        "filtered" => filtered(),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or_default()
}

/// Tries calls that the unit must refuse, and prints the result of each: the error, or 0. The arguments are wrong, so a call
/// that is not refused does nothing either.
fn confined() {
    let nothing = std::ptr::null::<u8>();
    let call = |name: &str, number: libc::c_long, first: i64| {
        // SAFETY: no call writes through a null pointer; the kernel refuses it.
        let result = unsafe { libc::syscall(number, first, nothing, nothing, nothing, nothing, nothing) };
        println!("{name} {}", if result == -1 { errno() } else { 0 });
    };
    call("perf_event_open", libc::SYS_perf_event_open, 0);
    call("ptrace", libc::SYS_ptrace, i64::from(libc::PTRACE_PEEKUSER));
    call("process_vm_readv", libc::SYS_process_vm_readv, 0);
    call("pidfd_getfd", libc::SYS_pidfd_getfd, -1);
    call("chroot", libc::SYS_chroot, 0);
    call("pivot_root", libc::SYS_pivot_root, 0);
    call("init_module", libc::SYS_init_module, 0);
    call("kexec_load", libc::SYS_kexec_load, 0);
    call("reboot", libc::SYS_reboot, 0);
    call("swapon", libc::SYS_swapon, 0);
    call("keyctl", libc::SYS_keyctl, -1);
    call("sched_setaffinity", libc::SYS_sched_setaffinity, 0);
    call("setuid", libc::SYS_setuid, -1);
    call("userfaultfd", libc::SYS_userfaultfd, -1);
    call("clock_settime", libc::SYS_clock_settime, 0);
    call("sethostname", libc::SYS_sethostname, 0);
    call("unshare", libc::SYS_unshare, i64::from(libc::CLONE_NEWNS));
    call("setns", libc::SYS_setns, -1);
    // Calls that the unit must allow: with the same wrong arguments they return another error.
    call("mount", libc::SYS_mount, 0);
    call("open_by_handle_at", libc::SYS_open_by_handle_at, -1);
    call("bpf", libc::SYS_bpf, -1);
    for (name, family) in [
        ("AF_UNIX", libc::AF_UNIX),
        ("AF_INET", libc::AF_INET),
        ("AF_INET6", libc::AF_INET6),
        ("AF_NETLINK", libc::AF_NETLINK),
    ] {
        // SAFETY: the call touches no memory. The end of this process closes the socket.
        let socket = unsafe { libc::socket(family, libc::SOCK_DGRAM, 0) };
        println!("{name} {}", if socket == -1 { errno() } else { 0 });
    }
    for device in ["/dev/null", "/dev/fuse", "/dev/kmsg", "/dev/ttyS0", "/dev/mem"] {
        let opened = fs::File::options().read(true).write(true).open(device);
        println!("{device} {}", opened.err().and_then(|e| e.raw_os_error()).unwrap_or_default());
    }
    // SAFETY: a new mapping that no other code uses.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_WRITE | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    println!("mmap {}", if mapped == libc::MAP_FAILED { errno() } else { 0 });
    let capabilities = rustix::thread::capabilities(None).expect("capabilities");
    println!("capabilities {:x}", capabilities.permitted.bits());
    for namespace in ["mnt", "net"] {
        println!("{namespace} {}", fs::read_link(format!("/proc/self/ns/{namespace}")).expect("a namespace").display());
    }
}

/// Sends a datagram, and prints the result.
fn filtered() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let sent = socket.send_to(b"x", socket.local_addr().expect("its address"));
    println!("send {}", sent.err().and_then(|e| e.raw_os_error()).unwrap_or_default());
}

/// Runs this program in a role with these lines of a `[Service]` section; returns its output, by names.
fn in_service(role: &str, lines: &str) -> BTreeMap<String, String> {
    const PROBE: &str = "topstat-probe.service";
    let (unit, said) = (Path::new("/run/systemd/system").join(PROBE), format!("/run/{PROBE}.said"));
    let program = std::env::current_exe().expect("the path of this program");
    let own = format!(
        "Type=oneshot\nExecStart={}\nEnvironment=TOPSTAT_LIVE_ROLE={role}\nStandardOutput=truncate:{said}\n",
        program.display()
    );
    fs::write(&unit, format!("[Service]\n{own}{lines}")).expect("a unit");
    systemctl(&["daemon-reload"]);
    systemctl(&["start", PROBE]);
    fs::remove_file(&unit).expect("remove the unit");
    let text = fs::read_to_string(said).expect("what it said");
    text.lines().filter_map(|line| line.split_once(' ')).map(|(name, it)| (name.to_owned(), it.to_owned())).collect()
}

/// Another program with the daemon's unit is confined in the same way.
fn what_it_may_not_do_is_refused() {
    let _service = Service::new("", SOCKETS_ALONE);
    let unit = systemctl(&["cat", SERVICE]);
    let own = ["Type=", "Exec", "Restart", "WatchdogSec="];
    let directive =
        |line: &&str| line.contains('=') && !line.starts_with('#') && !own.iter().any(|own| line.starts_with(own));
    let service = unit.lines().skip_while(|line| *line != "[Service]").take_while(|line| *line != "[Install]");
    let lines: Vec<_> = service.filter(directive).collect();
    let said = in_service("confined", &(lines.join("\n") + "\n"));
    let error = |name: &str| said.get(name).unwrap_or_else(|| panic!("no {name}: {said:?}")).as_str();
    let eperm = libc::EPERM.to_string();
    for refused in [
        "perf_event_open",
        "ptrace",
        "process_vm_readv",
        "chroot",
        "pivot_root",
        "init_module",
        "kexec_load",
        "reboot",
        "swapon",
        "keyctl",
        "sched_setaffinity",
        "setuid",
        "userfaultfd",
        "clock_settime",
        "sethostname",
        "unshare",
        "setns",
        "mmap",
        "/dev/kmsg",
        "/dev/ttyS0",
    ] {
        assert_eq!(error(refused), eperm, "{refused}");
    }
    assert_ne!(error("/dev/mem"), "0");
    for family in ["AF_INET", "AF_INET6", "AF_NETLINK"] {
        assert_eq!(error(family), libc::EAFNOSUPPORT.to_string(), "{family}");
    }
    for allowed in ["AF_UNIX", "/dev/null", "/dev/fuse"] {
        assert_eq!(error(allowed), "0", "{allowed}");
    }
    for allowed in ["mount", "open_by_handle_at", "bpf"] {
        assert_ne!(error(allowed), eperm, "{allowed}");
    }
    assert_eq!(error("pidfd_getfd"), eperm);
    let ptrace = u64::from_str_radix(error("capabilities"), 16).expect("a number") >> 19 & 1;
    assert_eq!(ptrace, 0, "{said:?}");
    let here = |namespace: &str| fs::read_link(format!("/proc/1/ns/{namespace}")).unwrap().display().to_string();
    assert_eq!(error("mnt"), here("mnt"), "what it mounts is for all to see");
    assert_ne!(error("net"), here("net"));
    // The filter of addresses alone.
    let filter = lines.iter().find(|line| line.starts_with("IPAddressDeny=")).expect("a filter of addresses");
    assert_eq!(in_service("filtered", &format!("{filter}\n"))["send"], eperm);
    assert_eq!(in_service("filtered", "")["send"], "0", "it is the filter");
}
