//! The end of a connection that we opened: nothing in flight may be lost.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use cordboard::Ended;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use super::interrupt::wait;
use crate::problem::Problem;
use crate::sys::unsent;

const LOOK: Duration = Duration::from_millis(50);
/// A peer that acknowledges nothing for this long is given up, if the user has
/// set no limit.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What became of the bytes that were sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// The peer has them, as far as can be told.
    Taken,
    /// The connection broke, and bytes that were not acknowledged are lost.
    Broken(Errno),
    /// For too long the peer has not acknowledged so many bytes.
    Unacknowledged(u64),
}

/// Ends our direction, and waits until the peer has what was sent. To close a
/// socket with something unread in it sends a reset instead of an end, which
/// destroys what is in flight; so what the peer says is read, and discarded.
///
/// The wait ends when the peer acknowledges nothing for `idle`.
pub fn finish(
    socket: BorrowedFd<'_>,
    tcp: bool,
    ended: Ended,
    idle: Option<Duration>,
) -> Result<Sent, Problem> {
    let look = |time| {
        let start = Instant::now();
        let looked = wait(socket.as_fd(), PollFlags::IN, Some(time))?;
        Ok(looked.map(|_| start.elapsed()))
    };
    until_taken(socket, tcp, patience(ended, idle), look)
}

/// Whoever asked for an end when nothing moves has waited long enough.
fn patience(ended: Ended, idle: Option<Duration>) -> Duration {
    match ended {
        Ended::Idle => Duration::ZERO,
        _ => idle.unwrap_or(PATIENCE),
    }
}

/// `look` waits for so long at most, and returns how long it was.
fn until_taken(
    socket: BorrowedFd<'_>,
    tcp: bool,
    full: Duration,
    mut look: impl FnMut(Duration) -> Result<Result<Duration, Errno>, Problem>,
) -> Result<Sent, Problem> {
    if shutdown(socket, Shutdown::Write).is_err() {
        return Ok(Sent::Taken);
    }
    let mut left = unsent(socket);
    let mut patience = full;
    loop {
        match discard(socket) {
            Discarded::Closed => return Ok(Sent::Taken),
            // The end itself counts as one.
            Discarded::Broken(errno) if left > 1 && tcp => return Ok(Sent::Broken(errno)),
            Discarded::Broken(_) => return Ok(Sent::Taken),
            // A UNIX socket's bytes are with the peer as soon as they are sent.
            Discarded::Nothing if left == 0 || !tcp => return Ok(Sent::Taken),
            Discarded::Nothing if patience.is_zero() => {
                return Ok(match u64::try_from(left - 1) {
                    Ok(bytes @ 1..) => Sent::Unacknowledged(bytes),
                    _ => Sent::Taken,
                });
            }
            Discarded::Nothing => {}
        }
        match look(LOOK.min(patience))? {
            Ok(passed) => patience = patience.saturating_sub(passed),
            Err(_) => return Ok(Sent::Taken),
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

    /// How long it looks at a peer that takes nothing, and says something each
    /// time.
    fn looks(ended: Ended, idle: Option<Duration>) -> Duration {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        while ours.write(&[0; 65536]).is_ok() {}
        // What is on its way may still be taken: not a matter of our time.
        let mut time = Duration::ZERO;
        let done = until_taken(ours.as_fd(), true, patience(ended, idle), |most| {
            peer.write_all(b"still here").unwrap();
            time += most;
            Ok(Ok(most))
        });
        let left = u64::try_from(unsent(ours.as_fd()) - 1).unwrap();
        assert!(left > 0);
        assert_eq!(done.unwrap(), Sent::Unacknowledged(left));
        time
    }

    #[test]
    fn a_peer_that_takes_nothing_is_waited_for_but_not_after_an_idle_end() {
        let idle = Duration::from_millis(120);
        assert_eq!(looks(Ended::Idle, Some(idle)), Duration::ZERO);
        assert!(looks(Ended::Eof, None) >= PATIENCE);
        let time = looks(Ended::Size, Some(idle));
        assert!(time >= idle && time < PATIENCE, "{time:?}");
    }
}
