//! The end of a connection that we opened: nothing in flight may be lost.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use cordboard::Ended;
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
pub fn finish(
    socket: BorrowedFd<'_>,
    tcp: bool,
    ended: Ended,
) -> Result<Result<(), Errno>, Problem> {
    let look = |time| wait(socket.as_fd(), PollFlags::IN, Some(time));
    until_taken(socket, tcp, patience(ended), look)
}

/// Whoever asked for an end when nothing moves has waited long enough.
fn patience(ended: Ended) -> Duration {
    match ended {
        Ended::Idle => Duration::ZERO,
        _ => PATIENCE,
    }
}

fn until_taken(
    socket: BorrowedFd<'_>,
    tcp: bool,
    full: Duration,
    mut look: impl FnMut(Duration) -> Result<Result<bool, Errno>, Problem>,
) -> Result<Result<(), Errno>, Problem> {
    if shutdown(socket, Shutdown::Write).is_err() {
        return Ok(Ok(()));
    }
    let mut left = unsent(socket);
    let mut patience = full;
    loop {
        match discard(socket) {
            Discarded::Closed => return Ok(Ok(())),
            // The end itself counts as one.
            Discarded::Broken(errno) if left > 1 && tcp => return Ok(Err(errno)),
            Discarded::Broken(_) => return Ok(Ok(())),
            // A UNIX socket's bytes are with the peer as soon as they are sent.
            Discarded::Nothing if left == 0 || !tcp => return Ok(Ok(())),
            Discarded::Nothing if patience.is_zero() => return Ok(Ok(())),
            Discarded::Nothing => {}
        }
        match look(LOOK)? {
            Ok(false) => patience = patience.saturating_sub(LOOK),
            Ok(true) => {}
            Err(_) => return Ok(Ok(())),
        }
        let now = unsent(socket);
        if now != left {
            (left, patience) = (now, full);
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    /// How often it looks at a peer that takes nothing.
    fn looks(ended: Ended) -> u32 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_peer, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        while ours.write(&[0; 65536]).is_ok() {}
        // What is on its way may still be taken: not a matter of our time.
        let mut count = 0;
        let done = until_taken(ours.as_fd(), true, patience(ended), |_| {
            count += 1;
            Ok(Ok(false))
        });
        assert_eq!(done.unwrap(), Ok(()));
        assert!(unsent(ours.as_fd()) > 0);
        count
    }

    #[test]
    fn a_peer_that_takes_nothing_is_waited_for_but_not_after_an_idle_end() {
        assert_eq!(looks(Ended::Idle), 0);
        let whole = PATIENCE.as_millis() / LOOK.as_millis();
        assert!(u128::from(looks(Ended::Eof)) >= whole);
    }
}
