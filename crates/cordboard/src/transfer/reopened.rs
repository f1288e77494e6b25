//! Terminals that a transfer has reopened.

use std::os::fd::OwnedFd;

use crate::sys::{Identity, identity};

/// A reopened terminal, and its identity.
pub(super) struct Reopened {
    pub(super) fd: OwnedFd,
    pub(super) id: Option<Identity>,
}

impl Reopened {
    pub(super) fn is_still(&self) -> bool {
        self.id.is_some() && identity(&self.fd) == self.id
    }
}
