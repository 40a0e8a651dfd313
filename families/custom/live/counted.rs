// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of the user's own, beside what the test itself has done.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::fd::FromRawFd as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use topstat_families::custom::{self, System};
use topstat_kernel::Source;
use topstat_live::cgroup::Group;
use topstat_live::watch::{everything, load, snapshot};
use topstat_live::{Case, case, eventually, note, role};
use topstat_model::definition;
use topstat_model::{Field, Row, Snapshot};

pub fn cases() -> Vec<Case> {
    vec![
        case!(calls_are_counted_one_by_one, Root, Tracefs; EveryKernel, Gate),
        case!(amounts_are_added_up, Root, Tracefs; EveryKernel),
        case!(conditions_choose_events, Root, Tracefs; EveryKernel),
        case!(time_between_two_events, Root, Tracefs; EveryKernel, Gate),
        case!(arguments_of_the_kernel_s_own_types, Root, Tracefs; EveryKernel, Gate),
        case!(bits_of_a_word, Root, Tracefs; EveryKernel),
        case!(functions_of_a_library, Root, Tracefs; EveryKernel),
        case!(functions_of_the_kernel, Root, Tracefs, Kprobes; EveryKernel, Gate),
        case!(groups_are_those_that_all_families_show, Root, Tracefs, CgroupsOfBoth),
        case!(a_definition_s_period_passes_before_the_first_rows, Root, Tracefs),
        case!(samples_of_a_clock, Root, Tracefs; EveryKernel),
        case!(the_large_displace_the_small, Root, Tracefs; EveryKernel, Gate),
        case!(amounts_below_zero_are_counted_apart, Root, Tracefs),
    ]
}

