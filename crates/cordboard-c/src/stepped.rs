//! Transfers that the program's event loop drives by `cord_step`.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use cordboard::{Control, Errno, Lock, Outcome, Progress, Report, Stepping, Transfer};
use rustix::event::{PollFd, PollFlags, poll};

use crate::error::Error;
use crate::sys;

/// A function to call at the end.
pub(crate) type AtEnd = Box<dyn FnOnce(&Report) + Send>;

/// A transfer whose steps the program takes.
pub(crate) struct Stepped {
    /// Cancels it, also while another thread takes a step.
    control: Control,
    /// The number of the descriptor that polls readable when a step is possible.
    number: RawFd,
    state: Lock<State>,
}

struct State {
    stepping: Stepping<'static>,
    at_end: Vec<AtEnd>,
    has_ended: bool,
}

impl Stepped {
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor or memory is available.
    pub(crate) fn new(transfer: Transfer<'static>) -> Result<Stepped, Error> {
        let control = Control::new()?;
        let transfer = transfer.control(&control);
        let stepping = transfer
            .stepping()
            .map_err(|failure| Error::from(&failure))?;
        Ok(Stepped {
            control,
            number: stepping.as_fd().as_raw_fd(),
            state: Lock::new(State {
                stepping,
                at_end: Vec::new(),
                has_ended: false,
            }),
        })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.number
    }

    /// Takes one step. Returns the outcome at the end, and the functions to call with it.
    pub(crate) fn step(&self) -> Option<(Outcome, Vec<AtEnd>)> {
        let mut state = self.state.lock()?;
        let outcome = state.stepping.step()?;
        state.has_ended = true;
        Some((outcome, std::mem::take(&mut state.at_end)))
    }

    /// Waits until a step is possible.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        let fd = sys::lend(self.number)?;
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(Errno::from(errno).into()),
        }
    }

    /// Registers a function to call at the end; returns it if the transfer has ended.
    pub(crate) fn on_end(&self, at_end: AtEnd) -> Option<AtEnd> {
        match self.state.lock() {
            Some(mut state) if !state.has_ended => {
                state.at_end.push(at_end);
                None
            }
            _ => Some(at_end),
        }
    }

    pub(crate) fn progress(&self) -> Option<(Progress, bool)> {
        let state = self.state.lock()?;
        Some((state.stepping.progress(), state.has_ended))
    }

    pub(crate) fn cancel(&self) {
        self.control.cancel();
    }
}
