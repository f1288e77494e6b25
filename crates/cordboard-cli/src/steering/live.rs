//! The progress of the command, for another thread.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cordboard::cue::{Command, Status};
use cordboard::{Control, DataPath, Errno};

use super::client::Steered;
use super::control;
use crate::signals;

/// The progress of the command. The thread that moves bytes stores it, and another thread
/// reads it.
#[derive(Debug)]
pub struct Live {
    control: &'static Control,
    start: Instant,
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
    /// Creates the progress before any byte has moved.
    pub fn new(control: &'static Control) -> Live {
        Live {
            control,
            start: Instant::now(),
            moved: Mutex::new(Moved {
                path: None,
                read: 0,
                written: 0,
                total: None,
                under_way: 0,
            }),
        }
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

    /// Returns the time since the start of the command.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
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
        status.elapsed = self.elapsed();
        status.total = moved.total;
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
            command => control::apply(self.control, command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second signal would end the process without its report.
    #[test]
    fn a_second_cancel_is_no_second_signal() {
        let control = Box::leak(Box::new(Control::without_descriptor()));
        let live = Live::new(control);
        assert!(testkit::child::in_a_child(|| {
            signals::record_old_stop(libc::SIGTERM);
            live.steer(Command::Cancel).is_ok() && signals::stop() == Some(libc::SIGTERM)
        }));
    }
}
