// SPDX-License-Identifier: Apache-2.0 OR MIT
use proptest::prelude::*;

use super::*;

const ID: &str = "3b5e1c9f0a2d4c6e8f7a9b0c1d2e3f405162738495a6b7c8d9e0f1a2b3c4d5e6";
/// An id that a cgroup falsely claims.
const OTHER: &str = "0000000000000000000000000000000000000000000000000000000000000bad";
const UID: &str = "0f5a3e6d-1c2b-4d5e-8f90-a1b2c3d4e5f6";

fn filled(path: &str) -> String {
    path.replace("UID", UID).replace("U_D", &UID.replace('-', "_")).replace("ID", ID).replace("OTHER", OTHER)
}

/// Compares the kind, and the text shown, of each path.
fn assert_shown(expected: &[(&str, Kind, &str)]) {
    for (path, kind, shown) in expected {
        let path = filled(path);
        let place = of(&path);
        assert_eq!((place.kind, place.to_string().as_str()), (*kind, *shown), "{path}: {place:?}");
    }
}

/// Compares the id that is found in each of these paths.
fn assert_container(expected: Option<&str>, paths: &[&str]) {
    for path in paths {
        let path = filled(path);
        assert_eq!(container(&path), expected, "{path}");
    }
}

#[test]
fn containers_are_named_by_runtime_and_the_start_of_their_id() {
    assert_shown(&[
        ("/docker/ID", Kind::Docker, "docker 3b5e1c9f0a2d"),
        ("/system.slice/docker-ID.scope", Kind::Docker, "docker 3b5e1c9f0a2d"),
        ("/system.slice/docker-ID.scope/init.scope", Kind::Docker, "docker 3b5e1c9f0a2d"),
        ("/system.slice/nerdctl-ID.scope", Kind::Containerd, "containerd 3b5e1c9f0a2d"),
        ("/default/ID", Kind::Container, "container 3b5e1c9f0a2d"),
        ("/machine.slice/libpod-ID.scope/container", Kind::Podman, "podman 3b5e1c9f0a2d"),
        ("/libpod_parent/libpod-ID", Kind::Podman, "podman 3b5e1c9f0a2d"),
        (
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container",
            Kind::Podman,
            "podman 3b5e1c9f0a2d",
        ),
        ("/machine.slice/libpod-conmon-ID.scope", Kind::Monitor, "monitor 3b5e1c9f0a2d"),
        ("/lxc.payload.web", Kind::Lxc, "lxc web"),
        ("/lxc/web/ns/system.slice/nginx.service", Kind::Lxc, "lxc web"),
        ("/lxc.monitor.web", Kind::Monitor, "monitor web"),
    ]);
}

#[test]
fn pods_have_a_uid_and_a_class() {
    for (path, qos, runtime) in [
        ("/kubepods/besteffort/podUID/ID", Qos::BestEffort, Kind::Container),
        ("/kubepods/burstable/podUID/ID", Qos::Burstable, Kind::Container),
        ("/kubepods/podUID/crio-ID", Qos::Guaranteed, Kind::Crio),
        ("/kubepods.slice/kubepods-podU_D.slice/cri-containerd-ID.scope", Qos::Guaranteed, Kind::Containerd),
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU_D.slice/crio-ID.scope",
            Qos::Burstable,
            Kind::Crio,
        ),
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podU_D.slice/docker-ID.scope",
            Qos::BestEffort,
            Kind::Docker,
        ),
        // kind: the kubelet's own slice is above.
        (
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-podU_D.slice\
             /cri-containerd-ID.scope",
            Qos::Burstable,
            Kind::Containerd,
        ),
        (
            "/system.slice/containerd.service/kubepods-burstable-podU_D.slice:cri-containerd:ID",
            Qos::Burstable,
            Kind::Containerd,
        ),
    ] {
        let path = filled(path);
        let place = of(&path);
        assert_eq!(place.pod, Some(Pod { uid: UID.into(), qos: Some(qos) }), "{path}");
        assert_eq!(place.container, Some(Container { id: ID, runtime }), "{path}");
        assert_eq!(place.to_string(), "pod 0f5a3e6d 3b5e1c9f0a2d", "{path}");
    }
    assert_shown(&[
        ("/kubepods/besteffort/podUID", Kind::Pod, "pod 0f5a3e6d"),
        ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU_D.slice", Kind::Pod, "pod 0f5a3e6d"),
        ("/kubepods.slice/kubepods-burstable.slice", Kind::Pods, "kubepods burstable"),
        ("/kubepods", Kind::Pods, "kubepods"),
        ("/machine.slice/machine-libpod_pod_ID.slice", Kind::Pod, "pod 3b5e1c9f"),
        ("/machine.slice/machine-libpod_pod_ID.slice/libpod-OTHER.scope", Kind::Podman, "podman 000000000000"),
        ("/libpod_parent/ID/libpod-OTHER", Kind::Podman, "podman 000000000000"),
        // "pod" alone is no pod.
        ("/podUID", Kind::Plain, &format!("pod{UID}")),
    ]);
    let path = filled("/libpod_parent/ID/libpod-OTHER");
    assert_eq!(of(&path).pod, Some(Pod { uid: ID.into(), qos: None }));
}

