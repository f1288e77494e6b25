//! Why a call failed: an errno and a message.

use cordboard::{Errno, Failure, Refusal};

/// The message for a child of `fork(2)` that uses a handle of its parent.
pub(crate) const OF_ANOTHER_PROCESS: &str = "the transfer belongs to another process";

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) errno: Errno,
    /// The text that `cord_error` returns.
    pub(crate) message: String,
}

impl Error {
    pub(crate) fn new(errno: Errno, message: impl Into<String>) -> Error {
        Error {
            errno,
            message: message.into(),
        }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::new(errno, errno.to_string())
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::new(refusal.errno(), refusal.to_string())
    }
}

impl From<&Failure> for Error {
    fn from(failure: &Failure) -> Error {
        // The report has no errno if the transfer ended early with stranded
        // bytes, or had no path left.
        let errno = failure.report.errno.unwrap_or(Errno::EOPNOTSUPP);
        Error::new(errno, failure.to_string())
    }
}
