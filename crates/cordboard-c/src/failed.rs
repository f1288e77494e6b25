//! A synchronous transfer that failed: its error, and its report for
//! `CORD_LAST`. A refusal has a report too, with zero bytes: otherwise the
//! report of an earlier transfer could be mistaken for it.

use cordboard::{Ended, Errno, Failure, Refusal, Report, Side};

use crate::error::Error;
use crate::outcome::{Finished, set_last};

pub(crate) struct Failed {
    finished: Box<Finished>,
    error: Error,
}

impl Failed {
    fn refused(side: Option<Side>, error: Error) -> Failed {
        let mut report = Report::default();
        report.ended = Ended::Error;
        report.failed = side;
        report.errno = Some(error.errno);
        Failed {
            finished: Box::new(Finished::new(report, None)),
            error,
        }
    }

    /// The outcome and the error.
    pub(crate) fn into_parts(self) -> (Finished, Error) {
        (*self.finished, self.error)
    }

    /// Stores the outcome as `CORD_LAST` and returns the error.
    pub(crate) fn set_last(self) -> Error {
        set_last(*self.finished);
        self.error
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::refused(None, error)
    }
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Failed {
        Error::from(errno).into()
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Failed {
        Failed::refused(refusal.side(), refusal.into())
    }
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Failed {
        let error = Error::from(&failure);
        let Failure {
            report, stranded, ..
        } = failure;
        Failed {
            finished: Box::new(Finished::new(*report, stranded)),
            error,
        }
    }
}