#[test]
fn units_have_names_without_suffix() {
    assert_shown(&[
        ("/", Kind::Root, "/"),
        ("", Kind::Root, "/"),
        ("/init.scope", Kind::Scope, "init"),
        ("/system.slice", Kind::Slice, "system.slice"),
        ("/system.slice/nginx.service", Kind::Service, "nginx"),
        ("/system.slice/nginx.service/worker", Kind::Service, "nginx"),
        ("/system.slice/docker.service", Kind::Service, "docker"),
        ("/system.slice/docker.service/buildkit", Kind::Service, "docker"),
        ("/system.slice/system-getty.slice/getty@tty1.service", Kind::Service, "getty@tty1"),
        (r"/system.slice/systemd-fsck@dev-disk-by\x2duuid-A.service", Kind::Service, "systemd-fsck@dev-disk-by-uuid-A"),
        (r"/system.slice/srv-my\x2ddata.mount", Kind::Service, "/srv/my-data"),
        ("/system.slice/-.mount", Kind::Service, "/"),
        ("/system.slice/_cpu.service", Kind::Service, "cpu"),
        (r"/my\x2dslice.slice", Kind::Slice, "my-slice.slice"),
        ("/system.slice/app-server.service", Kind::Service, "app-server"),
        ("/user.slice/user-1000.slice", Kind::User, "user 1000"),
        ("/user.slice/user-1000.slice/session-3.scope", Kind::Session, "session 3 of user 1000"),
        ("/user.slice/user-1000.slice/user@1000.service", Kind::User, "user 1000"),
        ("/user.slice/user-1000.slice/user@1000.service/init.scope", Kind::User, "user 1000"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/build.service", Kind::Service, "build"),
        (
            r"/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-org.gnome.Evince\x2dviewer-12.scope",
            Kind::Scope,
            "org.gnome.Evince-viewer",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-flatpak-org.x.Y@7f.service",
            Kind::Service,
            "org.x.Y",
        ),
        (r"/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/vcpu0", Kind::Machine, "machine qemu-1-web"),
        ("/machine.slice/systemd-nspawn@deb.service/payload", Kind::Machine, "machine deb"),
        ("/system.slice/machine-web.scope", Kind::Scope, "machine-web"),
        ("/batch/jobs/7/", Kind::Plain, "batch/jobs/7"),
        ("/system.slice/batch", Kind::Plain, "system.slice/batch"),
    ]);
    let quadlet = filled("/system.slice/web.service/libpod-payload-ID");
    let place = of(&quadlet);
    assert_eq!((place.to_string().as_str(), place.container.unwrap().id), ("web", ID));
    assert_eq!(format!("{:#}", of("/system.slice/nginx.service/worker/1")), "nginx/worker/1");
}

#[test]
fn containers_are_found_in_the_paths_of_all_runtimes() {
    assert_container(
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
            "/libpod_parent/OTHER/libpod-ID",
            "/system.slice/nerdctl-ID.scope",
            "/default/ID",
        ],
    );
    assert_container(Some("web"), &["/lxc/web", "/lxc.payload.web", "/lxc.payload.web/system.slice/nginx.service"]);
}

