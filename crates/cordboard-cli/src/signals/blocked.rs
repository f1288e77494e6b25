//! Signals for a main thread that is blocked in the kernel.
//!
//! Only a fatal signal ends a wait for a server that does not respond (NFS,
//! FUSE), and no handler runs before it ends. A second thread then takes the
//! signal. It sees which signals are pending without taking them
//! (`signalfd(2)`, since Linux 2.6.27), and first leaves them to the main
//! thread for longer than a main thread that is not blocked needs.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use cordboard::poll_for;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::state::Stop;
use crate::sys;

/// The thread has taken a signal that is not yet recorded.
static TAKING: AtomicBool = AtomicBool::new(false);

/// How long the main thread has to take a signal; it needs microseconds.
const GRACE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// If the limit of descriptors is below this, none is used here: files need
/// them.
const FEW: u64 = 64;

/// The descriptor that shows pending signals, and the function to call.
static PENDING: OnceLock<OwnedFd> = OnceLock::new();
static TAKE: OnceLock<fn(Stop)> = OnceLock::new();

/// Starts the thread, which calls `take` with each signal that it takes. Does
/// nothing if no thread or descriptor is available.
pub fn watch(signals: &[libc::c_int], take: fn(Stop)) {
    if sys::most_descriptors().is_some_and(|most| most < FEW) {
        return;
    }
    let Ok(pending) = sys::pending_signals(signals) else {
        return;
    };
    let (_, _) = (PENDING.set(pending), TAKE.set(take));
    sys::without_signals(|| sys::start_plain_thread(serve));
}

/// Waits until the thread has recorded the signal that it has taken.
pub fn settle() {
    while TAKING.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}

/// Runs on a thread that the standard library does not start: every command has
/// it, and a name and a signal stack would cost more than the rest.
extern "C" fn serve(_: *mut libc::c_void) -> *mut libc::c_void {
    while let (Some(pending), Some(take)) = (PENDING.get(), TAKE.get()) {
        let mut fds = [PollFd::new(pending, PollFlags::IN)];
        match poll_for(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => break,
        }
        let _ = poll_for(&mut [], Some(&GRACE));
        TAKING.store(true, Ordering::SeqCst);
        // `struct signalfd_siginfo` begins with the number, the errno and the code.
        let mut info = [0u8; 128];
        if let Ok(128) = rustix::io::read(pending, &mut info)
            && let ([number, _, code, ..], _) = info.as_chunks::<4>()
        {
            let [signal, code] = [*number, *code].map(libc::c_int::from_ne_bytes);
            take(Stop::of_code(signal, code));
        }
        TAKING.store(false, Ordering::SeqCst);
    }
    std::ptr::null_mut()
}
