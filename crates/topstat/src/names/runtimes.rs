// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of containers and pods in the files of their runtimes and of the kubelet.
//!
//! | file | who writes it | gives |
//! |---|---|---|
//! | `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log` | kubelet | all three, by the container's id |
//! | `/var/log/pods/NAMESPACE_POD_UID` | kubelet | pod and namespace, by the pod's uid |
//! | `/run/containerd/io.containerd.runtime.v2.task/SPACE/ID/config.json` | containerd | annotations of Kubernetes and nerdctl |
//! | `/run/containers/storage/overlay-containers/ID/userdata/config.json` | CRI-O | annotations of Kubernetes |
//! | `/var/lib/docker/containers/ID/config.v2.json` | Docker | the container's name |
//! | `/var/lib/containers/storage/overlay-containers/{containers,volatile-containers}.json` | Podman | names by id |
//!
//! Podman's own database (SQLite or BoltDB) is not read: the list above has the names of its containers, and no names of pods.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::files::{self, Stamp};

/// The namespaces of containerd that are searched; a host has one to three.
const MAX_SPACES: usize = 8;
/// The longest name that is believed. A pod has the longest: a DNS name.
const MAX_NAME: usize = 253;

/// What the host's files tell about a container or pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The pod's namespace.
    pub namespace: Option<String>,
    /// The pod's name.
    pub pod: Option<String>,
    /// The container's name.
    pub container: Option<String>,
}

impl Told {
    /// The names in this; those that are missing, from `other`.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            namespace: self.namespace.or(other.namespace),
            pod: self.pod.or(other.pod),
            container: self.container.or(other.container),
        }
    }

    fn checked(self) -> Self {
        let good = |name: &String| {
            !name.is_empty() && name.len() <= MAX_NAME && !name.chars().any(|c| c.is_control() || c == '/')
        };
        Self {
            namespace: self.namespace.filter(good),
            pod: self.pod.filter(good),
            container: self.container.filter(good),
        }
    }
}

/// A file or directory, and its content at its last change.
#[derive(Debug)]
pub struct Kept<T> {
    base: PathBuf,
    below: PathBuf,
    stamp: Option<Stamp>,
    content: T,
}

impl<T: Default> Kept<T> {
    pub fn new(base: &Path, below: impl Into<PathBuf>) -> Self {
        Self { base: base.to_owned(), below: below.into(), stamp: None, content: T::default() }
    }

    /// The content, read anew by `read` if it has changed; empty if it is missing or can't be read.
    pub fn get(&mut self, read: impl FnOnce(&Path, &Path) -> io::Result<T>) -> &T {
        let stamp = files::stamp(&self.base, &self.below).ok();
        if stamp != self.stamp {
            self.stamp = stamp;
            self.content = stamp.and_then(|_| read(&self.base, &self.below).ok()).unwrap_or_default();
        }
        &self.content
    }
}

/// By uid: the pods that the kubelet keeps logs of.
pub fn pods(base: &Path, below: &Path) -> io::Result<HashMap<String, Told>> {
    let pod = |name: &String| {
        let mut parts = name.split('_').map(str::to_owned);
        let (namespace, pod, uid) = (parts.next(), parts.next(), parts.next()?);
        parts.next().is_none().then(|| (uid, Told { namespace, pod, container: None }.checked()))
    };
    Ok(files::names(base, below)?.iter().filter_map(pod).collect())
}

