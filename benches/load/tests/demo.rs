// SPDX-License-Identifier: Apache-2.0 OR MIT
//! scripts/run: what `make run` shows where nothing is going on. Another program stands for topstat, so that it is known
//! whether there are rows.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/run");
/// For what happens at once, on a busy host. Less than the 60 s after which the load ends of itself: that is not to pass for
/// an end with its parent.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with a program in topstat's place; removed with this, and what it has started ended.
struct Stand {
    folder: PathBuf,
    child: Option<Child>,
}

impl Stand {
    /// One whose table has these rows, and whose view of it says "shown" and then goes on for as long as given.
    fn new(name: &str, rows: &str, goes_on: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("topstat-demo-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("topstat");
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *json*) echo '{{\"rows\":{rows}}}'; exit;; esac\n\
             echo \"shown $$ $*\"\nexec sleep {goes_on}\n"
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        Self { folder, child: None }
    }

    /// Runs the script, not on a terminal; gives what it has shown first, and its pid.
    fn run(&mut self) -> (String, u32) {
        let mut child = Command::new(SCRIPT)
            .args([self.folder.join("topstat").as_path(), Path::new(env!("CARGO_BIN_EXE_topstat-load"))])
            .arg("tcp_v4/conns_pps")
            .stdout(Stdio::piped())
            .stderr(fs::File::create(self.folder.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = child.id();
        self.child = Some(child);
        (line, pid)
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("stderr")).unwrap()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The processes that a process has started, but for those that have ended.
fn children(pid: u32) -> Vec<u32> {
    let running = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok();
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).filter(running).collect()
}

fn is_load(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("topstat-load"))
}

fn eventually(mut ask: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !ask() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

#[test]
fn an_idle_host_gets_a_load_that_ends_with_the_program() {
    let mut stand = Stand::new("idle", "[]", "600");
    let (shown, pid) = stand.run();
    assert_eq!(shown, format!("shown {pid} top tcp_v4/conns_pps\n"), "what the user sees is topstat itself");
    let said = stand.said();
    assert!(said.contains("on loopback only") && said.contains("for 60 s at most"), "{said}");
    assert!(eventually(|| children(pid).iter().any(|child| is_load(*child))), "there is no load: {said}");
    let load = children(pid)[0];
    // Not asked to end, but killed.
    let mut child = stand.child.take().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(eventually(|| !is_load(load)), "the load goes on");
}

/// Between its start and its question to the kernel the parent may end.
#[test]
fn a_load_whose_parent_has_ended_does_not_begin() {
    let mut nobodys = Command::new("true").spawn().unwrap();
    nobodys.wait().unwrap();
    let begun = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_topstat-load"))
        .args(["--repeat", "--rate", "10", "--seconds", "60", "--end-with-parent", &nobodys.id().to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("not begun"), "{said}");
    assert!(begun.elapsed() < PATIENCE, "it has begun");
}

#[test]
fn a_host_with_traffic_gets_none() {
    let mut stand = Stand::new("busy", r#"[{"rank":1}]"#, "600");
    let (shown, pid) = stand.run();
    assert_eq!(shown, format!("shown {pid} top tcp_v4/conns_pps\n"));
    assert_eq!((children(pid), stand.said().as_str()), (vec![], ""));
}

#[test]
fn what_fails_is_said_by_the_program() {
    let mut stand = Stand::new("fails", "", "0");
    fs::write(stand.folder.join("topstat"), "#!/bin/sh\necho no BTF >&2; exit 1\n").unwrap();
    assert_eq!(stand.run().0, "");
    assert_eq!(stand.child.take().unwrap().wait().unwrap().code(), Some(1));
    assert_eq!(stand.said(), "no BTF\n");
}
