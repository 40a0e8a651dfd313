// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that do what may take a while, while others answer what is quick.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

type Work = Box<dyn FnOnce() + Send>;

/// Threads that do what they are given, in the order given. They end once they are dropped and have nothing left to do.
pub struct Workers {
    queue: Sender<Work>,
}

impl Workers {
    /// Starts so many threads, called so.
    ///
    /// # Errors
    ///
    /// When there can be no more threads.
    pub fn start(name: &str, count: usize) -> io::Result<Self> {
        let (queue, work) = channel();
        let work = Arc::new(Mutex::new(work));
        for number in 0..count {
            let work = Arc::clone(&work);
            thread::Builder::new().name(format!("topstat-{name}-{number}")).spawn(move || run(&work))?;
        }
        Ok(Self { queue })
    }

    /// Has one of them do this. Whoever waits for it holds one request of the kernel's each, which bounds the queue.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        // The threads are there for as long as the queue is.
        let _ = self.queue.send(Box::new(work));
    }
}

fn run(work: &Mutex<Receiver<Work>>) {
    super::caps::serve_only();
    loop {
        // The lock is given back before the work is done.
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(next) = next else { return };
        // A panic of one read must not end the thread: the reply that it drops tells whoever has asked.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::time::Duration;

    #[test]
    fn all_of_them_work_at_once_and_survive_a_panic() {
        const THREADS: usize = 3;
        let workers = Workers::start("test", THREADS).unwrap();
        for _ in 0..2 * THREADS {
            workers.run(|| std::panic::resume_unwind(Box::new("a panic without a message")));
        }
        let (sender, done) = channel();
        let barrier = Arc::new(Barrier::new(THREADS));
        for number in 0..THREADS {
            let (sender, barrier) = (sender.clone(), Arc::clone(&barrier));
            workers.run(move || {
                barrier.wait();
                sender.send(number).unwrap();
            });
        }
        let mut numbers: Vec<_> = (0..THREADS).map(|_| done.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2]);
    }

    #[test]
    fn what_is_queued_is_done_before_they_end() {
        let (sender, done) = channel();
        let workers = Workers::start("test", 1).unwrap();
        for number in 0..100 {
            let sender = sender.clone();
            workers.run(move || sender.send(number).unwrap());
        }
        drop((workers, sender));
        assert_eq!(done.iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    }
}
