// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A member of the group takes all of the daemon's resources that he can get; other users still get theirs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memmap2::MmapMut;
use serde_json::Value;
use topstat_live::daemon::Place;
use topstat_live::role::{say, told};
use topstat_live::{Busy, Case, Daemon, Role, Scratch, case, eventually, mounts, note, pace};

pub fn cases() -> Vec<Case> {
    vec![
        case!(whoever_keeps_all_he_can_keeps_nobody_from_reading, Root, Fuse),
        case!(hundreds_of_readers_of_one_user_hold_nobody_up, Root, Fuse),
        case!(eighty_subordinate_uids_are_one_user, Root, Fuse),
        case!(paths_of_cgroups_are_bounded_and_shown, Root, Fuse, CgroupV2),
    ]
}

/// Ids without names, which no user of this host has.
const GROUP: u32 = 54_331;
const GREEDY: u32 = 54_332;
const OTHER: u32 = 54_333;

const STAT: &str = "tcp_v4/conns_pps/stat";

/// A daemon whose tree the group may read.
fn start() -> Daemon {
    Daemon::start_at(Arc::new(Place::configured(&format!("group = \"{GROUP}\""))), &[])
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The entry of a user in `self`.
fn user(daemon: &Daemon, uid: u32) -> Option<Value> {
    let own = daemon.own();
    let users = own["tree"]["users"].as_array().expect("users");
    users.iter().find(|user| user["uid"] == uid).cloned()
}

/// Plays a role; `None`: this file has no role of that name.
pub fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    let argument = |i: usize| arguments.get(i).map(String::as_str).expect("an argument");
    let id = |i: usize| argument(i).parse().expect("an id");
    match role {
        "tree-hoarder" => hoarder(id(0)),
        "tree-readers" => {
            let threads = argument(1).parse().expect("threads");
            readers(id(0), threads, Path::new(argument(2)), argument(3), Path::new(argument(4)));
        }
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

/// Becomes a member of the group with this uid, with a limit of many open files.
fn become_member(uid: u32) {
    let files = libc::rlimit { rlim_cur: 16_384, rlim_max: 16_384 };
    // SAFETY: plain numbers, and a structure that lives long enough. There is one thread.
    let done = unsafe {
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files) == 0
            && libc::setgroups(0, std::ptr::null()) == 0
            && libc::setgid(GROUP) == 0
            && libc::setuid(uid) == 0
    };
    assert!(done, "become {uid}: {}", std::io::Error::last_os_error());
}

/// Opens files, reads their first byte, and keeps them, until an open is refused.
fn hoarder(uid: u32) {
    become_member(uid);
    let mut files = Vec::new();
    while let Some(line) = told() {
        let (what, path) = line.split_once(' ').expect("what, and a path");
        match what {
            "take" => loop {
                let taken = File::open(path).and_then(|file| {
                    file.read_exact_at(&mut [0], 0)?;
                    Ok(file)
                });
                match taken {
                    Ok(file) => files.push(file),
                    Err(error) => break say(format!("took {} {}", files.len(), error.raw_os_error().unwrap_or(0))),
                }
            },
            "read" => match fs::read(path) {
                Ok(text) => say(format!("read {}", text.len())),
                Err(error) => say(format!("read {error}")),
            },
            _ => {
                files.clear();
                say("dropped");
            }
        }
    }
}

/// A number of reads that processes share.
struct Count(MmapMut);

impl Count {
    /// The number in this file.
    fn at(path: &Path) -> Self {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path).expect("a file");
        file.set_len(8).expect("room for a number");
        // SAFETY: no process truncates the file.
        Self(unsafe { MmapMut::map_mut(&file) }.expect("map the file"))
    }

    fn number(&self) -> &AtomicU64 {
        // SAFETY: a page is aligned, has room for the number, and is used in no other way.
        unsafe { &*self.0.as_ptr().cast() }
    }
}