thread_local! {
    /// The sample of the latest table of this thread. Elsewhere all tests run in one process, which has one table of a name.
    static SAMPLE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The path of the latest table of this thread.
pub fn path() -> String {
    format!("{}/table", SAMPLE.with_borrow(String::clone))
}

/// Adds the table of a definition.
fn add(sample: &str, text: &str) {
    let definition = definition::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    custom::add(sample, "table", &definition, &System::new()).unwrap_or_else(|trouble| panic!("{text}: {trouble:?}"));
}

/// Loads the table of a definition, for this process: `$PID` in the text stands for its number.
pub fn watch(text: &str) -> Box<dyn Source> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    SAMPLE.set(format!("trial_{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    add(&SAMPLE.with_borrow(String::clone), &text.replace("$PID", &std::process::id().to_string()));
    load(&[&path()], &everything())
}

pub fn field(snapshot: &Snapshot, row: &Row, column: &str) -> Field {
    row.object[snapshot.column(column).unwrap_or_else(|| panic!("no column {column}"))].clone()
}

pub fn number(snapshot: &Snapshot, row: &Row, column: &str) -> u64 {
    match field(snapshot, row, column) {
        Field::U64(number) => number,
        other => panic!("{column} is {other:?}"),
    }
}

/// Rows and the rest are the total, and nothing is lost.
pub fn whole(snapshot: &Snapshot) {
    let rows: u64 = snapshot.rows.iter().map(|row| row.value).sum();
    assert_eq!(rows + snapshot.other, snapshot.total);
    let lost: Vec<_> = snapshot.lost.counters().filter(|(_, count)| *count != 0).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// Makes a system call that nothing else in this process makes.
fn call() {
    // SAFETY: it takes no arguments, and writes nothing.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

fn calls_are_counted_one_by_one() {
    let mut source = watch("syscalls:sys_enter_getppid by pid, comm where pid = $PID");
    for _ in 0..1234 {
        call();
    }
    let found = snapshot(&mut *source, &path());
    whole(&found);
    let [row] = &found.rows[..] else { panic!("{:?}", found.rows) };
    assert_eq!((row.value, found.total, found.proven), (1234, 1234, 1));
    assert_eq!(number(&found, row, "pid"), u64::from(std::process::id()));
    let comm = std::fs::read_to_string("/proc/thread-self/comm").expect("comm");
    assert_eq!(field(&found, row, "comm"), Field::from(comm.trim_end()));
}

/// A process in a group of v2 counts to it. A process in v2's root counts to its group of v1.
fn groups_are_those_that_all_families_show() {
    let v2 = Group::new("custom").expect("a cgroup of v2");
    let (one, two) = (Group::of_v1("one").expect("a cgroup of v1"), Group::of_v1("two").expect("a cgroup of v1"));
    let mut source = watch("syscalls:sys_enter_kill by pid, cgroup where sig = 0 period 60s");
    let call = "read go; i=0; while [ $i -lt 100 ]; do kill -0 $$; i=$((i+1)); done; read end";
    let start = |groups: &[&Group]| {
        let mut shell = Command::new("sh").args(["-c", call]).stdin(Stdio::piped()).spawn().expect("a shell");
        groups.iter().for_each(|group| group.take(shell.id()));
        writeln!(shell.stdin.as_mut().expect("its input"), "go").expect("the shell reads");
        shell
    };
    let shells = [(start(&[&v2, &one]), &v2), (start(&[&one]), &one), (start(&[&two]), &two)];
    for (shell, group) in &shells {
        let mut seen = None;
        let counted = eventually(Duration::from_secs(10), || {
            let found = snapshot(&mut *source, &path());
            // Other programs ask for process groups, whose numbers are negative.
            let row = found.rows.iter().find(|row| field(&found, row, "pid") == Field::from(u64::from(shell.id())));
            seen = row.map(|row| (row.value, field(&found, row, "cgroup")));
            seen.as_ref().is_some_and(|(value, _)| *value == 100)
        });
        assert!(counted, "{seen:?}");
        assert_eq!(seen.expect("it was counted").1, Field::from(group.path.as_str()));
    }
    for (mut shell, _) in shells {
        writeln!(shell.stdin.as_mut().expect("its input"), "end").expect("the shell reads");
        assert!(shell.wait().expect("the shell ends").success());
    }
    let mut of_one =
        watch(&format!("syscalls:sys_enter_kill by pid where sig = 0 and cgroup = {:?} period 60s", one.path));
    let mut shells = [start(&[&one]), start(&[&two])];
    for shell in &mut shells {
        writeln!(shell.stdin.as_mut().expect("its input"), "end").expect("the shell reads");
        assert!(shell.wait().expect("the shell ends").success());
    }
    let found = snapshot(&mut *of_one, &path());
    let pids: Vec<_> = found.rows.iter().map(|row| (number(&found, row, "pid"), row.value)).collect();
    assert_eq!(pids, [(shells[0].id().into(), 100)]);
}

fn amounts_are_added_up() {
    let mut source = watch("syscalls:sys_enter_write by fd, comm add count where pid = $PID unit bytes");
    let mut files = [File::create("/dev/null").expect("a file"), File::create("/dev/null").expect("a file")];
    let mut sums = [0, 0];
    for size in 1..=100_u64 {
        for (file, sum) in files.iter_mut().zip(&mut sums) {
            *sum += size;
            file.write_all(&vec![0; usize::try_from(size).expect("small")]).expect("a write");
        }
        files[0].write_all(&[0; 1000]).expect("a write");
        sums[0] += 1000;
    }
    let found = snapshot(&mut *source, &path());
    whole(&found);
    for (file, (sum, times)) in files.iter().zip([(sums[0], 200), (sums[1], 100)]) {
        let fd = u64::try_from(std::os::fd::AsRawFd::as_raw_fd(file)).expect("a descriptor");
        let row = found.rows.iter().find(|row| number(&found, row, "fd") == fd).expect("its row");
        assert_eq!((row.value, number(&found, row, "events")), (sum, times));
        assert_eq!(number(&found, row, "mean"), sum / times);
        assert_eq!(field(&found, row, "at_most"), Field::None, "nothing was displaced");
    }
    assert_eq!(number(&found, &found.rows[0], "longest"), 1000);
}

/// A table with a period of 3 s begins with a second in which this test makes calls at a steady rate: before the period is over, a
/// rate would be too low.
fn a_definition_s_period_passes_before_the_first_rows() {
    let of = format!("syscalls:sys_enter_write by fd where pid = {} period 3s", std::process::id());
    let topstat = |more: &[&str]| {
        let mut command = role::command("topstat");
        command.args(["top", &of]).args(more).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("start topstat")
    };
    let begun = Instant::now();
    let mut top = topstat(&["-o", "json"]);
    let mut file = File::create("/dev/null").expect("a file");
    while top.try_wait().expect("ask for its end").is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not end");
        file.write_all(b"x").expect("a write");
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = top.wait_with_output().expect("its output");
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(document["period_ms"], 3000);
    assert!(document["total"].as_u64().expect("a number") > 0, "{document}");
    let refused = topstat(&["--period", "2s"]).wait_with_output().expect("its output");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("its definition has the period 3s"), "{said}");
}

fn conditions_choose_events() {
    let own = std::process::id();
    let comm = std::fs::read_to_string("/proc/thread-self/comm").expect("comm");
    let comm = comm.trim_end();
    let wanted = [
        (format!("pid = {own} and count >= 50 and count < 60"), 10),
        (format!("pid = {own} and count & 64"), 37),
        (format!("pid = {own} and comm = {comm:?} and count != 7"), 99),
        (format!("pid = {own} and comm != {comm:?}"), 0),
    ];
    let load = |(i, (condition, _)): (usize, &(String, u64))| {
        let sample = format!("chosen_{i}");
        add(&sample, &format!("syscalls:sys_enter_write by fd where {condition}"));
        load(&[&format!("{sample}/table")], &everything())
    };
    let sources: Vec<_> = wanted.iter().enumerate().map(load).collect();
    let mut null = File::create("/dev/null").expect("a file");
    for size in 1..=100 {
        null.write_all(&vec![0; size]).expect("a write");
    }
    let found: Vec<_> = sources
        .into_iter()
        .enumerate()
        .map(|(i, mut source)| snapshot(&mut *source, &format!("chosen_{i}/table")).total)
        .collect();
    assert_eq!(found, wanted.map(|(_, total)| total));
}

fn time_between_two_events() {
    let mut source = watch(
        "from syscalls:sys_enter_clock_nanosleep to syscalls:sys_exit_clock_nanosleep on tid by pid where pid = $PID",
    );
    let begun = Instant::now();
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let elapsed = begun.elapsed();
    let found = snapshot(&mut *source, &path());
    whole(&found);
    let [row] = &found.rows[..] else { panic!("{:?}", found.rows) };
    let slept = Duration::from_nanos(row.value);
    assert!(slept >= Duration::from_millis(100) && slept <= elapsed, "{slept:?} of {elapsed:?}");
    assert_eq!(number(&found, row, "events"), 5);
    let longest = Duration::from_nanos(number(&found, row, "longest"));
    assert!(longest >= Duration::from_millis(20) && longest <= slept, "{longest:?} of {slept:?}");
}

fn arguments_of_the_kernel_s_own_types() {
    let mut source = watch("btf:sched_process_exec by p.comm, p.real_parent.tgid where p.real_parent.tgid = $PID");
    for _ in 0..7 {
        assert!(std::process::Command::new("true").status().expect("true").success());
    }
    let found = snapshot(&mut *source, &path());
    whole(&found);
    let [row] = &found.rows[..] else { panic!("{:?}", found.rows) };
    assert_eq!((row.value, field(&found, row, "comm")), (7, "true".into()));
    assert_eq!(number(&found, row, "tgid"), u64::from(std::process::id()));
}

/// The options SO_REUSEADDR, of 4 bits, and SO_REUSEPORT, of one bit, share a byte of a socket.
fn bits_of_a_word() {
    let definition = "btf:inet_sock_set_state by sk.__sk_common.skc_reuse, sk.__sk_common.skc_reuseport, \
                      sk.__sk_common.skc_num where newstate = 10 and pid = $PID";
    let mut source = watch(definition);
    let one_port =
        "btf:inet_sock_set_state by sk.__sk_common.skc_num where sk.__sk_common.skc_reuseport = 1 and pid = $PID";
    let all = path();
    let mut chosen = watch(&format!("{one_port} and newstate = 10"));
    let one = 1_i32;
    let listen = |options: &[i32]| {
        // SAFETY: plain system calls; the socket belongs to the returned listener alone, and an option is an integer.
        let listener = unsafe {
            let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
            for option in options {
                assert_eq!(libc::setsockopt(socket, libc::SOL_SOCKET, *option, (&raw const one).cast(), 4), 0);
            }
            // The port is known before the state changes.
            let mut address: libc::sockaddr_in = std::mem::zeroed();
            address.sin_family = libc::AF_INET as u16;
            let size = size_of_val(&address) as libc::socklen_t;
            assert_eq!(libc::bind(socket, (&raw const address).cast(), size), 0);
            assert_eq!(libc::listen(socket, 1), 0);
            TcpListener::from_raw_fd(socket)
        };
        u64::from(listener.local_addr().expect("its address").port())
    };
    let truth = [
        (listen(&[]), 0, 0),
        (listen(&[libc::SO_REUSEADDR]), 1, 0),
        (listen(&[libc::SO_REUSEPORT]), 0, 1),
        (listen(&[libc::SO_REUSEADDR, libc::SO_REUSEPORT]), 1, 1),
    ];
    let found = snapshot(&mut *source, &all);
    whole(&found);
    let shown = |row| ["skc_num", "skc_reuse", "skc_reuseport"].map(|column| number(&found, row, column));
    let mut rows: Vec<_> = found.rows.iter().map(shown).map(|[port, address, same]| (port, address, same)).collect();
    let mut wanted = truth.to_vec();
    rows.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(rows, wanted);
    let found = snapshot(&mut *chosen, &path());
    let mut ports: Vec<_> = found.rows.iter().map(|row| number(&found, row, "skc_num")).collect();
    ports.sort_unstable();
    let mut wanted: Vec<_> = truth.iter().filter(|(_, _, same)| *same == 1).map(|(port, ..)| *port).collect();
    wanted.sort_unstable();
    assert_eq!(ports, wanted);
}

/// The file of the library with the function that this process calls.
fn libc_path() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("/libc.so"));
    path.expect("a C library").to_owned()
}

fn functions_of_a_library() {
    let library = libc_path();
    let mut source = watch(&format!("uprobe:{library}:getenv by str.arg0 where pid = $PID"));
    for _ in 0..21 {
        // SAFETY: the name ends with a zero, and no thread changes the environment.
        unsafe { libc::getenv(c"TOPSTAT_OF_THE_TEST".as_ptr()) };
    }
    let found = snapshot(&mut *source, &path());
    whole(&found);
    let row = found.rows.iter().find(|row| field(&found, row, "arg0") == "TOPSTAT_OF_THE_TEST".into());
    assert_eq!(row.map(|row| row.value), Some(21), "{:?}", found.rows);
}

fn functions_of_the_kernel() {
    let mut source = watch("kprobe:vfs_write by comm add count where pid = $PID");
    let mut null = File::create("/dev/null").expect("a file");
    for _ in 0..50 {
        null.write_all(&[0; 77]).expect("a write");
    }
    let found = snapshot(&mut *source, &path());
    whole(&found);
    assert_eq!(found.total, 50 * 77);
}

/// A sample stands for its period: the sum is the CPU time of this thread. Other threads of the process may belong to other tests.
fn samples_of_a_clock() {
    let tid = rustix::thread::gettid();
    // The samples begin before all is loaded.
    let loading = Instant::now();
    let mut source = watch(&format!("perf:cpu-clock:1ms by tid where tid = {tid}"));
    let before = topstat_live::own_cpu_time();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        std::hint::black_box(begun.elapsed());
    }
    let used = topstat_live::own_cpu_time().saturating_sub(before);
    let found = snapshot(&mut *source, &path());
    let elapsed = loading.elapsed();
    let [row] = &found.rows[..] else { panic!("{:?}", found.rows) };
    let sampled = Duration::from_nanos(row.value);
    note(format!("sampled {sampled:?} of {used:?}"));
    // The clock goes on while the hypervisor runs other machines. A timer that comes late takes one sample for all of that time.
    assert!(sampled <= elapsed && sampled >= used.mul_f64(0.3), "{sampled:?} of {used:?} in {elapsed:?}");
}

