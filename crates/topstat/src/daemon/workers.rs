// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads for work that may take a while, so that the threads that take requests only do quick work.
//!
//! Work comes from users, and each user may ask for any amount. No user can hold up another:
//!
//! - **Q1** users with waiting work are served in turn, one piece of work each.
//! - **Q2** a user's work waits in lines, one for each open file. The lines are served in turn. Each line does one piece of work
//!   at a time, in the order of arrival.
//! - **Q3** if there are several threads, a user other than root occupies at most all but one of them. So another user waits at
//!   most for the end of a piece of work that has begun.
//! - **Q4** at most [`MOST_WAITING`] pieces of work of a user wait, each for [`PATIENCE`] at most. Any other piece is
//!   [`Refused`]: it is called with the reason, and not done.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use super::pulse::{Beat, Pulse};

use crate::lock::lock;

/// See Q4. Each reading thread of a tool has one waiting piece of work, and no tool has this many threads.
const MOST_WAITING: usize = 1024;
/// See Q4. Less than the time after which the kernel takes the daemon for dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most users that are listed: the users with the most waiting work.
const MOST_LISTED: usize = 16;

/// A piece of work. It is called once, with the reason if it was refused.
type Work = Box<dyn FnOnce(Result<(), Refused>) + Send>;

/// Why a piece of work is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The user has too much waiting work.
    Many(u32),
    /// The piece of work has waited too long.
    Late(u32),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Many(uid) => write!(f, "uid {uid} has {MOST_WAITING} reads waiting already"),
            Self::Late(uid) => write!(f, "it has waited for {} s behind other reads of uid {uid}", PATIENCE.as_secs()),
        }
    }
}

/// Threads that do queued work. Once this is dropped, they end when the queue is empty.
pub struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Signals that work has come, or that no more work will come.
    more: Condvar,
    /// Since when work that may begin has waited for a thread, if any has. Changed under the lock of `queue`.
    untaken: Arc<Beat>,
}

/// The waiting work, and how much work of each user has begun.
#[derive(Default)]
struct Queue {
    users: HashMap<u32, User>,
    /// The users with work that may begin, each once, in the order of their turns.
    turns: VecDeque<u32>,
    threads: usize,
    ended: bool,
}

#[derive(Default)]
struct User {
    lines: HashMap<u64, Line>,
    /// The lines with waiting work and no begun work, each once, in the order of their turns.
    ready: VecDeque<u64>,
    waiting: usize,
    working: usize,
    in_turns: bool,
}

#[derive(Default)]
struct Line {
    work: VecDeque<(Instant, Work)>,
    working: bool,
}

/// How many pieces of a user's work wait, and how many have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub uid: u32,
    pub waiting: usize,
    pub working: usize,
}

impl Workers {
    /// Starts `count` threads with this name. `pulse` watches their progress.
    ///
    /// # Errors
    ///
    /// When a thread can't be started.
    pub fn start(name: &str, count: usize, pulse: &Arc<Pulse>) -> io::Result<Self> {
        let queue = Mutex::new(Queue { threads: count, ..Queue::default() });
        let untaken = pulse.thread(format!("the queue to {name}"));
        let workers = Self { shared: Arc::new(Shared { queue, more: Condvar::new(), untaken }) };
        for number in 0..count {
            let (shared, pulse) = (Arc::clone(&workers.shared), Arc::clone(pulse));
            let name = format!("topstat-{name}-{number}");
            thread::Builder::new().name(name.clone()).spawn(move || shared.run(&pulse, name))?;
        }
        Ok(workers)
    }

    /// Queues work for a user, behind the earlier work in this line of the user. `work` is called in any case; if it was refused,
    /// with the reason.
    pub fn run(&self, uid: u32, line: u64, work: impl FnOnce(Result<(), Refused>) + Send + 'static) {
        let mut queue = self.shared.lock();
        match queue.push(uid, line, Box::new(work), Instant::now()) {
            Ok(()) => {
                if !self.shared.untaken.is_waiting() {
                    self.shared.untaken.waits(!queue.turns.is_empty());
                }
                self.shared.more.notify_one();
            }
            Err(work) => {
                drop(queue);
                work(Err(Refused::Many(uid)));
            }
        }
    }

    /// How many pieces of work wait and how many have begun: in all, and for the users with the most waiting work.
    pub fn load(&self) -> ((usize, usize), Vec<Load>) {
        let queue = self.shared.lock();
        let of = |(uid, user): (&u32, &User)| Load { uid: *uid, waiting: user.waiting, working: user.working };
        let mut users: Vec<_> = queue.users.iter().map(of).collect();
        let sum = |of: fn(&Load) -> usize| users.iter().map(of).sum();
        let all = (sum(|load| load.waiting), sum(|load| load.working));
        users.sort_by_key(|load| (std::cmp::Reverse(load.waiting), load.uid));
        users.truncate(MOST_LISTED);
        (all, users)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.more.notify_all();
    }
}