/// Reads a file with this many threads, each with its own or all with one shared open file, and counts the reads.
fn readers(uid: u32, threads: usize, path: &Path, how: &str, count: &Path) {
    const STACK: usize = 64 << 10;
    let count = Arc::new(Count::at(count));
    become_member(uid);
    let shared = (how == "shared").then(|| Arc::new(File::open(path).expect("open the file")));
    for _ in 0..threads {
        let (path, shared, count) = (path.to_owned(), shared.clone(), Arc::clone(&count));
        let read = move || {
            let mut buffer = vec![0; 64 << 10];
            loop {
                let done = match &shared {
                    Some(file) => file.read_at(&mut buffer, 0).is_ok(),
                    None => File::open(&path).and_then(|file| file.read_at(&mut buffer, 0)).is_ok(),
                };
                count.number().fetch_add(done.into(), Ordering::Relaxed);
            }
        };
        std::thread::Builder::new().stack_size(STACK).spawn(read).expect("start a thread");
    }
    told();
}

fn whoever_keeps_all_he_can_keeps_nobody_from_reading() {
    /// The share that the first user may keep: a ninth of 48 MiB.
    const SHARE: u64 = (48 << 20) / 9;
    const MORE_RSS_KB: u64 = 3 * 1024;
    let daemon = start();
    // So that texts have 128 rows.
    let _busy = Busy::new(150);
    let path = |file: &str| daemon.path(file).to_str().unwrap().to_owned();
    let mut greedy = Role::start("tree-hoarder", &[&GREEDY.to_string()]);
    let mut other = Role::start("tree-hoarder", &[&OTHER.to_string()]);
    let reads = |role: &mut Role, file: &str| {
        role.tell(&format!("read {}", path(file)));
        role.expect("read").parse::<u64>().is_ok()
    };
    for _ in 0..20 {
        daemon.read(STAT);
        assert!(reads(&mut greedy, STAT) && reads(&mut other, STAT));
    }
    let rss = daemon.status_kb("VmRSS");
    greedy.tell(&format!("take {}", path(STAT)));
    let took = greedy.expect("took");
    let (files, errno) = took.split_once(' ').expect("two numbers");
    let files: u64 = files.parse().expect("a number");
    assert_eq!(errno.parse(), Ok(libc::ENOMEM), "after {files} files");
    let full = daemon.status_kb("VmRSS");
    // The kernel closes the refused file at some later time.
    let closed = || user(&daemon, GREEDY).is_some_and(|user| number(&user["handles"]) == files);
    assert!(eventually(Duration::from_secs(5), closed), "{files} files: {:?}", user(&daemon, GREEDY));
    let kept = user(&daemon, GREEDY).expect("self tells who it is");
    let bytes = number(&kept["text_bytes"]);
    assert!(bytes <= SHARE && bytes > SHARE - SHARE / 8, "{kept}");
    assert!(daemon.says(&format!("open files of uid {GREEDY} have ")), "{}", daemon.log());

    // The greedy user can still read why, and the settings; all other users get everything.
    for file in ["enabled", "tcp_v4/conns_pps/period", "tcp_v4/conns_pps/type", "self", "self.json"] {
        assert!(reads(&mut greedy, file), "{file}");
    }
    assert!(!reads(&mut greedy, STAT));
    for file in ["enabled", "self", STAT, "tcp_v4/conns_pps/dump", "tcp_v4/conns_pps/json"] {
        daemon.read(file);
        assert!(reads(&mut other, file), "{file}");
    }
    // The next user gets a ninth of the rest, and root has its own resources.
    other.tell(&format!("take {}", path(STAT)));
    other.expect("took");
    assert!(number(&user(&daemon, OTHER).expect("it is told")["text_bytes"]) > SHARE / 2);
    daemon.read(STAT);

    for role in [&mut greedy, &mut other] {
        role.tell("drop all");
        role.expect("dropped");
    }
    // The kernel reports the closes to the daemon at some later time.
    let own = |daemon: &Daemon| daemon.own()["tree"].clone();
    let gone = || own(&daemon)["text_bytes"]["users"] == 0 && own(&daemon)["handles"]["users"] == 0;
    assert!(eventually(Duration::from_secs(10), gone), "{}", own(&daemon));
    let after = daemon.status_kb("VmRSS");
    note(format!("{files} files kept {bytes} bytes; resident: {rss} kB before, {full} kB then, {after} kB after"));
    assert!(after < rss + MORE_RSS_KB, "{after} kB resident after, {rss} kB before");
    // Short texts: the user may have more of them.
    greedy.tell(&format!("take {}", path("udp_v6/conns_pps/json")));
    let took = greedy.expect("took");
    let full = daemon.status_kb("VmRSS");
    greedy.tell("drop all");
    greedy.expect("dropped");
    assert!(eventually(Duration::from_secs(10), gone), "{}", own(&daemon));
    let after = daemon.status_kb("VmRSS");
    let took = took.split(' ').next().unwrap_or_default();
    note(format!("{took} files with short texts; resident: {full} kB then, {after} kB after"));
    assert!(after < rss + MORE_RSS_KB, "{after} kB resident after, {rss} kB before");
    assert!(reads(&mut greedy, STAT));
}

