//! The other direction of a control descriptor whose sink is another one.

use std::os::fd::{AsFd, OwnedFd};

use crate::engine::{self, Running};
use crate::request::Request;

/// A link: the records of the target go back to the source.
pub(super) struct Link {
    pub(super) target: u64,
    answers: Option<Running>,
    /// The last transfer has found the end of the peer's commands.
    pub(super) peer_has_left: bool,
}

impl Link {
    pub(super) fn new(target: u64) -> Link {
        Link {
            target,
            answers: None,
            peer_has_left: false,
        }
    }

    /// Starts to return the records of the target, unless that is done already.
    pub(super) fn answer(&mut self, target: impl AsFd, source: impl AsFd) {
        if self.answers.is_none() {
            self.answers = engine::start(target, source, Request::default()).ok();
        }
    }

    /// Returns whether all records are returned. `target_is_idle`: the target has no work.
    pub(super) fn is_over(&self, target: &OwnedFd, target_is_idle: bool) -> bool {
        // The owner has ended the link.
        if !self.peer_has_left {
            return true;
        }
        let Some(answers) = &self.answers else {
            return true;
        };
        let status = answers.status();
        // The records that the target has sent are still to be returned.
        let unread = || rustix::io::ioctl_fionread(target).is_ok_and(|bytes| bytes > 0);
        status.ended || target_is_idle && !unread() && status.in_transit() == 0
    }
}
