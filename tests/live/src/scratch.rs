// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory for a test's files, and files on block devices.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A directory that is removed with this value.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory with this name.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("topstat-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Why temporary files can't be read from a device: file systems without a device have numbers of major 0.
pub(crate) fn no_device() -> Option<String> {
    let folder = std::env::temp_dir();
    let dev = std::fs::metadata(&folder).map(|m| m.dev());
    match dev {
        Ok(dev) if rustix::fs::major(dev) != 0 => None,
        Ok(_) => Some(format!("needs temporary files on a block device: {} is on none (see TMPDIR)", folder.display())),
        Err(e) => Some(format!("needs temporary files: {}: {e}", folder.display())),
    }
}

/// The disk that holds temporary files, as `major:minor`; for a partition, the whole disk.
pub(crate) fn disk() -> std::io::Result<String> {
    let dev = std::fs::metadata(std::env::temp_dir())?.dev();
    let own = format!("/sys/dev/block/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let part = Path::new(&own).join("partition").exists();
    let file = if part { Path::new(&own).join("../dev") } else { Path::new(&own).join("dev") };
    Ok(std::fs::read_to_string(file)?.trim().to_owned())
}

/// A file of this number of pieces, on its disk.
fn written(path: &Path, pieces: usize, piece: &[u8]) -> File {
    let mut file = File::create(path).expect("make a file");
    for _ in 0..pieces {
        file.write_all(piece).expect("write to the disk");
    }
    file.sync_all().expect("write to the disk");
    file
}

/// A file on a block device that is not in the page cache.
pub struct OnDisk {
    path: PathBuf,
    _scratch: Scratch,
}

impl OnDisk {
    /// Makes a file of this many MiB.
    pub fn new(mebibytes: usize) -> Self {
        let scratch = Scratch::new("delays");
        let path = scratch.path().join("data");
        let piece: Vec<u8> = (0..1_u32 << 20).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        let file = written(&path, mebibytes, &piece);
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("drop it from memory");
        Self { path, _scratch: scratch }
    }

    /// The path of the file.
    pub fn path(&self) -> &str {
        self.path.to_str().expect("a path in UTF-8")
    }
}

/// A disk that is a file, as long as this value lives.
pub struct LoopDevice {
    /// The device file: `/dev/loop7`.
    pub path: PathBuf,
    /// The name: `loop7`.
    pub name: String,
    _scratch: Scratch,
}

impl LoopDevice {
    /// Makes a device of this many MiB.
    ///
    /// # Errors
    /// Why no device is available.
    pub fn new(mebibytes: u64) -> Result<Self, String> {
        let scratch = Scratch::new("loop");
        let file = scratch.path().join("disk");
        File::create(&file).and_then(|f| f.set_len(mebibytes << 20)).map_err(|e| e.to_string())?;
        let made = std::process::Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        let made = made.map_err(|e| format!("losetup: {e}"))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).trim().to_owned());
        }
        let path = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim());
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self { path, name, _scratch: scratch })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

/// Why there is no loop device, or no program that uses it.
pub(crate) fn loop_missing() -> Option<String> {
    let fio = std::process::Command::new("fio").arg("--version").output();
    let fio = fio.err().map(|e| format!("needs fio: {e}"));
    // /dev/loop-control exists once the module is loaded. A kernel with a built-in loop device needs no module.
    let _ = std::process::Command::new("modprobe").args(["-q", "loop"]).status();
    fio.or_else(|| LoopDevice::new(1).err().map(|e| format!("needs a loop device: {e}")))
}

/// A file on a block device to swap to, as long as this value lives.
pub struct SwapFile {
    path: PathBuf,
    _scratch: Scratch,
}

impl SwapFile {
    /// Makes a file of this many MiB, which the kernel uses after all other swap.
    pub fn new(mebibytes: usize) -> Self {
        let scratch = Scratch::new("swap");
        let path = scratch.path().join("swap");
        // No holes: the kernel writes to the file's blocks directly.
        drop(written(&path, mebibytes, &vec![0; 1 << 20]));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, mode).expect("only for root");
        let made = std::process::Command::new("mkswap").arg("-q").arg(&path).status().expect("mkswap");
        assert!(made.success(), "mkswap: {made}");
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
        // SAFETY: the name ends with a zero.
        let on = unsafe { libc::swapon(name.as_ptr(), 0) };
        assert_eq!(on, 0, "swapon: {}", std::io::Error::last_os_error());
        Self { path, _scratch: scratch }
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        let name = std::ffi::CString::new(self.path.as_os_str().as_encoded_bytes()).expect("a path");
        // SAFETY: as above.
        let off = unsafe { libc::swapoff(name.as_ptr()) };
        if off != 0 && !std::thread::panicking() {
            panic!("swapoff: {}", std::io::Error::last_os_error());
        }
    }
}
