//! The progress of the command, for another thread.

use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use cordboard::cue::{Command, Done, State, Status};
use cordboard::{Control, DataPath, Errno, Report};

use super::client::Steered;
use super::control;
use crate::signals;

/// The progress of the command. The thread that moves bytes stores it, and another thread
/// reads it.
#[derive(Debug)]
pub struct Live {
    control: &'static Control,
    /// The length of a block of the transfers.
    block: u64,
    /// The start of the first transfer, after the wait for the endpoints.
    start: OnceLock<Instant>,
    moved: Mutex<Moved>,
}

#[derive(Debug, Clone, Copy)]
struct Moved {
    path: Option<DataPath>,
    read: u64,
    written: u64,
    total: Option<u64>,
    under_way: u32,
}

impl Live {
    /// Creates the progress before the first transfer. `block`: the length of a block of the
    /// transfers.
    pub fn new(control: &'static Control, block: u64) -> Live {
        Live {
            control,
            block,
            start: OnceLock::new(),
            moved: Mutex::new(Moved {
                path: None,
                read: 0,
                written: 0,
                total: None,
                under_way: 0,
            }),
        }
    }

    /// Sets the start of the first transfer, unless it is set.
    pub fn begin(&self, start: Instant) {
        let _ = self.start.set(start);
    }

    /// Stores the progress. Costs a lock that no thread holds for long.
    pub fn store(
        &self,
        (read, written): (u64, u64),
        total: Option<u64>,
        path: DataPath,
        under_way: usize,
    ) {
        if let Ok(mut moved) = self.moved.lock() {
            *moved = Moved {
                path: Some(path),
                read,
                written,
                total,
                under_way: u32::try_from(under_way).unwrap_or(u32::MAX),
            };
        }
    }

    /// Returns whether the transfers are paused.
    pub fn is_paused(&self) -> bool {
        self.control.is_paused()
    }

    /// Returns the last status, and the record of the end.
    pub fn end(&self, report: &Report) -> (Status, Done) {
        let (last, mut done) = (self.status(), Done::of(1, report));
        // After the report is made, the sink may still be closed. An earlier status must not
        // have a later time than the end.
        done.elapsed = done.elapsed.max(last.elapsed);
        (last, done)
    }
}

impl Steered for Live {
    fn status(&self) -> Status {
        let Ok(moved) = self.moved.lock() else {
            return Status::idle();
        };
        let mut status = control::status(self.control);
        status.queued = moved.under_way.saturating_sub(1);
        status.path = moved.path;
        (status.read, status.written) = (moved.read, moved.written);
        status.total = moved.total;
        match self.start.get() {
            Some(start) => status.elapsed = start.elapsed(),
            None => {
                status.transfer = 0;
                if status.state == State::Running {
                    status.state = State::Idle;
                }
            }
        }
        status
    }

    fn steer(&self, command: Command) -> Result<(), Errno> {
        match command {
            // As after a signal, the command prints its account.
            Command::Cancel => {
                signals::cancel();
                Ok(())
            }
            // The command line determines the ranges to move.
            command => control::apply(self.control, self.block, command),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cordboard::Schedule;

    use super::*;

    #[test]
    fn the_time_begins_with_the_transfer_and_does_not_go_back() {
        let control = Box::leak(Box::new(Control::without_descriptor()));
        let live = Live::new(control, Schedule::BLOCK);
        let waiting = live.status();
        assert_eq!(
            (waiting.state, waiting.elapsed),
            (State::Idle, Duration::ZERO)
        );
        control.pause();
        assert_eq!(live.status().state, State::Paused);
        control.resume();
        live.begin(Instant::now());
        let status = live.status();
        assert_eq!(status.state, State::Running);
        let (last, done) = live.end(&Report::default());
        assert!(status.elapsed <= last.elapsed && last.elapsed <= done.elapsed);
    }

    /// A second signal would end the process without its report.
    #[test]
    fn a_second_cancel_is_no_second_signal() {
        let control = Box::leak(Box::new(Control::without_descriptor()));
        let live = Live::new(control, Schedule::BLOCK);
        assert!(testkit::child::in_a_child(|| {
            signals::record_old_stop(libc::SIGTERM);
            live.steer(Command::Cancel).is_ok() && signals::stop() == Some(libc::SIGTERM)
        }));
    }
}
