// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::*;

const ID: &str = "3b5e1c9f0a2d4c6e8f7a9b0c1d2e3f405162738495a6b7c8d9e0f1a2b3c4d5e6";
const UID: &str = "0f5a3e6d-1c2b-4d5e-8f90-a1b2c3d4e5f6";

/// A root for one test, which is removed at the end.
struct Root(PathBuf);

impl Root {
    fn new(test: &str) -> Self {
        let root = std::env::temp_dir().join(format!("topstat-names-{test}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    fn file(&self, path: &str, content: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn directory(&self, path: &str) {
        fs::create_dir_all(self.0.join(path)).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }

    fn named(&self, path: &str) -> Named {
        Names::new(&self.0).of(path, Instant::now()).as_ref().clone()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn pod_path(end: &str) -> String {
    let uid = UID.replace('-', "_");
    format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice{end}")
}

fn told(namespace: &str, pod: &str, container: &str) -> Told {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Told { namespace: some(namespace), pod: some(pod), container: some(container) }
}

#[test]
fn pods_are_named_by_the_kubelets_logs() {
    let root = Root::new("logs");
    let container = pod_path(&format!("/cri-containerd-{ID}.scope"));
    assert_eq!(root.named(&container).text, "pod 0f5a3e6d 3b5e1c9f0a2d");
    root.directory(&format!("var/log/pods/shop_web-7d9f_{UID}/nginx"));
    assert_eq!(
        root.named(&pod_path("")),
        Named { text: "pod web-7d9f".to_owned(), kind: Kind::Pod, told: told("shop", "web-7d9f", "") }
    );
    assert_eq!(root.named(&container).text, "web-7d9f/3b5e1c9f0a2d");
    root.link(&format!("var/log/containers/web-7d9f_shop_nginx-{ID}.log"), "/var/log/pods/anything/0.log");
    let named = root.named(&container);
    assert_eq!((named.text.as_str(), named.told), ("web-7d9f/nginx", told("shop", "web-7d9f", "nginx")));
}

#[test]
fn annotations_name_containers_of_containerd_and_cri_o() {
    let root = Root::new("oci");
    let annotations = |pairs: &str| format!(r#"{{"ociVersion":"1.1.0","process":{{}},"annotations":{{{pairs}}}}}"#);
    let state = format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json");
    let of_pod = r#""io.kubernetes.cri.sandbox-name":"web-7d9f","io.kubernetes.cri.sandbox-namespace":"shop""#;
    let cri = format!(
        r#"{of_pod},"io.kubernetes.cri.container-type":"container","io.kubernetes.cri.container-name":"nginx""#
    );
    root.file(&state, &annotations(&cri));
    let path = pod_path(&format!("/cri-containerd-{ID}.scope"));
    assert_eq!(root.named(&path).told, told("shop", "web-7d9f", "nginx"));
    root.file(&state, &annotations(&format!(r#"{of_pod},"io.kubernetes.cri.container-type":"sandbox""#)));
    assert_eq!(root.named(&path).text, "web-7d9f/pause");
    root.file(&state, &annotations(r#""nerdctl/name":"db","nerdctl/namespace":"default""#));
    assert_eq!(root.named(&format!("/system.slice/nerdctl-{ID}.scope")).text, "db");
    root.file(&state, &annotations(""));
    assert_eq!(root.named(&format!("/system.slice/nerdctl-{ID}.scope")).text, "containerd 3b5e1c9f0a2d");

    let root = Root::new("crio");
    root.file(
        &format!("run/containers/storage/overlay-containers/{ID}/userdata/config.json"),
        &annotations(
            r#""io.kubernetes.pod.name":"web-7d9f","io.kubernetes.pod.namespace":"shop","io.kubernetes.container.name":"nginx",
               "io.kubernetes.cri-o.ContainerType":"container""#,
        ),
    );
    assert_eq!(root.named(&pod_path(&format!("/crio-{ID}.scope"))).told, told("shop", "web-7d9f", "nginx"));
}

#[test]
fn docker_and_podman_keep_names_of_their_containers() {
    let root = Root::new("docker");
    let config = format!("var/lib/docker/containers/{ID}/config.v2.json");
    root.file(&config, &format!(r#"{{"StreamConfig":{{}},"State":{{"Running":true}},"ID":"{ID}","Name":"/web"}}"#));
    let path = format!("/system.slice/docker-{ID}.scope");
    let mut names = Names::new(&root.0);
    let begin = Instant::now();
    assert_eq!(names.of(&path, begin).text, "web");
    // Renamed: the file is replaced. A name may be old for a while.
    root.file(&config, r#"{"Name":"/web-old"}"#);
    assert_eq!(names.of(&path, begin + RECHECK / 2).text, "web");
    assert_eq!(names.of(&path, begin + RECHECK).text, "web-old");
    fs::remove_file(root.0.join(&config)).unwrap();
    assert_eq!(names.of(&path, begin + 2 * RECHECK).text, "docker 3b5e1c9f0a2d");

    let list =
        |names: &str| format!(r#"[{{"id":"{ID}","names":[{names}],"image":"x","created":"2026-01-01T00:00:00Z"}}]"#);
    root.file("var/lib/containers/storage/overlay-containers/containers.json", &list(r#""cache""#));
    assert_eq!(root.named(&format!("/machine.slice/libpod-{ID}.scope/container")).text, "cache");
    root.file("var/lib/containers/storage/overlay-containers/containers.json", &list(""));
    assert_eq!(root.named(&format!("/machine.slice/libpod-{ID}.scope/container")).text, "podman 3b5e1c9f0a2d");
}

#[test]
fn names_that_users_claim_are_not_looked_up() {
    let root = Root::new("claimed");
    root.file(&format!("var/lib/docker/containers/{ID}/config.v2.json"), r#"{"Name":"/web"}"#);
    let claimed = format!("/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope");
    assert_eq!(root.named(&claimed).text, "docker 3b5e1c9f0a2d");
    assert_eq!(root.named(&format!("/docker/{ID}")).text, "web");
}

#[test]
fn links_other_files_and_bad_content_give_no_name() {
    let root = Root::new("bad");
    let directory = format!("var/lib/docker/containers/{ID}");
    let config = format!("{directory}/config.v2.json");
    let path = format!("/docker/{ID}");
    root.file("outside.json", r#"{"Name":"/outside"}"#);
    root.link(&config, root.0.join("outside.json").to_str().unwrap());
    assert_eq!(root.named(&path).text, "docker 3b5e1c9f0a2d");
    fs::remove_file(root.0.join(&config)).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, root.0.join(&config), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(root.named(&path).text, "docker 3b5e1c9f0a2d");
    fs::remove_file(root.0.join(&config)).unwrap();
    for bad in ["", "{", "[]", r#"{"Name":7}"#, r#"{"Name":""}"#, r#"{"Name":"/a\u001b[2J"}"#, r#"{"Name":"/a/b"}"#] {
        root.file(&config, bad);
        assert_eq!(root.named(&path).text, "docker 3b5e1c9f0a2d", "{bad}");
    }
    let large = format!(r#"{{"Name":"/web","x":"{}"}}"#, "x".repeat(files::MAX_FILE as usize));
    root.file(&config, &large);
    assert_eq!(root.named(&path).text, "docker 3b5e1c9f0a2d");
    // The container's directory, by a link.
    fs::remove_dir_all(root.0.join(&directory)).unwrap();
    root.file("elsewhere/config.v2.json", r#"{"Name":"/elsewhere"}"#);
    root.link(&directory, root.0.join("elsewhere").to_str().unwrap());
    assert_eq!(root.named(&path).text, "docker 3b5e1c9f0a2d");
}

#[test]
fn reads_are_bounded_in_time_and_come_later() {
    let root = Root::new("bounded");
    let ids: Vec<String> = (0..2 * READS).map(|n| format!("{n:064x}")).collect();
    for (n, id) in ids.iter().enumerate() {
        root.file(&format!("var/lib/docker/containers/{id}/config.v2.json"), &format!(r#"{{"Name":"/web{n}"}}"#));
    }
    let mut names = Names::new(&root.0);
    let begin = Instant::now();
    let mut found =
        |now| ids.iter().filter(|id| names.of(&format!("/docker/{id}"), now).text.starts_with("web")).count();
    assert_eq!(found(begin), READS as usize);
    assert_eq!(found(begin + RECHECK), 2 * READS as usize);
}

fn process(root: &Root, pid: u32, space: u64, groups: &str, comm: &str) {
    root.link(&format!("proc/{pid}/ns/net"), &format!("net:[{space}]"));
    root.file(&format!("proc/{pid}/cgroup"), groups);
    root.file(&format!("proc/{pid}/comm"), &format!("{comm}\n"));
}

#[test]
fn namespaces_are_named_by_hand_or_by_a_process() {
    let root = Root::new("netns");
    process(&root, 1, 4026531840, "0::/init.scope\n", "systemd");
    process(&root, 50, 4026532001, &format!("0::/system.slice/docker-{ID}.scope\n"), "nginx");
    process(&root, 60, 4026532002, "4:memory:/\n0::/\n", "unshared");
    process(&root, 70, 4026532003, "8:pids,x:/a\n4:cpu,memory:/batch\n0::/\n", "v1");
    let mounts = "36 35 0:4 net:[4026532000] /run/netns/blue rw shared:1 - nsfs nsfs rw\n\
                  37 35 0:4 net:[4026532001] /run/netns/cni-6f1c rw shared:1 - nsfs nsfs rw\n\
                  38 35 0:4 net:[4026532009] /run/netns/cni-0000 rw shared:1 - nsfs nsfs rw\n\
                  39 35 0:4 mnt:[4026532008] /run/netns/mnt rw shared:1 - nsfs nsfs rw\n\
                  40 35 0:4 net:[4026532008] /home/x/netns rw shared:1 - nsfs nsfs rw\n\
                  41 35 8:1 / /srv rw shared:1 - ext4 /dev/sda1 rw\n";
    root.file("proc/1/mountinfo", mounts);
    let mut names = Names::new(&root.0);
    let now = Instant::now();
    let mut name = |inode: u64| names.netns(inode, None, now);
    assert_eq!(name(4026531840).as_deref(), Some("host"));
    assert_eq!(name(4026532000).as_deref(), Some("blue"));
    assert_eq!(name(4026532001).as_deref(), Some("docker 3b5e1c9f0a2d"));
    assert_eq!(name(4026532002).as_deref(), Some("unshared"));
    assert_eq!(name(4026532003).as_deref(), Some("batch"));
    assert_eq!(name(4026532009).as_deref(), Some("cni-0000"));
    assert_eq!(name(4026532008), None);
    // A namespace that is new since the search: its process is known, or the next search finds it.
    process(&root, 80, 4026532010, "0::/system.slice/new.service\n", "new");
    assert_eq!(names.netns(4026532010, None, now), None);
    assert_eq!(names.netns(4026532010, Some(80), now).as_deref(), Some("new"));
    let later = now + Duration::from_secs(10);
    assert_eq!(names.netns(4026532010, None, later).as_deref(), Some("new"));
    // A process that has left its namespace does not stand for it.
    assert_eq!(names.netns(4026532011, Some(80), later), None);
}

#[test]
fn the_hosts_own_files_are_read() {
    let mut names = Names::new(Path::new("/"));
    let own = rustix::fs::readlink("/proc/self/ns/net", Vec::new()).unwrap();
    let inode = own.to_str().unwrap().trim_start_matches("net:[").trim_end_matches(']').parse().unwrap();
    assert!(names.netns(inode, Some(std::process::id()), Instant::now()).is_some());
}
