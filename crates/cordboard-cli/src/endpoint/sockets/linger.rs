//! The end of a connection that this process has opened: nothing in flight may
//! be lost.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use cordboard::Ended;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use crate::interruptible::{pause, wait};
use crate::signals::Interrupted;
use crate::sys::unsent;

const INTERVAL: Duration = Duration::from_millis(50);
/// The wait for a peer that acknowledges nothing, if the user has set no limit.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(10);

/// The state of the bytes that were sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The peer has them, as far as is known.
    Acknowledged,
    /// The connection broke, and bytes that were not acknowledged are lost.
    Broken(Errno),
    /// The peer has not acknowledged this number of bytes within the limit.
    Unacknowledged(u64),
}

/// Shuts down this direction, and waits until the peer has what was sent.
/// Closing a socket with unread data sends a RST instead of a FIN. A RST
/// destroys what is in flight, so data from the peer is read and discarded.
///
/// The wait ends when the peer acknowledges nothing for `limit`. `ended`:
/// this direction was shut down before.
pub fn finish(
    socket: BorrowedFd<'_>,
    tcp: bool,
    ended: bool,
    limit: Duration,
) -> Result<Delivery, Interrupted> {
    if !tcp {
        // The bytes sent to a UNIX socket are in the peer's queue at once.
        let _ = shutdown(socket, Shutdown::Write);
        discard(socket);
        return Ok(Delivery::Acknowledged);
    }
    let look = |time, says_more: bool| {
        let start = Instant::now();
        if !says_more {
            pause(time)?;
            return Ok(Ok(start.elapsed()));
        }
        let looked = wait(socket.as_fd(), PollFlags::IN, Some(time))?;
        Ok(looked.map(|_| start.elapsed()))
    };
    until_acknowledged(socket, ended, limit, look)
}

/// The limit of the wait: zero if the transfer has ended by its idle limit.
pub fn limit(ended: Ended, idle: Option<Duration>) -> Duration {
    match ended {
        Ended::Idle => Duration::ZERO,
        _ => idle.unwrap_or(DEFAULT_LIMIT),
    }
}

/// As [`finish`], for a TCP connection. `look` waits, at most for the given time, and returns how
/// long it waited. Its second argument: there is something to poll for, because the peer has not
/// shut down its direction.
pub fn until_acknowledged(
    socket: BorrowedFd<'_>,
    ended: bool,
    full: Duration,
    mut look: impl FnMut(Duration, bool) -> Result<Result<Duration, Errno>, Interrupted>,
) -> Result<Delivery, Interrupted> {
    // `ENOTCONN`: it broke before (`inet_shutdown`, net/ipv4/af_inet.c).
    let ended = shutdown(socket, Shutdown::Write).is_ok() || ended;
    let mut left = unsent(socket);
    let mut limit = full;
    loop {
        let peer = discard(socket);
        // Read before `unsent`, which no longer changes once the connection is
        // broken.
        let broken = broken(socket);
        let now = unsent(socket);
        if now != left {
            (left, limit) = (now, full);
        }
        // The FIN counts as one byte.
        let bytes = u64::try_from(left - i32::from(ended)).unwrap_or(0);
        match (&peer, broken) {
            (Discarded::Nothing, _) if left == 0 => return Ok(Delivery::Acknowledged),
            (Discarded::Closed | Discarded::Broken(_), _) if bytes == 0 => {
                return Ok(Delivery::Acknowledged);
            }
            (Discarded::Broken(errno), _) => return Ok(Delivery::Broken(*errno)),
            // After the peer's FIN, recv(2) does not report later errors
            // (`tcp_recvmsg_locked`, net/ipv4/tcp.c).
            (Discarded::Closed, Some(errno)) => return Ok(Delivery::Broken(errno)),
            _ if limit.is_zero() && bytes == 0 => return Ok(Delivery::Acknowledged),
            _ if limit.is_zero() => return Ok(Delivery::Unacknowledged(bytes)),
            _ => {}
        }
        let says_more = !matches!(peer, Discarded::Closed);
        match look(INTERVAL.min(limit), says_more)? {
            Ok(passed) => limit = limit.saturating_sub(passed),
            Err(_) => return Ok(Delivery::Acknowledged),
        }
    }
}

