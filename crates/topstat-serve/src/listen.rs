// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sockets that are listened on: made here, or passed by systemd.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

use crate::Error;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A socket in the file system, with this mode.
    Unix(PathBuf, u32),
    /// A TCP port.
    Tcp(SocketAddr),
}

/// A socket that is listened on.
pub enum Listener {
    /// The path is removed at the end, if the socket was made here.
    Unix(UnixListener, Option<PathBuf>),
    /// A TCP port.
    Tcp(TcpListener),
}

/// A connection.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Listener {
    /// Makes a socket.
    ///
    /// # Errors
    ///
    /// The address can't be used, or another process listens on it.
    pub fn bind(listen: &Listen) -> Result<Self, Error> {
        let failed = |source| Error::Listen { on: listen.to_string(), source };
        match listen {
            Listen::Unix(path, mode) => unix(path, *mode).map_err(failed),
            Listen::Tcp(address) => {
                let listener = std::net::TcpListener::bind(address).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                TcpListener::from_std(listener).map(Self::Tcp).map_err(failed)
            }
        }
    }

    /// The sockets that systemd has passed; none without systemd.
    ///
    /// # Errors
    ///
    /// A socket is neither TCP nor Unix, or does not listen.
    pub fn passed() -> Result<Vec<Self>, Error> {
        let failed = |source| Error::Listen { on: "a socket that systemd has passed".to_owned(), source };
        let fds = sd_notify::listen_fds().map_err(failed)?;
        // SAFETY: the descriptors were passed to this process for this, and nothing else has taken them: it is done once, at
        // the start.
        fds.map(|fd| Self::of(unsafe { OwnedFd::from_raw_fd(fd) }).map_err(failed)).collect()
    }

    fn of(fd: OwnedFd) -> io::Result<Self> {
        match rustix::net::sockopt::socket_domain(&fd)? {
            AddressFamily::UNIX => {
                let listener = std::os::unix::net::UnixListener::from(fd);
                listener.set_nonblocking(true)?;
                Ok(Self::Unix(UnixListener::from_std(listener)?, None))
            }
            AddressFamily::INET | AddressFamily::INET6 => {
                let listener = std::net::TcpListener::from(fd);
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(TcpListener::from_std(listener)?))
            }
            _ => Err(io::Error::other("it is neither a Unix socket nor one of TCP")),
        }
    }

    /// The address.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn address(&self) -> io::Result<Listen> {
        match self {
            Self::Unix(listener, _) => {
                let address = listener.local_addr()?;
                Ok(Listen::Unix(address.as_pathname().unwrap_or(Path::new("(no name)")).to_owned(), 0))
            }
            Self::Tcp(listener) => listener.local_addr().map(Listen::Tcp),
        }
    }

    /// The next connection, and whether it came by TCP.
    ///
    /// # Errors
    ///
    /// Errors of the system, such as a lack of descriptors.
    pub async fn accept(&self) -> io::Result<(Box<dyn Stream>, bool)> {
        match self {
            Self::Unix(listener, _) => Ok((Box::new(listener.accept().await?.0), false)),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Box::new(stream), true))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, Some(path)) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path, _) => path.display().fmt(f),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// Makes a socket in the file system. A socket that a killed process has left behind is replaced; one with a listener, and a
/// file of another kind, stay.
fn unix(path: &Path, mode: u32) -> io::Result<Listener> {
    if let Ok(file) = path.symlink_metadata() {
        if !file.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is in its place"));
        }
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on it")),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
            Err(error) => return Err(error),
        }
    } else if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file gets this mode less the umask, so that the socket is never more open than its mode.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::fs::chmod(path, Mode::from_raw_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    let listener = std::os::unix::net::UnixListener::from(socket);
    Ok(Listener::Unix(UnixListener::from_std(listener)?, Some(path.to_owned())))
}
