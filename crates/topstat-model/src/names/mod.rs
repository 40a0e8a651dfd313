// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Short names of control groups, from their paths alone.
//!
//! The process that makes a control group chooses its name. Down to a container's own group, that process is root's runtime or
//! manager. Below, where a group was delegated, it belongs to the container or unit, which may take any name, for example another
//! container's id. So a path is read from the root on, and the first component that does not belong to the host decides:
//!
//! - A container, in a form that a known runtime uses. The components below are only in [`Place::rest`].
//! - Another unit of systemd (`*.service`, `*.scope` …). The components below belong to that unit. Exceptions are the manager of
//!   a user (`user@1000.service`), whose units are read on, and Podman's containers in the unit that started them. The owner of
//!   these groups may choose any name, so such places are marked [`Place::delegated`], and [`container()`] has no id for them.
//! - A slice or a plain directory: the next component decides.
//!
//! An administrator who delegates a plain directory of the hierarchy, without systemd, also delegates the choice of the names in
//! it.
//!
//! # Sources of the forms
//!
//! | form | source |
//! |---|---|
//! | `NAME.service`, `NAME.scope`, `a.slice/a-b.slice`, `_` before names that collide, `\xNN` | systemd: `src/basic/cgroup-util.c`, `unit-name.c`; systemd.unit(5), systemd.slice(5) |
//! | `user-UID.slice`, `user@UID.service`, `session-ID.scope` | systemd: `src/login`; user@.service(5) |
//! | `app[-LAUNCHER]-APPLICATION[@RANDOM].service`, `app[-LAUNCHER]-APPLICATION-RANDOM.scope` | systemd: `docs/DESKTOP_ENVIRONMENTS.md` |
//! | `machine.slice/machine-NAME.scope`, `systemd-nspawn@NAME.service` | systemd: `src/machine`, `src/nspawn`; libvirt registers `qemu-NUMBER-NAME` |
//! | `PREFIX-ID.scope`, `SLICE:PREFIX:ID` | runc: `libcontainer/cgroups/systemd`; the second form where systemd is absent |
//! | prefix `docker`, `/docker/ID` | moby: `daemon/oci_linux.go`, `cmd/dockerd/daemon_systemd_unix.go` |
//! | prefix `cri-containerd`, `/NAMESPACE/ID` | containerd: `internal/cri/server`, `oci/spec.go` |
//! | prefix `nerdctl` | nerdctl: `pkg/cmd/container` |
//! | prefix `crio`, `crio-conmon-ID` | CRI-O: `internal/config/cgmgr` |
//! | prefix `libpod`, `libpod_parent/[POD/]libpod-ID`, `machine-libpod_pod_POD.slice`, `libpod-payload-ID`, `libpod-conmon-ID` | Podman: `libpod/pod_internal_linux.go`, `container_internal_linux.go`, `oci_conmon_linux.go` |
//! | `kubepods[/CLASS]/podUID`, `kubepods[-CLASS]-podU_I_D.slice` | kubelet: `pkg/kubelet/cm/cgroup_manager_linux.go`, `pod_container_manager_linux.go` |
//! | `lxc.payload.NAME`, `lxc.monitor.NAME`, `/lxc/NAME` | LXC: `src/lxc/cgroups/cgfsng.c`, since version 4 and before |

mod place;
#[cfg(test)]
mod tests;
mod unit;
mod walk;

pub use place::{Container, Kind, Place, Pod, Qos};

/// The longest name that [`Place`] shows, in characters. A longer one is shortened in its middle.
pub const MAX_SHOWN: usize = 64;

/// The place that a cgroup's path stands for. Any text is a path; the last resort is [`Kind::Plain`].
///
/// The cost is one pass over the path. Memory is only needed for a name that has to be decoded.
pub fn of(path: &str) -> Place<'_> {
    walk::walk(path)
}

/// The id of the container that a cgroup's path belongs to, in the word of the host and not of its users: 64 hexadecimal digits,
/// or the name of an LXC container.
pub fn container(path: &str) -> Option<&str> {
    let place = walk::walk(path);
    place.container.filter(|_| !place.delegated).map(|container| container.id)
}
