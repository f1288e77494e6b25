//! Handles: numbers that are looked up.
//!
//! A number is never used twice, so one that was closed is found out. Each
//! process has a table of its own: what a parent had started is the parent's,
//! and its handles are `EBADF` in a child.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, Weak};

use cordboard::{Errno, Lock, PerProcess, Report, Running};

use crate::fasync::{Marks, Taken};
use crate::guard::Problem;
use crate::kept::Kept;
use crate::outcome::Finished;
use crate::types::{CORD_LAST, cord_transfer};

/// Why a child of `fork(2)` cannot have it.
const ANOTHERS: &str = "it is another process's";

/// One transfer that runs, or ran, by itself.
pub(crate) struct Slot {
    pub(crate) running: Running,
    /// Set first of all that its end brings about.
    told: OnceLock<Report>,
    finished: Lock<Option<Finished>>,
}

impl Slot {
    /// The account, once it has ended.
    pub(crate) fn report(&self) -> Option<&Report> {
        self.told.get()
    }

    /// The number of the descriptor that is readable once it has ended.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: none is to be had.
    pub(crate) fn descriptor(&self) -> Result<RawFd, Problem> {
        Ok(self.running.fd()?.as_raw_fd())
    }

    /// Waits for the end, and for its callbacks.
    ///
    /// # Errors
    ///
    /// `EDEADLK` in a callback. `EBADF` in a child of `fork(2)`, which a handler
    /// may have made meanwhile.
    pub(crate) fn wait(&self) -> Result<(), Problem> {
        if is_telling() {
            return Err(Problem::new(
                Errno::EDEADLK,
                "a callback cannot wait: the library's own thread runs it",
            ));
        }
        self.running.wait_for_end();
        if self.report().is_none() {
            return Err(Problem::new(Errno::EBADF, ANOTHERS));
        }
        Ok(())
    }

    /// What is left of it, its stranded bytes too.
    ///
    /// # Errors
    ///
    /// `EBUSY` while it runs, and as [`Slot::wait`].
    pub(crate) fn finished<T>(
        &self,
        f: impl FnOnce(&mut Finished) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if self.report().is_none() {
            return Err(Problem::new(Errno::EBUSY, "the transfer is still running"));
        }
        self.wait()?;
        let Some(mut finished) = self.finished.lock() else {
            return Err(Problem::new(Errno::EBADF, ANOTHERS));
        };
        if finished.is_none() {
            *finished = self.running.try_wait().map(Finished::from);
        }
        match &mut *finished {
            Some(finished) => f(finished),
            None => Err(Errno::EBUSY.into()),
        }
    }
}

thread_local! {
    /// This thread runs a callback, in the process that has this table. A child
    /// that the callback forks has another table, and can wait.
    static TELLING: Cell<*const Table> = const { Cell::new(ptr::null()) };
}

fn is_telling() -> bool {
    ptr::eq(TELLING.get(), table())
}

/// Runs a callback, in which nothing can be waited for.
pub(crate) fn telling(callback: impl FnOnce()) {
    let before = TELLING.replace(table());
    callback();
    TELLING.set(before);
}

/// The handles of one process.
pub(crate) struct Table {
    slots: Lock<BTreeMap<cord_transfer, Arc<Slot>>>,
    /// Let go, and kept until their end, since to drop one is to cancel it.
    detached: Lock<BTreeMap<cord_transfer, Arc<Slot>>>,
    /// The latest asynchronous `cord_splice` from or to each number.
    splices: Lock<BTreeMap<RawFd, cord_transfer>>,
    /// FASYNC, off for the length of a transfer.
    pub(crate) taken: Lock<Vec<Taken>>,
    /// FASYNC on files that the kernel does not keep it for.
    pub(crate) marks: Lock<Marks>,
    /// What shows that the host has not closed all, while anything is kept.
    pub(crate) witness: Lock<Weak<Kept>>,
}

/// This process's table.
pub(crate) fn table() -> &'static Table {
    static TABLE: PerProcess<Table> = PerProcess::new();
    let Ok(table) = TABLE.get(|parents| Ok::<_, Infallible>(Table::after(parents)));
    table
}

/// What a parent had marked is marked in its child. (Unless another thread was
/// changing it at the moment of the fork.)
fn marks_of(parent: &'static Table) -> Marks {
    (parent.marks.try_lock()).map_or_else(Marks::default, |marks| marks.clone())
}

impl Table {
    /// A new one, in a child with what goes on there.
    fn after(parents: Option<&'static Table>) -> Table {
        if parents.is_some() {
            cordboard::close_inherited();
        }
        Table {
            slots: Lock::default(),
            detached: Lock::default(),
            splices: Lock::default(),
            taken: Lock::default(),
            marks: Lock::new(parents.map(marks_of).unwrap_or_default()),
            witness: Lock::default(),
        }
    }

    /// A handle for it, and for [`Table::latest`] under these numbers. `at_end`
    /// is called once with the account, after the handle has it and before
    /// anybody is told; perhaps at once, so all the rest is done by then.
    pub(crate) fn insert(
        &'static self,
        running: Running,
        numbers: Option<[RawFd; 2]>,
        at_end: impl FnOnce(&Report) + Send + 'static,
    ) -> cord_transfer {
        static NEXT: AtomicI64 = AtomicI64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let slot = Arc::new(Slot {
            running,
            told: OnceLock::new(),
            finished: Lock::default(),
        });
        // Before the handle can be found: a wait for it needs the report.
        let told = Arc::downgrade(&slot);
        slot.running.on_end(move |report| {
            if let Some(slot) = told.upgrade() {
                let _ = slot.told.set(report.clone());
            }
        });
        lock(|table| &table.slots).insert(id, Arc::clone(&slot));
        if let Some(numbers) = numbers {
            self.remember(numbers, id);
        }
        slot.running.on_end(at_end);
        id
    }