/// By id: the containers that the kubelet keeps logs of. The entries are links, and only their names are read.
pub fn logs(base: &Path, below: &Path) -> io::Result<HashMap<String, Told>> {
    let container = |name: &String| {
        let (name, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
        let mut parts = name.split('_').map(str::to_owned);
        let (pod, namespace, container) = (parts.next(), parts.next(), parts.next());
        parts.next().is_none().then(|| (id.to_owned(), Told { namespace, pod, container }.checked()))
    };
    Ok(files::names(base, below)?.iter().filter_map(container).collect())
}

/// By id: the containers in a list of containers/storage.
pub fn storage(base: &Path, below: &Path) -> io::Result<HashMap<String, Told>> {
    #[derive(Deserialize)]
    struct Listed {
        id: String,
        #[serde(default)]
        names: Vec<String>,
    }
    let listed: Vec<Listed> = serde_json::from_slice(&files::read(base, below)?)?;
    let told = |container: Option<String>| Told { container, ..Told::default() }.checked();
    Ok(listed.into_iter().map(|one| (one.id, told(one.names.into_iter().next()))).collect())
}

/// Docker's file of a container.
pub fn docker(base: &Path, below: &Path) -> io::Result<Told> {
    #[derive(Deserialize)]
    struct Config {
        #[serde(rename = "Name")]
        name: String,
    }
    let config: Config = serde_json::from_slice(&files::read(base, below)?)?;
    let name = config.name.strip_prefix('/').unwrap_or(&config.name).to_owned();
    Ok(Told { container: Some(name), ..Told::default() }.checked())
}

/// The namespaces of containerd.
pub fn spaces(base: &Path, below: &Path) -> io::Result<Vec<String>> {
    let mut spaces = files::names(base, below)?;
    spaces.sort_unstable();
    spaces.truncate(MAX_SPACES);
    Ok(spaces)
}

/// The annotations in the OCI configuration of a container.
pub fn oci(base: &Path, below: &Path) -> io::Result<Told> {
    #[derive(Deserialize)]
    struct Config {
        #[serde(default)]
        annotations: HashMap<String, String>,
    }
    let mut config: Config = serde_json::from_slice(&files::read(base, below)?)?;
    let mut take = |keys: &[&str]| keys.iter().find_map(|key| config.annotations.remove(*key));
    let kind = take(&["io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"]);
    // The container that holds the pod's namespaces has no name. CRI-O gives it "POD".
    let pause = kind.filter(|kind| kind == "sandbox").map(|_| "pause".to_owned());
    let named = take(&["io.kubernetes.cri.container-name", "io.kubernetes.container.name", "nerdctl/name"]);
    Ok(Told {
        namespace: take(&["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"]),
        pod: take(&["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"]),
        container: pause.or(named),
    }
    .checked())
}

/// All of the sources.
#[derive(Debug)]
pub struct Runtimes {
    logs: Kept<HashMap<String, Told>>,
    pods: Kept<HashMap<String, Told>>,
    storage: [Kept<HashMap<String, Told>>; 2],
    spaces: Kept<Vec<String>>,
    docker: PathBuf,
    containerd: PathBuf,
    crio: PathBuf,
}

impl Runtimes {
    /// The sources below a root: `/` for the host's.
    pub fn new(root: &Path) -> Self {
        let log = root.join("var/log");
        let storage = root.join("var/lib/containers/storage/overlay-containers");
        let containerd = root.join("run/containerd/io.containerd.runtime.v2.task");
        Self {
            logs: Kept::new(&log, "containers"),
            pods: Kept::new(&log, "pods"),
            storage: ["containers.json", "volatile-containers.json"].map(|list| Kept::new(&storage, list)),
            spaces: Kept::new(&containerd, ""),
            docker: root.join("var/lib/docker/containers"),
            containerd,
            crio: root.join("run/containers/storage/overlay-containers"),
        }
    }

    /// The pod with this uid.
    pub fn pod(&mut self, uid: &str) -> Told {
        self.pods.get(pods).get(uid).cloned().unwrap_or_default()
    }

    /// The container with this id, by the lists of all containers. A list costs a look at its time; a changed one is read.
    pub fn listed(&mut self, id: &str) -> Told {
        let logged = self.logs.get(logs).get(id).cloned().unwrap_or_default();
        if logged.container.is_some() {
            return logged;
        }
        let listed = self.storage.iter_mut().find_map(|list| list.get(storage).get(id).cloned());
        logged.or(listed.unwrap_or_default())
    }

    /// The file that has the name of the container with this id, and how to read it.
    pub fn own(&mut self, id: &str) -> Option<(Kept<Told>, Read)> {
        let spaces = self.spaces.get(spaces).clone();
        let oci_of = |space: String| {
            (Kept::new(&self.containerd, [&*space, id, "config.json"].iter().collect::<PathBuf>()), oci as Read)
        };
        let docker = (Kept::new(&self.docker, [id, "config.v2.json"].iter().collect::<PathBuf>()), docker as Read);
        let crio = (Kept::new(&self.crio, [id, "userdata", "config.json"].iter().collect::<PathBuf>()), oci as Read);
        std::iter::once(docker)
            .chain(spaces.into_iter().map(oci_of))
            .chain([crio])
            .find(|(file, _): &(Kept<Told>, Read)| files::stamp(&file.base, &file.below).is_ok())
    }
}

/// How a file is read.
pub type Read = fn(&Path, &Path) -> io::Result<Told>;
