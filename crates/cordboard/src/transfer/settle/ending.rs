//! How a transfer ended, for its report.

use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::Ended;
use crate::transfer::turn::Turn;

/// The reason for the end of a transfer, and the side and errno of a
/// failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) ended: Ended,
    pub(super) failed: Option<Side>,
    pub(super) errno: Option<Errno>,
}

impl Ending {
    /// Converts the last turn. A turn that does not end a transfer counts
    /// as cancelled.
    pub(super) fn of(turn: &Turn) -> Ending {
        let (ended, failed, errno) = match *turn {
            Turn::Done(ended) => (ended, None, None),
            Turn::Failed(failed, errno) => (Ended::Error, failed, errno),
            Turn::Moved(_)
            | Turn::Blocked(_)
            | Turn::HeldBack
            | Turn::Pending
            | Turn::Elsewhere => (Ended::Cancelled, None, None),
        };
        Ending {
            ended,
            failed,
            errno,
        }
    }

    /// Records a failure, unless one is recorded already.
    pub(super) fn fail(&mut self, side: impl Into<Option<Side>>, errno: Errno) {
        if self.ended != Ended::Error {
            (self.ended, self.failed, self.errno) = (Ended::Error, side.into(), Some(errno));
        }
    }
}
