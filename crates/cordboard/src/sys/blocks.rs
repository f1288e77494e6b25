//! Completions of the blocks that a ring carries out.

use crate::errno::Errno;

/// Blocks that can be in flight at once.
pub(crate) const SLOTS: usize = 32;

/// Which call of a block has completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "unused on architectures without io_uring")]
pub(crate) enum Half {
    Read,
    Write,
}

/// A call that has completed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) slot: usize,
    pub(crate) half: Half,
    pub(crate) result: Result<usize, Errno>,
}