/// Returns why a connection is closed (`TCP_CLOSE`): it broke, or both sides
/// have ended it. `None`: it is not closed.
fn broken(socket: BorrowedFd<'_>) -> Option<Errno> {
    if rustix::net::getpeername(socket) != Err(Errno::NOTCONN) {
        return None;
    }
    let error = rustix::net::sockopt::socket_error(socket);
    let errno = error.ok().and_then(Result::err);
    Some(errno.unwrap_or(Errno::CONNRESET))
}

enum Discarded {
    Nothing,
    Closed,
    Broken(Errno),
}

/// Reads a limited amount: a peer that keeps sending must not block the wait.
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

    /// How long it waits for a peer that takes nothing, and sends something
    /// each time.
    fn looks(ended: Ended, idle: Option<Duration>) -> Duration {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        while ours.write(&[0; 65536]).is_ok() {}
        // Data in flight may still be taken, which depends on real time.
        let mut time = Duration::ZERO;
        let done = until_acknowledged(ours.as_fd(), false, limit(ended, idle), |most, _| {
            peer.write_all(b"still here").unwrap();
            time += most;
            Ok(Ok(most))
        });
        let left = u64::try_from(unsent(ours.as_fd()) - 1).unwrap();
        assert!(left > 0);
        assert_eq!(done.unwrap(), Delivery::Unacknowledged(left));
        time
    }

    /// A connection whose peer has taken only what its buffer holds.
    fn full() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        while ours.write(&[0; 65536]).is_ok() {}
        (ours, peer)
    }

    /// Closes it with a reset, which has arrived on return.
    fn reset(peer: TcpStream, ours: &TcpStream) {
        let zero = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&peer, zero).unwrap();
        drop(peer);
        while rustix::net::getpeername(ours).is_ok() {
            std::thread::yield_now();
        }
    }

    fn no_look(_: Duration, _: bool) -> Result<Result<Duration, Errno>, Interrupted> {
        panic!("there is nothing to wait for");
    }

    #[test]
    fn a_connection_that_was_reset_before_its_end_is_broken() {
        let (ours, peer) = full();
        reset(peer, &ours);
        let done = until_acknowledged(ours.as_fd(), false, DEFAULT_LIMIT, no_look);
        assert_eq!(done.unwrap(), Delivery::Broken(Errno::CONNRESET));
        // All that was sent is acknowledged, and nothing more can be known.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        ours.write_all(b"x").unwrap();
        while unsent(ours.as_fd()) > 0 {
            std::thread::yield_now();
        }
        reset(peer, &ours);
        let done = until_acknowledged(ours.as_fd(), false, DEFAULT_LIMIT, no_look);
        assert_eq!(done.unwrap(), Delivery::Acknowledged);
    }

    /// The end of the peer's direction does not mean that the peer has read
    /// everything.
    #[test]
    fn a_peer_that_has_said_all_is_waited_for_too() {
        for resets in [false, true] {
            let (ours, peer) = full();
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            wait(&ours, PollFlags::RDHUP, None).unwrap().unwrap();
            let mut peer = Some(peer);
            let mut looks = 0;
            let full = Duration::from_millis(120);
            let done = until_acknowledged(ours.as_fd(), false, full, |most, says_more| {
                assert!(!says_more);
                looks += 1;
                if let Some(peer) = peer.take_if(|_| resets) {
                    reset(peer, &ours);
                }
                Ok(Ok(most))
            });
            let left = u64::try_from(unsent(ours.as_fd()) - 1).unwrap();
            let (expected, times) = match resets {
                true => (Delivery::Broken(Errno::CONNRESET), 1),
                false => (Delivery::Unacknowledged(left), 3),
            };
            assert_eq!((done.unwrap(), looks), (expected, times));
        }
    }

    #[test]
    fn a_peer_that_takes_nothing_is_waited_for_but_not_after_an_idle_end() {
        let idle = Duration::from_millis(120);
        assert_eq!(looks(Ended::Idle, Some(idle)), Duration::ZERO);
        assert!(looks(Ended::Eof, None) >= DEFAULT_LIMIT);
        let time = looks(Ended::Size, Some(idle));
        assert!(time >= idle && time < DEFAULT_LIMIT, "{time:?}");
    }
}
