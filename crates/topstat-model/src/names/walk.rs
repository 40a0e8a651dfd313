// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a path from the root on, up to the component that decides.

use std::borrow::Cow;

use super::place::{Container, Kind, Place, Pod, Qos, is_id};
use super::unit::{self, Unit};

/// What precedes an id, and a dash, in the name of a container's cgroup.
const RUNTIMES: [(&str, Kind); 5] = [
    ("docker", Kind::Docker),
    ("cri-containerd", Kind::Containerd),
    ("nerdctl", Kind::Containerd),
    ("crio", Kind::Crio),
    ("libpod", Kind::Podman),
];
/// What precedes an id, and a dash, in the name of the cgroup of a container's monitor.
const MONITORS: [&str; 2] = ["crio-conmon", "libpod-conmon"];
/// Units of systemd that are runtimes themselves: they name the cgroups below.
const RUNTIME_UNITS: [&str; 6] = ["docker", "containerd", "crio", "kubelet", "k3s", "rke2-server"];
/// What precedes the id in Podman's cgroup of a container within the unit that started it (`--cgroups=split`, and Quadlet).
const PAYLOAD: &str = "libpod-payload-";
/// The directory of Podman's containers and pods without systemd.
const LIBPOD_PARENT: &str = "libpod_parent";
/// What precedes the id of a pod of Podman in the name of its slice.
const LIBPOD_POD: &str = "-libpod_pod_";
/// The directory of LXC containers before version 4.
const LXC: &str = "lxc";
/// What precedes the name of an LXC container, in its cgroup's name and in its monitor's.
const LXC_PAYLOAD: &str = "lxc.payload.";
const LXC_MONITOR: &str = "lxc.monitor.";
/// The cgroup of all pods.
const KUBEPODS: &str = "kubepods";
/// The longest uid of a pod. Kubernetes's have 36 characters, or 32 if the pod comes from a file.
const MAX_UID: usize = 64;

pub(super) fn walk(path: &str) -> Place<'_> {
    let root = Place {
        kind: Kind::Root,
        name: "/".into(),
        pod: None,
        container: None,
        user: None,
        delegated: false,
        rest: "",
    };
    let mut walk = Walk { path, place: root, above: "", pods: None };
    let mut end = 0;
    for name in path.split('/') {
        end += name.len();
        if !name.is_empty() {
            if walk.step(unit::unmask(name), end) == Step::Decided {
                break;
            }
            walk.above = name;
        }
        end += 1;
    }
    walk.place
}

struct Walk<'a> {
    path: &'a str,
    /// The place up to here.
    place: Place<'a>,
    /// The component before this one.
    above: &'a str,
    /// The class of the pods here; `None`: these are no cgroups of pods.
    pods: Option<Qos>,
}

#[derive(PartialEq, Eq)]
enum Step {
    /// The components below belong to the place.
    Decided,
    /// The next component may tell more.
    Further,
}

impl<'a> Walk<'a> {
    /// Reads a component, which ends at byte `end` of the path.
    fn step(&mut self, name: &'a str, end: usize) -> Step {
        if self.above == LIBPOD_PARENT && is_id(name) {
            return self.pod(Pod { uid: name.into(), qos: None }, end);
        }
        if let Some(slice) = in_runcs_form(name).and_then(|(slice, ..)| slice.strip_suffix(".slice")) {
            self.pods_slice(slice, end);
        }
        if let Some(container) = container_of(name, self.above) {
            self.place.container = Some(container);
            self.found(container.runtime, container.id, end);
            return Step::Decided;
        }
        if let Some(monitored) = monitor_of(name) {
            self.found(Kind::Monitor, monitored, end);
            return Step::Decided;
        }
        match Unit::of(name) {
            Some(Unit::Slice(slice)) => self.slice(slice, name, end),
            Some(unit) => self.unit(unit, end),
            None => self.directory(name, end),
        }
    }

    fn found(&mut self, kind: Kind, name: impl Into<Cow<'a, str>>, end: usize) {
        self.place.kind = kind;
        self.place.name = name.into();
        self.place.rest = self.path[end..].trim_matches('/');
    }

    fn directory(&mut self, name: &'a str, end: usize) -> Step {
        if name == KUBEPODS || self.pods.is_some() && matches!(name, "burstable" | "besteffort") {
            return self.pods(name, end);
        }
        if let Some(qos) = self.pods
            && let Some(uid) = name.strip_prefix("pod").filter(|uid| is_uid(uid))
        {
            return self.pod(Pod { uid: uid.into(), qos: Some(qos) }, end);
        }
        if !matches!(self.place.kind, Kind::Root | Kind::Plain | Kind::Slice | Kind::Pods) {
            // A part of the user's manager, of the runtime's unit, or of the pod.
            return Step::Further;
        }
        self.found(Kind::Plain, self.path.trim_matches('/'), self.path.len());
        // An id behind a word that no known runtime uses: the components below are not the host's.
        let foreign = name.rsplit_once('-').is_some_and(|(_, id)| is_id(id));
        if foreign { Step::Decided } else { Step::Further }
    }

    fn slice(&mut self, slice: &'a str, name: &'a str, end: usize) -> Step {
        if let Some(user) = slice.strip_prefix("user-").and_then(|uid| uid.parse().ok()) {
            self.place.user = Some(user);
            self.found(Kind::User, user.to_string(), end);
        } else if let Some((_, id)) = slice.rsplit_once(LIBPOD_POD).filter(|(_, id)| is_id(id)) {
            self.pod(Pod { uid: id.into(), qos: None }, end);
        } else if !self.pods_slice(slice, end) {
            self.found(Kind::Slice, unit::decode(name), end);
        }
        Step::Further
    }

