//! Terminals that a transfer has reopened.

use std::os::fd::OwnedFd;

use crate::sys::{Identity, close_own, identity};

/// A reopened terminal, and its identity.
pub(super) struct Reopened {
    pub(super) fd: OwnedFd,
    pub(super) id: Option<Identity>,
}

impl Reopened {
    pub(super) fn is_still(&self) -> bool {
        self.id.is_some() && identity(&self.fd) == self.id
    }

    /// Closes it, unless its number refers to another file.
    pub(super) fn close(self) {
        match self.id {
            Some(id) => close_own(self.fd, id),
            None => std::mem::forget(self.fd),
        }
    }
}
