//! The end of a connection that we opened: nothing in flight may be lost.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use super::interrupt::wait;
use crate::problem::Problem;
use crate::sys::unsent;

const LOOK: Duration = Duration::from_millis(50);
/// A peer that takes nothing for this long is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ends our direction, and waits until the peer has what was sent. To close a
/// socket with something unread in it sends a reset instead of an end, which
/// destroys what is in flight; so what the peer says is read, and discarded.
///
/// The error is what destroyed bytes that the peer had not acknowledged.
pub fn finish(socket: BorrowedFd<'_>, tcp: bool) -> Result<Result<(), Errno>, Problem> {
    if shutdown(socket, Shutdown::Write).is_err() {
        return Ok(Ok(()));
    }
    let mut left = unsent(socket);
    let mut patience = PATIENCE;
    loop {
        match discard(socket) {
            Discarded::Closed => return Ok(Ok(())),
            // The end itself counts as one.
            Discarded::Broken(errno) if left > 1 && tcp => return Ok(Err(errno)),
            Discarded::Broken(_) => return Ok(Ok(())),
            // A UNIX socket's bytes are with the peer as soon as they are sent.
            Discarded::Nothing if left == 0 || !tcp => return Ok(Ok(())),
            Discarded::Nothing => {}
        }
        match wait(socket.as_fd(), PollFlags::IN, Some(LOOK))? {
            Ok(false) => patience = patience.saturating_sub(LOOK),
            Ok(true) => {}
            Err(_) => return Ok(Ok(())),
        }
        let now = unsent(socket);
        if now != left {
            (left, patience) = (now, PATIENCE);
        } else if patience.is_zero() {
            return Ok(Ok(()));
        }
    }
}

enum Discarded {
    Nothing,
    Closed,
    Broken(Errno),
}

/// A peer that never stops talking must not hold us either: so much at a time.
fn discard(socket: BorrowedFd<'_>) -> Discarded {
    let mut buffer = [0u8; 4096];
    for _ in 0..64 {
        match recv(socket, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Discarded::Closed,
            Ok(_) => {}
            Err(Errno::AGAIN) => return Discarded::Nothing,
            Err(errno) => return Discarded::Broken(errno),
        }
    }
    Discarded::Nothing
}