impl Queue {
    /// The most threads that a user may occupy: see Q3.
    fn most_working(&self, uid: u32) -> usize {
        if uid == 0 { self.threads } else { (self.threads - 1).max(1) }
    }

    fn push(&mut self, uid: u32, line: u64, work: Work, now: Instant) -> Result<(), Work> {
        let user = self.users.entry(uid).or_default();
        if user.waiting >= MOST_WAITING {
            return Err(work);
        }
        user.waiting += 1;
        let entry = user.lines.entry(line).or_default();
        entry.work.push_back((now, work));
        if !entry.working && entry.work.len() == 1 {
            user.ready.push_back(line);
        }
        self.line_up(uid);
        Ok(())
    }

    /// Gives a user a turn, if any work of the user may begin.
    fn line_up(&mut self, uid: u32) {
        let most = self.most_working(uid);
        if let Some(user) = self.users.get_mut(&uid)
            && !user.in_turns
            && !user.ready.is_empty()
            && user.working < most
        {
            user.in_turns = true;
            self.turns.push_back(uid);
        }
    }

    /// Takes the next piece of work. A call of [`Queue::done`] must follow.
    fn next(&mut self) -> Option<(u32, u64, Instant, Work)> {
        let uid = self.turns.pop_front()?;
        let user = self.users.get_mut(&uid)?;
        user.in_turns = false;
        let line = user.ready.pop_front()?;
        let entry = user.lines.get_mut(&line)?;
        let (since, work) = entry.work.pop_front()?;
        entry.working = true;
        user.waiting -= 1;
        user.working += 1;
        self.line_up(uid);
        Some((uid, line, since, work))
    }

    fn done(&mut self, uid: u32, line: u64) {
        let Some(user) = self.users.get_mut(&uid) else { return };
        user.working -= 1;
        if let Some(entry) = user.lines.get_mut(&line) {
            entry.working = false;
            if entry.work.is_empty() {
                user.lines.remove(&line);
            } else {
                user.ready.push_back(line);
            }
        }
        if user.lines.is_empty() {
            self.users.remove(&uid);
        }
        self.line_up(uid);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Work is done without this lock, and no code under this lock panics half way.
        lock(&self.queue)
    }

