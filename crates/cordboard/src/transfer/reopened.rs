//! Terminals that a transfer has opened again.

use std::os::fd::OwnedFd;

use crate::sys::{Identity, identity};

/// A terminal that was opened again, and which file that was.
pub(super) struct Reopened {
    pub(super) fd: OwnedFd,
    pub(super) id: Option<Identity>,
}

impl Reopened {
    pub(super) fn is_still(&self) -> bool {
        self.id.is_some() && identity(&self.fd) == self.id
    }
}
