//! Completions of a ring's blocks.

use crate::errno::Errno;

/// The most blocks in flight at once.
pub(crate) const SLOTS: usize = 32;

/// One of the two calls of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "unused on architectures without io_uring")]
pub(crate) enum Half {
    Read,
    Write,
}

/// A completed call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) slot: usize,
    pub(crate) half: Half,
    pub(crate) result: Result<usize, Errno>,
}
