// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network load that never leaves the host and is counted per connection.
//!
//! topstat's live tests and benches compare the kernel's ranking with the real traffic. This crate provides the real traffic:
//! it holds both ends of every connection, so that its counts on one end can be checked against the other end and against the
//! kernel's own `TCP_INFO`.
//!
//! ```
//! use topstat_load::{Config, Dist, Limits, Load, Plan};
//!
//! let mut load = Load::open(Config { connections: 10, ..Config::default() })?;
//! let plan = Plan::from_dist(&Dist::Flat { low: 1, high: 10 }, 10)?;
//! let report = load.run(&plan, &Limits::default())?;
//! assert_eq!(report.transactions, 55);
//! assert_eq!(report.connections[9].transactions, 10);
//!
//! let (_client, server) = load.tcp_info(9)?;
//! assert_eq!(server.bytes_received, 10 * 64);
//! # Ok::<(), topstat_load::Error>(())
//! ```
//!
//! # How it works
//!
//! A [`Load`] owns the sockets of both ends and a server thread. [`Load::run`] starts a client thread, lets it carry out a
//! [`Plan`] within [`Limits`] and joins it. Between two runs no thread of the load does any work: the server sleeps in
//! `epoll_wait`.
//!
//! A *transaction* is one request of [`Config::request_size`] bytes and, in [`Mode::Rr`], its response. A connection has at
//! most one transaction in flight; [`Limits::depth`] is the number of connections with a transaction in flight. With a depth
//! of 1 the client makes blocking calls instead of polling. A server with one connection does so, too: then a measurement
//! contains nothing but `send` and `recv`.
//!
//! # What the counts promise
//!
//! * A run that ends, for whatever reason, first waits for transactions in flight: a request that counts as a transaction was
//!   answered, and both ends agree on the bytes ([`RunReport::unfinished`] counts the exceptions).
//! * Every connection that carried data in a run is in the run's report, also if churn has closed it.
//! * No retry is silent: lost datagrams, failed connections and skipped transactions are counted.

mod address;
mod client;
mod config;
mod conn;
mod cpu;
mod error;
mod load;
mod open;
mod plan;
mod report;
mod server;
mod sys;
mod tcp_info;

pub use address::Addresses;
pub use config::{Config, Family, Mode, Proto, UdpServer};
pub use conn::Conn;
pub use cpu::{CpuUse, SystemTime};
pub use error::{Error, Result};
pub use load::Load;
pub use plan::{Dist, Limits, Order, Plan, Schedule};
pub use report::{ConnCount, EndedBy, Latency, RunReport};
pub use tcp_info::TcpInfo;
