// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections: they are accepted, limited, and ended.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sd_notify::NotifyState;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_io_timeout::TimeoutWriter;

use crate::listen::{Listen, Listener, Stream};
use crate::live::Live;
use crate::metrics::Metrics;
use crate::source::Source;
use crate::{Config, Error, otlp, route};

/// Connections at once.
pub const MOST_CONNECTIONS: u32 = 256;
/// Streams of events at once. Each takes a connection.
pub const MOST_STREAMS: usize = 64;
/// Bytes of a request's line and headers.
const MOST_HEAD: usize = 16 << 10;
/// Headers of a request.
const MOST_HEADERS: usize = 64;
/// How long a client may take for a handshake of TLS, and for the head of a request; and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(10);
/// How long a client may take nothing of an answer.
const WRITE: Duration = Duration::from_secs(30);
/// How long requests may go on after the server was asked to end.
const END: Duration = Duration::from_secs(5);
/// How long to wait after a failed accept, which a lack of descriptors causes.
const AGAIN: Duration = Duration::from_millis(100);
/// What a client gets while there are as many connections as there may be.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 10\r\n\r\n";

/// The state of the server.
pub struct App {
    /// The options.
    pub config: Config,
    /// The source.
    pub live: Live,
    /// The state behind `/metrics`.
    pub metrics: Metrics,
    /// Counts of the server.
    pub counts: Counts,
    /// The places of streams.
    pub streams: Arc<Semaphore>,
    /// Counts of exports.
    pub exports: Arc<otlp::Counts>,
    /// Becomes true when the server ends.
    pub ending: watch::Receiver<bool>,
}

/// Counts since the server began.
#[derive(Default)]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: AtomicU64,
    /// Connections that were refused, because there were too many.
    pub refused: AtomicU64,
    /// Requests, by the first digit of their status.
    pub requests: [AtomicU64; 6],
}

impl App {
    /// The state at the start.
    pub fn new(config: Config, source: Arc<dyn Source>, ending: watch::Receiver<bool>) -> Self {
        let metrics = Metrics::new(config.metrics.clone(), config.objects.clone());
        let streams = Arc::new(Semaphore::new(MOST_STREAMS));
        Self {
            config,
            live: Live::new(source),
            metrics,
            counts: Counts::default(),
            streams,
            exports: Arc::default(),
            ending,
        }
    }
}

/// Listens, serves, and ends.
pub async fn run(config: Config, source: Arc<dyn Source>, mut ending: watch::Receiver<bool>) -> Result<(), Error> {
    let system = |what| move |source| Error::System { what, source };
    let mut listeners = Listener::passed()?;
    let wanted = config.listen.iter().filter(|listen| listeners.is_empty() || matches!(listen, Listen::Tcp(_)));
    let made = wanted.map(Listener::bind).collect::<Result<Vec<_>, _>>()?;
    listeners.extend(made);
    for listener in &listeners {
        let address = listener.address().map_err(system("find out an address"))?;
        allowed(&address, &config)?;
        log::info!("listening on {address}");
    }
    if listeners.is_empty() {
        return Err(Error::Wrong("there is no address to listen on".to_owned()));
    }
    let app = Arc::new(App::new(config, source, ending.clone()));
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS as usize));
    for listener in listeners {
        tokio::spawn(accept(listener, Arc::clone(&app), Arc::clone(&places)));
    }
    if let Some(exports) = app.config.otlp.clone() {
        tokio::spawn(otlp::run(Arc::clone(&app), exports));
    }
    notify(&[NotifyState::Ready]);
    ended(&mut ending).await;
    notify(&[NotifyState::Stopping]);
    if tokio::time::timeout(END, places.acquire_many(MOST_CONNECTIONS)).await.is_err() {
        log::warn!("some clients took longer than {} s for their answers: they are cut off", END.as_secs());
    }
    Ok(())
}

/// Refuses an address that a network reaches, unless clients prove who they are.
fn allowed(address: &Listen, config: &Config) -> Result<(), Error> {
    let Listen::Tcp(tcp) = address else { return Ok(()) };
    if tcp.ip().is_loopback() || config.token.is_some() || config.certificates {
        if !tcp.ip().is_loopback() && config.tls.is_none() {
            log::warn!("{address}: the token and all data cross the network in clear: give --tls-cert and --tls-key");
        }
        return Ok(());
    }
    Err(Error::Wrong(format!(
        "{address} can be reached by other hosts: give --token-file, or --tls-client-ca with --tls-cert and --tls-key; or \
         listen on 127.0.0.1"
    )))
}

fn notify(state: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(state) {
        log::warn!("cannot notify systemd: {error}");
    }
}

/// Waits until the server ends.
pub async fn ended(ending: &mut watch::Receiver<bool>) {
    // An error: the server has ended already.
    let _ = ending.wait_for(|ending| *ending).await;
}

/// Accepts connections until the server ends.
async fn accept(listener: Listener, app: Arc<App>, places: Arc<Semaphore>) {
    let mut ending = app.ending.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ended(&mut ending) => return,
        };
        let (mut stream, tcp) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                log::debug!("accept: {error}");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        app.counts.connections.fetch_add(1, Ordering::Relaxed);
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            app.counts.refused.fetch_add(1, Ordering::Relaxed);
            if !tcp || app.config.tls.is_none() {
                // It fits into the buffer of a new socket.
                let _ = tokio::time::timeout(AGAIN, stream.write_all(FULL)).await;
            }
            continue;
        };
        tokio::spawn(connection(stream, tcp, Arc::clone(&app), place));
    }
}

/// Serves a connection to its end.
async fn connection(stream: Box<dyn Stream>, tcp: bool, app: Arc<App>, _place: OwnedSemaphorePermit) {
    let mut ending = app.ending.clone();
    let stream: Box<dyn Stream> = match app.config.tls.clone().filter(|_| tcp) {
        None => stream,
        Some(config) => {
            let handshake = tokio_rustls::TlsAcceptor::from(config).accept(stream);
            match tokio::time::timeout(HEAD, handshake).await {
                Ok(Ok(stream)) => Box::new(stream),
                _ => return,
            }
        }
    };
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(WRITE));
    let service = service_fn(|request| {
        let app = Arc::clone(&app);
        async move { Ok::<_, Infallible>(route::answer(&app, tcp, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MOST_HEAD)
        .max_headers(MOST_HEADERS)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let mut served = pin!(served);
    let result = tokio::select! {
        result = served.as_mut() => result,
        () = ended(&mut ending) => {
            // The request that is being answered is the last one.
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        log::debug!("a connection has ended: {error}");
    }
}
