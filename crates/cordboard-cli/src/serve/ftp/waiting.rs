//! Waits for a descriptor, and meanwhile handles the control connection.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::asked::Asked;
use super::lines::Lines;
use crate::polling::poll_or_rest;

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

/// Waits until `fd` has one of these events, until `ending` hangs up, or until this time. `None`: no
/// descriptor is waited for.
/// Replies to STAT with `status`, and to NOOP, if the socket has room. The caller finishes
/// `asked` before its next reply. Other commands except ABOR are not carried out.
pub fn wait(
    ending: Option<BorrowedFd<'_>>,
    (lines, asked, status): (&mut Lines, &mut Asked, &str),
    awaited: Option<(BorrowedFd<'_>, PollFlags)>,
    until: Instant,
) -> Waited {
    loop {
        while asked.take(lines) {
            if !asked.answer(lines, Some(status)) {
                return Waited::Closed;
            }
        }
        if asked.take_abort(lines) {
            return Waited::Aborted;
        }
        let mut fds = Vec::new();
        fds.extend(awaited.map(|(fd, events)| PollFd::from_borrowed_fd(fd, events)));
        let end = fds.len();
        fds.extend(ending.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let control = fds.len();
        fds.extend(lines.awaited());
        // Replies wait for room.
        let room = lines.fd().filter(|_| !asked.is_empty());
        fds.extend(room.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        let left = until.saturating_duration_since(Instant::now());
        let done = poll_or_rest(&mut fds, Some(left));
        let has = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        match done {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return Waited::Closed,
            Ok(_) if awaited.is_some() && has(0) => return Waited::Ready,
            Ok(_) if ending.is_some() && has(end) => return Waited::Ending,
            // Also if commands arrive again and again.
            Ok(events) if events == 0 || left.is_zero() => return Waited::TimedOut,
            Ok(_) => {}
        }
        let (reads, writes) = (has(control), has(control + 1));
        drop(fds);
        let is_open = (!reads || lines.advance()) && (!writes || asked.answer(lines, Some(status)));
        if !is_open {
            return Waited::Closed;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use testkit::stalled::in_flight;

    use super::*;

    fn wait_long(lines: &mut Lines, asked: &mut Asked, until: Instant) -> Waited {
        let never = TcpListener::bind("127.0.0.1:0").unwrap();
        let control = (lines, asked, "a status");
        let awaited = Some((never.as_fd(), PollFlags::IN));
        wait(None, control, awaited, until)
    }

    /// A command that is not carried out yet does not hide the end of the connection.
    #[test]
    fn the_client_closes_the_connection_behind_a_command() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for (sent, expected) in [
            (&b""[..], Waited::Closed),
            (b"PWD\r\n", Waited::Closed),
            (b"NOOP\r\nPWD\r\n", Waited::Closed),
            (b"ABOR\r\n", Waited::Aborted),
            (b"STAT\r\nNOOP\r\nABOR\r\n", Waited::Aborted),
        ] {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut lines = Lines::new(listener.accept().unwrap().0);
            client.write_all(sent).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let until = Instant::now() + Duration::from_secs(60);
            let waited = wait_long(&mut lines, &mut Asked::default(), until);
            assert_eq!(waited, expected, "{sent:?}");
        }
    }

    /// The replies that have no room are sent later, while the wait goes on.
    #[test]
    fn a_client_that_does_not_read_gets_its_replies_later() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut lines = Lines::new(listener.accept().unwrap().0);
        // An acknowledgement that arrives later would make room.
        while lines.can_send() || in_flight(lines.fd().unwrap()) > 0 {
            if lines.can_send() {
                lines.reply(220, b"an earlier reply").unwrap();
            }
        }
        client.write_all(b"STAT\r\nNOOP\r\n").unwrap();
        let mut asked = Asked::default();
        lines.fill().unwrap();
        assert!(asked.take(&mut lines) && asked.answer(&mut lines, Some("")));
        assert!(asked.asks_status(), "there is no room");
        let reads = std::thread::spawn(move || {
            let lines = BufReader::new(&client).lines().map(Result::unwrap);
            let replies = lines.skip_while(|line| line.starts_with("220"));
            let got: Vec<String> = replies.take(2).collect();
            (&client).write_all(b"ABOR\r\n").unwrap();
            got
        });
        let until = Instant::now() + Duration::from_secs(60);
        assert_eq!(wait_long(&mut lines, &mut asked, until), Waited::Aborted);
        assert_eq!(reads.join().unwrap(), ["213 a status", "200 OK"]);
    }
}
