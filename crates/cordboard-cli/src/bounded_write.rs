//! Writing to a descriptor whose reader may read nothing, for a limited time.
//! Async-signal-safe.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use cordboard::poll_for;
use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, write};

use crate::polling::{rest, timespec};
use crate::sys::now;

/// The pause between two writes if `poll(2)` reports room and a write finds too
/// little: a terminal takes a line feed as two characters (`do_output_char`,
/// drivers/tty/n_tty.c).
const SHORT_OF_ROOM: Duration = Duration::from_millis(10);

/// How long a reader may read nothing once a signal to stop has arrived.
pub const GRACE: Duration = Duration::from_secs(1);

/// A pipe that `poll(2)` reports as writable takes this much without blocking
/// (`PIPE_BUF`, `pipe(7)`).
pub const PIECE: usize = 4096;

/// Writes all bytes, as long as the reader takes some within each `grace`:
/// `EINTR` if it does not. SIGALRM must interrupt the thread repeatedly, which
/// ends a write that blocks all the same. Async-signal-safe.
pub fn write_within(out: BorrowedFd<'_>, mut bytes: &[u8], grace: Duration) -> Result<(), Errno> {
    let mut last = now();
    while !bytes.is_empty() {
        let left = grace.saturating_sub(now().saturating_sub(last));
        // If poll(2) fails, the write reports the error.
        let ready = has_room(out, Some(left));
        if !matches!(ready, Ok(false) | Err(Errno::INTR)) {
            match write(out, &bytes[..bytes.len().min(PIECE)]) {
                Ok(0) => return Err(Errno::IO),
                Ok(n) => {
                    (bytes, last) = (&bytes[n..], now());
                    continue;
                }
                Err(Errno::AGAIN) if !left.is_zero() => pause(),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if left.is_zero() {
            return Err(Errno::INTR);
        }
    }
    Ok(())
}

/// Waits until there is room or an error, at most for this time.
pub fn has_room(out: BorrowedFd<'_>, time: Option<Duration>) -> Result<bool, Errno> {
    let time = time.map(timespec);
    let mut fds = [PollFd::from_borrowed_fd(out, PollFlags::OUT)];
    poll_for(&mut fds, time.as_ref()).map(|ready| ready > 0)
}

/// Waits for a moment for more room.
pub fn pause() {
    rest(SHORT_OF_ROOM);
}
