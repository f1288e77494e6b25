//! Waits for a descriptor, and meanwhile handles the control connection.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lines::Lines;

/// Why a wait has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    Ready,
    /// The client has sent ABOR.
    Aborted,
    /// The client has closed the control connection.
    Closed,
    /// The server is shutting down.
    Ending,
    TimedOut,
}

/// Waits until `fd` has one of these events, until `ending` hangs up, or until this time.
/// Commands other than ABOR are not carried out.
pub fn wait(
    ending: Option<BorrowedFd<'_>>,
    lines: &mut Lines,
    fd: BorrowedFd<'_>,
    events: PollFlags,
    until: Instant,
) -> Waited {
    loop {
        if lines.take(b"ABOR") {
            return Waited::Aborted;
        }
        let mut fds = vec![PollFd::from_borrowed_fd(fd, events)];
        fds.extend(ending.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(lines.awaited());
        let left = until.saturating_duration_since(Instant::now());
        let done = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
        let has = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        match done {
            Ok(0) => return Waited::TimedOut,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return Waited::Closed,
            Ok(_) if has(0) => return Waited::Ready,
            Ok(_) if ending.is_some() && has(1) => return Waited::Ending,
            Ok(_) => {}
        }
        drop(fds);
        if !lines.advance() {
            return Waited::Closed;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    /// A command that is not carried out yet does not hide the end of the connection.
    #[test]
    fn the_client_closes_the_connection_behind_a_command() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for (sent, expected) in [
            (&b""[..], Waited::Closed),
            (b"NOOP\r\n", Waited::Closed),
            (b"ABOR\r\n", Waited::Aborted),
        ] {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut lines = Lines::new(listener.accept().unwrap().0);
            client.write_all(sent).unwrap();
            drop(client);
            let until = Instant::now() + Duration::from_secs(60);
            let waited = wait(None, &mut lines, listener.as_fd(), PollFlags::IN, until);
            assert_eq!(waited, expected, "{sent:?}");
        }
    }
}
