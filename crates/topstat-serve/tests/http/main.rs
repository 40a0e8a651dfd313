// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The server over real sockets, with a model as its source.

mod access;
mod api;
mod hostile;
mod metrics;
mod model;
mod otlp;
mod shipped;
mod stream;
mod watch;
