//! Transfers that the program's event loop drives by `cord_step`.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use cordboard::{
    Control, Errno, Lock, Origin, Outcome, Progress, Report, Stepping, Transfer, sleep_a_moment,
};
use rustix::event::PollFlags;

use crate::error::{Error, OF_ANOTHER_PROCESS};
use crate::patience::Patience;
use crate::sys;

/// A function to call at the end.
pub(crate) type AtEnd = Box<dyn FnOnce(&Report) + Send>;

/// A transfer whose steps the program takes.
pub(crate) struct Stepped {
    /// Cancels it, also while another thread takes a step.
    control: Control,
    /// The number of the descriptor that polls readable when a step is possible.
    number: RawFd,
    origin: Origin,
    /// The counts as of the last step.
    seen: Lock<Progress>,
    /// Held during a step, which may take long (`fsync(2)`).
    stepping: Lock<Stepping<'static>>,
    /// The functions to call at the end.
    at_end: Lock<Vec<AtEnd>>,
    /// The last step has shown that the next one is possible at once.
    is_due: AtomicBool,
    /// The functions have been called.
    called: AtomicBool,
}

impl Stepped {
    /// # Errors
    ///
    /// Those of `cord_open`.
    pub(crate) fn new(transfer: Transfer<'static>, origin: Origin) -> Result<Stepped, Error> {
        let control = Control::new()?;
        let transfer = transfer.control(&control);
        let stepping = (transfer.stepping_in(origin)).map_err(|failure| Error::from(&failure))?;
        Ok(Stepped {
            control,
            number: stepping.as_fd().as_raw_fd(),
            origin,
            seen: Lock::new(stepping.progress()),
            is_due: AtomicBool::new(stepping.is_due()),
            stepping: Lock::new(stepping),
            at_end: Lock::default(),
            called: AtomicBool::new(false),
        })
    }

    /// Fails if the descriptors are those of another process, or of another descriptor table.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match (self.origin.is_this_process(), self.origin.has_descriptors()) {
            (_, true) => Ok(()),
            (false, _) => Err(Error::new(Errno::EBADF, OF_ANOTHER_PROCESS)),
            (true, false) => Err(Error::new(
                Errno::EBADF,
                "this thread has descriptors of its own, without those of the transfer",
            )),
        }
    }

    /// Returns the descriptor that polls readable when a step is possible.
    ///
    /// # Errors
    ///
    /// As [`Stepped::check`].
    pub(crate) fn descriptor(&self) -> Result<RawFd, Error> {
        self.check().map(|()| self.number)
    }

    /// Takes one step. At the end, stores the outcome by `keep` and returns the functions
    /// to call. `closes`: the end does not wait for the close of a socket with SO_LINGER.
    ///
    /// # Errors
    ///
    /// As [`Stepped::check`]. A signal handler may have forked.
    pub(crate) fn step(
        &self,
        closes: bool,
        keep: impl FnOnce(Outcome),
    ) -> Result<Option<Vec<AtEnd>>, Error> {
        self.check()?;
        let Some(mut stepping) = self.stepping.lock() else {
            return Err(Errno::EBADF.into());
        };
        let outcome = match stepping.step() {
            None if closes => stepping.without_close(),
            outcome => outcome,
        };
        let is_due = stepping.is_due();
        self.is_due.store(is_due, Ordering::Relaxed);
        if let Some(mut seen) = self.seen.lock() {
            *seen = stepping.progress();
        }
        Ok(outcome.map(|outcome| {
            // A function that is registered from now on finds the report.
            keep(outcome);
            let at_end = self.at_end.lock();
            at_end.map_or_else(Vec::new, |mut at_end| std::mem::take(&mut *at_end))
        }))
    }

    /// Waits until a step is possible, or a signal handler has run.
    ///
    /// # Errors
    ///
    /// As [`Stepped::check`]. `EBADF`: the program has closed the descriptor. The errno of a
    /// filter that refuses `poll(2)` and `select(2)`.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        let mut patience = Patience::default();
        while !self.is_due.load(Ordering::Relaxed) {
            self.check()?;
            let fd = sys::lend(self.number)?;
            if patience.wait(fd, PollFlags::IN)?.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Registers a function to call at the end; returns it if the transfer has ended. Does not
    /// wait for a step.
    pub(crate) fn on_end(&self, at_end: AtEnd, has_ended: impl Fn() -> bool) -> Option<AtEnd> {
        match self.at_end.lock() {
            Some(mut all) if !has_ended() => {
                all.push(at_end);
                None
            }
            _ => Some(at_end),
        }
    }

    pub(crate) fn set_called(&self) {
        self.called.store(true, Ordering::Release);
    }

    /// Waits until another thread has called the functions.
    pub(crate) fn wait_for_calls(&self) {
        while !self.called.load(Ordering::Acquire) && self.origin.is_this_process() {
            sleep_a_moment();
        }
    }

    pub(crate) fn progress(&self) -> Option<Progress> {
        self.seen.lock().map(|seen| *seen)
    }

    pub(crate) fn cancel(&self) {
        self.control.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read, Write};

    use testkit::refuse;

    use super::*;

    /// A transfer that waits for its source.
    fn waiting() -> (Stepped, PipeWriter, PipeReader) {
        let (source, feed) = std::io::pipe().unwrap();
        let (end, sink) = std::io::pipe().unwrap();
        let request = cordboard::Request::default();
        let transfer = Transfer::duplicating(source.as_fd(), sink.as_fd(), request).unwrap();
        let stepped = Stepped::new(transfer, Origin::here()).unwrap();
        while stepped.stepping.lock().unwrap().is_due() {
            assert!(stepped.step(false, |_| ()).unwrap().is_none());
        }
        (stepped, feed, end)
    }

    /// A signal handler may fork after the check of the step.
    #[test]
    fn a_child_does_not_wait_for_a_step_of_its_parent() {
        let (stepped, _feed, _end) = waiting();
        assert!(testkit::child::in_a_child(|| {
            stepped
                .wait()
                .is_err_and(|error| error.errno == Errno::EBADF)
        }));
    }

    /// Another thread takes a step, which lasts.
    #[test]
    fn a_function_is_registered_during_a_step() {
        assert!(testkit::child::in_a_child(|| {
            testkit::child::ends_soon();
            let (stepped, _feed, _end) = waiting();
            let step = stepped.stepping.lock();
            let back = stepped.on_end(Box::new(|_| ()), || false);
            drop(step);
            back.is_none()
        }));
    }

    /// A filter refuses `poll(2)`. `RLIMIT_NOFILE` of 0 is the same.
    #[test]
    fn a_step_is_waited_for_by_select() {
        for errno in [libc::EPERM, libc::EINVAL] {
            let (stepped, mut feed, mut end) = waiting();
            feed.write_all(b"abc").unwrap();
            let waited = refuse::apart(|| {
                refuse::refuse(&[refuse::PPOLL, refuse::POLL].concat(), errno);
                stepped.wait().map_err(|error| error.errno)
            });
            assert_eq!(waited, Ok(()));
            assert!(stepped.step(false, |_| ()).unwrap().is_none());
            let mut word = [0; 3];
            end.read_exact(&mut word).unwrap();
            assert_eq!(&word, b"abc");
        }
    }
}
