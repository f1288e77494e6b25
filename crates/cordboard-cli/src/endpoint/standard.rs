//! Descriptors that we were started with.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// Bits of the standard descriptors that were closed when we were started.
/// The runtime opens `/dev/null` in their place before `main`, so that what is
/// written to a closed standard output would be lost in silence.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Whether this standard descriptor was closed when we were started.
pub fn was_closed(number: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << number) != 0
}

extern "C" fn look() {
    for number in 0..3u8 {
        // SAFETY: F_GETFD takes any number, and changes nothing.
        if unsafe { libc::fcntl(RawFd::from(number), libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

// SAFETY: the loader calls what this section points to before `main`, with
// the C library ready; the function uses atomics and fcntl(2) alone.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;

/// A descriptor that was handed to us; `None` for one that is not open, or
/// that this process opened itself.
pub fn inherited(number: RawFd) -> Option<BorrowedFd<'static>> {
    if u8::try_from(number).is_ok_and(|n| n < 3 && was_closed(n)) {
        return None;
    }
    // SAFETY: F_GETFD takes any number, and changes nothing.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 || flags & libc::FD_CLOEXEC != 0 {
        return None;
    }
    // SAFETY: it is open, and as it survived the exec that started us, nothing
    // in this process owns it or will close it.
    Some(unsafe { BorrowedFd::borrow_raw(number) })
}
