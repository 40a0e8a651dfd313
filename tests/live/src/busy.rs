// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A load that runs beside a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use topstat_load::{Config, Limits, Load, Plan};

use crate::limits;

/// Requests and responses on some connections, until the value is dropped.
pub struct Busy {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Busy {
    /// Starts the load on this many connections.
    pub fn new(connections: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let limits = Limits { stop: Some(Arc::clone(&stop)), ..limits() };
        let mut load = Load::open(Config { connections, ..Config::default() }).expect("connections");
        let run = move || load.run(&Plan::endless(connections), &limits).expect("the load").transactions;
        Self { stop, thread: Some(std::thread::spawn(run)) }
    }

    /// Ends the load, and returns how many transactions it made.
    pub fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("once").join().expect("the load")
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
