//! Selects the engine that executes the blocks.

use std::os::fd::OwnedFd;

use super::block_engine::BlockEngine;
use super::threads::ThreadEngine;
use super::uring::UringEngine;
use crate::request::{Backend, Why};
use crate::sys::Arena;

/// Starts an io_uring if available, threads otherwise.
///
/// Threads for a FUSE file: if its server moves fewer bytes than requested,
/// `io_uring` reports more than was moved, and bytes are duplicated (seen with
/// Linux 6.18). `pread(2)` and `pwrite(2)` report what they moved.
pub(super) fn start(
    backend: Backend,
    files: [OwnedFd; 2],
    on_fuse: bool,
    arena: &Arena,
) -> Result<Box<dyn BlockEngine>, Why> {
    if on_fuse && backend == Backend::Uring {
        return Err("io_uring miscounts short reads and writes of FUSE".into());
    }
    if on_fuse || backend == Backend::Epoll {
        return Ok(Box::new(ThreadEngine::new(files)?));
    }
    match UringEngine::new(files, arena) {
        Ok(ring) => Ok(Box::new(ring)),
        Err((errno, _)) if backend == Backend::Uring => Err(errno.into()),
        Err((_, files)) => Ok(Box::new(ThreadEngine::new(files)?)),
    }
}
