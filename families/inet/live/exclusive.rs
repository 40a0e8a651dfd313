// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of other tools at cgroups, attached exclusively. At the host's root they would block every other program, so topstat
//! runs in a cgroup namespace whose root is a group of the test.

use std::fs::File;
use std::process::{Command, Output};

use topstat_live::cgroup::Group;
use topstat_live::{Case, Role, Watch, alone, instructions, note, role};

use super::roles::{SIZE, TURNS};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Attached: at_the_root_before_topstat, Root, CgroupV2),
        alone!(Attached: at_the_root_after_topstat, Root, CgroupV2),
        alone!(Attached: in_a_group_below, Root, CgroupV2),
    ]
}

/// Arguments of `BPF_PROG_ATTACH`.
const INGRESS: u32 = 0;
const EGRESS: u32 = 1;
const ALONE: u32 = 0;
const ALLOW_OVERRIDE: u32 = 1;

/// Runs topstat in a place where the group is the root of the only mounted hierarchy of v2.
fn topstat_below(group: &Group, words: &str) -> Output {
    let script = format!(
        "echo $$ >{}/cgroup.procs && exec unshare --cgroup --mount sh -c \
         'mount -t tmpfs none /mnt && mkdir /mnt/own && mount -t cgroup2 none /mnt/own && exec \"$0\" {words}' \"$0\"",
        group.folder().display()
    );
    let mut topstat = Command::new("sh");
    topstat.args(["-c", &script]).arg(std::env::current_exe().expect("the path of this program"));
    // So that topstat attaches programs to the cgroup on every kernel.
    topstat.env("TOPSTAT_UDP", "packets");
    topstat.env(role::VARIABLE, "topstat").output().expect("run topstat")
}

fn at_the_root_before_topstat() {
    let group = Group::new("alone").expect("make a group");
    let program = instructions::let_pass().expect("load a program");
    let there = topstat_below(&group, "top --private udp_v4/conns_pps 0.1 1");
    assert!(there.status.success(), "it runs there: {}", String::from_utf8_lossy(&there.stderr));

    for flags in [ALONE, ALLOW_OVERRIDE] {
        let root = File::open(group.folder()).expect("open the group");
        instructions::attach(&root, &program, EGRESS, flags).expect("attach the program");
        let refused = topstat_below(&group, "top --private udp_v4/conns_pps 0.1 1");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        for part in ["inet_egress", "tests_let_pass", "for itself alone", "BPF_F_ALLOW_MULTI", "bpftool cgroup"] {
            assert!(said.contains(part), "'{part}' is not in: {said}");
        }
        note(said.trim());
        let checked = topstat_below(&group, "check udp_v4");
        let found = String::from_utf8_lossy(&checked.stdout);
        assert_eq!(checked.status.code(), Some(1), "{found}");
        assert!(found.contains("for itself alone"), "{found}");
        instructions::detach(&root, &program, EGRESS).expect("detach it");
    }
    let again = topstat_below(&group, "top --private udp_v4/conns_pps 0.1 1");
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
}

/// The kernel refuses the other program, and not topstat's.
fn at_the_root_after_topstat() {
    let group = Group::new("after").expect("make a group");
    let program = instructions::let_pass().expect("load a program");
    let beside = instructions::let_pass().expect("load a program");
    let root = File::open(group.folder()).expect("open the group");
    instructions::attach(&root, &beside, INGRESS, instructions::ALLOW_MULTI).expect("attach as topstat does");
    for flags in [ALONE, ALLOW_OVERRIDE] {
        let refused = instructions::attach(&root, &program, INGRESS, flags).expect_err("both at one cgroup");
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{refused}");
    }
    let there = topstat_below(&group, "top --private udp_v4/conns_pps 0.1 1");
    assert!(there.status.success(), "beside those that allow it: {}", String::from_utf8_lossy(&there.stderr));
}

/// Both programs run, whichever is attached first: an exclusive program excludes others at its own cgroup alone.
fn in_a_group_below() {
    const PPS: &str = "udp_v4/conns_pps";
    let program = instructions::let_pass().expect("load a program");
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = receiver.local_addr().expect("its address").to_string();
    for (name, flags) in [("alone", ALONE), ("override", ALLOW_OVERRIDE)] {
        for before in [true, false] {
            let group = Group::new(&format!("below-{name}-{before}")).expect("make a group");
            let attach = || {
                let folder = File::open(group.folder()).expect("open the group");
                for at in [INGRESS, EGRESS] {
                    instructions::attach(&folder, &program, at, flags).expect("attach below");
                }
            };
            if before {
                attach();
            }
            let mut watch = Watch::load(&[PPS], &topstat_live::watch::everything());
            if !before {
                attach();
            }
            let mut sender = Role::start("datagrams-when-told", &["tl-below", &to]);
            group.take(sender.pid());
            sender.tell("send");
            let from = sender.hear();
            let from: std::net::SocketAddr =
                from.strip_prefix("from ").expect("where from").parse().expect("an address");
            let view = watch.snapshot(PPS);
            let row = view.sockets.iter().find(|s| s.key.local == from).expect("a row of who sends below");
            assert_eq!((row.tx, row.rx), (TURNS as u64, 0), "{name}, before: {before}");
            assert_eq!(row.cgroup.as_deref(), Some(group.path.as_str()));
            sender.finish();
        }
    }
    note(format!("{TURNS} datagrams of {SIZE} bytes are counted in each order"));
}
