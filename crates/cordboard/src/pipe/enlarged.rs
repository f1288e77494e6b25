//! The caller's pipes that could not be shrunk to their old capacity at the end
//! of a transfer.
//!
//! A pipe that holds more than its old capacity does not shrink (`EBUSY`), and
//! its reader may be slow. Such a pipe keeps counting against the budget:
//! otherwise a thousand transfers that each left one could use up the user's
//! whole limit. Its share of the budget is released
//!
//! * when the next transfer of that pipe takes it over;
//! * when a transfer needs more than the budget has left, and the pipe's content
//!   fits its old capacity, or its owner has set another. A pool thread shrinks
//!   the pipe, because that call can wait for the pipe's lock;
//! * one second after the owner's descriptor number was found to refer to
//!   another file: other descriptors of the pipe cannot be found.

use std::convert::Infallible;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::budget::Share;
use super::capacity::{capacity, default_capacity};
use crate::sys::{Identity, Lock, PerProcess, at, identity};
use crate::threads;

/// How long an unreachable pipe still counts.
const GRACE: Duration = Duration::from_secs(1);
/// The minimum interval between two checks of all pipes.
const EVERY: Duration = Duration::from_millis(10);

/// A pipe that is larger than its owner made it.
pub(super) struct Enlarged {
    pub(super) id: Identity,
    /// The owner's descriptor number.
    pub(super) number: RawFd,
    pub(super) before: usize,
    pub(super) now: usize,
    pub(super) share: Share,
}

/// The enlarged pipes of one process. A child of `fork(2)` starts with none.
#[derive(Default)]
struct Table {
    all: Lock<All>,
    /// The number of pipes.
    count: AtomicUsize,
    /// A thread is trying to shrink them.
    trying: AtomicBool,
}

fn table() -> &'static Table {
    static TABLE: PerProcess<Table> = PerProcess::new();
    let Ok(table) = TABLE.get(|_| Ok::<_, Infallible>(Table::default()));
    table
}

/// Makes room in the budget: stops counting pipes that their owners have closed,
/// and has a thread try to shrink the others.
pub(super) fn make_room(now: Instant) {
    table().make_room(now);
}

#[derive(Default)]
struct All {
    /// Each pipe with the time at which it was found unreachable.
    pipes: Vec<(Enlarged, Option<Instant>)>,
    checked: Option<Instant>,
}

impl Enlarged {
    /// Records the pipe if it counts against the budget.
    pub(super) fn leave(self) {
        if self.now > self.before.max(default_capacity()) {
            table().insert(self);
        }
    }

    /// Takes the record of this pipe. The caller then owns its share of the
    /// budget.
    pub(super) fn take(fd: BorrowedFd<'_>) -> Option<Enlarged> {
        let table = table();
        if table.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let id = identity(fd)?;
        table.remove(|large| large.id == id)
    }

    /// Returns the owner's descriptor, if its number still refers to the pipe.
    fn fd(&self) -> Option<BorrowedFd<'static>> {
        at(self.number).filter(|fd| identity(fd) == Some(self.id))
    }

    /// Tries to shrink the pipe. `None`: the pipe no longer counts against the
    /// budget.
    fn again(mut self) -> Option<Enlarged> {
        if let Some(fd) = self.fd() {
            if capacity(fd) != self.now {
                return None;
            }
            shrink(fd, &mut self.now, self.before, &mut self.share);
        }
        (self.now > self.before.max(default_capacity())).then_some(self)
    }
}

/// Shrinks a pipe as far as its content allows, and no further than to `least`.
pub(super) fn shrink(fd: BorrowedFd<'_>, now: &mut usize, least: usize, share: &mut Share) {
    let mut capacity = least;
    while capacity < *now {
        match rustix::pipe::fcntl_setpipe_size(fd, capacity) {
            Ok(made) => *now = made,
            Err(_) => capacity *= 2,
        }
    }
    share.set(*now);
}

impl Table {
    fn insert(&self, large: Enlarged) {
        // In a child these are the parent's pipes, which it does not count.
        let Some(mut all) = self.all.lock() else {
            return;
        };
        let pipes = &mut all.pipes;
        if pipes.try_reserve(1).is_err() {
            // Losing the record is better than aborting the process.
            return;
        }
        pipes.push((large, None));
        self.count.store(pipes.len(), Ordering::Relaxed);
    }

