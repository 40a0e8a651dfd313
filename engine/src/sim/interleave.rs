// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs that run in turns: at each access to shared memory, a schedule decides which CPU continues.
//!
//! `interleaved.c` is the engine, compiled to call [`topstat_step`] before each access to shared memory. Every CPU is a thread,
//! and all threads but one wait. So each schedule tries one interleaving of loads and stores, in the order of the source. It does
//! not try orders that a CPU or a compiler produces by reordering: the fences exclude these.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

thread_local! {
    static PLACE: RefCell<Option<(Arc<Stage>, usize)>> = const { RefCell::new(None) };
}

struct Stage {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The CPU that continues.
    turn: usize,
    /// The CPUs that have not finished.
    running: Vec<usize>,
    schedule: Vec<u8>,
    steps: usize,
}

impl State {
    /// Lets the next CPU of the schedule continue. At its end the schedule begins again.
    fn next(&mut self) {
        let choice = if self.schedule.is_empty() { 0 } else { self.schedule[self.steps % self.schedule.len()] };
        self.steps += 1;
        if !self.running.is_empty() {
            self.turn = self.running[usize::from(choice) % self.running.len()];
        }
    }
}

impl Stage {
    fn wait(&self, cpu: usize, pass_on: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if pass_on {
            state.next();
            if state.turn == cpu {
                return;
            }
            self.changed.notify_all();
        }
        while state.turn != cpu {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn leave(&self, cpu: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running.retain(|other| *other != cpu);
        state.next();
        self.changed.notify_all();
    }
}

/// Leaves the stage when the CPU has finished, also by a panic.
struct Leaving<'a>(&'a Stage, usize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        PLACE.set(None);
        self.0.leave(self.1);
    }
}

/// Called by `interleaved.c`.
#[unsafe(no_mangle)]
extern "C" fn topstat_step() {
    PLACE.with_borrow(|place| {
        if let Some((stage, cpu)) = place {
            stage.wait(*cpu, true);
        }
    });
}

/// The work of one CPU in [`interleave`].
pub type Work<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// Runs the work of each CPU, in the order of the schedule: each number chooses among the CPUs that have not finished. Returns
/// their results.
///
/// # Panics
/// When the work of a CPU panics.
pub fn interleave<'a, T: Send + 'a>(schedule: &[u8], cpus: Vec<Work<'a, T>>) -> Vec<T> {
    let state = State { turn: 0, running: (0..cpus.len()).collect(), schedule: schedule.to_vec(), steps: 0 };
    let stage = Arc::new(Stage { state: Mutex::new(state), changed: Condvar::new() });
    let run = |cpu: usize, work: Work<'a, T>, stage: Arc<Stage>| {
        PLACE.set(Some((Arc::clone(&stage), cpu)));
        let _leaving = Leaving(&stage, cpu);
        stage.wait(cpu, false);
        work()
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (cpu, work) in cpus.into_iter().enumerate() {
            let stage = Arc::clone(&stage);
            threads.push(scope.spawn(move || run(cpu, work, stage)));
        }
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    })
}
