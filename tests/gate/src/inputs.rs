// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A hash of the inputs of a part: contents of files, the toolchain, the kernel, and variables of the environment.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Files that decide how everything is built.
const OF_ALL: [&str; 3] = ["Cargo.toml", "Cargo.lock", "tests/gate"];

/// Commands whose output is part of every hash: the compilers and the kernel.
const HOST: [&[&str]; 4] = [&["rustc", "-vV"], &["clang", "--version"], &["cc", "--version"], &["uname", "-srvm"]];

/// Variables that change what a test does.
const VARIABLES: [&str; 3] = ["TOPSTAT_", "CARGOFLAGS", "CLANG"];

/// What the compilers and the kernel of this host say of themselves.
pub fn host(root: &Path) -> Vec<u8> {
    HOST.iter().flat_map(|command| output(root, command).unwrap_or_default()).collect()
}

fn output(root: &Path, command: &[&str]) -> Option<Vec<u8>> {
    let asked = Command::new(command[0]).args(&command[1..]).current_dir(root).output().ok()?;
    asked.status.success().then_some(asked.stdout)
}

/// A hash of the files below these paths, of the [`host`] and of the environment. Files that git ignores do not count; changes
/// that are not committed do. `None` where git can't list files: then nothing is known to be unchanged.
pub fn hash(root: &Path, paths: &BTreeSet<String>, host: &[u8]) -> Option<String> {
    let mut list = vec!["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", "--"];
    list.extend(OF_ALL);
    list.extend(paths.iter().map(String::as_str));
    let listed = output(root, &list)?;
    let mut names: Vec<_> = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    let mut sum = Sha256::new();
    for name in names {
        let path = root.join(std::str::from_utf8(name).ok()?);
        // A file that was removed, and not from git's index yet, is not there for the compiler either.
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        let content = if about.is_symlink() {
            fs::read_link(&path).ok()?.into_os_string().into_encoded_bytes()
        } else {
            fs::read(&path).ok()?
        };
        sum.update(name);
        sum.update([0, u8::from(about.permissions().mode() & 0o100 != 0)]);
        sum.update((content.len() as u64).to_le_bytes());
        sum.update(content);
    }
    sum.update(host);
    for (name, value) in std::env::vars_os().collect::<BTreeMap<_, _>>() {
        let name = name.to_string_lossy();
        if VARIABLES.iter().any(|known| name.starts_with(known)) {
            sum.update(format!("{name}={}\0", value.to_string_lossy()));
        }
    }
    Some(sum.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

/// A package of the workspace, and the folders and files that its tests depend on.
#[derive(Clone, Debug)]
pub struct Package {
    pub name: String,
    pub inputs: BTreeSet<String>,
}

/// The packages of the workspace. A package depends on its folder, on the folders of its path dependencies, and on the paths that
/// `[package.metadata.gate]` names, relative to the root. The paths of `inputs` count for the package and for each package that
/// depends on it. Only tests of the package read the paths of `tests`, so these paths count for the package alone.
///
/// # Errors
/// cargo that fails, or says what this does not understand.
pub fn packages(root: &Path, cargo: &str) -> Result<Vec<Package>> {
    let asked = Command::new(cargo)
        .args(["metadata", "--no-deps", "--locked", "--format-version", "1"])
        .current_dir(root)
        .output()
        .with_context(|| format!("cannot run {cargo}"))?;
    if !asked.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&asked.stderr).trim());
    }
    let said: Value = serde_json::from_slice(&asked.stdout).context("cargo metadata is no JSON")?;
    read(root, &said)
}

fn read(root: &Path, said: &Value) -> Result<Vec<Package>> {
    struct Own {
        name: String,
        folder: String,
        declared: Vec<String>,
        of_tests: Vec<String>,
        depends_on: Vec<String>,
    }
    let relative = |path: &str| -> Result<String> {
        let path = Path::new(path);
        let inside = path.strip_prefix(root).with_context(|| format!("{} is outside the checkout", path.display()))?;
        Ok(inside.to_string_lossy().into_owned())
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut owns = Vec::new();
    for package in said["packages"].as_array().context("cargo metadata names no packages")? {
        let manifest = PathBuf::from(text(&package["manifest_path"]).context("a package without a manifest")?);
        let list = |value: &Value| value.as_array().into_iter().flatten().filter_map(text).collect::<Vec<_>>();
        let paths = package["dependencies"].as_array().into_iter().flatten().filter_map(|one| text(&one["path"]));
        owns.push(Own {
            name: text(&package["name"]).context("a package without a name")?,
            folder: relative(&manifest.parent().context("a manifest without a folder")?.to_string_lossy())?,
            declared: list(&package["metadata"]["gate"]["inputs"]),
            of_tests: list(&package["metadata"]["gate"]["tests"]),
            depends_on: paths.map(|path| relative(&path)).collect::<Result<_>>()?,
        });
    }
    let mut packages = Vec::new();
    for own in &owns {
        let (mut inputs, mut left) = (BTreeSet::new(), vec![own.folder.clone()]);
        while let Some(folder) = left.pop() {
            if inputs.insert(folder.clone())
                && let Some(of) = owns.iter().find(|other| other.folder == folder)
            {
                inputs.extend(of.declared.iter().cloned());
                left.extend(of.depends_on.iter().cloned());
            }
        }
        inputs.extend(own.of_tests.iter().cloned());
        packages.push(Package { name: own.name.clone(), inputs });
    }
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn inputs_of_a_package_are_those_of_all_that_it_depends_on() {
        let said = json!({"packages": [
            {"name": "a", "manifest_path": "/r/a/Cargo.toml", "metadata": null,
             "dependencies": [{"name": "b", "path": "/r/x/b"}, {"name": "serde"}]},
            {"name": "b", "manifest_path": "/r/x/b/Cargo.toml", "dependencies": [],
             "metadata": {"gate": {"inputs": ["data"], "tests": ["texts"]}}},
        ]});
        let packages = read(Path::new("/r"), &said).unwrap();
        let inputs: Vec<Vec<_>> = packages.iter().map(|p| p.inputs.iter().map(String::as_str).collect()).collect();
        assert_eq!(inputs, [vec!["a", "data", "x/b"], vec!["data", "texts", "x/b"]]);
    }

    #[test]
    fn a_hash_changes_with_contents_modes_and_names_and_with_nothing_else() {
        let root = std::env::temp_dir().join(format!("topstat-gate-inputs-{}", std::process::id()));
        fs::create_dir_all(root.join("a")).unwrap();
        fs::create_dir_all(root.join("b")).unwrap();
        assert!(Command::new("git").args(["init", "-q"]).current_dir(&root).status().unwrap().success());
        fs::write(root.join("a/file"), "one").unwrap();
        fs::write(root.join("b/file"), "one").unwrap();
        let of_a = || hash(&root, &BTreeSet::from(["a".to_owned()]), b"").unwrap();
        let first = of_a();
        fs::write(root.join("b/file"), "two").unwrap();
        assert_eq!(of_a(), first);
        fs::write(root.join("a/file"), "two").unwrap();
        let second = of_a();
        assert_ne!(second, first);
        fs::set_permissions(root.join("a/file"), fs::Permissions::from_mode(0o755)).unwrap();
        let third = of_a();
        assert_ne!(third, second);
        fs::rename(root.join("a/file"), root.join("a/other")).unwrap();
        assert_ne!(of_a(), third);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(hash(&root, &BTreeSet::new(), b""), None);
    }
}
