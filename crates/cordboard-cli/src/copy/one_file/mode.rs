//! How a file is to be opened, and why it was not.

use crate::problem::Problem;
use crate::signals::Interrupted;

/// How a file is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// While other files are under way, on a thread that must not wait.
    Concurrent,
    /// With no other file under way: the open may wait, and the file may be one
    /// that other copies use.
    Exclusive,
}

/// Why a file was not opened.
#[derive(Debug)]
pub enum OpenError {
    /// It cannot be copied.
    Problem(Problem),
    /// It cannot be opened in [`OpenMode::Concurrent`]: the order matters, the
    /// open would wait, too many descriptors are open, or the stages need memory
    /// that other files use.
    Postponed,
}

impl From<Problem> for OpenError {
    fn from(problem: Problem) -> OpenError {
        OpenError::Problem(problem)
    }
}

impl From<Interrupted> for OpenError {
    fn from(interrupted: Interrupted) -> OpenError {
        OpenError::Problem(interrupted.into())
    }
}

impl OpenError {
    /// From the errno of a call.
    pub fn of(
        errno: rustix::io::Errno,
        open_mode: OpenMode,
        problem: impl Fn(rustix::io::Errno) -> Problem,
    ) -> OpenError {
        use rustix::io::Errno;
        match errno {
            Errno::MFILE | Errno::NFILE if open_mode == OpenMode::Concurrent => {
                OpenError::Postponed
            }
            errno => OpenError::Problem(problem(errno)),
        }
    }
}
