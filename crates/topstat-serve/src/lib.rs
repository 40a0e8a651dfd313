// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of topstat over HTTP: metrics for Prometheus, a JSON API, server-sent events, a page; and rules that run a command.
//!
//! | module | content |
//! |---|---|
//! | [`source`] | the data that is served, as a trait |
//! | [`live`] | reads of the source, shared by all clients |
//! | [`listen`], [`access`] | sockets; tokens, TLS, the names of this host |
//! | [`server`] | connections and their limits |
//! | [`route`], [`api`], [`stream`], [`page`] | the answer to each request |
//! | [`metrics`] | the text for Prometheus |
//! | [`otlp`] | metrics and logs for OpenTelemetry |
//! | [`watch`] | rules that run a command |
//! | [`client`] | asks the servers of other hosts |
//!
//! # Invariants
//!
//! Nothing can be set over HTTP. A request has no body. Each connection, and each wait for a client or for the source, has a
//! limit. A table is read at most once in 100 ms, however many clients there are.

#![warn(missing_docs)]

pub mod access;
mod api;
pub mod client;
pub mod listen;
mod live;
mod metrics;
pub mod otlp;
mod page;
mod query;
mod route;
mod server;
pub mod source;
mod stream;
pub mod watch;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch::{Receiver, Sender, channel};

pub use access::{TlsFiles, Token};
pub use listen::Listen;
pub use otlp::Otlp;
pub use source::{Fault, Record, Source, Table};

/// Why nothing can be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option, or the content of a file, is wrong.
    #[error("{0}")]
    Wrong(String),
    /// A file can't be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// An address can't be listened on.
    #[error("cannot listen on {on}")]
    Listen {
        /// The address.
        on: String,
        /// The cause.
        source: io::Error,
    },
    /// The system refused an action.
    #[error("cannot {what}")]
    System {
        /// The action.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

/// How to serve.
#[derive(Clone, Default)]
pub struct Config {
    /// The addresses. The sockets that systemd passes are listened on instead of Unix sockets in this list.
    pub listen: Vec<Listen>,
    /// What a client over TCP must know.
    pub token: Option<Token>,
    /// TLS, for all connections over TCP.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Clients over TCP need a certificate.
    pub certificates: bool,
    /// Further names of this host that requests over TCP may have.
    pub hosts: Vec<String>,
    /// The tables that are read for metrics, by their paths or samples; empty: all. The sums of pushes of all tables come without
    /// reading them.
    pub metrics: Vec<String>,
    /// The static tables whose objects have metrics, by their paths.
    pub objects: Vec<String>,
    /// Where metrics and logs are exported to, if anywhere.
    pub otlp: Option<Otlp>,
}

/// Serves until SIGTERM or SIGINT comes; then `stop` is set, so that reads of the source can end.
///
/// # Errors
///
/// When an address can't be listened on, or would be open to a network without a token or certificates of clients.
pub fn serve(config: Config, source: Arc<dyn Source>, stop: &AtomicBool) -> Result<(), Error> {
    let (end, ending) = End::new();
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let system = |source| Error::System { what: "catch signals", source };
        let mut term = signal(SignalKind::terminate()).map_err(system)?;
        let mut int = signal(SignalKind::interrupt()).map_err(system)?;
        tokio::spawn(async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            end.end();
            // The server must not end because this has gone.
            std::future::pending::<()>().await;
        });
        server::run(config, source, ending.0).await
    });
    stop.store(true, Ordering::SeqCst);
    // A read of a daemon that is stuck is not waited for.
    runtime.shutdown_background();
    result
}

/// Serves until it is asked to end.
///
/// # Errors
///
/// As [`serve`].
pub fn serve_until(config: Config, source: Arc<dyn Source>, ending: Ending) -> Result<(), Error> {
    let runtime = runtime()?;
    let result = runtime.block_on(server::run(config, source, ending.0));
    runtime.shutdown_background();
    result
}

/// One thread serves; few threads read the source.
fn runtime() -> Result<Runtime, Error> {
    const READERS: usize = 4;
    /// Longer than a server runs. A source may have a process that ends with the thread that has started it (PR_SET_PDEATHSIG),
    /// so that no thread may end while the server runs.
    const FOREVER: Duration = Duration::from_secs(100 * 365 * 86400);
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(READERS).thread_keep_alive(FOREVER).build();
    runtime.map_err(|source| Error::System { what: "start the server", source })
}

/// Asks a server to end.
#[derive(Debug)]
pub struct End(Sender<bool>);

/// The server's side of an [`End`].
#[derive(Debug)]
pub struct Ending(Receiver<bool>);

impl End {
    /// Both sides. A server also ends when its [`End`] is dropped.
    pub fn new() -> (Self, Ending) {
        let (sender, receiver) = channel(false);
        (Self(sender), Ending(receiver))
    }

    /// Asks the server to end: it answers the requests that it has, for at most 5 s.
    pub fn end(&self) {
        self.0.send_replace(true);
    }
}