/// Of many keys the heavy ones have rows, and the true value of each is between its value and `at_most`.
fn the_large_displace_the_small() {
    let mut source = watch("syscalls:sys_enter_write by count add count where pid = $PID keys 50 unit bytes");
    let mut null = File::create("/dev/null").expect("a file");
    let bytes = vec![0; 1 << 16];
    let mut write = |size: usize| null.write_all(&bytes[..size]).expect("a write");
    let mut truth = BTreeMap::<u64, u64>::new();
    let mut seed = 1_u64;
    let begun = Instant::now();
    // Time passes between writes, for the place of a displaced key is free after a while.
    for round in 0..300_u64 {
        for _ in 0..100 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let small = 1 + (seed >> 33) % 3000;
            write(usize::try_from(small).expect("small"));
            *truth.entry(small).or_default() += small;
        }
        for heavy in 0..5_u64 {
            let size = 40_000 + heavy;
            // The heavy keys come when all places are taken.
            if round > 30 {
                write(usize::try_from(size).expect("small"));
                *truth.entry(size).or_default() += size;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let found = snapshot(&mut *source, &path());
    note(format!("{} rows in {:?}, {} of {} other", found.rows.len(), begun.elapsed(), found.other, found.total));
    assert_eq!(found.total, truth.values().sum::<u64>());
    let rows: u64 = found.rows.iter().map(|row| row.value).sum();
    assert_eq!(rows + found.other, found.total);
    let mut heavy = 0;
    for row in &found.rows {
        let key = number(&found, row, "count");
        let most = match field(&found, row, "at_most") {
            Field::U64(most) => most,
            _ => row.value,
        };
        let exact = truth[&key];
        assert!(row.value <= exact && exact <= most, "{key}: {} <= {exact} <= {most}", row.value);
        heavy += u32::from(key >= 40_000);
    }
    assert_eq!(heavy, 5, "all heavy keys have rows");
    assert!(found.rows.iter().take(5).all(|row| number(&found, row, "count") >= 40_000), "they are at the top");
}

fn amounts_below_zero_are_counted_apart() {
    let mut source = watch("syscalls:sys_exit_close by comm add ret where pid = $PID");
    for _ in 0..9 {
        // SAFETY: no such descriptor is open.
        unsafe { libc::close(-1) };
    }
    let found = snapshot(&mut *source, &path());
    assert_eq!(found.total, 0);
    let negative = found.lost.counters().find(|(name, _)| *name == "negative").map(|(_, count)| count);
    assert_eq!(negative, Some(9));
}