    /// # Errors
    ///
    /// `EBADF`: closed, or never was, or another process's.
    pub(crate) fn get(&self, id: cord_transfer) -> Result<Arc<Slot>, Problem> {
        lock(|table| &table.slots)
            .get(&id)
            .cloned()
            .ok_or_else(|| unknown(id))
    }

    /// Closes a handle; what still runs is cancelled.
    pub(crate) fn close(&self, id: cord_transfer) -> Result<(), Problem> {
        let slot = lock(|table| &table.slots)
            .remove(&id)
            .ok_or_else(|| unknown(id))?;
        // Somebody else may wait for it at this moment, and keep it.
        slot.running.cancel();
        Ok(())
    }

    /// Closes a handle; what still runs goes on to its end.
    pub(crate) fn detach(&'static self, id: cord_transfer) -> Result<(), Problem> {
        let slot = lock(|table| &table.slots)
            .remove(&id)
            .ok_or_else(|| unknown(id))?;
        lock(|table| &table.detached).insert(id, Arc::clone(&slot));
        slot.running.on_end(move |_| {
            let ended = lock(|table| &table.detached).remove(&id);
            // Not under the lock.
            drop(ended);
        });
        Ok(())
    }

    /// Remembers an asynchronous `cord_splice` by its numbers. The one before
    /// it is let go once neither of its numbers leads to it.
    fn remember(&'static self, numbers: [RawFd; 2], id: cord_transfer) {
        let mut splices = lock(|table| &table.splices);
        let before = numbers.map(|number| splices.insert(number, id));
        let unreachable: Vec<cord_transfer> = before
            .into_iter()
            .flatten()
            .filter(|before| *before != id && !splices.values().any(|left| left == before))
            .collect();
        drop(splices);
        for before in unreachable {
            // It may have been closed by its handle.
            let _ = self.detach(before);
        }
    }

    /// The latest asynchronous `cord_splice` from or to this number.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there is none, or it was closed.
    pub(crate) fn latest(&self, number: RawFd) -> Result<cord_transfer, Problem> {
        let id = lock(|table| &table.splices).get(&number).copied();
        id.filter(|id| lock(|table| &table.slots).contains_key(id))
            .ok_or_else(|| {
                Problem::new(
                    Errno::ENOENT,
                    format!("no asynchronous splice was started on descriptor {number}"),
                )
            })
    }
}

fn unknown(id: cord_transfer) -> Problem {
    let words = match id {
        CORD_LAST => "CORD_LAST has ended: this call is for a handle of cord_start".to_owned(),
        _ => format!("there is no transfer {id}"),
    };
    Problem::new(Errno::EBADF, words)
}

/// A part of this process's table. A signal's handler may have forked since that
/// was found; the child has another.
pub(crate) fn lock<T>(part: impl Fn(&'static Table) -> &'static Lock<T>) -> MutexGuard<'static, T> {
    loop {
        if let Some(held) = part(table()).lock() {
            return held;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cordboard::Request;
    use std::sync::mpsc::channel;

    /// One that has ended when it is given its handle, of numbers that nothing
    /// else here has.
    fn ended(numbers: [RawFd; 2]) -> (cord_transfer, Option<cord_transfer>) {
        let (source, _) = std::io::pipe().unwrap();
        let sink = tempfile::tempfile().unwrap();
        let running = cordboard::start(&source, &sink, Request::default()).unwrap();
        running.wait_for_end();
        let (tell, told) = channel();
        let id = table().insert(running, Some(numbers), move |_| {
            let latest = table().latest(numbers[0]);
            let same = latest.as_ref().ok() == table().latest(numbers[1]).as_ref().ok();
            let finished = latest.ok().filter(|id| {
                let slot = table().get(*id);
                same && slot.is_ok_and(|slot| slot.report().is_some())
            });
            tell.send(finished).unwrap();
        });
        (id, told.try_recv().expect("it was called at once"))
    }

    /// Whoever is told by a signal asks for the handle at once.
    #[test]
    fn the_handle_is_there_before_the_end_is_told() {
        let numbers = [1_000_001, 1_000_002];
        let mut before = 0;
        for _ in 0..2 {
            let (id, found) = ended(numbers);
            assert_eq!(found, Some(id));
            assert!(id > before);
            assert!(table().get(before).is_err(), "the one before is let go");
            before = id;
        }
    }

    /// A thread that finds a handle by its descriptor's number and waits for it
    /// gets the report, also if the transfer ended before the handle was there.
    #[test]
    fn who_waits_for_the_latest_is_told_of_its_end() {
        use std::sync::atomic::AtomicBool;
        let numbers = [1_000_003, 1_000_004];
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ends = testkit::ends::Ends(&over);
            let waits = scope.spawn(|| {
                let (mut last, mut waited) = (0, 0);
                while !over.load(Ordering::Relaxed) {
                    if let Ok(id) = table().latest(numbers[0])
                        && id > last
                        && let Ok(slot) = table().get(id)
                    {
                        last = id;
                        waited += 1;
                        slot.wait()?;
                    }
                }
                Ok::<_, Problem>(waited)
            });
            for _ in 0..2000 {
                ended(numbers);
            }
            drop(ends);
            assert!(waits.join().unwrap().unwrap() > 0);
        });
    }
}
