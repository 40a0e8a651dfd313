// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A user with the right to make control groups makes more than there are places for, on a kernel without storage of cgroups. No
//! other group may lose its row by that, and `proven` must reveal groups without a place.

use serde_json::Value;
use topstat_kernel::Options;
use topstat_live::accounts::schedstat_of;
use topstat_live::cgroup::Group;
use topstat_live::role::{Role, say, told};
use topstat_live::watch::{ENDLESS_MS, table};
use topstat_live::{Case, alone, note};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Fills: many_groups, Root, CgroupV2, TaskStorage; Daemon),
        alone!(Fills: many_groups_in_an_array, Root, CgroupV2, TaskStorage; Computed, Daemon),
    ]
}

/// Places of the array, few, so that it is soon full.
const PLACES: u32 = 64;
const MANY: usize = 150;
const PATH: &str = "cgroups/cpu";
/// The tolerance of a row: the kernel's account excludes the hypervisor's time, and topstat counts the moving of a task.
const TOLERANCE: f64 = 0.1;

/// Plays the role, if it is this one.
pub fn play(role: &str, arguments: &[String]) -> Option<std::process::ExitCode> {
    (role == "group-watcher").then(|| watcher(arguments.first().expect("how many groups")))?;
    Some(std::process::ExitCode::SUCCESS)
}

/// A role: loads the table, with an array for `groups` groups if the kernel needs one. `refill` orders all groups again; any
/// other line is answered by a snapshot as JSON.
fn watcher(groups: &str) {
    let groups = groups.parse().expect("how many groups");
    let options = Options { period_ms: ENDLESS_MS, groups, ..Options::default() };
    let mut source = topstat_kernel::load(&[table(PATH)], &options).expect("load");
    say("watching");
    while let Some(line) = told() {
        if line == "refill" {
            say(format!("refilled {}", source.refill(&table(PATH)).expect("refill")));
            continue;
        }
        let snapshot = source.snapshot(&table(PATH)).expect("a snapshot");
        topstat_model::json::write(&snapshot, &mut std::io::stdout()).expect("write it");
    }
}

/// The variant of this kernel.
fn many_groups() {
    // SAFETY: takes a number and no options.
    let storage =
        unsafe { libbpf_sys::libbpf_probe_bpf_map_type(libbpf_sys::BPF_MAP_TYPE_CGRP_STORAGE, std::ptr::null()) };
    scenario("", storage == 1);
}

/// The variant of an older kernel.
fn many_groups_in_an_array() {
    scenario("1", false);
}

fn snapshot(watcher: &mut Role) -> Value {
    watcher.tell("snapshot");
    serde_json::from_str(&watcher.hear()).expect("JSON")
}

fn rows(snapshot: &Value) -> &[Value] {
    snapshot["rows"].as_array().expect("rows")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn value_of(snapshot: &Value, group: &Group) -> Option<u64> {
    let row = rows(snapshot).iter().find(|row| row["object"]["cgroup"] == group.path.as_str())?;
    Some(number(&row["value"]))
}

/// Uses `ms` milliseconds of a CPU in the group. Returns the time by the kernel's account.
fn burn(burner: &mut Role, group: &Group, ms: u64) -> f64 {
    let used = |burner: &Role| schedstat_of(burner.pid()).run_ns;
    group.take(burner.pid());
    let before = used(burner);
    burner.tell(&ms.to_string());
    burner.expect("burnt");
    (used(burner) - before) as f64
}

fn assert_near(found: Option<u64>, truth: f64, what: &str) {
    let found = found.unwrap_or_else(|| panic!("{what} used {truth} ns and has no row")) as f64;
    note(format!("{what}: found {found} ns, truth {truth} ns"));
    assert!((found - truth).abs() <= truth * TOLERANCE + 5e6, "{what}: {found} ns, but it was {truth} ns");
}

/// No proven row is smaller than the amount without a row.
fn assert_honest(snapshot: &Value, missing: f64) {
    let proven = usize::try_from(number(&snapshot["proven"])).expect("few rows");
    let smallest = rows(snapshot)[..proven].last().map_or(f64::MAX, |row| number(&row["value"]) as f64);
    note(format!("{proven} of {} rows proven, lost {}", rows(snapshot).len(), snapshot["lost"]));
    assert!(smallest >= missing * (1.0 - TOLERANCE), "{missing} ns have no row, and one of {smallest} ns is proven");
}

/// `all`: there is a place for every group.
fn scenario(plain: &str, all: bool) {
    let subtree = Group::below_root("hog").expect("make a cgroup");
    let outside = Group::below_root("outside").expect("make a cgroup");
    let mut many: Vec<Group> = Vec::new();
    let last = subtree.child("last").expect("make a cgroup");
    let mut watcher = Role::start_with("group-watcher", &[&PLACES.to_string()], &[("TOPSTAT_PLAIN", plain)]);
    let mut hog = Role::start("burner", &["ts-hog"]);
    let mut other = Role::start("burner", &["ts-other"]);
    watcher.expect("watching");
    hog.expect("ready");
    other.expect("ready");
    for i in 0..MANY {
        let group = subtree.child(&i.to_string()).expect("make a cgroup");
        burn(&mut hog, &group, 0);
        many.push(group);
    }

    let truth = burn(&mut other, &outside, 200);
    let before = snapshot(&mut watcher);
    assert_near(value_of(&before, &outside), truth, "a group elsewhere");
    let (objects, lost) = (number(&before["objects"]), number(&before["lost"]["full"]));
    if all {
        assert!(objects >= MANY as u64 && lost == 0, "{objects} objects, {lost} lost");
    } else {
        assert!(objects <= u64::from(PLACES) && lost > 0, "{objects} objects, {lost} lost");
    }

    // One of the many is now the largest of all groups.
    let truth = burn(&mut other, &last, 700);
    let after = snapshot(&mut watcher);
    if all {
        assert_near(value_of(&after, &last), truth, "one of the many");
        assert_eq!(number(&after["lost"]["full"]), 0);
    } else {
        assert_eq!(value_of(&after, &last), None, "it was to have no place");
        assert_honest(&after, truth);
    }

    // Places are free again.
    outside.take(hog.pid());
    drop(many);
    let again = subtree.child("again").expect("make a cgroup");
    let truth = burn(&mut other, &again, 200);
    watcher.tell("refill");
    let refilled = watcher.expect("refilled");
    let end = snapshot(&mut watcher);
    assert_near(value_of(&end, &again), truth, "a group after them");
    assert!(number(&end["proven"]) > 0, "nothing is proven although all groups were ordered again: {end}");
    note(format!("{objects} objects, {} after the many, {refilled} of them ordered again", end["objects"]));
    outside.take(other.pid());
    hog.finish();
    other.finish();
    watcher.finish();
}
