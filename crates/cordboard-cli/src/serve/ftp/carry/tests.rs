//! Unit tests of the control connection during a transfer.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};

use rustix::net::sockopt;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A client, and a transfer in which it has sent this number of STAT commands.
fn asked(asked: u32) -> (TcpStream, Lines, Watch) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    let short = Duration::from_millis(1);
    socket.set_write_timeout(Some(short)).unwrap();
    // The replies that are not read fill the buffers.
    sockopt::set_socket_send_buffer_size(&socket, 4096).unwrap();
    sockopt::set_socket_recv_buffer_size(&client, 4096).unwrap();
    let mut watch = Watch::new(None, String::new(), SECOND);
    watch.asked = asked;
    (client, Lines::new(socket), watch)
}

fn received(mut client: TcpStream) -> usize {
    let mut got = String::new();
    client.read_to_string(&mut got).unwrap();
    got.matches("213 ").count()
}

/// Each reply would wait for the write timeout.
#[test]
fn a_client_that_does_not_read_gets_no_further_replies() {
    let (_client, mut lines, mut watch) = asked(10_000);
    watch.answer(&mut lines, true, Instant::now() + Duration::from_secs(3600));
    assert!(watch.closed);
    assert!(lines.reply(226, b"").is_err(), "the connection is cut");
}

/// A client that reads one reply before each timeout would otherwise hold the session.
#[test]
fn the_time_of_all_replies_is_bounded() {
    let (client, mut lines, mut watch) = asked(3);
    watch.answer(&mut lines, true, Instant::now());
    assert!(watch.closed);
    assert_eq!(received(client), 1);
}

#[test]
fn each_request_of_the_state_is_answered_once() {
    let (client, mut lines, mut watch) = asked(3);
    let later = Instant::now() + Duration::from_secs(3600);
    watch.answer(&mut lines, false, later);
    assert_eq!(watch.asked, 3, "the count is not fresh");
    watch.see(Status::idle());
    watch.answer(&mut lines, false, later);
    watch.answer(&mut lines, true, later);
    assert!(!watch.closed);
    drop(lines);
    assert_eq!(received(client), 3);
}

/// During a transfer, a reply that would wait for the client is deferred until there is room.
#[test]
fn a_client_that_does_not_read_delays_no_transfer() {
    let (client, mut lines, mut watch) = asked(10_000);
    let later = Instant::now() + Duration::from_secs(3600);
    watch.see(Status::idle());
    watch.answer(&mut lines, false, later);
    assert!(!watch.closed, "a reply has waited for the write timeout");
    let waits = watch.asked;
    assert!(waits > 0 && waits < 10_000, "{waits}");
    watch.answer(&mut lines, false, later);
    assert_eq!(watch.asked, waits, "there is no room");
    drop(lines);
    assert_eq!(received(client), 10_000 - waits as usize);
}

/// The commands of a client that does not read its replies stay unread.
#[test]
fn few_requests_of_the_state_wait() {
    use std::io::Write as _;
    let (mut client, mut lines, mut watch) = asked(0);
    let sent = b"STAT\r\n".repeat(100);
    client.write_all(&sent).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    while lines.fill().unwrap() {}
    assert!(watch.take_requests(&mut lines));
    assert_eq!(watch.asked, MOST_ASKED);
    assert!(!watch.take_requests(&mut lines) && lines.is_next(b"stat"));
    let later = Instant::now() + Duration::from_secs(3600);
    watch.answer(&mut lines, true, later);
    assert!(watch.take_requests(&mut lines));
    assert_eq!((watch.asked, watch.closed), (MOST_ASKED, false));
}

/// A transfer is cancelled when the time of grace is over, not up to a second later.
#[test]
fn a_wait_ends_at_the_first_time() {
    let (_client, _lines, mut watch) = asked(0);
    let now = Instant::now();
    watch.progress = Progress::since(now);
    let after = |millis| now.checked_add(Duration::from_millis(millis));
    let long = Duration::MAX;
    let wait = |watch: &Watch, now, idle, others| watch.longest_wait(now, idle, others).as_millis();
    assert_eq!(wait(&watch, now, long, [None; 2]), 1000);
    assert_eq!(wait(&watch, now, long, [None, after(300)]), 300);
    assert_eq!(wait(&watch, now, long, [after(2000), after(3000)]), 1000);
    let idle = Duration::from_millis(250);
    assert_eq!(wait(&watch, now, idle, [None, after(300)]), 250);
    watch.until = after(200);
    assert_eq!(wait(&watch, now, idle, [None, after(300)]), 200);
    assert_eq!(wait(&watch, now + SECOND, idle, [None; 2]), 0);
    // The thread does not spin until the transfer ends.
    watch.is_cancelled = true;
    assert_eq!(wait(&watch, now + SECOND, idle, [None; 2]), 1000);
}

/// Events come at the times at which the watch wakes up, and at no others.
#[test]
fn a_stalled_transfer_ends_when_the_idle_time_is_over() {
    let millis = Duration::from_millis;
    for idle in [200, 3050, 6000, 10_000, 300_000].map(millis) {
        let interval = progress::interval(idle);
        assert!(interval <= (idle / 30).max(millis(100)));
        for stalled in [0, 1, 99, 250, 1999, 7777].map(millis) {
            let (_client, _lines, mut watch) = asked(0);
            let start = Instant::now();
            (watch.progress, watch.interval) = (Progress::since(start), interval);
            let (mut now, mut wakes) = (start, 0);
            while watch.progress.idle(now) < idle {
                now += watch.longest_wait(now, idle, [None; 2]);
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
