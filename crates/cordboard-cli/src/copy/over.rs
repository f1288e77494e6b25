//! What concerns all files and not one: no room at the sink, or no leave to
//! write there. The first is told of, and the rest is left out.

use std::sync::atomic::Ordering;

use cordboard::{Errno, Side};

use super::Job;
use super::told::Said;
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

    /// Takes notice of what went wrong as something was made or written. `true`:
    /// another has come to grief for the like before, and that was told.
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

/// `EIO` does not: it may be one bad block, or one file of a server's.
fn ends_all(problem: &Problem) -> bool {
    let full = [Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS];
    problem.side == Some(Side::Sink) && problem.errno.is_some_and(|e| full.contains(&e))
}
