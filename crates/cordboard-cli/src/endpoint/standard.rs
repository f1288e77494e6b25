//! Descriptors that we were started with.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;

use crate::sys;

/// Bits of the standard descriptors that were closed when we were started.
/// `/dev/null` is opened in their place, where what is written to a closed
/// standard output would be lost in silence.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Whether this standard descriptor was closed when we were started.
pub fn was_closed(number: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << number) != 0
}

/// Looks which are closed. It is called before `main`: atomics and fcntl(2)
/// alone.
pub fn look() {
    for number in 0..3u8 {
        if sys::descriptor_flags(RawFd::from(number)) == Err(Errno::BADF) {
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

/// A descriptor that was handed to us; `EBADF` for one that is not open, or
/// that this process opened itself.
pub fn inherited(number: RawFd) -> Result<BorrowedFd<'static>, Errno> {
    if u8::try_from(number).is_ok_and(|n| n < 3 && was_closed(n)) {
        return Err(Errno::BADF);
    }
    sys::started_with(number)
}
