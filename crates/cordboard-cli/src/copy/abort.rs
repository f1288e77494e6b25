//! Errors that affect all files: no space at the sink, or a read-only file
//! system. The first is reported, and the rest of the files are left out.

use std::sync::atomic::Ordering;

use cordboard::{Errno, Side};

use crate::copy::job::Job;
use crate::copy::outcome::Message;
use crate::problem::Problem;
use crate::signals;

impl Job {
    /// Checked before each file: returns the message of a file that is left
    /// out.
    pub fn reason_to_skip(&self) -> Option<Message> {
        let stopped = signals::check_stop()
            .err()
            .map(|stop| Message::Problem(stop.into()));
        stopped.or_else(|| self.is_aborted().then_some(Message::LeftOut))
    }

    /// Whether no more files are started.
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    /// Records an error of creating or writing a file. `true`: another file has
    /// failed for such a reason before, which was reported.
    pub fn is_repeated(&self, problem: &Problem) -> bool {
        affects_all_files(problem) && self.aborted.swap(true, Ordering::Relaxed)
    }

    /// Records an error, and returns its message.
    pub fn failed(&self, problem: Problem) -> Message {
        match self.is_repeated(&problem) {
            true => Message::Repeated(problem),
            false => Message::Problem(problem),
        }
    }
}

/// Whether an error affects all files.
///
/// `EIO` does not: it may be one bad block, or one file of a server.
pub fn affects_all_files(problem: &Problem) -> bool {
    let full = [Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS];
    problem.side == Some(Side::Sink) && problem.errno.is_some_and(|e| full.contains(&e))
}
