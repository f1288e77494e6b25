//! What the state that the engine's threads share is made of. The model check
//! (`crates/model`) compiles the files that use it against its own.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};

pub(crate) use crate::errno::Errno;

/// A descriptor that becomes readable when it is rung: `eventfd(2)`.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor was to be had.
    pub(crate) fn new() -> Result<Bell, Errno> {
        Ok(Bell(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    pub(crate) fn ring(&self) {
        // A counter that is already at its maximum is readable just as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Silent until it is rung again.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
