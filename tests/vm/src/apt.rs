// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian packages of other suites, with a private state of apt: the host's apt configuration is read (for its mirrors),
//! never changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};

use crate::Unavailable;
use crate::cache::Cache;
use crate::qemu::Arch;

/// The suites of the host's main source that are searched for kernels, beside the host's own suites. A suite that the mirror
/// does not have (any more) is skipped.
const MAIN_SUITES: &[&str] = &["bookworm", "bookworm-backports", "trixie", "trixie-backports", "sid"];

/// The suites of the host's security source that are searched for kernels.
const SECURITY_SUITES: &[&str] = &["bullseye-security", "bookworm-security", "trixie-security"];

/// How long package lists count as current; the shorter time applies if the latest are requested: fetching several series in
/// a row updates once.
const LISTS_FRESH: Duration = Duration::from_secs(3600);
const LISTS_FRESH_FOR_UPDATE: Duration = Duration::from_secs(60);

/// The files in which Debian's keys may be installed (package `debian-archive-keyring`).
const KEYRINGS: &[&str] =
    &["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp"];

/// A package at a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// The name, for example `linux-image-6.1.0-52-cloud-amd64`.
    pub name: String,
    /// The Debian version.
    pub version: String,
    /// The `name (= version)` dependencies on packages from the same build.
    pub exact_depends: Vec<(String, String)>,
}

/// Apt with its sources, lists and downloads in a private folder.
#[derive(Debug)]
pub struct Apt {
    dir: PathBuf,
    arch: Arch,
}

impl Apt {
    /// Prepares the state for packages of an architecture, and updates old package lists; `update` asks for the latest.
    pub fn open(cache: &Cache, arch: Arch, update: bool) -> Result<Self> {
        let apt = Self { dir: cache.apt(arch), arch };
        for sub in ["state/lists/partial", "cache/archives/partial"] {
            let path = apt.dir.join(sub);
            fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        }
        let sources = host_sources()?;
        let fresh = if update { LISTS_FRESH_FOR_UPDATE } else { LISTS_FRESH };
        let file = apt.dir.join("topstat.sources");
        if fs::read_to_string(&file).is_ok_and(|old| old == sources) && apt.lists_age().is_some_and(|age| age < fresh) {
            return Ok(apt);
        }
        fs::write(&file, sources).with_context(|| format!("cannot write {}", file.display()))?;
        apt.update()?;
        Ok(apt)
    }

    fn lists_age(&self) -> Option<Duration> {
        let updated = fs::metadata(self.dir.join("updated")).and_then(|meta| meta.modified()).ok()?;
        SystemTime::now().duration_since(updated).ok()
    }

