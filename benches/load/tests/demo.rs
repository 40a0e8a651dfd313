// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests scripts/run: the output of `make run` on a host without traffic. Another program takes the place of topstat, so that
//! the tests determine whether there are rows.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/run");
/// The time limit of immediate actions on a busy host. Less than the 60 s after which the load ends by itself, which must not
/// pass for an end with its parent.
const PATIENCE: Duration = Duration::from_secs(30);

/// The output of a read of a table.
const ROWS: &str = "tcp_v4/conns_pps  1 objects";
const NONE: &str = "no rows: nothing was pushed in the last 1s";

/// A folder with a program in the place of topstat. Dropping it removes the folder, and ends the processes that were started.
struct Stand {
    folder: PathBuf,
    child: Option<Child>,
}

impl Stand {
    /// A stand whose program prints these texts for the reads of the table, one after the other (it repeats the last), and
    /// "shown" for a view of it.
    fn new(name: &str, looks: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("topstat-demo-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("topstat");
        fs::write(folder.join("looks"), looks.join("\n") + "\n").unwrap();
        let text = format!(
            r#"#!/bin/sh
cd '{}'
case "$*" in
*' -n '*)
    look=$(sed -n 1p looks)
    if [ "$(wc -l <looks)" = 1 ]; then
        while [ -e held ]; do sleep 0.05; done
    else
        sed -i 1d looks
    fi
    printf "$look\n"
    exit
    ;;
esac
echo "shown $$ $*"
"#,
            folder.display()
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        Self { folder, child: None }
    }

    /// Starts the script, without a terminal; returns its pid.
    fn start(&mut self) -> u32 {
        let child = Command::new(SCRIPT)
            .args([self.folder.join("topstat").as_path(), Path::new(env!("CARGO_BIN_EXE_topstat-load"))])
            .arg("tcp_v4/conns_pps")
            .stdout(Stdio::piped())
            .stderr(fs::File::create(self.folder.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        self.child.insert(child).id()
    }

    /// Runs the script to its end: its output, and its exit status.
    fn run(&mut self) -> (String, ExitStatus) {
        self.start();
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status)
    }

    /// Makes the last read wait until it is released.
    fn hold(&self) {
        fs::write(self.folder.join("held"), "").unwrap();
    }

    fn let_go(&self) {
        fs::remove_file(self.folder.join("held")).unwrap();
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

/// The children of a process, without the ended ones.
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
fn an_idle_host_gets_a_load_and_sees_its_rows() {
    let (shown, status) = Stand::new("idle", &[NONE, NONE, ROWS, NONE]).run();
    assert_eq!(shown, format!("{ROWS}\n"));
    assert!(status.success());
}

#[test]
fn a_load_ends_with_the_program() {
    let mut stand = Stand::new("ends", &[NONE, ROWS]);
    stand.hold();
    let pid = stand.start();
    assert!(eventually(|| children(pid).iter().any(|child| is_load(*child))), "there is no load: {}", stand.said());
    let said = stand.said();
    assert!(said.contains("on loopback only") && said.contains("for 60 s at most"), "{said}");
    let load = children(pid).into_iter().find(|child| is_load(*child)).expect("a load");
    // Killed, without a request to end.
    let mut child = stand.child.take().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(eventually(|| !is_load(load)), "the load goes on");
    stand.let_go();
}

/// The parent may end between the start of the load and its question to the kernel.
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

/// The script prints the rows of its first read: a moment later there may be none.
#[test]
fn a_host_with_traffic_gets_none() {
    let mut stand = Stand::new("busy", &[ROWS, NONE]);
    let (shown, status) = stand.run();
    assert_eq!((shown, stand.said().as_str()), (format!("{ROWS}\n"), ""));
    assert!(status.success());
}

#[test]
fn a_load_that_makes_no_rows_is_an_error() {
    let mut stand = Stand::new("unseen", &[NONE]);
    let (shown, status) = stand.run();
    assert_eq!((shown.as_str(), status.code()), ("", Some(1)));
    assert!(stand.said().contains("has no rows beside this traffic"), "{}", stand.said());
}

/// Connections that have traffic now and then: a permanent view would mostly be empty.
#[test]
fn a_terminal_of_a_host_with_rows_now_and_then_gets_a_load() {
    let stand = Stand::new("now-and-then", &[&format!("{ROWS}\\n{NONE}\\n{ROWS}"), ROWS]);
    let (program, load) = (stand.folder.join("topstat"), env!("CARGO_BIN_EXE_topstat-load"));
    let run = format!("{SCRIPT} {} {load} tcp_v4/conns_pps", program.display());
    let output = Command::new("script").args(["-qec", &run, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("for 600 s at most") && said.contains("shown "), "{said}");
    assert!(output.status.success(), "{said}");
}

#[test]
fn what_fails_is_said_by_the_program() {
    let mut stand = Stand::new("fails", &[NONE]);
    fs::write(stand.folder.join("topstat"), "#!/bin/sh\necho no BTF >&2; exit 1\n").unwrap();
    let (shown, status) = stand.run();
    assert_eq!((shown.as_str(), status.code()), ("", Some(1)));
    assert_eq!(stand.said(), "no BTF\n");
}
