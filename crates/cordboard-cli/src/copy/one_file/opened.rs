//! A file that is open on both sides.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cordboard::Request;
use rustix::fs::Stat;

use super::appended::AppendedRanges;
use crate::stages::TransferExtras;

/// A file that is about to be copied.
#[derive(Debug)]
pub struct Opened {
    /// It.
    pub source: OwnedFd,
    /// As it was before it was read.
    pub stat: Stat,
    /// Where it goes.
    pub made: Made,
    /// What is asked for.
    pub request: Request,
    /// How much of the source there is to copy, if that is known.
    pub size: Option<u64>,
    /// Where its bytes come to be, where others may append meanwhile.
    pub appended: Option<AppendedRanges>,
    /// It is to be verified, and its source can be read once.
    pub once: bool,
}

impl Opened {
    /// Both descriptors.
    pub fn ends(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.source.as_fd(), self.made.fd.as_fd())
    }

    /// What sees its bytes, if they are asked about later: what notes where they
    /// come to be.
    pub fn extras(&self) -> TransferExtras {
        let appended = self.appended.as_ref();
        TransferExtras {
            once: self.once,
            stage: appended.and_then(|appended| appended.stage(self.made.fd.as_fd())),
        }
    }
}

/// The sink of one copy.
#[derive(Debug)]
pub struct Made {
    /// It.
    pub fd: OwnedFd,
    /// It did not exist before.
    pub created: bool,
    /// The bytes that were in it, and stay: `--append`.
    pub before: u64,
}
