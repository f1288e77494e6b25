//! Unit tests of the session.

use std::io::Write as _;
use std::net::TcpListener;

use super::*;

/// A session that has begun at this time, and its client.
fn session(since: Instant) -> (TcpStream, Session) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).unwrap();
    let (socket, peer) = listener.accept().unwrap();
    let lines = Lines::new(socket);
    let server = Server::with_end(rustix::pipe::pipe().unwrap().0);
    (
        client,
        Session::new(Arc::new(server), lines, (address, peer), since),
    )
}

#[test]
fn the_time_to_log_in_is_not_extended_by_commands() {
    let now = Instant::now();
    let ends = |idle, out: Option<u64>| {
        let since = out.map(|secs| now.checked_sub(Duration::from_secs(secs)).unwrap());
        let (until, why) = ends_at(now, Duration::from_secs(idle), since);
        (until.saturating_duration_since(now).as_secs(), why)
    };
    assert_eq!(ends(300, None), (300, "Idle timeout"));
    assert_eq!(ends(300, Some(0)), (60, "Login timeout"));
    assert_eq!(ends(300, Some(59)), (1, "Login timeout"));
    assert_eq!(ends(300, Some(61)), (0, "Login timeout"));
    assert_eq!(ends(5, Some(0)), (5, "Idle timeout"));
}

/// A command that has arrived does not keep a session without a login.
#[test]
fn a_session_without_a_login_ends() {
    let (mut client, mut session) = session(Instant::now().checked_sub(LOGIN).unwrap());
    client.write_all(b"NOOP\r\n").unwrap();
    assert!(session.lines.fill().unwrap());
    assert_eq!(session.line().unwrap(), None);
}

/// USER ends a login. The time for the next one then begins, but not with each USER.
#[test]
fn the_end_of_a_login_begins_the_time_for_the_next_one() {
    let begun = Instant::now();
    let (_client, mut session) = session(begun);
    let later = begun + LOGIN;
    session.log_out(later);
    assert_eq!(session.since, begun);
    session.user = Some(User {
        name: "ann".to_owned(),
        writes: true,
    });
    session.log_out(later);
    assert_eq!((session.since, &session.user), (later, &None));
}

/// Each of them could begin a transfer, for which the server would wait.
#[test]
fn commands_that_have_arrived_are_not_carried_out_at_the_shutdown() {
    use std::io::Read as _;
    let (mut client, mut session) = session(Instant::now());
    client.write_all(b"NOOP\r\nNOOP\r\n").unwrap();
    assert!(session.lines.fill().unwrap());
    session.server.deadline.set(Instant::now()).unwrap();
    assert_eq!(session.line().unwrap(), None);
    drop(session);
    let mut reply = [0; 4];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"421 ");
}

/// A session that only sends NOOP would hold the port, and another one of its range.
#[test]
fn a_port_is_held_for_a_limited_time_and_once() {
    let (mut client, mut session) = session(Instant::now());
    for _ in 0..2 {
        session.listen().unwrap();
    }
    let mut other = Share::none_of(&session.server.ports, session.client);
    assert!(!other.add(1));
    let long_ago = Instant::now().checked_sub(LOGIN).unwrap();
    session.mode = Mode::Unset;
    let share = Share::none_of(&session.server.ports, session.client);
    let passive = Passive::begin(session.local, None, share, long_ago).unwrap();
    session.mode = Mode::Passive(passive);
    client.write_all(b"NOOP\r\n").unwrap();
    let line = session.line().unwrap();
    assert_eq!(line, Some(Line::Text(b"NOOP".to_vec())));
    assert!(matches!(session.mode, Mode::Unset) && other.add(1));
    let error = session.listen().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