/// Mounts another /etc for this thread and its children, in which the greedy user has these subordinate uids.
fn give_subordinate_uids(etc: &Path, first: u32, count: u32) {
    use rustix::mount::mount_bind;
    mounts::keep_to_this_thread();
    fs::write(etc.join("passwd"), format!("greedy:x:{GREEDY}:{GROUP}::/:/bin/sh\n")).unwrap();
    fs::write(etc.join("subuid"), format!("greedy:{first}:{count}\n")).unwrap();
    mount_bind(etc, "/etc").expect("another /etc");
}

fn eighty_subordinate_uids_are_one_user() {
    const FIRST: u32 = 2_000_000_000;
    const UIDS: u32 = 80;
    /// The number of open files that all users except root may have together, and a ninth of it.
    const MOST: u64 = 16_384;
    const SHARE: u64 = MOST / 9;
    let scratch = Scratch::new("subuid");
    give_subordinate_uids(scratch.path(), FIRST, UIDS);
    let daemon = start();
    let path = |file: &str| daemon.path(file).to_str().unwrap().to_owned();
    let mut uids: Vec<Role> = Vec::new();
    let mut took = Vec::new();
    let mut take = |uid: u32| {
        let mut role = Role::start("tree-hoarder", &[&uid.to_string()]);
        role.tell(&format!("take {}", path("enabled")));
        let files: u64 = role.expect("took").split(' ').next().and_then(|files| files.parse().ok()).expect("a number");
        uids.push(role);
        files
    };
    for uid in FIRST..FIRST + UIDS {
        took.push(take(uid));
    }
    took.push(take(GREEDY));
    assert_eq!((took[0], took.iter().sum::<u64>()), (SHARE, SHARE), "all of them are one user: {took:?}");
    assert_eq!(number(&user(&daemon, GREEDY).expect("self tells who it is")["handles"]), SHARE);
    // Uids outside of the range belong to other users.
    for uid in [OTHER, FIRST + UIDS] {
        let mut other = Role::start("tree-hoarder", &[&uid.to_string()]);
        other.tell(&format!("read {}", path(STAT)));
        assert!(other.expect("read").parse::<u64>().is_ok(), "{uid} is locked out");
    }
    assert!(take(OTHER) > SHARE * 8 / 10);
}

/// The time of a read by root, and the number of reads by others during it: the medians.
fn reads_of_root(daemon: &Daemon, others: &Count) -> (Duration, u64) {
    const READS: usize = 31;
    let read = |_| {
        let (begun, before) = (Instant::now(), others.number().load(Ordering::Relaxed));
        daemon.read(STAT);
        (begun.elapsed(), others.number().load(Ordering::Relaxed) - before)
    };
    let (mut times, mut counts): (Vec<_>, Vec<_>) = (0..READS).map(read).unzip();
    times.sort_unstable();
    counts.sort_unstable();
    (times[READS / 2], counts[READS / 2])
}