    fn remove(&self, which: impl Fn(&Enlarged) -> bool) -> Option<Enlarged> {
        let pipes = &mut self.all.lock()?.pipes;
        let at = pipes.iter().position(|(large, _)| which(large))?;
        let (large, _) = pipes.swap_remove(at);
        self.count.store(pipes.len(), Ordering::Relaxed);
        Some(large)
    }

    /// Stops counting unreachable pipes, and has a thread try to shrink the
    /// others.
    fn make_room(&'static self, now: Instant) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(mut all) = self.all.lock() else {
            return;
        };
        let since = |at: Instant| now.saturating_duration_since(at);
        if all.checked.is_some_and(|at| since(at) < EVERY) {
            return;
        }
        all.checked = Some(now);
        all.pipes.retain_mut(|(large, gone)| {
            *gone = match large.fd() {
                Some(_) => None,
                None => gone.or(Some(now)),
            };
            gone.is_none_or(|at| since(at) < GRACE)
        });
        self.count.store(all.pipes.len(), Ordering::Relaxed);
        let ids: Vec<Identity> = all.pipes.iter().map(|(large, _)| large.id).collect();
        drop(all);
        if ids.is_empty() || self.trying.swap(true, Ordering::AcqRel) {
            return;
        }
        self.submit(ids);
    }

    /// Has a thread try to shrink these pipes.
    fn submit(&'static self, ids: Vec<Identity>) {
        if ids.is_empty() || threads::spawn(Box::new(move || self.try_each(ids))).is_err() {
            // They have been tried, or no thread is available.
            self.trying.store(false, Ordering::Release);
        }
    }

    /// Tries to shrink one of these pipes, and has another thread try the others: a call waits
    /// as long as another process holds the lock of its pipe.
    fn try_each(&'static self, mut ids: Vec<Identity>) {
        let large = std::iter::from_fn(|| ids.pop()).find_map(|id| self.remove(|one| one.id == id));
        self.submit(ids);
        if let Some(large) = large.and_then(Enlarged::again) {
            self.insert(large);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    /// A pipe that its owner has closed counts for a second.
    #[test]
    fn an_unreachable_pipe_stops_counting() {
        let table: &'static Table = Box::leak(Box::default());
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        table.insert(Enlarged {
            id: identity(writer.as_fd()).unwrap(),
            number: writer.as_raw_fd(),
            before: default_capacity(),
            now: 2 * default_capacity(),
            share: Share::none(),
        });
        // Keeps the pool's threads from trying: the pipe is large in this list
        // only.
        table.trying.store(true, Ordering::Relaxed);
        let count = || table.count.load(Ordering::Relaxed);
        let start = Instant::now();
        table.make_room(start);
        table.make_room(start + 2 * GRACE);
        assert_eq!(count(), 1, "it is open");
        drop((reader, writer));
        table.make_room(start + 4 * GRACE);
        table.make_room(start + 4 * GRACE + EVERY);
        assert_eq!(count(), 1, "another process may have it yet");
        table.make_room(start + 5 * GRACE);
        assert_eq!(count(), 0);
    }

    /// The thread that tries to shrink a pipe waits for its lock.
    #[test]
    fn a_locked_pipe_does_not_keep_the_others_large() {
        let _dog = testkit::watchdog::watch("a_locked_pipe_does_not_keep_the_others_large");
        let table: &'static Table = Box::leak(Box::default());
        let pipes = [(); 3].map(|()| std::io::pipe().unwrap());
        let before = pipes.each_ref().map(|(_, writer)| {
            let before = capacity(writer.as_fd());
            table.insert(Enlarged {
                id: identity(writer.as_fd()).unwrap(),
                number: writer.as_raw_fd(),
                before,
                now: rustix::pipe::fcntl_setpipe_size(writer, 2 * before).unwrap(),
                share: Share::none(),
            });
            before
        });
        let [first, (reader, writer), last] = pipes;
        let locked = testkit::locked::Locked::of(reader, writer);
        table.make_room(Instant::now());
        for ((_, writer), before) in [(&first, before[0]), (&last, before[2])] {
            while capacity(writer.as_fd()) > before {
                std::thread::yield_now();
            }
        }
        drop(locked.release());
    }
}