    fn run(&self, pulse: &Arc<Pulse>, name: String) {
        super::caps::serve_only();
        let beat = pulse.thread(name);
        let mut queue = self.lock();
        loop {
            let next = queue.next();
            // A thread has taken work, so the threads are well. The wait of the other work counts from now.
            self.untaken.waits(!queue.turns.is_empty());
            let Some((uid, line, since, work)) = next else {
                if queue.ended {
                    return;
                }
                queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            {
                let _working = beat.working();
                let turn = if since.elapsed() < PATIENCE { Ok(()) } else { Err(Refused::Late(uid)) };
                // A panic of one read must not end the thread. It drops the reply, which then sends an error to the reading
                // process.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(turn)));
            }
            queue = self.lock();
            queue.done(uid, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    fn start(count: usize) -> Workers {
        Workers::start("test", count, &Arc::default()).unwrap()
    }

    #[test]
    fn all_of_them_work_at_once_for_root_and_survive_a_panic() {
        const THREADS: usize = 3;
        let workers = start(THREADS);
        for number in 0..2 * THREADS as u64 {
            workers.run(0, number, |_| std::panic::resume_unwind(Box::new("a panic without a message")));
        }
        let (sender, done) = channel();
        let barrier = Arc::new(Barrier::new(THREADS));
        for number in 0..THREADS as u64 {
            let (sender, barrier) = (sender.clone(), Arc::clone(&barrier));
            workers.run(0, number, move |_| {
                barrier.wait();
                sender.send(number).unwrap();
            });
        }
        let mut numbers: Vec<_> = (0..THREADS).map(|_| done.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2]);
        while workers.load().0.1 > 0 {
            thread::yield_now();
        }
        assert_eq!(workers.load().1, []);
    }

    #[test]
    fn what_is_queued_is_done_before_they_end() {
        let (sender, done) = channel();
        let workers = start(1);
        for number in 0..100 {
            let sender = sender.clone();
            workers.run(0, 0, move |_| sender.send(number).unwrap());
        }
        drop((workers, sender));
        assert_eq!(done.iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn whoever_has_a_thousand_waiting_is_refused_the_next_and_nobody_else_is() {
        let workers = start(2);
        let (release, held) = channel::<()>();
        let (sender, begun) = channel();
        // Only one piece of work of a line begins at a time.
        workers.run(7, 1, move |_| {
            sender.send(()).unwrap();
            let _ = held.recv();
        });
        begun.recv().unwrap();
        let (sender, done) = channel();
        for _ in 0..=MOST_WAITING {
            let sender = sender.clone();
            workers.run(7, 1, move |turn| sender.send(turn).unwrap());
        }
        assert_eq!(done.recv().unwrap(), Err(Refused::Many(7)));
        let ((waiting, working), users) = workers.load();
        assert_eq!(
            (waiting, working, users),
            (MOST_WAITING, 1, vec![Load { uid: 7, waiting: MOST_WAITING, working: 1 }])
        );
        // Another line of this user waits for it (Q3); another user does not.
        let (sender, other) = channel();
        workers.run(8, 1, move |turn| sender.send(turn).unwrap());
        assert_eq!(other.recv_timeout(Duration::from_secs(10)).unwrap(), Ok(()));
        drop(release);
        assert!((0..MOST_WAITING).all(|_| done.recv_timeout(Duration::from_secs(10)).unwrap() == Ok(())));
    }

    #[test]
    fn what_has_waited_too_long_is_told_so() {
        let mut queue = Queue { threads: 1, ..Queue::default() };
        let begun = Instant::now();
        queue.push(7, 1, Box::new(|_| ()), begun).ok().unwrap();
        let (.., since, _) = queue.next().unwrap();
        assert_eq!(since, begun);
        assert_eq!(Refused::Late(7).to_string(), "it has waited for 10 s behind other reads of uid 7");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u32, u64),
        Begin,
        End(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = (usize, Vec<Step>)> {
        let step = prop_oneof![
            (0..4_u32, 0..4_u64).prop_map(|(uid, line)| Step::Push(uid, line)),
            Just(Step::Begin),
            any::<prop::sample::Index>().prop_map(Step::End),
        ];
        (1..5_usize, prop::collection::vec(step, 0..300))
    }

    proptest! {
        /// Q1 … Q3: all work that may begin begins in turn, and all work is done in the end.
        #[test]
        fn users_and_their_lines_are_served_in_turn((threads, steps) in steps()) {
            let mut queue = Queue { threads, ..Queue::default() };
            let (sender, began) = channel();
            // The work that should be waiting, and the work that should have begun.
            let mut waiting: HashMap<(u32, u64), VecDeque<usize>> = HashMap::new();
            let mut working: Vec<(u32, u64)> = Vec::new();
            // For each waiting user that could begin: how many times other users have begun since.
            let mut passed: HashMap<u32, usize> = HashMap::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(uid, line) => {
                        let sender = sender.clone();
                        let work: Work = Box::new(move |_| sender.send(number).unwrap());
                        queue.push(uid, line, work, Instant::now()).ok().unwrap();
                        waiting.entry((uid, line)).or_default().push_back(number);
                    }
                    Step::Begin if working.len() < threads => {
                        let may = |(uid, line): &(u32, u64)| {
                            let of_user = working.iter().filter(|(other, _)| other == uid).count();
                            !working.contains(&(*uid, *line)) && of_user < queue.most_working(*uid)
                        };
                        let able: Vec<u32> = waiting.keys().filter(|key| may(key)).map(|(uid, _)| *uid).collect();
                        let Some((uid, line, _, work)) = queue.next() else {
                            prop_assert!(able.is_empty(), "{:?} could begin", able);
                            continue;
                        };
                        prop_assert!(able.contains(&uid));
                        work(Ok(()));
                        let due = waiting.get_mut(&(uid, line)).unwrap();
                        prop_assert_eq!(Some(began.recv().unwrap()), due.pop_front()); // Q2
                        if due.is_empty() {
                            waiting.remove(&(uid, line));
                        }
                        prop_assert!(!working.contains(&(uid, line))); // Q2
                        working.push((uid, line));
                        passed.remove(&uid);
                        passed.retain(|uid, _| able.contains(uid));
                        for uid in able.iter().filter(|other| **other != uid) {
                            passed.entry(*uid).or_default();
                        }
                        for count in passed.values_mut() {
                            *count += 1;
                            prop_assert!(*count <= 4, "{:?}", passed); // Q1: there are four users
                        }
                    }
                    Step::Begin => {}
                    Step::End(which) if !working.is_empty() => {
                        let (uid, line) = working.swap_remove(which.index(working.len()));
                        queue.done(uid, line);
                    }
                    Step::End(_) => {}
                }
                let count = |uid: u32| working.iter().filter(|(other, _)| *other == uid).count();
                prop_assert!((1..4).all(|uid| count(uid) <= (threads - 1).max(1))); // Q3
                let sum = waiting.values().map(VecDeque::len).sum::<usize>();
                prop_assert_eq!(queue.users.values().map(|user| user.waiting).sum::<usize>(), sum);
            }
            while !working.is_empty() || !waiting.is_empty() {
                while let Some((uid, line, _, work)) = queue.next() {
                    work(Ok(()));
                    prop_assert_eq!(Some(began.recv().unwrap()), waiting.get_mut(&(uid, line)).unwrap().pop_front());
                    working.push((uid, line));
                }
                waiting.retain(|_, due| !due.is_empty());
                prop_assert!(!working.is_empty(), "{:?} is never done", waiting);
                for (uid, line) in working.drain(..) {
                    queue.done(uid, line);
                }
            }
            prop_assert!(queue.users.is_empty() && queue.turns.is_empty());
        }
    }
}
