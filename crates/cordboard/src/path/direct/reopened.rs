//! Second descriptors of the same files: `O_DIRECT` is a file status flag, and
//! those of the caller's descriptors are not changed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;

use crate::endpoint::{Endpoint, Filesystem, reopen};
use crate::errno::Errno;
use crate::path::flow::Flow;

/// Opens both files for direct I/O.
pub(super) fn for_direct_io(flow: &Flow<'_>) -> Result<[OwnedFd; 2], Errno> {
    Ok([
        reopen(flow.source.fd(), OFlags::RDONLY | OFlags::DIRECT)?,
        reopen(flow.sink.fd(), OFlags::WRONLY | OFlags::DIRECT)?,
    ])
}

/// Whether one side is a FUSE file, or may be one, also below an overlay.
pub(super) fn on_fuse(flow: &Flow<'_>) -> bool {
    let sides = [flow.source.facts(), flow.sink.facts()];
    (sides.iter()).any(|facts| facts.may_be_on(Filesystem::is_fuse))
}

/// One side for buffered I/O of unaligned parts: a second descriptor only if
/// the first one is direct.
#[derive(Debug)]
pub(super) struct Cached(Option<OwnedFd>);

impl Cached {
    pub(super) fn new(side: &Endpoint<'_>, access: OFlags) -> Result<Cached, Errno> {
        let second = side.facts().o_direct.then(|| reopen(side.fd(), access));
        Ok(Cached(second.transpose()?))
    }

    /// Returns the second descriptor.
    pub(super) fn take(&mut self) -> Option<OwnedFd> {
        self.0.take()
    }

    pub(super) fn fd<'a>(&'a self, original: BorrowedFd<'a>) -> BorrowedFd<'a> {
        self.0.as_ref().map_or(original, AsFd::as_fd)
    }
}