#[test]
fn names_below_a_container_are_its_own_word() {
    assert_container(
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
    assert_container(Some("web"), &["/lxc/web/docker/OTHER", "/lxc.payload.web/docker-OTHER.scope", "/lxc/web/OTHER"]);
    assert_eq!(of(&filled("/kubepods/pod1/ID/kubepods/pod2/OTHER")).pod.unwrap().uid, "1");
}

#[test]
fn units_and_users_are_no_containers_whatever_they_name_theirs() {
    assert_container(
        None,
        &[
            "/",
            "",
            "/system.slice/nginx.service",
            "/system.slice/nginx.service/OTHER",
            "/system.slice/nginx.service/docker-OTHER.scope",
            "/system.slice/nginx.service/docker/OTHER",
            "/system.slice/nginx.service/libpod-payload-OTHER",
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
    // A user names the user's units, and no other user's manager.
    let nested = "/user.slice/user-1000.slice/user@1000.service/user@0.service/x.service";
    assert_eq!((of(nested).user, of(nested).delegated), (Some(1000), true));
}

/// As systemd writes a name into a unit's: unit_name_escape() in src/basic/unit-name.c.
fn escaped(name: &str) -> String {
    let safe = |at: usize, b: u8| b.is_ascii_alphanumeric() || b":_".contains(&b) || (b == b'.' && at > 0);
    let one = |(at, b): (usize, u8)| if safe(at, b) { char::from(b).to_string() } else { format!("\\x{b:02x}") };
    name.bytes().enumerate().map(one).collect()
}

/// Paths of the components that decide, and of any others.
fn paths() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "docker",
        "lxc",
        "kubepods",
        "burstable",
        "podUID",
        "kubepods.slice",
        "kubepods-pod.slice",
        "ID",
        "docker-ID.scope",
        "a:b:ID",
        "-ID",
        "libpod_parent",
        "machine.slice",
        "machine-.scope",
        "session-.scope",
        "user-1.slice",
        "user@1.service",
        "user@.service",
        "app.slice",
        "app-.scope",
        "app--.scope",
        "app-@.service",
        ".service",
        ".slice",
        ".mount",
        "-.mount",
        "_.service",
        "lxc.payload.",
        "lxc.monitor.",
        "systemd-nspawn@.service",
        "kubepods-burstable-podU_D.slice",
        r"\x2",
        r"\x2d.slice",
        r"\xff.service",
        r"\x0a.service",
        "init.scope",
        "libpod-payload-ID",
        "x-libpod_pod_ID.slice",
    ]);
    let any = prop_oneof![4 => known.prop_map(filled), 1 => "\\PC{0,80}", 1 => "[a-z.@:\\\\x0-9-]{0,20}"];
    prop::collection::vec(any, 0..8).prop_map(|names| format!("/{}", names.join("/")))
}

proptest! {
    #[test]
    fn any_path_has_a_bounded_name(path in paths(), any in any::<String>()) {
        for path in [&path, &any] {
            let place = of(path);
            for shown in [place.to_string(), format!("{place:#}")] {
                prop_assert!(!shown.is_empty());
                prop_assert!(shown.chars().count() <= MAX_SHOWN, "{shown}");
                prop_assert!(path.chars().any(char::is_control) || !shown.chars().any(char::is_control), "{shown:?}");
            }
            prop_assert!(path.ends_with(place.rest) || path.trim_end_matches('/').ends_with(place.rest));
            prop_assert_eq!(container(path).is_some(), place.container.is_some() && !place.delegated);
        }
    }

    #[test]
    fn escaped_names_are_decoded(name in "[^/\\p{Cc}]{1,40}") {
        prop_assume!(!name.starts_with('_'));
        let path = format!("/system.slice/x@{}.service", escaped(&name));
        let expected = format!("x@{name}");
        prop_assert_eq!(&*of(&path).name, expected.as_str());
        let path = format!("/machine.slice/machine-{}.scope", escaped(&name));
        let place = of(&path);
        prop_assert_eq!((place.kind, &*place.name), (Kind::Machine, name.as_str()));
    }

    #[test]
    fn no_name_below_a_container_or_unit_changes_its_place(below in paths()) {
        for above in ["/docker/ID", "/system.slice/nginx.service", "/kubepods.slice/kubepods-podU_D.slice/crio-ID.scope"] {
            let (above, path) = (filled(above), filled(&format!("{above}{below}")));
            let (alone, with) = (of(&above), of(&path));
            prop_assert_eq!((alone.kind, &alone.name, &alone.pod), (with.kind, &with.name, &with.pod));
            prop_assert_eq!(container(&above), container(&path));
        }
    }

    #[test]
    fn both_drivers_of_a_pod_give_one_place(uid in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}", class in 0..3_usize, id in "[0-9a-f]{64}") {
        let directory = ["", "/burstable", "/besteffort"][class];
        let slice = ["kubepods", "kubepods-burstable", "kubepods-besteffort"][class];
        let of_directory = format!("/kubepods{directory}/pod{uid}/crio-{id}");
        let of_slice = format!("/kubepods.slice/{slice}.slice/{slice}-pod{}.slice/crio-{id}.scope", uid.replace('-', "_"));
        prop_assert_eq!(of(&of_directory), of(&of_slice));
        prop_assert_eq!(of(&of_slice).pod.unwrap().uid, uid);
    }
}
