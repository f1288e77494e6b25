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
//!   another file: other descriptors of the pipe cannot be found. The pool thread
//!   queries the number, because `fstat(2)` of that file can wait for its server.

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

/// Makes room in the budget: has a thread try to shrink the pipes, and stop counting
/// those that their owners have closed.
pub(super) fn make_room(now: Instant) {
    table().make_room(now);
}

/// A pipe, with the time at which it was found unreachable.
type Record = (Enlarged, Option<Instant>);

#[derive(Default)]
struct All {
    pipes: Vec<Record>,
    checked: Option<Instant>,
}

impl Enlarged {
    /// Records the pipe if it counts against the budget.
    pub(super) fn leave(self) {
        if self.now > self.before.max(default_capacity()) {
            table().insert((self, None));
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
        table.remove(id).map(|(large, _)| large)
    }

    /// Returns the owner's descriptor, if its number still refers to the pipe. May wait for the
    /// server of another file (FUSE, NFS), so the caller holds no lock.
    fn fd(&self) -> Option<BorrowedFd<'static>> {
        at(self.number).filter(|fd| identity(fd) == Some(self.id))
    }

    /// Tries to shrink the pipe, which was unreachable since `gone`. `None`: the pipe no longer
    /// counts against the budget.
    fn again(mut self, gone: Option<Instant>, now: Instant) -> Option<Record> {
        let Some(fd) = self.fd() else {
            let gone = gone.unwrap_or(now);
            let counts = now.saturating_duration_since(gone) < GRACE;
            return counts.then_some((self, Some(gone)));
        };
        if capacity(fd) != self.now {
            return None;
        }
        shrink(fd, &mut self.now, self.before, &mut self.share);
        (self.now > self.before.max(default_capacity())).then_some((self, None))
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
    fn insert(&self, record: Record) {
        // In a child these are the parent's pipes, which it does not count.
        let Some(mut all) = self.all.lock() else {
            return;
        };
        let pipes = &mut all.pipes;
        if pipes.try_reserve(1).is_err() {
            // Losing the record is better than aborting the process.
            return;
        }
        pipes.push(record);
        self.count.store(pipes.len(), Ordering::Relaxed);
    }

    fn remove(&self, id: Identity) -> Option<Record> {
        let pipes = &mut self.all.lock()?.pipes;
        let at = pipes.iter().position(|(large, _)| large.id == id)?;
        let record = pipes.swap_remove(at);
        self.count.store(pipes.len(), Ordering::Relaxed);
        Some(record)
    }

    /// Has a thread try to shrink the pipes, and stop counting unreachable ones.
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
        let ids: Vec<Identity> = all.pipes.iter().map(|(large, _)| large.id).collect();
        drop(all);
        if ids.is_empty() || self.trying.swap(true, Ordering::AcqRel) {
            return;
        }
        self.submit(ids, now);
    }

    /// Has a thread try to shrink these pipes.
    fn submit(&'static self, ids: Vec<Identity>, now: Instant) {
        if ids.is_empty() || threads::spawn(Box::new(move || self.try_each(ids, now))).is_err() {
            // They have been tried, or no thread is available.
            self.trying.store(false, Ordering::Release);
        }
    }

    /// Tries to shrink one of these pipes, and has another thread try the others: a call waits
    /// as long as another process holds the lock of its pipe, or as a server does not answer.
    fn try_each(&'static self, mut ids: Vec<Identity>, now: Instant) {
        let record = std::iter::from_fn(|| ids.pop()).find_map(|id| self.remove(id));
        self.submit(ids, now);
        if let Some(left) = record.and_then(|(large, gone)| large.again(gone, now)) {
            self.insert(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    fn recorded(id: Identity, number: RawFd) -> Record {
        let large = Enlarged {
            id,
            number,
            before: default_capacity(),
            now: 2 * default_capacity(),
            share: Share::none(),
        };
        (large, None)
    }

    /// A pipe that its owner has closed counts for a second.
    #[test]
    fn an_unreachable_pipe_stops_counting() {
        let table: &'static Table = Box::leak(Box::default());
        let (reader, mut writer) = std::io::pipe().unwrap();
        let id = identity(writer.as_fd()).unwrap();
        let (mut record, _) = recorded(id, writer.as_raw_fd());
        record.now = rustix::pipe::fcntl_setpipe_size(&writer, record.now).unwrap();
        // It cannot shrink.
        writer.write_all(&vec![0; record.now]).unwrap();
        table.insert((record, None));
        let counts_at = |now: Instant| {
            table.try_each(vec![id], now);
            table.count.load(Ordering::Relaxed) == 1
        };
        let start = Instant::now();
        assert!(counts_at(start) && counts_at(start + 2 * GRACE));
        // The number refers to another file, and the pipe is open in another process.
        testkit::child::replace(writer.as_fd(), tempfile::tempfile().unwrap().as_fd());
        assert!(counts_at(start + 4 * GRACE));
        assert!(counts_at(start + 4 * GRACE + EVERY));
        assert!(!counts_at(start + 5 * GRACE));
        drop(reader);
    }

    /// A closed pipe's number may refer to a file whose server does not answer.
    #[test]
    fn a_silent_server_under_the_number_of_a_closed_pipe_keeps_no_lock() {
        let _dog = testkit::watchdog::watch(
            "a_silent_server_under_the_number_of_a_closed_pipe_keeps_no_lock",
        );
        let silent = AtomicBool::new(false);
        let served = testkit::fuse::Served {
            mute: Some(&silent),
            ..Default::default()
        };
        let mut ended = false;
        let mounted = testkit::fuse::with_file(served, |path| {
            let table: &'static Table = Box::leak(Box::default());
            let count = || table.count.load(Ordering::Relaxed);
            let pipes = [(); 2].map(|()| std::io::pipe().unwrap());
            let [gone, other] = pipes.each_ref().map(|(pipe, _)| identity(pipe).unwrap());
            let file = std::fs::File::open(path).unwrap();
            table.insert(recorded(gone, file.as_raw_fd()));
            let (ends, end) = std::sync::mpsc::channel();
            silent.store(true, Ordering::Relaxed);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    table.make_room(Instant::now());
                    table.insert(recorded(other, -1));
                    assert!(table.remove(other).is_some());
                    ends.send(())
                });
                // Longer than any load delays it.
                ended = end.recv_timeout(Duration::from_secs(60)).is_ok();
                silent.store(false, Ordering::Relaxed);
            });
            // The thread that queries the file has ended.
            while table.trying.load(Ordering::Acquire) || count() == 0 {
                std::thread::yield_now();
            }
        });
        match mounted {
            false => testkit::skip::here("a FUSE file system cannot be mounted here"),
            true => assert!(ended, "a thread waited for the server of a file"),
        }
    }

    /// The thread that tries to shrink a pipe waits for its lock.
    #[test]
    fn a_locked_pipe_does_not_keep_the_others_large() {
        let _dog = testkit::watchdog::watch("a_locked_pipe_does_not_keep_the_others_large");
        let table: &'static Table = Box::leak(Box::default());
        let pipes = [(); 3].map(|()| std::io::pipe().unwrap());
        let before = pipes.each_ref().map(|(_, writer)| {
            let before = capacity(writer.as_fd());
            let (mut record, _) = recorded(identity(writer.as_fd()).unwrap(), writer.as_raw_fd());
            record.before = before;
            record.now = rustix::pipe::fcntl_setpipe_size(writer, 2 * before).unwrap();
            table.insert((record, None));
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
