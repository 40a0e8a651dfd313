// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events of this kernel.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use libbpf_rs::btf::Btf;

use super::btf::{self, Arguments};
use super::format::Record;
use super::system::System;
use super::{Listed, similar};

/// The group of the kernel's own records: no program can be attached to them.
const OWN: &str = "ftrace";

/// In front of the name of a BTF tracepoint.
const BTF: &str = "btf:";

/// All events whose name (`block:block_rq_issue`, `btf:block_rq_issue`) matches a pattern, with their fields, in order.
/// A pattern with `*` or `?` matches a whole name, and another one a part of it.
///
/// # Errors
/// Tracefs can't be read, or the kernel's types can't, if the pattern is for BTF tracepoints only.
pub fn list(system: &System, pattern: &str) -> Result<Vec<(String, Vec<Listed>)>, String> {
    let mut found = Vec::new();
    if !pattern.starts_with(BTF) {
        for (group, name) in tracepoints(system)? {
            let title = format!("{group}:{name}");
            // An event may end while the list is made.
            if is_match(pattern, &title)
                && let Ok(format) = read_format(system, &group, &name)
            {
                found.push((title, Record::parse(&group, &format).fields()));
            }
        }
    }
    match system.btf() {
        Ok(btf) => {
            for (name, tracepoint) in btf::tracepoints(btf) {
                let title = format!("{BTF}{name}");
                if is_match(pattern, &title)
                    && let Some(arguments) = Arguments::of(btf, &tracepoint)
                {
                    found.push((title, arguments.fields()));
                }
            }
        }
        Err(why) if pattern.starts_with(BTF) => return Err(why),
        Err(_) => {}
    }
    Ok(found)
}

/// Whether a name matches a pattern.
fn is_match(pattern: &str, name: &str) -> bool {
    if !pattern.contains(['*', '?']) {
        return name.contains(pattern);
    }
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut star = None; // the last one, and the end of the part of the name that it stands for
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[n] => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((at, reaches)) = star else { return false };
                star = Some((at, reaches + 1));
                (p, n) = (at + 1, reaches + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Groups and names of all tracepoints, in order.
fn tracepoints(system: &System) -> Result<BTreeSet<(String, String)>, String> {
    let folders = |path: std::path::PathBuf| -> Result<Vec<String>, String> {
        let entries = fs::read_dir(&path).map_err(|error| system.unreadable(&path, &error))?;
        let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        Ok(folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    };
    let mut found = BTreeSet::new();
    for group in folders(system.events())?.into_iter().filter(|group| group != OWN) {
        for name in folders(system.events().join(&group)).unwrap_or_default() {
            found.insert((group.clone(), name));
        }
    }
    Ok(found)
}

/// The text of an event's format.
pub fn read_format(system: &System, group: &str, name: &str) -> Result<String, String> {
    let is_plain = |part: &str| !part.is_empty() && !part.contains(['/', '\0']) && part != "." && part != "..";
    if !is_plain(group) || !is_plain(name) {
        return Err(format!("'{group}:{name}' is no event: an event is GROUP:NAME"));
    }
    if group == OWN {
        return Err(format!("{group}:{name} cannot be attached: the kernel gives records of {OWN} to no program"));
    }
    let path = system.events().join(group).join(name).join("format");
    fs::read_to_string(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if system.events().is_dir() => {
            no_tracepoint(system, group, name)
        }
        _ => system.unreadable(&path, &error),
    })
}

fn no_tracepoint(system: &System, group: &str, name: &str) -> String {
    let all = tracepoints(system).unwrap_or_default();
    let title = format!("{group}:{name}");
    let titles: Vec<String> = all.iter().map(|(group, name)| format!("{group}:{name}")).collect();
    let elsewhere = all.iter().filter(|(_, of_other)| of_other == name).map(|(group, name)| format!("{group}:{name}"));
    let elsewhere: Vec<String> = elsewhere.collect();
    let perhaps = if elsewhere.is_empty() {
        let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
        similar::perhaps(&title, &titles)
    } else {
        format!(", perhaps '{}'", elsewhere.join("' or '"))
    };
    let in_group = all.iter().filter(|(of, _)| of == group).count();
    if in_group == 0 && perhaps.is_empty() {
        return format!("there is no event '{title}', and no group '{group}'; 'ls --events' lists all");
    }
    format!("there is no event '{title}'{perhaps}; 'ls --events {group}:' lists {in_group} of this group")
}

/// The message for a BTF tracepoint that the kernel does not have.
pub fn no_btf_event(btf: &Btf<'static>, name: &str) -> String {
    let all = btf::tracepoints(btf);
    let all: Vec<&str> = all.keys().map(String::as_str).collect();
    let perhaps = similar::perhaps(name, &all);
    let remedy = "events of modules have records only: use GROUP:NAME";
    format!("there is no event 'btf:{name}'{perhaps}; 'ls --events btf:' lists all, and {remedy}")
}

#[cfg(test)]
mod tests {
    use super::is_match;

    #[test]
    fn patterns_match() {
        for (pattern, name, expected) in [
            ("", "a:b", true),
            ("rq", "block:rq_issue", true),
            ("*", "a:b", true),
            ("block:*", "block:rq", true),
            ("block:*", "xblock:rq", false),
            ("*:*open*at", "syscalls:sys_enter_openat", true),
            ("*:*open?at", "syscalls:sys_enter_openat", false),
            ("a?c", "abc", true),
            ("a?", "a", false),
            ("a*b*c", "a_b_b_c", true),
            ("a*b*c", "a_b_b_cd", false),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }
}
