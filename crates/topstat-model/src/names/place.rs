// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a path of a control group stands for, and how it is shown.

use std::borrow::Cow;
use std::fmt;

use super::MAX_SHOWN;

/// The shown digits of an id: as many as `docker ps` and `podman ps` show.
const ID_SHOWN: usize = 12;
/// The shown characters of a pod's uid.
const UID_SHOWN: usize = 8;

/// The kind of a [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The root of the hierarchy.
    Root,
    /// A container of Docker.
    Docker,
    /// A container of containerd: by Kubernetes or nerdctl.
    Containerd,
    /// A container of CRI-O.
    Crio,
    /// A container of Podman.
    Podman,
    /// A container of LXC, LXD or Incus.
    Lxc,
    /// A container whose path does not tell its runtime.
    Container,
    /// A machine that machined knows: of nspawn, or a virtual machine.
    Machine,
    /// A pod as a whole, of Kubernetes or Podman.
    Pod,
    /// All pods of Kubernetes, or all pods of a class.
    Pods,
    /// The monitor of a container, which is outside of it.
    Monitor,
    /// A service, socket, mount or swap of systemd.
    Service,
    /// A scope of systemd: processes that another program started.
    Scope,
    /// A slice of systemd, which contains units.
    Slice,
    /// A session of a user.
    Session,
    /// Everything of a user, or the user's manager.
    User,
    /// Another group.
    Plain,
}

impl Kind {
    /// The kind in one word, as it is shown.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Docker => "docker",
            Self::Containerd => "containerd",
            Self::Crio => "cri-o",
            Self::Podman => "podman",
            Self::Lxc => "lxc",
            Self::Container => "container",
            Self::Machine => "machine",
            Self::Pod => "pod",
            Self::Pods => "pods",
            Self::Monitor => "monitor",
            Self::Service => "service",
            Self::Scope => "scope",
            Self::Slice => "slice",
            Self::Session => "session",
            Self::User => "user",
            Self::Plain => "group",
        }
    }
}

/// The class of a pod's quality of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "Kubernetes's own words")]
pub enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod<'a> {
    /// Its uid as Kubernetes writes it, or Podman's id of the pod.
    pub uid: Cow<'a, str>,
    /// Its class; `None`: a pod of Podman.
    pub qos: Option<Qos>,
}

/// A container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container<'a> {
    /// 64 hexadecimal digits, or the name of an LXC container.
    pub id: &'a str,
    /// Its runtime, as a kind of place.
    pub runtime: Kind,
}

/// The place that a path stands for. `{}` shows it in at most [`MAX_SHOWN`] characters, and without control characters that the
/// path does not have. `{:#}` adds [`rest`](Self::rest), so that groups of one place differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its name without ornament, decoded: a container's id, a unit's name without suffix, a slice's with it, a user's number,
    /// and for [`Kind::Plain`] the path.
    pub name: Cow<'a, str>,
    /// The pod that it is in, or that it is.
    pub pod: Option<Pod<'a>>,
    /// The container that it is.
    pub container: Option<Container<'a>>,
    /// The user whose slice or manager it is in.
    pub user: Option<u32>,
    /// Whether a user or unit chose the name, and could have chosen any other.
    pub delegated: bool,
    /// The components below the place, without slashes around them.
    pub rest: &'a str,
}

impl Place<'_> {
    fn short(&self) -> String {
        let name = &*self.name;
        let word = self.kind.word();
        match (self.kind, &self.container, &self.pod) {
            (_, Some(container), Some(pod)) if pod.qos.is_some() => {
                format!("pod {} {}", start(&pod.uid, UID_SHOWN), start(container.id, ID_SHOWN))
            }
            (Kind::Lxc, ..) | (Kind::Machine, ..) => format!("{word} {name}"),
            (Kind::Service | Kind::Scope, ..) => name.to_owned(),
            (_, Some(container), _) => format!("{word} {}", start(container.id, ID_SHOWN)),
            (Kind::Pod, ..) => format!("{word} {}", start(name, UID_SHOWN)),
            (Kind::Monitor, ..) => format!("{word} {}", if is_id(name) { start(name, ID_SHOWN) } else { name }),
            (Kind::Session, ..) => match self.user {
                Some(user) => format!("{word} {name} of user {user}"),
                None => format!("{word} {name}"),
            },
            (Kind::User, ..) => format!("{word} {name}"),
            _ => name.to_owned(),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.short();
        if f.alternate() && !self.rest.is_empty() {
            text = format!("{text}/{}", self.rest);
        }
        f.pad(&shorten(&text, MAX_SHOWN))
    }
}

/// The first characters of a text.
fn start(text: &str, characters: usize) -> &str {
    text.char_indices().nth(characters).map_or(text, |(at, _)| &text[..at])
}

/// A text of at most this many characters, with `…` in place of its middle.
fn shorten(text: &str, most: usize) -> Cow<'_, str> {
    let characters = text.chars().count();
    if characters <= most {
        return text.into();
    }
    let (head, tail) = ((most - 1) / 2, (most - 1).div_ceil(2));
    let from = text.char_indices().nth(characters - tail).map_or(0, |(at, _)| at);
    format!("{}…{}", start(text, head), &text[from..]).into()
}

/// Whether it has the form of a container's id, in all runtimes but LXC.
pub(super) fn is_id(text: &str) -> bool {
    const DIGITS: usize = 64;
    text.len() == DIGITS && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
