// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report of a run.

use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::cpu::CpuUse;

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// The plan was carried out.
    Plan,
    /// [`Limits::time`](crate::Limits::time) was over.
    Time,
    /// [`Limits::total`](crate::Limits::total) was reached.
    Total,
    /// [`Limits::stop`](crate::Limits::stop) became true.
    Stop,
    /// All connections were closed or have failed.
    NoConnections,
}

/// The counts of one connection in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConnCount {
    /// The number of the connection.
    pub id: u64,
    /// The index in the plan. Connections that replaced each other share it.
    pub index: usize,
    /// The client's address.
    pub client: SocketAddr,
    /// The server's address.
    pub server: SocketAddr,
    /// Whether it was closed during the run.
    pub closed: bool,
    /// Transactions that were completed.
    pub transactions: u64,
    /// Bytes that the client sent.
    pub bytes_sent: u64,
    /// Bytes that the client received.
    pub bytes_received: u64,
    /// Bytes that the server received.
    pub server_bytes_received: u64,
    /// Bytes that the server sent.
    pub server_bytes_sent: u64,
}

/// Times from the beginning of a transaction to its end, in nanoseconds. In one-way mode the end is the moment when the
/// kernel has accepted the message.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[allow(missing_docs)]
pub struct Latency {
    pub min_ns: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

impl Latency {
    pub(crate) fn of(times: &Histogram<u64>) -> Latency {
        if times.is_empty() {
            return Latency::default();
        }
        Latency {
            min_ns: times.min(),
            mean_ns: times.mean(),
            p50_ns: times.value_at_quantile(0.5),
            p90_ns: times.value_at_quantile(0.9),
            p99_ns: times.value_at_quantile(0.99),
            p999_ns: times.value_at_quantile(0.999),
            max_ns: times.max(),
        }
    }
}

/// The report of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// Why the run ended.
    pub ended_by: EndedBy,
    /// From the first transaction's beginning to the last one's end.
    #[serde(rename = "elapsed_s", serialize_with = "as_seconds")]
    pub elapsed: Duration,
    /// Transactions that were completed.
    pub transactions: u64,
    /// Transactions per second.
    pub rate: f64,
    /// Bytes that the clients sent.
    pub bytes_sent: u64,
    /// Bytes that the clients received.
    pub bytes_received: u64,
    /// Bytes that the server received.
    pub server_bytes_received: u64,
    /// Bytes that the server sent.
    pub server_bytes_sent: u64,
    /// Requests or messages in datagrams that never arrived, or requests without an answer.
    pub lost: u64,
    /// Transactions that were begun, and neither completed nor lost when the run gave up waiting. On connections that are
    /// still open they go on in the next run.
    pub unfinished: u64,
    /// Transactions of the plan that were not carried out because their connection was closed or failed. This includes the
    /// transaction in flight on it.
    pub skipped: u64,
    /// Connections that failed, for example because another program reset them.
    pub failed: u64,
    /// Connections that were replaced.
    pub churned: u64,
    /// The durations of transactions.
    pub latency: Latency,
    /// The CPU time that the run took.
    pub cpu: CpuUse,
    /// The counts of every connection: first the open connections, then the ones closed by churn, in the order of their
    /// closing.
    #[serde(skip)]
    pub connections: Vec<ConnCount>,
    /// All times behind `latency`, in nanoseconds.
    #[serde(skip)]
    pub times: Histogram<u64>,
}

fn as_seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