fn hundreds_of_readers_of_one_user_hold_nobody_up() {
    // Each thread always has a waiting read: if the daemon served reads in the order of their arrival, this many would be
    // served before each read of root.
    let threads = pace::work(400, 40);
    let daemon = start();
    let path = daemon.path(STAT).to_str().unwrap().to_owned();
    let scratch = Scratch::new("readers");
    let file = scratch.path().join("count");
    let count = Count::at(&file);
    let readers = |threads: u64, how: &str| {
        let file = file.to_str().unwrap();
        Role::start("tree-readers", &[&GREEDY.to_string(), &threads.to_string(), &path, how, file])
    };
    let (alone, _) = reads_of_root(&daemon, &count);
    let few = readers(4, "each");
    let begun = || count.number().load(Ordering::Relaxed) > 0;
    assert!(eventually(Duration::from_secs(10), begun));
    let (beside_few, few_reads) = reads_of_root(&daemon, &count);
    drop(few);
    let many = readers(threads, "each");
    let queued = || user(&daemon, GREEDY).is_some_and(|user| number(&user["waiting"]) > threads / 2);
    assert!(eventually(Duration::from_secs(10), queued), "{:?}", user(&daemon, GREEDY));
    let (beside_many, many_reads) = reads_of_root(&daemon, &count);
    note(format!(
        "root's stat: {alone:?} alone; {beside_few:?} beside 4 threads of a user, which read {few_reads} times meanwhile; \
         {beside_many:?} beside {threads}, which read {many_reads} times"
    ));
    assert!(many_reads < threads / 4, "{many_reads} reads of another user for each of root's");
    drop(many);

    // All threads of one open file wait for one worker.
    let shared = readers(threads, "shared");
    let mut working = BTreeSet::new();
    let mut seen = || {
        let user = user(&daemon, GREEDY)?;
        working.insert(number(&user["working"]));
        Some(number(&user["waiting"]))
    };
    assert!(eventually(Duration::from_secs(10), || seen().is_some_and(|waiting| waiting > threads / 2)));
    let (beside_shared, shared_reads) = reads_of_root(&daemon, &count);
    for _ in 0..20 {
        seen();
    }
    assert!(working.iter().all(|working| *working <= 1), "{working:?} workers at one file");
    drop(shared);
    note(format!("{beside_shared:?} beside {threads} of one open file, which read {shared_reads} times"));
    assert!(shared_reads < threads / 4, "{shared_reads} reads of another user for each of root's");
}

/// Nested groups with names of maximum length, so that paths are long; removed when dropped.
struct Deep(Vec<std::path::PathBuf>);

impl Drop for Deep {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            eventually(Duration::from_secs(2), || fs::remove_dir(folder).is_ok());
        }
    }
}

fn paths_of_cgroups_are_bounded_and_shown() {
    const LEVELS: usize = 12;
    const NAME: usize = 250;
    let groups = pace::work(120, 20);
    let daemon = Daemon::start();
    let base = topstat_live::cgroup::Group::new("paths").expect("a group");
    let mut deep = Deep(Vec::new());
    let mut folder = base.folder().to_owned();
    for _ in 0..LEVELS {
        folder.push("x".repeat(NAME));
        fs::create_dir(&folder).expect("a deep group");
        deep.0.push(folder.clone());
    }
    // Each socket belongs to the group of its maker; the connections are idle ones of this process.
    let own = topstat_live::cgroup::path_of(std::process::id(), "").expect("its group");
    let back = base.folder().parent().expect("its parent").join("cgroup.procs");
    let mut sockets = Vec::new();
    let mut shown = 0;
    for number in 0..groups {
        let group = folder.join(format!("{number}-{}", "y".repeat(NAME - 10)));
        fs::create_dir(&group).expect("a group");
        deep.0.push(group.clone());
        fs::write(group.join("cgroup.procs"), "0").expect("go there");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        fs::write(&back, "0").expect("go back");
        socket.send_to(&[0; 1400], socket.local_addr().expect("its address")).expect("send");
        sockets.push(socket);
        if number % 50 == 49 || number + 1 == groups {
            let json = daemon.json("udp_v4/conns_bytes");
            shown = shown.max(json.value["rows"].to_string().matches("yyyy\"").count());
        }
    }
    assert_eq!(topstat_live::cgroup::path_of(std::process::id(), ""), Some(own));
    let paths = daemon.own()["paths"].clone();
    let (entries, bytes, most) = (number(&paths["entries"]), number(&paths["bytes"]), number(&paths["most_bytes"]));
    assert!(shown > 0, "no path was shown");
    assert!(entries > 0 && bytes > (LEVELS * NAME) as u64 && bytes <= most && most <= 1 << 20, "{paths}");
    let text = daemon.read("self");
    assert!(text.contains("\npaths\t") && text.contains("\npath_bytes\t"), "{text}");
    // No reader uses the paths any more.
    let forgotten = || number(&daemon.own()["paths"]["bytes"]) == 0;
    let begun = Instant::now();
    assert!(eventually(Duration::from_secs(30), forgotten), "{}", daemon.own()["paths"]);
    note(format!("{entries} paths of {bytes} bytes, forgotten {:.0} s later", begun.elapsed().as_secs_f64()));
}