    fn update(&self) -> Result<()> {
        eprintln!("topstat-vm: updating the package lists of Debian's suites");
        let output = self.command("apt-get").args(["-q", "update"]).output().context("cannot run apt-get")?;
        // The failure of one suite (archived, not mirrored) is no failure of the others: the call fails only if no list came.
        let lists = fs::read_dir(self.dir.join("state/lists"))
            .map(|dir| dir.filter_map(Result::ok).any(|entry| entry.file_name().to_string_lossy().contains("Packages")))
            .unwrap_or(false);
        if !lists {
            return Err(unreachable_debian("apt-get update", &output));
        }
        if output.status.success() {
            let stamp = self.dir.join("updated");
            fs::write(&stamp, "").with_context(|| format!("cannot write {}", stamp.display()))?;
        } else {
            eprintln!("topstat-vm: some package lists could not be updated:\n{}", complaints(&output));
        }
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let dir = self.dir.display();
        let mut command = Command::new(program);
        command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive").args(
            [
                format!("Dir::Etc::sourcelist={dir}/topstat.sources"),
                "Dir::Etc::sourceparts=-".to_owned(),
                format!("Dir::State={dir}/state"),
                "Dir::State::status=/dev/null".to_owned(),
                format!("Dir::Cache={dir}/cache"),
                // An image for containers may tell apt to keep no caches; this cache makes the next look-up fast.
                format!("Dir::Cache::pkgcache={dir}/cache/pkgcache.bin"),
                format!("Dir::Cache::srcpkgcache={dir}/cache/srcpkgcache.bin"),
                // The folder may not be readable by apt's download user.
                "APT::Sandbox::User=root".to_owned(),
                format!("APT::Architecture={}", self.arch.name()),
                format!("APT::Architectures={}", self.arch.name()),
                // Only names and versions are needed.
                "Acquire::Languages=none".to_owned(),
                "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
                "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false".to_owned(),
                "Acquire::Retries=2".to_owned(),
            ]
            .iter()
            .flat_map(|option| ["-o", option.as_str()].map(str::to_owned)),
        );
        command
    }

    /// Every version of `name` that the suites have.
    pub fn show(&self, name: &str) -> Result<Vec<Package>> {
        let output = self
            .command("apt-cache")
            .args(["show", "--all-versions", name])
            .output()
            .context("cannot run apt-cache")?;
        // An unknown name is a valid result.
        Ok(parse_packages(&String::from_utf8_lossy(&output.stdout)))
    }

    /// The names of all packages that match the regular expression `pattern`.
    pub fn search(&self, pattern: &str) -> Result<Vec<String>> {
        let output = self
            .command("apt-cache")
            .args(["search", "--names-only", pattern])
            .output()
            .context("cannot run apt-cache")?;
        ensure!(output.status.success(), "cannot search packages for {pattern}: {}", complaints(&output));
        Ok(String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .map(str::to_owned)
            .collect())
    }

    /// Downloads `package` and unpacks it into `into`. Apt verifies signatures and hashes.
    pub fn unpack(&self, name: &str, version: &str, into: &Path) -> Result<()> {
        eprintln!("topstat-vm: downloading {name} {version}");
        let downloads = tempfile::tempdir_in(&self.dir).context("cannot create a folder for downloads")?;
        let output = self
            .command("apt-get")
            .args(["-q", "download", &format!("{name}={version}")])
            .current_dir(downloads.path())
            .output()
            .context("cannot run apt-get")?;
        if !output.status.success() {
            return Err(unreachable_debian(&format!("apt-get download {name}={version}"), &output));
        }
        unpack_all(downloads.path(), into)
    }

    /// Downloads packages of a suite with all that they depend on, and unpacks them into `into`. Their scripts are not run.
    pub fn unpack_with_dependencies(&self, names: &[&str], suite: &str, into: &Path) -> Result<()> {
        eprintln!("topstat-vm: downloading {} for {}", names.join(", "), self.arch.name());
        let downloads = tempfile::tempdir_in(&self.dir).context("cannot create a folder for downloads")?;
        fs::create_dir(downloads.path().join("partial"))?;
        let output = self
            .command("apt-get")
            .args(["-q", "--yes", "--no-install-recommends", "--download-only"])
            .args(["-o", &format!("APT::Default-Release={suite}")])
            .args(["-o", &format!("Dir::Cache::archives={}", downloads.path().display())])
            .arg("install")
            .args(names)
            .output()
            .context("cannot run apt-get")?;
        if !output.status.success() {
            return Err(unreachable_debian(&format!("apt-get install {}", names.join(" ")), &output));
        }
        unpack_all(downloads.path(), into)
    }
}

/// Unpacks the packages of a folder. Debian's base-files comes first: it has the links /bin, /lib and /sbin.
fn unpack_all(folder: &Path, into: &Path) -> Result<()> {
    let mut packages: Vec<PathBuf> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    packages.retain(|path| path.extension().is_some_and(|ext| ext == "deb"));
    packages
        .sort_by_key(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("base-files_")));
    for path in packages {
        let status = Command::new("dpkg-deb").arg("-x").args([&path, into]).status().context("cannot run dpkg-deb")?;
        ensure!(status.success(), "cannot unpack {}: dpkg-deb failed ({status})", path.display());
    }
    Ok(())
}

/// The package with the highest version, by Debian's rules of comparing versions.
pub fn newest(packages: Vec<Package>) -> Result<Option<Package>> {
    let mut best: Option<Package> = None;
    for package in packages {
        let better = match &best {
            None => true,
            Some(best) => Command::new("dpkg")
                .args(["--compare-versions", &package.version, "gt", &best.version])
                .status()
                .context("cannot run dpkg")?
                .success(),
        };
        if better {
            best = Some(package);
        }
    }
    Ok(best)
}

/// The sources of all [`MAIN_SUITES`] and [`SECURITY_SUITES`], on the host's mirrors.
fn host_sources() -> Result<String> {
    let os_release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let codename =
        os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).map(|name| name.trim_matches('"'));
    let debian = os_release.lines().any(|line| line.trim_matches('"') == "ID=debian");
    let (Some(codename), true) = (codename, debian) else {
        bail!(Unavailable(
            "kernels are fetched from the mirrors of a Debian host, and /etc/os-release names another system; \
             fill the cache on a Debian host and point TOPSTAT_VM_CACHE at a copy"
                .to_owned()
        ));
    };
    let Some(keyring) = KEYRINGS.iter().find(|path| Path::new(path).exists()) else {
        bail!(Unavailable(format!("Debian's keys are missing ({}); install debian-archive-keyring", KEYRINGS[0])));
    };
    // Apt itself reads its configuration in all formats, and prints the addresses that it would fetch.
    let output = Command::new("apt-get")
        .args(["update", "--print-uris"])
        .env("LC_ALL", "C")
        .output()
        .context("cannot run apt-get")?;
    let (main, security) = mirrors(&String::from_utf8_lossy(&output.stdout), codename);
    let Some(main) = main else {
        bail!(Unavailable(format!(
            "apt's sources have no Debian mirror for {codename}; add one to /etc/apt/sources.list"
        )));
    };
    let mut sources = stanza(&main, MAIN_SUITES, keyring);
    if let Some(security) = security {
        sources += &stanza(&security, SECURITY_SUITES, keyring);
    }
    Ok(sources)
}

