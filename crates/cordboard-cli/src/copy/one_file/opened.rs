//! A file that is open on both sides.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cordboard::{Request, Stage};
use rustix::fs::Stat;

use super::appended::AppendedRanges;
use crate::stages::TransferExtras;

/// A file that is open on both sides.
#[derive(Debug)]
pub struct Opened {
    /// The source.
    pub source: OwnedFd,
    /// Its status before it was read.
    pub stat: Stat,
    /// The sink.
    pub sink: SinkFile,
    /// The request.
    pub request: Request,
    /// The bytes of the source to copy, if known.
    pub size: Option<u64>,
    /// The ranges written, if other processes may append meanwhile.
    pub appended: Option<AppendedRanges>,
    /// The stages, if they change the bytes, until the transfer has them.
    pub stages: Option<Vec<Stage>>,
    /// It is to be verified, and its source can be read only once.
    pub read_once: bool,
}

impl Opened {
    /// Both descriptors.
    pub fn ends(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.source.as_fd(), self.sink.fd.as_fd())
    }

    /// The stages that were built, and the one that records the written ranges, if they are
    /// needed.
    pub fn extras(&mut self) -> TransferExtras {
        let appended = self.appended.as_ref();
        TransferExtras {
            read_once: self.read_once,
            built: self.stages.take(),
            stage: appended.and_then(AppendedRanges::stage),
        }
    }
}

/// The sink of one copy.
#[derive(Debug)]
pub struct SinkFile {
    /// The descriptor.
    pub fd: OwnedFd,
    /// It did not exist before.
    pub created: bool,
    /// It is a regular file, and not a device or a FIFO.
    pub is_file: bool,
    /// Bytes that it had, and keeps: `--append`, `--sink-offset`.
    pub before: u64,
    /// The offset of the first byte that is written.
    pub start: u64,
}
