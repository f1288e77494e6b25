//! Pipes that could not be made small again.
//!
//! A pipe that holds more than its old capacity does not shrink (`EBUSY`), and
//! its reader may be slow. Such a pipe keeps counting against the budget:
//! otherwise a thousand transfers that each left one behind could use up the
//! user's whole limit. Its share of the budget is released
//!
//! * when the next transfer of that pipe takes it over;
//! * when a transfer needs more than is left of the budget, and the pipe's
//!   contents fit its old capacity, or its owner has given it another. A helper
//!   thread tries, since the holder of the pipe's lock can block it;
//! * a while after the owner's descriptor number refers to something else:
//!   other descriptors of the pipe cannot be found.

use std::convert::Infallible;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::budget::Share;
use super::capacity::{capacity, default_capacity};
use crate::sys::{Identity, Lock, PerProcess, Thread, at, identity};
use crate::threads;

/// How long a pipe counts that is no longer reachable.
const GRACE: Duration = Duration::from_secs(1);
/// All are checked no more often than this.
const EVERY: Duration = Duration::from_millis(10);

/// A pipe that is larger than it was.
pub(super) struct Enlarged {
    pub(super) id: Identity,
    /// The owner's descriptor number.
    pub(super) number: RawFd,
    pub(super) before: usize,
    pub(super) now: usize,
    pub(super) share: Share,
}

/// Those of one process. A child of `fork(2)` starts with none.
#[derive(Default)]
struct Table {
    all: Lock<All>,
    /// How many there are.
    count: AtomicUsize,
    /// A thread is trying.
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
    /// Each with the moment at which it was found unreachable.
    pipes: Vec<(Enlarged, Option<Instant>)>,
    looked: Option<Instant>,
}

impl Enlarged {
    /// Remembers it, if it counts against the budget.
    pub(super) fn leave(self) {
        if self.now > self.before.max(default_capacity()) {
            table().insert(self);
        }
    }

    /// Takes the record of this pipe; the caller is responsible for it then.
    pub(super) fn take(fd: BorrowedFd<'_>) -> Option<Enlarged> {
        let table = table();
        if table.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let id = identity(fd)?;
        table.remove(|large| large.id == id)
    }

    /// The pipe, by the owner's number.
    fn fd(&self) -> Option<BorrowedFd<'static>> {
        at(self.number).filter(|fd| identity(fd) == Some(self.id))
    }

    /// Tries to make it small again. `None`: nothing of it counts any more.
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

/// Makes a pipe as small as its contents allow, and no smaller than `least`.
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
        // In a child these are the parent's, which it does not count.
        let Some(mut all) = self.all.lock() else {
            return;
        };
        let pipes = &mut all.pipes;
        if pipes.try_reserve(1).is_err() {
            // Not worth aborting the program for.
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

    /// A transfer needs more than is left: closed pipes stop counting, and a
    /// thread tries to shrink the others.
    fn make_room(&'static self, now: Instant) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(mut all) = self.all.lock() else {
            return;
        };
        let since = |at: Instant| now.saturating_duration_since(at);
        if all.looked.is_some_and(|at| since(at) < EVERY) {
            return;
        }
        all.looked = Some(now);
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
        // Its threads have the first one's descriptors.
        let others = Thread::first().shares_descriptors() == Some(false);
        if ids.is_empty() || others || self.trying.swap(true, Ordering::AcqRel) {
            return;
        }
        let try_all = move || {
            for id in ids {
                // Without the lock, since the call may block.
                let large = self.remove(|large| large.id == id);
                if let Some(large) = large.and_then(Enlarged::again) {
                    self.insert(large);
                }
            }
            self.trying.store(false, Ordering::Release);
        };
        if threads::spawn(Box::new(try_all)).is_err() {
            // No thread is available.
            self.trying.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    /// Closed by its owner, it counts for a while and no longer.
    #[test]
    fn what_is_out_of_reach_is_let_go_of() {
        let table: &'static Table = Box::leak(Box::default());
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        table.insert(Enlarged {
            id: identity(writer.as_fd()).unwrap(),
            number: writer.as_raw_fd(),
            before: default_capacity(),
            now: 2 * default_capacity(),
            share: Share::none(),
        });
        // Nobody is to try: it is large in this list alone.
        table.trying.store(true, Ordering::Relaxed);
        let count = || table.count.load(Ordering::Relaxed);
        let start = Instant::now();
        table.make_room(start);
        table.make_room(start + 2 * GRACE);
        assert_eq!(count(), 1, "it is there");
        drop((reader, writer));
        table.make_room(start + 4 * GRACE);
        table.make_room(start + 4 * GRACE + EVERY);
        assert_eq!(count(), 1, "somebody else may have it yet");
        table.make_room(start + 5 * GRACE);
        assert_eq!(count(), 0);
    }
}