    /// A slice of Kubernetes. Its name begins with the names of the slices above: `kubepods-burstable-podU_I_D`. What precedes
    /// `kubepods` are the slices that the kubelet was told to use. Whether it is one.
    fn pods_slice(&mut self, slice: &'a str, end: usize) -> bool {
        let mut parts = slice.split('-').skip_while(|part| *part != KUBEPODS);
        let Some(kubepods) = parts.next() else { return false };
        self.pods(kubepods, end);
        for part in parts {
            match part.strip_prefix("pod").filter(|uid| is_uid(uid)) {
                Some(uid) => self.pod(Pod { uid: with_dashes(uid), qos: self.pods }, end),
                None => self.pods(part, end),
            };
        }
        true
    }

    fn pods(&mut self, part: &str, end: usize) -> Step {
        let (qos, name) = match part {
            "burstable" => (Qos::Burstable, "kubepods burstable"),
            "besteffort" => (Qos::BestEffort, "kubepods besteffort"),
            _ => (Qos::Guaranteed, KUBEPODS),
        };
        self.pods = Some(qos);
        self.found(Kind::Pods, name, end);
        Step::Further
    }

    fn pod(&mut self, pod: Pod<'a>, end: usize) -> Step {
        self.found(Kind::Pod, pod.uid.clone(), end);
        self.place.pod = Some(pod);
        Step::Further
    }

    fn unit(&mut self, unit: Unit<'a>, end: usize) -> Step {
        match unit {
            Unit::Service(name) if RUNTIME_UNITS.contains(&name) => {
                self.found(Kind::Service, name, end);
                return Step::Further;
            }
            Unit::Service(name) => {
                let user = name.strip_prefix("user@").and_then(|uid| uid.parse().ok());
                // A user's own unit of this name is no manager.
                if let Some(user) = user.filter(|_| !self.place.delegated) {
                    self.place.user = Some(user);
                    self.place.delegated = true;
                    self.found(Kind::User, user.to_string(), end);
                    return Step::Further;
                }
                match name.strip_prefix("systemd-nspawn@") {
                    Some(machine) => self.found(Kind::Machine, unit::decode(machine), end),
                    None => self.found(Kind::Service, self.name_of(unit, name), end),
                }
            }
            Unit::Mount(name) => self.found(Kind::Service, unit::mount_path(name), end),
            // The manager of a user itself.
            Unit::Scope("init") if self.place.kind == Kind::User => {}
            Unit::Scope(name) => {
                if let Some(session) = name.strip_prefix("session-") {
                    self.found(Kind::Session, session, end);
                } else if let Some(machine) = name.strip_prefix("machine-").filter(|_| self.above == "machine.slice") {
                    self.found(Kind::Machine, unit::decode(machine), end);
                } else {
                    self.found(Kind::Scope, self.name_of(unit, name), end);
                }
            }
            Unit::Slice(_) => unreachable!("slices have their own step"),
        }
        // A container of Podman in the unit that started it: the unit's name is the better one.
        let below = self.place.rest.split('/').next().unwrap_or_default();
        if let Some(id) = below.strip_prefix(PAYLOAD).filter(|id| is_id(id)) {
            self.place.container = Some(Container { id, runtime: Kind::Podman });
            self.place.delegated = true;
        }
        Step::Decided
    }

    /// The name of a unit; in the slice of a user's applications, the application's name.
    fn name_of(&self, unit: Unit<'a>, name: &'a str) -> Cow<'a, str> {
        let application = self.place.delegated && self.above.starts_with("app");
        application.then(|| unit::application(unit)).flatten().unwrap_or_else(|| unit::decode(name))
    }
}

/// runc's form for systemd in a hierarchy without systemd, `SLICE:RUNTIME:ID`, split.
fn in_runcs_form(name: &str) -> Option<(&str, &str, &str)> {
    let (front, id) = name.rsplit_once(':')?;
    let (slice, runtime) = front.rsplit_once(':')?;
    is_id(id).then_some((slice, runtime, id))
}

/// The container whose cgroup has this name.
fn container_of<'a>(name: &'a str, above: &str) -> Option<Container<'a>> {
    if let Some(id) = name.strip_prefix(LXC_PAYLOAD).or_else(|| (above == LXC).then_some(name)) {
        return Some(Container { id, runtime: Kind::Lxc });
    }
    let is_of = |word: &str| RUNTIMES.iter().find(|(prefix, _)| *prefix == word).map(|(_, runtime)| *runtime);
    if is_id(name) {
        // The directory has the runtime's name, but for containers of Kubernetes and of containerd's own clients.
        return Some(Container { id: name, runtime: is_of(above).unwrap_or(Kind::Container) });
    }
    let of_others = || name.strip_suffix(".scope").unwrap_or(name).rsplit_once('-').filter(|(_, id)| is_id(id));
    let (word, id) = in_runcs_form(name).map(|(_, word, id)| (word, id)).or_else(of_others)?;
    Some(Container { id, runtime: is_of(word)? })
}

/// The container whose monitor has this cgroup.
fn monitor_of(name: &str) -> Option<&str> {
    let of_conmon = || {
        let (word, id) = name.strip_suffix(".scope").unwrap_or(name).rsplit_once('-')?;
        (MONITORS.contains(&word) && is_id(id)).then_some(id)
    };
    name.strip_prefix(LXC_MONITOR).or_else(of_conmon)
}

fn is_uid(text: &str) -> bool {
    (1..=MAX_UID).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// A pod's uid in a slice's name has `_` for `-`, which separates slices.
fn with_dashes(uid: &str) -> Cow<'_, str> {
    if uid.contains('_') { uid.replace('_', "-").into() } else { uid.into() }
}
