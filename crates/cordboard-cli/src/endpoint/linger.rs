//! The end of a connection that we opened: nothing in flight may be lost.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use super::interrupt::wait;

const LOOK: Duration = Duration::from_millis(50);
/// A peer that takes nothing for this long is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ends our direction, and waits until the peer has what was sent. To close a
/// socket with something unread in it sends a reset instead of an end, which
/// destroys what is in flight; so what the peer says is read, and discarded.
pub fn finish(socket: BorrowedFd<'_>, tcp: bool) {
    if shutdown(socket, Shutdown::Write).is_err() {
        return;
    }
    let mut left = unsent(socket);
    let mut patience = PATIENCE;
    loop {
        match discard(socket) {
            Discarded::Closed => return,
            // A UNIX socket's bytes are with the peer as soon as they are sent.
            Discarded::Nothing if left == 0 || !tcp => return,
            _ => {}
        }
        match wait(socket.as_fd(), PollFlags::IN, Some(LOOK)) {
            Ok(Ok(ready)) if !ready => patience = patience.saturating_sub(LOOK),
            Ok(Ok(_)) => {}
            _ => return,
        }
        let now = unsent(socket);
        if now != left {
            (left, patience) = (now, PATIENCE);
        } else if patience.is_zero() {
            return;
        }
    }
}

enum Discarded {
    Nothing,
    Closed,
}

/// A peer that never stops talking must not hold us either: so much at a time.
fn discard(socket: BorrowedFd<'_>) -> Discarded {
    let mut buffer = [0u8; 4096];
    for _ in 0..64 {
        match recv(socket, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Discarded::Closed,
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return Discarded::Nothing,
            Err(_) => return Discarded::Closed,
        }
    }
    Discarded::Nothing
}

/// Bytes that the peer has not acknowledged: `tcp(7)`, `SIOCOUTQ`.
fn unsent(socket: BorrowedFd<'_>) -> libc::c_int {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ, which is SIOCOUTQ on a socket, writes one int.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } {
        0 => bytes,
        _ => 0,
    }
}
