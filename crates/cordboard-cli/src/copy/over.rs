//! Errors that concern all files: no space at the sink, or a read-only file
//! system. The first is reported, and the rest of the files are left out.

use std::sync::atomic::Ordering;

use cordboard::{Errno, Side};

use super::Job;
use super::messages::Said;
use crate::problem::Problem;
use crate::signals;

impl Job {
    /// Asked before each file: what there is to tell of one that is left out.
    pub fn leaves_out(&self) -> Option<Said> {
        let stopped = signals::go_on().err().map(Said::Problem);
        stopped.or_else(|| self.is_over().then_some(Said::LeftOut))
    }

    /// Nothing more is begun.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Records an error of creating or writing something. `true`: another file
    /// has failed for such a reason before, and that was reported.
    pub fn is_told(&self, problem: &Problem) -> bool {
        ends_all(problem) && self.over.swap(true, Ordering::Relaxed)
    }

    /// The same, as what there is to tell.
    pub fn failed(&self, problem: Problem) -> Said {
        match self.is_told(&problem) {
            true => Said::Again(problem),
            false => Said::Problem(problem),
        }
    }
}

/// Whether it is an error that concerns all files.
///
/// `EIO` does not: it may be one bad block, or one file of a server.
pub fn ends_all(problem: &Problem) -> bool {
    let full = [Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS];
    problem.side == Some(Side::Sink) && problem.errno.is_some_and(|e| full.contains(&e))
}
