//! Handles: numbers, looked up in a table.
//!
//! A number is never used twice, so a closed handle is `EBADF`. Each process
//! has its own table: the transfers that a parent has started stay with the
//! parent, and their handles are `EBADF` in a child.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use cordboard::{Errno, Lock, Outcome, PerProcess, Report, Running, sleep_a_moment};

use crate::convert;
use crate::error::{Error, OF_ANOTHER_PROCESS};
use crate::fasync;
use crate::outcome::Finished;
use crate::process::{self, lock};
use crate::stepped::Stepped;
use crate::types::{CORD_LAST, cord_status, cord_transfer};

/// The transfer of a handle, and what takes its steps.
enum Work {
    /// A thread of the library.
    Running(Running),
    /// `cord_step`.
    Stepped(Box<Stepped>),
}

/// The transfer of a handle, which runs or has ended.
pub(crate) struct Entry {
    work: Work,
    /// Set by the first callback at the end.
    report: OnceLock<Report>,
    finished: Lock<Option<Finished>>,
}

impl Entry {
    fn new(work: Work) -> (cord_transfer, Arc<Entry>) {
        static NEXT: AtomicI64 = AtomicI64::new(1);
        let entry = Entry {
            work,
            report: OnceLock::new(),
            finished: Lock::default(),
        };
        (NEXT.fetch_add(1, Ordering::Relaxed), Arc::new(entry))
    }

    /// Returns the report, once the transfer has ended.
    pub(crate) fn report(&self) -> Option<&Report> {
        self.report.get()
    }

    /// Returns the number of the descriptor that is readable once the transfer
    /// has ended, or once a step is possible.
    ///
    /// # Errors
    ///
    /// * `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor or memory is available.
    /// * `EBADF`: this thread has its own descriptor table.
    pub(crate) fn descriptor(&self) -> Result<RawFd, Error> {
        match &self.work {
            Work::Running(running) => Ok(running.fd()?.as_raw_fd()),
            Work::Stepped(stepped) => stepped.descriptor(),
        }
    }

    /// Returns the progress. The query ends a transfer whose descriptors the program
    /// has closed.
    pub(crate) fn status(&self) -> Result<cord_status, Error> {
        // Before the counts are queried: with a report, they are final. The engine counts the
        // transfer as ended only once its callbacks have returned.
        let is_reported = self.report().is_some();
        match &self.work {
            Work::Running(running) => {
                let status = running.status();
                Ok(convert::status(&status, is_reported || status.ended))
            }
            Work::Stepped(stepped) => match stepped.progress() {
                Some(progress) => Ok(convert::progress(&progress, is_reported)),
                None => Err(Error::new(Errno::EBADF, OF_ANOTHER_PROCESS)),
            },
        }
    }

    /// Calls this once with the report: at the end, or now if that has passed.
    pub(crate) fn on_end(&self, at_end: impl FnOnce(&Report) + Send + 'static) {
        match &self.work {
            Work::Running(running) => running.on_end(at_end),
            Work::Stepped(stepped) => {
                let has_ended = || self.report().is_some();
                if let Some(at_end) = stepped.on_end(Box::new(at_end), has_ended)
                    && let Some(report) = self.report()
                {
                    at_end(report);
                }
            }
        }
    }

    pub(crate) fn cancel(&self) {
        match &self.work {
            Work::Running(running) => running.cancel(),
            Work::Stepped(stepped) => stepped.cancel(),
        }
    }

    /// Takes all steps that are left. `closes`: as for [`Stepped::step`].
    fn step_to_end(&self, stepped: &Stepped, closes: bool) -> Result<(), Error> {
        while !self.take_step(closes)? {
            match stepped.wait() {
                // The handle has left the table, so no later call would call its functions.
                Err(_) if closes => sleep_a_moment(),
                done => done?,
            }
        }
        Ok(())
    }

    /// Takes one step. Returns whether the transfer has ended.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: a thread of the library takes the steps.
    /// * `EBADF`: as [`Stepped::check`].
    pub(crate) fn step(&self) -> Result<bool, Error> {
        self.take_step(false)
    }

