//! A descriptor to wake somebody by.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::errno::Errno;

/// A descriptor that becomes readable when it is rung: `eventfd(2)`, since
/// Linux 2.6.27.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor was to be had.
    pub(crate) fn new() -> Result<Bell, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Bell(eventfd(0, flags)?))
    }

    /// Async-signal-safe: one `write(2)`.
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
