//! The end of a connection that this process has opened: nothing in flight may
//! be lost.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use cordboard::Ended;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use crate::interruptible::{pause, wait_for_any};
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

/// A connection to end.
#[derive(Debug, Clone, Copy)]
pub struct Connection<'a> {
    /// The socket.
    pub socket: BorrowedFd<'a>,
    /// Whether it is a TCP connection, and not one of a UNIX socket.
    pub tcp: bool,
    /// This direction was shut down before.
    pub ended: bool,
}

/// Shuts down this direction of each connection, and waits until the peers have what was sent.
/// Closing a socket with unread data sends a RST instead of a FIN. A RST
/// destroys what is in flight, so data from the peer is read and discarded.
///
/// All connections are waited for together. The wait for one ends when its peer acknowledges
/// nothing for `limit`.
pub fn finish(
    connections: &[Connection<'_>],
    limit: Duration,
) -> Vec<Result<Delivery, Interrupted>> {
    until_all_acknowledged(connections, limit, |time, fds| {
        let start = Instant::now();
        if fds.is_empty() {
            pause(time)?;
            return Ok(Ok(start.elapsed()));
        }
        let looked = wait_for_any(fds, Some(time))?;
        Ok(looked.map(|_| start.elapsed()))
    })
}

/// Shuts down this direction of a connection that is closed next, and discards what the peer has
/// sent by now: the close then sends a FIN. Does not wait, so a peer that sends more may still be
/// sent a RST.
pub fn end(socket: BorrowedFd<'_>) {
    let _ = shutdown(socket, Shutdown::Write);
    // More than a receive buffer has (`net.ipv4.tcp_rmem`: 6 MiB by default).
    for _ in 0..64 {
        if !matches!(discard(socket), Discarded::Some) {
            return;
        }
    }
}

/// As [`finish`]. `look` waits for one of the descriptors, at most for the given time, and
/// returns how long it waited.
fn until_all_acknowledged(
    connections: &[Connection<'_>],
    limit: Duration,
    mut look: impl FnMut(Duration, &mut [PollFd<'_>]) -> Result<Result<Duration, Errno>, Interrupted>,
) -> Vec<Result<Delivery, Interrupted>> {
    let mut done: Vec<_> = (connections.iter())
        .map(|_| Ok(Delivery::Acknowledged))
        .collect();
    let mut endings = Vec::new();
    for (index, connection) in connections.iter().enumerate() {
        let socket = connection.socket;
        if connection.tcp {
            endings.push((index, Ending::begin(socket, connection.ended, limit)));
        } else {
            // The bytes sent to a UNIX socket are in the peer's queue at once.
            end(socket);
        }
    }
    loop {
        let mut fds = Vec::new();
        endings.retain_mut(|(index, ending)| match ending.look() {
            State::Ended(delivery) => {
                done[*index] = Ok(delivery);
                false
            }
            State::Waits { says_more } => {
                if says_more {
                    fds.push(PollFd::from_borrowed_fd(ending.socket, PollFlags::IN));
                }
                true
            }
        });
        let Some(least) = endings.iter().map(|(_, ending)| ending.limit).min() else {
            return done;
        };
        match look(INTERVAL.min(least), &mut fds) {
            Ok(Ok(passed)) => (endings.iter_mut()).for_each(|(_, ending)| ending.passed(passed)),
            Ok(Err(_)) => return done,
            Err(interrupted) => {
                for (index, _) in endings {
                    done[index] = Err(interrupted);
                }
                return done;
            }
        }
    }
}

/// The limit of the wait: zero if the transfer has ended by its idle limit.
pub fn limit(ended: Ended, idle: Option<Duration>) -> Duration {
    match ended {
        Ended::Idle => Duration::ZERO,
        _ => idle.unwrap_or(DEFAULT_LIMIT),
    }
}

/// As [`finish`], for one TCP connection. `look` waits, at most for the given time, and returns how
/// long it waited. Its second argument: there is something to poll for, because the peer has not
/// shut down its direction.
pub fn until_acknowledged(
    socket: BorrowedFd<'_>,
    ended: bool,
    full: Duration,
    mut look: impl FnMut(Duration, bool) -> Result<Result<Duration, Errno>, Interrupted>,
) -> Result<Delivery, Interrupted> {
    let mut ending = Ending::begin(socket, ended, full);
    loop {
        let says_more = match ending.look() {
            State::Ended(delivery) => return Ok(delivery),
            State::Waits { says_more } => says_more,
        };
        match look(INTERVAL.min(ending.limit), says_more)? {
            Ok(passed) => ending.passed(passed),
            Err(_) => return Ok(Delivery::Acknowledged),
        }
    }
}

/// A TCP connection whose peer is waited for.
struct Ending<'a> {
    socket: BorrowedFd<'a>,
    ended: bool,
    /// The bytes that the peer has not acknowledged.
    left: i32,
    full: Duration,
    /// The rest of the time in which the peer must acknowledge something.
    limit: Duration,
}

enum State {
    Ended(Delivery),
    Waits {
        /// The peer has not shut down its direction.
        says_more: bool,
    },
}

impl<'a> Ending<'a> {
    fn begin(socket: BorrowedFd<'a>, ended: bool, full: Duration) -> Ending<'a> {
        Ending {
            socket,
            // `ENOTCONN`: it broke before (`inet_shutdown`, net/ipv4/af_inet.c).
            ended: shutdown(socket, Shutdown::Write).is_ok() || ended,
            left: unsent(socket),
            full,
            limit: full,
        }
    }

    fn look(&mut self) -> State {
        let peer = discard(self.socket);
        // Read before `unsent`, which no longer changes once the connection is
        // broken.
        let broken = broken(self.socket);
        let now = unsent(self.socket);
        if now != self.left {
            (self.left, self.limit) = (now, self.full);
        }
        // The FIN counts as one byte.
        let bytes = u64::try_from(self.left - i32::from(self.ended)).unwrap_or(0);
        State::Ended(match (&peer, broken) {
            (Discarded::Nothing | Discarded::Some, _) if self.left == 0 => Delivery::Acknowledged,
            (Discarded::Closed | Discarded::Broken(_), _) if bytes == 0 => Delivery::Acknowledged,
            (Discarded::Broken(errno), _) => Delivery::Broken(*errno),
            // After the peer's FIN, recv(2) does not report later errors
            // (`tcp_recvmsg_locked`, net/ipv4/tcp.c).
            (Discarded::Closed, Some(errno)) => Delivery::Broken(errno),
            _ if self.limit.is_zero() && bytes == 0 => Delivery::Acknowledged,
            _ if self.limit.is_zero() => Delivery::Unacknowledged(bytes),
            _ => {
                let says_more = !matches!(peer, Discarded::Closed);
                return State::Waits { says_more };
            }
        })
    }

    fn passed(&mut self, time: Duration) {
        self.limit = self.limit.saturating_sub(time);
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
    /// There is nothing more to read.
    Nothing,
    /// The limit was reached.
    Some,
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
    Discarded::Some
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;
    use crate::interruptible::wait;

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

    #[test]
    fn several_peers_that_take_nothing_are_waited_for_together() {
        let pairs = [full(), full(), full()];
        let connections: Vec<Connection<'_>> = (pairs.iter())
            .map(|(ours, _)| Connection {
                socket: ours.as_fd(),
                tcp: true,
                ended: false,
            })
            .collect();
        let limit = Duration::from_millis(120);
        let mut times = Vec::new();
        let done = until_all_acknowledged(&connections, limit, |most, fds| {
            times.push((most, fds.len()));
            Ok(Ok(most))
        });
        assert_eq!(times[0], (INTERVAL, 3));
        // Three for each, one after the other, are nine. Data in flight may still be taken.
        assert!(times.len() < 9, "{times:?}");
        for done in done {
            assert!(matches!(done, Ok(Delivery::Unacknowledged(1..))));
        }
        // A signal ends the waits that are not over.
        let (ours, peer) = full();
        reset(peer, &ours);
        let broken = Connection {
            socket: ours.as_fd(),
            ..connections[0]
        };
        let all = [connections[0], broken];
        let done = until_all_acknowledged(&all, limit, |_, _| Err(Interrupted));
        assert_eq!(
            done,
            [Err(Interrupted), Ok(Delivery::Broken(Errno::CONNRESET))]
        );
    }
}
