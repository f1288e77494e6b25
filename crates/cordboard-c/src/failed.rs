//! A call that waited, and failed: what is said of it, and the account that is
//! kept of it. A refusal has an account as well, of nothing moved, so that the
//! one before it is not taken for its own.

use cordboard::{Ended, Errno, Failure, Refusal, Report, Side};

use crate::guard::Problem;
use crate::outcome::{Finished, keep};

pub(crate) struct Failed {
    finished: Box<Finished>,
    problem: Problem,
}

impl Failed {
    fn before_anything_moved(side: Option<Side>, problem: Problem) -> Failed {
        let mut report = Report::default();
        report.ended = Ended::Error;
        report.failed = side;
        report.errno = Some(problem.errno);
        Failed {
            finished: Box::new(Finished::new(report, None)),
            problem,
        }
    }

    /// The account, and the problem to report.
    pub(crate) fn apart(self) -> (Finished, Option<Problem>) {
        (*self.finished, Some(self.problem))
    }

    /// Keeps the account for `CORD_LAST`; the rest is for the caller.
    pub(crate) fn keep(self) -> Problem {
        keep(*self.finished);
        self.problem
    }
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Failed {
        Failed::before_anything_moved(None, problem)
    }
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Failed {
        Problem::from(errno).into()
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Failed {
        Failed::before_anything_moved(refusal.side(), refusal.into())
    }
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Failed {
        let problem = Problem::from(&failure);
        let Failure {
            report, stranded, ..
        } = failure;
        Failed {
            finished: Box::new(Finished::new(*report, stranded)),
            problem,
        }
    }
}
