//! Peers that do not exist, or leave.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use crate::common::*;

#[test]
fn a_refused_connection() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let to = format!("tcp:{address}");
    let run = call(["splice", "-", &to, "--json"]);
    run.fails(
        1,
        &[
            "Connection refused (ECONNREFUSED) connecting to the sink",
            "nothing listens",
        ],
    );
    assert_eq!(run.json()["errno"], "ECONNREFUSED");
}

#[test]
fn a_host_that_does_not_exist() {
    let run = call(["splice", "-", "tcp:no-such-host.invalid:80", "--json"]);
    run.fails(1, &["cannot find host no-such-host.invalid"]);
    assert_eq!(run.json()["failed"], "sink");
}

#[test]
fn a_connection_that_is_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let child = cordboard()
        .args(["splice", "/dev/zero", &format!("tcp:{address}"), "--json"])
        .stderr(Stdio::piped())
        .start();
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    // Unread data makes the close a reset.
    drop(stream);
    let run = end(child);
    assert_eq!(run.code(), 1, "{}", run.stderr());
    let json = run.json();
    assert_eq!(json["failed"], "sink");
    assert!(
        ["ECONNRESET", "EPIPE"].contains(&json["errno"].as_str().unwrap()),
        "{json}"
    );
    assert!(json["written"].as_u64().unwrap() >= 1000);

    let mut child = cordboard()
        .args(["splice", &format!("tcp:{address}"), "-", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"x").unwrap();
    let mut byte = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut byte)
        .unwrap();
    reset(stream);
    let run = end(child);
    let says = "Connection reset by peer (ECONNRESET) at the source";
    run.fails(1, &[says, "; the peer reset the connection"]);
    assert_eq!(run.json()["failed"], "source");
}

/// Closes with a reset.
fn reset(stream: TcpStream) {
    let zero = Some(std::time::Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&stream, zero).unwrap();
}

/// A listener whose connections buffer little.
fn small_listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The idle limit ends the command with all bytes written, and a warning that
/// some are not acknowledged.
fn ends_unacknowledged(child: Owned, written: u64) -> serde_json::Value {
    let run = end(child);
    let says = ["warning", "the peer has not acknowledged", "bytes"];
    let json = run.fails(0, &says).json();
    assert_eq!(
        (&json["ended"], &json["written"]),
        (&"idle".into(), &written.into())
    );
    json
}

#[test]
fn a_peer_that_reads_nothing_is_waited_for_as_long_as_idle_says() {
    let (listener, address) = small_listener();
    let dir = dir();
    // More than the peer's buffer holds, and less than the local one.
    let source = file(&dir, "s", &bytes(60_000));
    let child = cordboard()
        .args([
            "splice",
            "--json",
            "--idle",
            "0.2",
            source.to_str().unwrap(),
        ])
        .arg(format!("tcp:{address}"))
        .stderr(Stdio::piped())
        .start();
    let (stream, _) = listener.accept().unwrap();
    let json = ends_unacknowledged(child, 60_000);
    // The wait is part of the time.
    assert!(json["seconds"].as_f64().unwrap() >= 0.2, "{json}");
    drop(stream);
}

/// The owner of the connection, which still has it open, handles its peer.
#[test]
fn a_connection_that_was_handed_over_is_not_waited_for() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(60_000));
    for idle in [&[][..], &["--idle", "600"]] {
        let (listener, address) = small_listener();
        let near = TcpStream::connect(address).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let child = cordboard()
            .args(["splice", "--json", source.to_str().unwrap(), "-"])
            .args(idle)
            .stdout(std::os::fd::OwnedFd::from(near.try_clone().unwrap()))
            .stderr(Stdio::piped())
            .start();
        let run = end(child);
        let json = run.ok().json();
        assert_eq!(
            (&json["ended"], &json["written"]),
            (&"eof".into(), &60_000.into())
        );
        assert!(!run.stderr().contains("acknowledged"), "{}", run.stderr());
        // Nor is it shut down.
        (&near).write_all(b"more").unwrap();
        drop(near);
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        assert!(got == [&bytes(60_000)[..], b"more"].concat());
    }
}

#[test]
fn a_peer_that_resets_before_it_has_acknowledged() {
    let (listener, address) = small_listener();
    let dir = dir();
    let source = file(&dir, "s", &bytes(300_000));
    let child = cordboard()
        .args(["splice", "--json", source.to_str().unwrap()])
        .arg(format!("tcp:{address}"))
        .stderr(Stdio::piped())
        .start();
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    // It sleeps in the transfer, or waits after it: the bytes are lost either
    // way.
    until("sleep", || sleeping(child.id()).then_some(()));
    reset(stream);
    let run = end(child);
    let says = "; the peer reset the connection";
    run.fails(1, &["(ECONNRESET) at the sink", says]);
    assert_eq!(run.json()["failed"], "sink");
}