    fn take_step(&self, closes: bool) -> Result<bool, Error> {
        let Work::Stepped(stepped) = &self.work else {
            return Err(Error::new(
                Errno::EINVAL,
                "a thread of the library runs this transfer: cord_step needs a handle of cord_open",
            ));
        };
        let keep = |outcome: Outcome| {
            let report = outcome.report.clone();
            if let Some(mut finished) = self.finished.lock() {
                *finished = Some(Finished::from(outcome));
            }
            let _ = self.report.set(report);
        };
        if let Some(at_end) = stepped.step(closes, keep)? {
            for one in at_end {
                if let Some(report) = self.report() {
                    one(report);
                }
            }
            stepped.set_called();
        }
        Ok(self.report().is_some())
    }

    /// Waits until the transfer has ended and its callbacks have returned.
    ///
    /// # Errors
    ///
    /// * `EDEADLK`: called in a callback.
    /// * `EBADF`: called in a child of `fork(2)`, which a signal handler may
    ///   have made during the wait.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        if is_in_callback() {
            return Err(Error::new(
                Errno::EDEADLK,
                "called in a callback, which cannot wait for a transfer",
            ));
        }
        match &self.work {
            Work::Running(running) => running.wait_for_end(),
            Work::Stepped(stepped) => {
                self.step_to_end(stepped, false)?;
                stepped.wait_for_calls();
            }
        }
        if self.report().is_none() {
            return Err(Error::new(Errno::EBADF, OF_ANOTHER_PROCESS));
        }
        Ok(())
    }

    /// Gives access to the outcome, with the stranded bytes.
    ///
    /// # Errors
    ///
    /// `EBUSY`: the transfer still runs. Others as [`Entry::wait`].
    pub(crate) fn finished<T>(
        &self,
        f: impl FnOnce(&mut Finished) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.report().is_none() {
            return Err(Error::new(Errno::EBUSY, "the transfer is still running"));
        }
        self.wait()?;
        let Some(mut finished) = self.finished.lock() else {
            return Err(Error::new(Errno::EBADF, OF_ANOTHER_PROCESS));
        };
        if finished.is_none() {
            *finished = match &self.work {
                Work::Running(running) => running.try_wait().map(Finished::from),
                Work::Stepped(_) => None,
            };
        }
        match &mut *finished {
            Some(finished) => f(finished),
            None => Err(Errno::EBUSY.into()),
        }
    }
}

thread_local! {
    /// The table of the process in which this thread runs a callback. A child
    /// that the callback forks has another table, and can wait.
    static IN_CALLBACK: Cell<*const Table> = const { Cell::new(ptr::null()) };
}

fn is_in_callback() -> bool {
    ptr::eq(IN_CALLBACK.get(), table())
}

/// Runs a callback; `wait` fails in it.
pub(crate) fn run_callback(callback: impl FnOnce()) {
    let before = IN_CALLBACK.replace(table());
    callback();
    IN_CALLBACK.set(before);
}

/// The handles of one process.
pub(crate) struct Table {
    open: Lock<BTreeMap<cord_transfer, Arc<Entry>>>,
    /// Detached transfers, kept until their end because dropping cancels them.
    detached: Lock<BTreeMap<cord_transfer, Arc<Entry>>>,
    /// The latest asynchronous `cord_splice` from or to each number.
    latest: Lock<BTreeMap<RawFd, cord_transfer>>,
}

/// Returns this process's table.
pub(crate) fn table() -> &'static Table {
    static TABLE: PerProcess<Table> = PerProcess::new();
    process::value(&TABLE, Table::new)
}

impl Table {
    /// Makes an empty table. In a child of `fork(2)`, first closes the
    /// inherited descriptors of the parent's transfers.
    fn new(parents: Option<&'static Table>) -> Table {
        if parents.is_some() {
            cordboard::close_inherited();
            fasync::close_inherited();
        }
        Table {
            open: Lock::default(),
            detached: Lock::default(),
            latest: Lock::default(),
        }
    }

