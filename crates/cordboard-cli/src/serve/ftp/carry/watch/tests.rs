//! Unit tests of the control connection and the progress during a transfer.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cordboard::cue::Command;
use rustix::event::poll;

use super::*;
use crate::serve::ftp::progress;

const SECOND: Duration = Duration::from_secs(1);

/// A client that has sent these commands during a transfer.
fn during(commands: &[u8]) -> (TcpStream, Lines, Watch) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    client.write_all(commands).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut lines = Lines::new(socket);
    while lines.fill().unwrap() {}
    (client, lines, Watch::new(None, String::new(), SECOND))
}

#[test]
fn each_command_is_answered_once() {
    let (mut client, mut lines, mut watch) = during(b"NOOP\r\nSTAT\r\nNOOP\r\nSTAT\r\n");
    assert!(watch.asked.take(&mut lines));
    watch.answer(&mut lines, false);
    assert!(watch.asked.asks_status(), "the count is not fresh");
    watch.see(Status::idle());
    watch.answer(&mut lines, false);
    assert!(watch.asked.is_empty());
    watch.answer(&mut lines, true);
    assert!(!watch.closed);
    drop(lines);
    let mut got = String::new();
    client.read_to_string(&mut got).unwrap();
    let codes: Vec<&str> = got.lines().map(|line| &line[..3]).collect();
    assert_eq!(codes, ["200", "213", "200", "213"]);
}

/// A transfer is cancelled when the time of grace is over, not up to a second later.
#[test]
fn a_wait_ends_at_the_first_time() {
    let mut watch = Watch::new(None, String::new(), SECOND);
    let now = Instant::now();
    watch.progress = Progress::since(now);
    let after = |millis| now.checked_add(Duration::from_millis(millis));
    let long = Duration::MAX;
    let wait = |watch: &Watch, now, idle, others| watch.longest_wait(now, idle, others).as_millis();
    assert_eq!(wait(&watch, now, long, [None; 3]), 1000);
    assert_eq!(wait(&watch, now, long, [None, None, after(300)]), 300);
    assert_eq!(
        wait(&watch, now, long, [after(2000), None, after(3000)]),
        1000
    );
    let idle = Duration::from_millis(250);
    assert_eq!(wait(&watch, now, idle, [None, None, after(300)]), 250);
    watch.until = after(200);
    assert_eq!(wait(&watch, now, idle, [None, None, after(300)]), 200);
    assert_eq!(wait(&watch, now + SECOND, idle, [None; 3]), 0);
    // The thread does not spin until the transfer ends.
    watch.is_cancelled = true;
    assert_eq!(wait(&watch, now + SECOND, idle, [None; 3]), 1000);
}

/// Events come at the times at which the watch wakes up, and at no others.
#[test]
fn a_stalled_transfer_ends_when_the_idle_time_is_over() {
    let millis = Duration::from_millis;
    for idle in [200, 3050, 6000, 10_000, 300_000].map(millis) {
        let interval = progress::interval(idle);
        assert!(interval <= (idle / 30).max(millis(100)));
        for stalled in [0, 1, 99, 250, 1999, 7777].map(millis) {
            let mut watch = Watch::new(None, String::new(), SECOND);
            let start = Instant::now();
            (watch.progress, watch.interval) = (Progress::since(start), interval);
            let (mut now, mut wakes) = (start, 0);
            while watch.progress.idle(now) < idle {
                now += watch.longest_wait(now, idle, [None; 3]);
                let written = (now - start).min(stalled).as_millis() as u64;
                watch.progress.update((written, 0), now);
                wakes += 1;
            }
            let late = (now - start) - (stalled + idle);
            assert!(
                late <= interval,
                "{idle:?} after {stalled:?}: {late:?} late"
            );
            let most = (now - start).as_millis() / interval.as_millis() + 2;
            assert!(wakes <= most, "{idle:?} after {stalled:?}: {wakes} wakes");
        }
    }
}

/// The sink has accepted no byte yet: the record is not whole.
#[test]
fn a_part_of_a_record_is_progress() {
    let (socket, _) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let received = Arc::<AtomicU64>::default();
    let client = Client {
        socket: socket.as_fd(),
        received: Some(Arc::clone(&received)),
    };
    let start = Instant::now();
    let mut progress = Progress::since(start);
    for seconds in 1..=3 {
        received.fetch_add(1, Ordering::Relaxed);
        let now = start + seconds * SECOND;
        progress.update(client.counts(0), now);
        assert_eq!(progress.idle(now), Duration::ZERO);
    }
    progress.update(client.counts(0), start + 5 * SECOND);
    assert_eq!(progress.idle(start + 5 * SECOND), 2 * SECOND);
}

/// The server is silent, and not the client.
#[test]
fn the_rest_of_a_schedule_is_not_idle_time() {
    let mut watch = Watch::new(None, String::new(), SECOND);
    assert_eq!(watch.idle_time(SECOND), SECOND);
    let mut status = Status::idle();
    status.schedule = Schedule::blocks(1, 5 * SECOND);
    watch.see(status);
    assert_eq!(watch.idle_time(SECOND), 6 * SECOND);
}

/// During the rest, the client could send or receive nothing.
#[test]
fn the_idle_time_begins_anew_when_a_rest_is_ended() {
    let (_control, mut lines, mut watch) = during(b"");
    let (ending, _hang_up) = rustix::pipe::pipe().unwrap();
    let mut server = Server::with_end(ending);
    server.idle = 5 * SECOND;
    let (socket, _data) = std::os::unix::net::UnixStream::pair().unwrap();
    let client = Client {
        socket: socket.as_fd(),
        received: None,
    };
    let long_ago = Instant::now().checked_sub(8 * SECOND).unwrap();
    let mut cancels = |command, watch: &mut Watch| {
        let mut commanded = watch.commanded.get();
        commanded.add(command);
        watch.commanded.set(commanded);
        watch.cancels(&server, &mut lines, &client)
    };
    let rest = 3_600_000;
    watch.begin_idle_time(long_ago);
    assert_eq!(
        cancels(Command::Schedule { count: 1, rest }, &mut watch),
        None
    );
    assert_eq!(cancels(Command::Rate(0), &mut watch), None);
    watch.begin_idle_time(long_ago);
    assert_eq!(cancels(Command::Rate(1), &mut watch), Some(Why::Idle));
}

/// A client that aborts, or is killed, may end its data connection as if the file were complete.
#[test]
fn the_control_connection_is_read_at_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for (sent, closes, expected) in [
        (&b""[..], false, None),
        (b"", true, Some(Why::Closed)),
        (b"PWD\r\n", false, None),
        (b"PWD\r\n", true, Some(Why::Closed)),
        (b"NOOP\r\nABOR\r\n", false, Some(Why::Abort)),
    ] {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut lines = Lines::new(listener.accept().unwrap().0);
        client.write_all(sent).unwrap();
        if closes {
            client.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let awaited = match (closes, sent) {
            (true, _) => PollFlags::RDHUP,
            (false, b"") => PollFlags::OUT,
            (false, _) => PollFlags::IN,
        };
        poll(&mut [PollFd::new(lines.socket().unwrap(), awaited)], None).unwrap();
        let mut watch = Watch::new(None, String::new(), SECOND);
        watch.look(&mut lines);
        assert_eq!(watch.given_up(&mut lines), expected, "{sent:?}");
        // The session carries out other commands later.
        let _ = client.shutdown(std::net::Shutdown::Write);
        while lines.fill().unwrap() {}
        assert_eq!(lines.take(b"PWD"), sent == b"PWD\r\n");
    }
}