/// An errno of sockets, without a socket.
#[test]
fn a_file_server_that_has_ended() {
    let mounted = testkit::fuse::with_file_of_none(|path| {
        let path = path.to_str().unwrap();
        let by_sink: [&[&str]; 2] = [&["splice", "/dev/null", path], &["cat", path]];
        for (args, side) in by_sink.into_iter().zip(["sink", "source"]) {
            let run = call(args);
            // Linux 7.3 returns the second.
            let errno = match run.stderr().contains("ECONNREFUSED") {
                false => "ENOTCONN",
                true => "ECONNREFUSED",
            };
            let says = [
                &format!("({errno}) opening the {side}; the server of its file system has ended"),
                "unmount it, and mount it again",
            ];
            run.fails(1, &says);
        }
    });
    if !mounted {
        testkit::skip::here("a file system in user space");
    }
}

/// The end of the peer's direction does not mean that it has read everything.
#[test]
fn a_peer_that_has_ended_and_reads_nothing_is_waited_for() {
    let (listener, address) = small_listener();
    let dir = dir();
    // More than the peer's buffer holds, and less than the local one.
    let source = file(&dir, "s", &bytes(60_000));
    let child = cordboard()
        .args(["splice", "--json", "--idle", "0.2"])
        .arg(source)
        .arg(format!("tcp:{address}"))
        .stderr(Stdio::piped())
        .start();
    let (stream, _) = listener.accept().unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    ends_unacknowledged(child, 60_000);
    drop(stream);
}

/// The end of the frame is sent when the source has been silent for the limit,
/// and is in flight then: the peer has the same time to acknowledge it.
#[test]
fn a_frames_end_after_a_silent_source_is_waited_for() {
    let (listener, address) = small_listener();
    let (stdin, mut feed) = std::io::pipe().unwrap();
    feed.write_all(&bytes(60_000)).unwrap();
    let child = cordboard()
        .args(["splice", "--json", "--zstd", "--idle", "2", "-"])
        .arg(format!("tcp:{address}"))
        .stdin(stdin)
        .stderr(Stdio::piped())
        .start();
    let (mut stream, _) = listener.accept().unwrap();
    // It reads only once the frame comes.
    stream.peek(&mut [0]).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    let run = end(child);
    let json = run.ok().json();
    assert_eq!(run.stderr().lines().count(), 1, "{}", run.stderr());
    let counts = (&json["ended"], &json["read"], &json["written"]);
    assert_eq!(counts, (&"idle".into(), &60_000.into(), &got.len().into()));
    drop(feed);
}

#[test]
fn a_peer_that_has_gone_before_anything_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut child = cordboard()
        .args(["splice", "--json", "-"])
        .arg(format!("tcp:{address}"))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    // Nothing was sent, so this is not a reset, but an end.
    drop(listener.accept().unwrap());
    feed(&mut child, b"hello");
    let run = end(child);
    run.fails(1, &[" at the sink"]);
    assert_eq!(run.json()["failed"], "sink");
}

/// A close with unread bytes would be a reset.
#[test]
fn a_peer_that_was_not_read_sees_the_end_after_a_signal() {
    let dir = dir();
    let path = dir.path().join("s");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    let names = [
        format!("tcp:{}", tcp.local_addr().unwrap()),
        format!("unix:{}", path.display()),
    ];
    for name in names {
        let mut child = piped(cordboard().args(["splice", "-", &name]));
        let stdin = child.stdin.as_mut().unwrap();
        stdin.write_all(b"stream").unwrap();
        let mut peer = if name.starts_with("tcp") {
            let (mut peer, _) = tcp.accept().unwrap();
            send_unread(&mut peer);
            File::from(OwnedFd::from(peer))
        } else {
            let mut peer = File::from(OwnedFd::from(unix.accept().unwrap().0));
            peer.write_all(b"greeting").unwrap();
            peer
        };
        peer.read_exact(&mut [0; 6]).unwrap();
        signal(child.id(), rustix::process::Signal::TERM);
        // Standard input stays open until the end.
        until("the end", || child.try_wait().unwrap());
        let run = end(child);
        assert_eq!(run.code(), 143, "{name}: {}", run.stderr());
        let mut rest = Vec::new();
        peer.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"", "{name}");
    }
}
