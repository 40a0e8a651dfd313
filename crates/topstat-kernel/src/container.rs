// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the container that the path of a cgroup belongs to.
//!
//! The process that makes a cgroup chooses its name. Down to a container's own cgroup, that process is root's runtime. Below,
//! where a cgroup was delegated, it belongs to the container, which may take any name, for example another container's id. So
//! the path is read from the root on, and the first component that is not the host's decides:
//!
//! - A container, in a form that a known runtime uses: its id. The components below are not read.
//! - Another unit of systemd (`*.service`, `*.scope` …): no container. The components below belong to that unit, for example to a
//!   user's manager (`user@1000.service`). Containers of users without privileges have no id here, since the user could choose
//!   any id. The path of their cgroup is still shown.
//! - A slice or a plain directory: the next component decides.
//!
//! An administrator who delegates a plain directory of the hierarchy, without systemd, also delegates the choice of the names in
//! it.

/// Digits of an id, in all runtimes but LXC.
const DIGITS: usize = 64;
/// What precedes an id, and a dash, in the name of a container's cgroup: runc's names for Docker, for containerd by Kubernetes
/// and by nerdctl, CRI-O, Podman. Cgroups of their helpers (`crio-conmon-`, `libpod-conmon-`) are no containers.
const RUNTIMES: [&str; 5] = ["docker", "cri-containerd", "nerdctl", "crio", "libpod"];
/// Units of systemd that are runtimes themselves: they name the cgroups below, as root.
const RUNTIME_UNITS: [&str; 6] =
    ["docker.service", "containerd.service", "crio.service", "kubelet.service", "k3s.service", "rke2-server.service"];
/// What precedes the name of an LXC container, in the name of its cgroup.
const LXC_PAYLOAD: &str = "lxc.payload.";
/// The directory of LXC containers before version 4.
const LXC: &str = "lxc";
/// The ends of the names of systemd units that have processes.
const UNITS: [&str; 5] = [".service", ".scope", ".socket", ".mount", ".swap"];

/// The id of the container that a cgroup's path belongs to: 64 hexadecimal digits, or the name of an LXC container.
pub fn container(path: &str) -> Option<&str> {
    let mut above = "";
    for name in path.split('/').filter(|name| !name.is_empty()) {
        match is(name, above) {
            Is::Container(id) => return Some(id),
            Is::Own => return None,
            Is::Hosts => above = name,
        }
    }
    None
}

/// The owner of a cgroup whose parent belongs to the host.
enum Is<'a> {
    /// A container, with this id.
    Container(&'a str),
    /// Another owner, which is no container.
    Own,
    /// The host, which puts other cgroups in it.
    Hosts,
}

fn is<'a>(name: &'a str, above: &str) -> Is<'a> {
    if is_id(name) {
        return Is::Container(name);
    }
    if let Some(lxc) = name.strip_prefix(LXC_PAYLOAD) {
        return Is::Container(lxc);
    }
    if above == LXC {
        return Is::Container(name);
    }
    // runc's form for systemd, in a hierarchy without systemd: "kubepods-pod1.slice:cri-containerd:ID".
    let of_runc = name.rsplit_once(':').and_then(|(runtime, id)| Some((runtime.rsplit_once(':')?.1, id)));
    let of_others = || name.strip_suffix(".scope").unwrap_or(name).rsplit_once('-');
    if let Some((runtime, id)) = of_runc.or_else(of_others).filter(|(_, id)| is_id(id)) {
        return if RUNTIMES.contains(&runtime) { Is::Container(id) } else { Is::Own };
    }
    let is_unit = UNITS.iter().any(|suffix| name.ends_with(suffix)) && !RUNTIME_UNITS.contains(&name);
    if is_unit { Is::Own } else { Is::Hosts }
}

fn is_id(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::container;

    const ID: &str = "3b5e1c9f0a2d4c6e8f7a9b0c1d2e3f405162738495a6b7c8d9e0f1a2b3c4d5e6";
    /// An id that a cgroup falsely claims.
    const OTHER: &str = "0000000000000000000000000000000000000000000000000000000000000bad";

    /// Compares the id that is found in each of these paths.
    fn assert_all(expected: Option<&str>, paths: &[&str]) {
        for path in paths {
            let path = path.replace("ID", ID).replace("OTHER", OTHER);
            assert_eq!(container(&path), expected, "{path}");
        }
    }

    #[test]
    fn containers_are_found_in_the_paths_of_all_runtimes() {
        assert_all(
            Some(ID),
            &[
                "/docker/ID",
                "/system.slice/docker-ID.scope",
                "/custom/ID",
                "/ecs/0a1b2c3d4e5f/ID",
                "/kubepods/besteffort/pod2f1a/ID",
                "/kubepods/pod2f1a/crio-ID",
                "/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope",
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/crio-ID.scope",
                "/kubepods-burstable-pod1.slice:cri-containerd:ID",
                "/system.slice/containerd.service/kubepods-burstable-pod1.slice:cri-containerd:ID",
                "/machine.slice/libpod-ID.scope/container",
                "/libpod_parent/libpod-ID",
                "/system.slice/nerdctl-ID.scope",
                "/default/ID",
            ],
        );
        assert_all(Some("web"), &["/lxc/web", "/lxc.payload.web", "/lxc.payload.web/system.slice/nginx.service"]);
    }

    #[test]
    fn what_is_below_a_container_is_its_own_word() {
        assert_all(
            Some(ID),
            &[
                "/docker/ID/docker/OTHER",
                "/docker/ID/OTHER",
                "/docker/ID/system.slice/docker-OTHER.scope",
                "/system.slice/docker-ID.scope/docker-OTHER.scope",
                "/system.slice/docker-ID.scope/kubelet.slice/kubepods.slice/cri-containerd-OTHER.scope",
                "/kubepods/podOTHER/ID",
                "/kubepods/pod1/ID/kubepods/pod2/OTHER",
                "/kubepods.slice/kubepods-pod1.slice/crio-ID.scope/container/crio-OTHER.scope",
                "/machine.slice/libpod-ID.scope/libpod-OTHER.scope",
                "/custom/ID/libpod-OTHER",
                "/docker/ID/a/b/c/lxc.payload.web",
            ],
        );
        assert_all(Some("web"), &["/lxc/web/docker/OTHER", "/lxc.payload.web/docker-OTHER.scope", "/lxc/web/OTHER"]);
    }

    #[test]
    fn units_and_users_are_no_containers_whatever_they_name_theirs() {
        assert_all(
            None,
            &[
                "/",
                "",
                "/system.slice/nginx.service",
                "/system.slice/nginx.service/OTHER",
                "/system.slice/nginx.service/docker-OTHER.scope",
                "/system.slice/nginx.service/docker/OTHER",
                "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-OTHER.scope",
                "/user.slice/user-1000.slice/user@1000.service/docker.service/docker/OTHER",
                "/user.slice/user-1000.slice/session-1.scope/OTHER",
                "/machine.slice/libpod-conmon-OTHER.scope/libpod-OTHER.scope",
                "/machine.slice/machine-web.scope/lxc.payload.web",
                // Neither a known form nor an id.
                "/system.slice/mine-OTHER.scope",
                "/mine-OTHER/docker-OTHER.scope",
                "/docker/OTHER0",
                "/docker/x-docker-OTHER.scope.d",
                "/system.slice/docker-0BAD.scope",
            ],
        );
        // An id has no upper-case digits.
        assert_eq!(container(&format!("/docker/{}", ID.to_uppercase())), None);
    }
}