    /// Makes a handle, which [`Table::latest`] returns for these numbers. Calls
    /// `at_end` once with the report, after the handle has the report and
    /// before waiting threads return. If the transfer has already ended, calls
    /// it before returning, as the last action.
    pub(crate) fn insert(
        &'static self,
        running: Running,
        numbers: Option<[RawFd; 2]>,
        at_end: impl FnOnce(&Report) + Send + 'static,
    ) -> cord_transfer {
        let (id, entry) = Entry::new(Work::Running(running));
        // Registered before the handle can be found: `wait` needs the report.
        let weak = Arc::downgrade(&entry);
        entry.on_end(move |report| {
            if let Some(entry) = weak.upgrade() {
                let _ = entry.report.set(report.clone());
            }
        });
        lock(|| &table().open).insert(id, Arc::clone(&entry));
        if let Some(numbers) = numbers {
            self.set_latest(numbers, id);
        }
        entry.on_end(at_end);
        id
    }

    /// Makes a handle of a transfer whose steps the program takes.
    pub(crate) fn insert_stepped(&'static self, stepped: Stepped) -> cord_transfer {
        let (id, entry) = Entry::new(Work::Stepped(Box::new(stepped)));
        lock(|| &table().open).insert(id, entry);
        id
    }

    /// # Errors
    ///
    /// `EBADF`: closed, never opened, or of another process.
    pub(crate) fn get(&self, id: cord_transfer) -> Result<Arc<Entry>, Error> {
        lock(|| &table().open)
            .get(&id)
            .cloned()
            .ok_or_else(|| unknown(id))
    }

    /// Closes a handle and cancels its transfer if that still runs.
    ///
    /// # Errors
    ///
    /// `EBADF`: as [`Table::get`]; as [`Stepped::check`], and the handle stays open.
    pub(crate) fn close(&self, id: cord_transfer) -> Result<(), Error> {
        if let Work::Stepped(stepped) = &self.get(id)?.work {
            stepped.check()?;
        }
        let entry = lock(|| &table().open)
            .remove(&id)
            .ok_or_else(|| unknown(id))?;
        // Dropping it would not suffice: a waiting thread may hold a reference.
        entry.cancel();
        match &entry.work {
            Work::Running(_) => Ok(()),
            Work::Stepped(stepped) => entry.step_to_end(stepped, true),
        }
    }

    /// Closes a handle and lets its transfer run to its end.
    ///
    /// # Errors
    ///
    /// `EINVAL`: only `cord_step` takes its steps. Others as [`Table::get`].
    pub(crate) fn detach(&'static self, id: cord_transfer) -> Result<(), Error> {
        if matches!(self.get(id)?.work, Work::Stepped(_)) {
            return Err(Error::new(
                Errno::EINVAL,
                "a transfer of cord_open does not continue by itself",
            ));
        }
        let entry = lock(|| &table().open)
            .remove(&id)
            .ok_or_else(|| unknown(id))?;
        lock(|| &table().detached).insert(id, Arc::clone(&entry));
        entry.on_end(move |_| {
            let ended = lock(|| &table().detached).remove(&id);
            // Dropped after the lock is released.
            drop(ended);
        });
        Ok(())
    }

    /// Records the latest asynchronous `cord_splice` of these numbers. A
    /// previous transfer is detached once neither of its numbers refers to it.
    fn set_latest(&'static self, numbers: [RawFd; 2], id: cord_transfer) {
        let mut latest = lock(|| &table().latest);
        let previous = numbers.map(|number| latest.insert(number, id));
        let unreachable: Vec<cord_transfer> = previous
            .into_iter()
            .flatten()
            .filter(|previous| *previous != id && !latest.values().any(|left| left == previous))
            .collect();
        drop(latest);
        for previous in unreachable {
            // The program may have closed its handle.
            let _ = self.detach(previous);
        }
    }

    /// Returns the latest asynchronous `cord_splice` from or to this number.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there is none, or its handle was closed.
    pub(crate) fn latest(&self, number: RawFd) -> Result<cord_transfer, Error> {
        let id = lock(|| &table().latest).get(&number).copied();
        id.filter(|id| lock(|| &table().open).contains_key(id))
            .ok_or_else(|| {
                Error::new(
                    Errno::ENOENT,
                    format!("no asynchronous splice was started on descriptor {number}"),
                )
            })
    }
}

fn unknown(id: cord_transfer) -> Error {
    let message = match id {
        CORD_LAST => "CORD_LAST has ended: this call needs a handle of cord_start".to_owned(),
        _ => format!("handle {id} is not open"),
    };
    Error::new(Errno::EBADF, message)
}

#[cfg(test)]
mod tests;