fn stanza(uri: &str, suites: &[&str], keyring: &str) -> String {
    let suites = suites.join(" ");
    format!("Types: deb\nURIs: {uri}\nSuites: {suites}\nComponents: main\nSigned-By: {keyring}\n\n")
}

/// The main and the security mirror, from the addresses that `apt-get update --print-uris` prints.
///
/// Other projects use the names of Debian's suites (`bookworm`), but only Debian's own mirror also has `bookworm-updates`.
fn mirrors(print_uris: &str, codename: &str) -> (Option<String>, Option<String>) {
    let base_of = |suite: String| {
        let tail = format!("dists/{suite}/InRelease'");
        print_uris
            .lines()
            .filter_map(move |line| {
                line.split_whitespace().next()?.strip_prefix('\'')?.strip_suffix(&tail).map(str::to_owned)
            })
            .collect::<Vec<_>>()
    };
    let updates = base_of(format!("{codename}-updates"));
    let main = base_of(codename.to_owned());
    let main = main.iter().find(|base| updates.contains(base)).or(main.first()).cloned();
    let security = base_of(format!("{codename}-security")).first().cloned();
    (main, security)
}

fn parse_packages(show: &str) -> Vec<Package> {
    let field = |stanza: &str, name: &str| {
        stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned)
    };
    show.split("\n\n")
        .filter_map(|stanza| {
            let depends = field(stanza, "Depends").unwrap_or_default();
            Some(Package {
                name: field(stanza, "Package")?,
                version: field(stanza, "Version")?,
                exact_depends: depends
                    .split(", ")
                    .filter_map(|dependency| dependency.strip_suffix(')')?.split_once(" (= "))
                    .map(|(name, version)| (name.to_owned(), version.to_owned()))
                    .collect(),
            })
        })
        .collect()
}

fn complaints(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    stderr.lines().filter(|line| !line.trim().is_empty()).take(6).collect::<Vec<_>>().join("\n")
}

fn unreachable_debian(what: &str, output: &Output) -> anyhow::Error {
    Unavailable(format!("Debian's packages cannot be had: {what} failed:\n{}", complaints(output))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_those_of_the_distribution_itself() {
        let uris = "'http://other.example/linux/debian/dists/bookworm/InRelease' a 0 \n\
                    'http://m.example/debian/dists/bookworm/InRelease' b 0 \n\
                    'http://m.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' c 0 \n\
                    'http://m.example/debian/dists/bookworm-updates/InRelease' d 0 \n\
                    'http://s.example/debian-security/dists/bookworm-security/InRelease' e 0 \n";
        let (main, security) = mirrors(uris, "bookworm");
        assert_eq!(main.as_deref(), Some("http://m.example/debian/"));
        assert_eq!(security.as_deref(), Some("http://s.example/debian-security/"));
        assert_eq!(mirrors(uris, "trixie"), (None, None));
    }

    #[test]
    fn packages_are_read_with_their_exact_dependencies() {
        let show = "Package: linux-image-7.2\nVersion: 7.2-1\nDepends: dracut | initramfs-tools (>= 0.1), linux-binary-7.2 (= 7.2-1)\n\n\
                    Package: linux-image-6.1\nVersion: 6.1-1\n\n";
        let packages = parse_packages(show);
        assert_eq!(packages.len(), 2);
        assert_eq!(packages[0].exact_depends, [("linux-binary-7.2".to_owned(), "7.2-1".to_owned())]);
        assert_eq!(packages[1].exact_depends, []);
    }

    #[test]
    fn sources_name_every_suite() {
        let text = stanza("http://m.example/debian/", MAIN_SUITES, "/keys");
        assert!(text.contains("URIs: http://m.example/debian/\n"));
        assert!(text.contains("Suites: bookworm bookworm-backports trixie trixie-backports sid\n"));
        assert!(text.contains("Signed-By: /keys\n"));
    }
}
