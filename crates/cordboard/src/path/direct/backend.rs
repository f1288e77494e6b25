//! Which of the two carries the blocks out.

use std::os::fd::OwnedFd;

use super::ring::Ring;
use super::threads::ByThreads;
use super::uring::ByUring;
use crate::route::{Backend, Why};
use crate::sys::Arena;

/// A ring where the kernel gives one, threads elsewhere.
pub(super) fn start(
    backend: Backend,
    files: [OwnedFd; 2],
    arena: &Arena,
) -> Result<Box<dyn Ring>, Why> {
    if backend == Backend::Epoll {
        return Ok(Box::new(ByThreads::new(files)?));
    }
    match ByUring::new(files, arena) {
        Ok(ring) => Ok(Box::new(ring)),
        Err((errno, _)) if backend == Backend::Uring => Err(errno.into()),
        Err((_, files)) => Ok(Box::new(ByThreads::new(files)?)),
    }
}
