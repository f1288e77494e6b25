//! `cordboard splice`: every kind of endpoint.
#![allow(missing_docs)]

mod common;
#[path = "splice/idle.rs"]
mod idle;
#[path = "splice/listeners.rs"]
mod listeners;
#[path = "splice/packets.rs"]
mod packets;
#[path = "splice/paths.rs"]
mod paths;
#[path = "splice/refused.rs"]
mod refused;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Child, Stdio};

use common::*;

fn start(args: &[&str]) -> Owned {
    piped(cordboard().arg("splice").args(args))
}

/// The address that the command listens on, with the port chosen for port 0.
fn address(child: &mut Child) -> String {
    let mut line = String::new();
    let mut stderr = BufReader::with_capacity(1, child.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    child.stderr = Some(stderr.into_inner());
    let (_, address) = line.trim().rsplit_once(' ').expect(&line);
    address.to_owned()
}

#[test]
fn pipe_to_pipe() {
    let mut child = start(&["-", "-", "--json"]);
    feed(&mut child, &bytes(60_000));
    let run = end(child);
    assert_eq!(run.ok().stdout(), bytes(60_000));
    assert_eq!(run.json()["path"], serde_json::json!([between_pipes()]));
}

#[test]
fn to_a_file_new_replaced_and_appended() {
    let dir = dir();
    let sink = dir.path().join("d");
    for (text, append, expected) in [
        (&b"first long one"[..], false, &b"first long one"[..]),
        (b"short", false, b"short"),
        (b" end", true, b"short end"),
    ] {
        let mut args = vec!["-", sink.to_str().unwrap()];
        if append {
            args.push("--append");
        }
        let mut child = start(&args);
        feed(&mut child, text);
        end(child).ok();
        assert_eq!(read(&sink), expected);
    }
}

#[test]
fn a_file_of_any_name() {
    let dir = dir();
    file(&dir, "tcp:a:1", b"odd");
    file(&dir, "x:y", b"known");
    for (name, expected) in [("file:tcp:a:1", &b"odd"[..]), ("x:y", b"known")] {
        let run = run(cordboard()
            .args(["splice", name, "-"])
            .current_dir(dir.path()));
        assert_eq!(run.ok().stdout(), expected);
    }
}

#[test]
fn onto_itself_is_refused_before_anything_is_lost() {
    let dir = dir();
    let path = file(&dir, "f", &bytes(9000));
    let name = path.to_str().unwrap();
    end(start(&[name, name])).fails(1, &["same file"]);
    end(start(&[name, name, "--append"])).fails(1, &["forever"]);
    assert_eq!(read(&path), bytes(9000));
}

#[test]
fn inherited_descriptors() {
    let dir = dir();
    let path = file(&dir, "f", b"through three");
    let script = r#"exec "$0" splice fd:3 fd:4 3<"$1" 4>"$2""#;
    let out = dir.path().join("out");
    let child = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_cordboard")])
        .args([&path, &out])
        .stderr(Stdio::piped())
        .start();
    end(child).ok();
    assert_eq!(read(&out), b"through three");
    let run = end(start(&["fd:77", "-", "--json"]));
    run.fails(1, &["fd:77: Bad file descriptor (EBADF)", "77<FILE"]);
    assert_eq!(run.json()["errno"], "EBADF");
}

#[test]
fn tcp_both_ways() {
    for host in ["127.0.0.1", "[::1]"] {
        if host == "[::1]" && TcpListener::bind("[::1]:0").is_err() {
            testkit::skip::here("no IPv6 here");
            continue;
        }
        let mut listener = start(&[&format!("tcp-listen:{host}:0"), "-"]);
        let address = address(&mut listener);
        let mut sender = start(&["-", &format!("tcp:{address}"), "--json"]);
        let sent = bytes(3_000_000);
        let feeder = std::thread::spawn(move || {
            feed(&mut sender, &sent);
            sender
        });
        let received = end(listener);
        let sender = end(feeder.join().unwrap());
        assert_eq!(received.ok().stdout(), bytes(3_000_000));
        assert_eq!(sender.ok().json()["written"], 3_000_000);
    }
}

#[test]
fn a_tcp_listener_can_be_the_sink_and_a_name_is_looked_up() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(500_000));
    let mut child = start(&[source.to_str().unwrap(), "tcp-listen:localhost:0", "--json"]);
    let address = address(&mut child);
    let mut received = Vec::new();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.read_to_end(&mut received).unwrap();
    drop(stream);
    assert_eq!(end(child).ok().json()["written"], 500_000);
    assert_eq!(received, bytes(500_000));
}

#[test]
fn what_the_peer_says_does_not_destroy_what_is_in_flight() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut child = start(&["-", &format!("tcp:{address}")]);
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"unasked for").unwrap();
    let feeder = std::thread::spawn(move || {
        feed(&mut child, &bytes(4_000_000));
        child
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert_eq!(received, bytes(4_000_000));
    drop(stream);
    end(feeder.join().unwrap()).ok();
}

#[test]
fn udp_both_ways() {
    let mut listener = start(&["udp-listen:127.0.0.1:0", "-", "--size", "9"]);
    let address = address(&mut listener);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for part in ["one", "two", "six"] {
        socket.send_to(part.as_bytes(), &address).unwrap();
    }
    assert_eq!(end(listener).ok().stdout(), b"onetwosix");

    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = receiver.local_addr().unwrap();
    let dir = dir();
    let source = file(&dir, "s", &bytes(2500));
    end(start(&[
        source.to_str().unwrap(),
        &format!("udp:{address}"),
        "--block",
        "1000",
    ]))
    .ok();
    let mut buffer = [0; 65536];
    let mut lengths = Vec::new();
    for _ in 0..3 {
        lengths.push(receiver.recv(&mut buffer).unwrap());
    }
    assert_eq!(lengths, [1000, 1000, 500]);
}

#[test]
fn a_udp_listener_as_sink_answers_who_comes_first() {
    let dir = dir();
    let source = file(&dir, "s", b"answer");
    let mut child = start(&[source.to_str().unwrap(), "udp-listen:127.0.0.1:0"]);
    let address = address(&mut child);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"?", address).unwrap();
    let mut buffer = [0; 100];
    let length = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"answer");
    end(child).ok();
}

#[test]
fn unix_streams_and_their_files() {
    let dir = dir();
    let path = dir.path().join("s");
    // A stale one: bound once, and no socket answers.
    drop(UnixListener::bind(&path).unwrap());
    // A test that forks meanwhile holds it a moment longer.
    until("a refusal", || UnixStream::connect(&path).err());
    let child = start(&[&format!("unix-listen:{}", path.display()), "-"]);
    let mut stream = until("a listener", || UnixStream::connect(&path).ok());
    until("the file's removal", || (!path.exists()).then_some(()));
    // More than there is room for, until its standard output is read.
    let feeder = std::thread::spawn(move || stream.write_all(&bytes(300_000)).unwrap());
    let run = end(child);
    feeder.join().unwrap();
    assert_eq!(run.ok().stdout(), bytes(300_000));

    let listener = UnixListener::bind(&path).unwrap();
    let mut child = start(&["-", &format!("unix:{}", path.display())]);
    let (mut stream, _) = listener.accept().unwrap();
    feed(&mut child, b"to a listener");
    let mut text = Vec::new();
    stream.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"to a listener");
    drop(stream);
    end(child).ok();
    // A listener answers: the file stays.
    end(start(&[&format!("unix-listen:{}", path.display()), "-"]))
        .fails(1, &["Address already in use (EADDRINUSE)"]);
    assert!(path.exists());
    // It is not a socket: it stays.
    let plain = file(&dir, "plain", b"precious");
    end(start(&[&format!("unix-listen:{}", plain.display()), "-"]))
        .fails(1, &["exists and is not a socket"]);
    assert_eq!(read(&plain), b"precious");
}

/// Another process has removed the socket's file, and bound another of that
/// name.
#[test]
fn a_socket_file_of_somebody_else_is_not_removed() {
    let dir = dir();
    for scheme in ["unix-listen", "unix-dgram"] {
        let path = dir.path().join(scheme);
        let child = start(&[&format!("{scheme}:{}", path.display()), "-"]);
        until("a socket", || path.exists().then_some(()));
        until("sleep", || sleeping(child.id()).then_some(()));
        std::fs::remove_file(&path).unwrap();
        let _theirs = UnixListener::bind(&path).unwrap();
        signal(child.id(), rustix::process::Signal::INT);
        assert_eq!(end(child).code(), 130);
        assert!(path.exists(), "{scheme}");
    }
}

#[test]
fn unix_datagrams_and_packets() {
    let dir = dir();
    let path = dir.path().join("d");
    let child = start(&[
        &format!("unix-dgram:{}", path.display()),
        "-",
        "--size",
        "6",
    ]);
    let socket = UnixDatagram::unbound().unwrap();
    until("a socket", || socket.send_to(b"abc", &path).ok());
    socket.send_to(b"def", &path).unwrap();
    assert_eq!(end(child).ok().stdout(), b"abcdef");
    assert!(!path.exists());

    let receiver = UnixDatagram::bind(&path).unwrap();
    let source = file(&dir, "s", b"datagram");
    end(start(&[
        source.to_str().unwrap(),
        &format!("unix-dgram:{}", path.display()),
    ]))
    .ok();
    let mut buffer = [0; 100];
    let length = receiver.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"datagram");

    let path = dir.path().join("p");
    let listener = start(&[&format!("unix-seqpacket-listen:{}", path.display()), "-"]);
    until("a listener", || path.exists().then_some(()));
    let run = until("a connection", || {
        let run = end(start(&[
            source.to_str().unwrap(),
            &format!("unix-seqpacket:{}", path.display()),
        ]));
        (run.code() == 0).then_some(run)
    });
    run.ok();
    assert_eq!(end(listener).ok().stdout(), b"datagram");
}

/// A datagram that is too long for the sink is dropped, counted and reported.
#[test]
fn a_datagram_that_is_too_long_is_dropped() {
    let dir = dir();
    let path = dir.path().join("d");
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let sink = format!("udp:{}", receiver.local_addr().unwrap());
    let source = format!("unix-dgram:{}", path.display());
    let child = start(&[&source, &sink, "--size", "70006", "--json"]);
    let socket = UnixDatagram::unbound().unwrap();
    until("a socket", || socket.send_to(b"abc", &path).ok());
    socket.send_to(&bytes(70_000), &path).unwrap();
    socket.send_to(b"def", &path).unwrap();
    let run = end(child);
    let json = run.ok().json();
    assert_eq!(
        (&json["read"], &json["written"]),
        (&70_006.into(), &6.into())
    );
    let dropped = serde_json::json!({"datagrams": 1, "bytes": 70_000});
    assert_eq!(json["dropped"], dropped);
    assert!(
        run.stderr().contains("1 datagram was too long"),
        "{}",
        run.stderr()
    );
    for word in [b"abc", b"def"] {
        let mut got = [0; 4];
        assert_eq!(receiver.recv(&mut got).unwrap(), 3);
        assert_eq!(&got[..3], word);
    }
}

#[test]
fn abstract_names() {
    let name = format!("@cordboard-test-{}", std::process::id());
    let listener = start(&[&format!("unix-listen:{name}"), "-"]);
    let mut child = until("a connection", || {
        let mut child = start(&["-", &format!("unix:{name}")]);
        // It fails at once if nothing listens yet.
        let gone = until("either", || match child.try_wait().unwrap() {
            Some(_) => Some(true),
            None => sleeping(child.id()).then_some(false),
        });
        (!gone).then_some(child)
    });
    feed(&mut child, b"abstract");
    end(child).ok();
    assert_eq!(end(listener).ok().stdout(), b"abstract");
}

#[test]
fn options_of_size_and_offset() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(10_000));
    let run = end(start(&[
        source.to_str().unwrap(),
        "-",
        "--offset",
        "1K",
        "--size",
        "1kB",
        "--json",
    ]));
    assert_eq!(run.ok().stdout(), &bytes(10_000)[1024..2024]);
    let json = run.json();
    assert_eq!(
        (&json["written"], &json["ended"]),
        (&1000.into(), &"size".into())
    );
    let mut child = start(&["-", "-", "--offset", "5"]);
    child.stdin.take();
    end(child).fails(1, &["standard input", "cannot seek"]);
}

/// Nothing is read there, which is not an error.
#[test]
fn an_offset_behind_the_end_of_the_source_is_reported() {
    let dir = dir();
    let source = file(&dir, "s", b"abc");
    let sink = dir.path().join("d");
    let at = |command: &[&str], offset: &str| {
        std::fs::write(&sink, b"old").unwrap();
        let mut started = cordboard();
        started
            .args(command)
            .args(["--offset", offset])
            .arg(&source);
        if command[0] != "cat" {
            started.arg(&sink);
        }
        if command.contains(&"--on-slow") {
            started.arg("/dev/null");
        }
        let run = run(&mut started);
        let said = run.ok().stderr();
        if command[0] != "cat" {
            assert_eq!(read(&sink), b"", "{command:?}");
        }
        said
    };
    for command in [
        &["copy"][..],
        &["splice"],
        &["cat"],
        &["splice", "--buffer", "1M"],
        &["splice", "--on-slow", "block"],
        &["splice", "--fan-in", "turn"],
    ] {
        let warned = at(command, "100");
        let says = "s: warning: byte 100 is behind its end (3 bytes)\n";
        assert!(warned.ends_with(says), "{command:?}: {warned}");
        assert_eq!(warned.lines().count(), 1, "{command:?}: {warned}");
        assert_eq!(at(command, "3"), "", "{command:?}");
    }
}

#[test]
fn no_descriptor_stays_behind_and_flags_stay_as_they_were() {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let flags = rustix::fs::fcntl_getfl(&reader).unwrap();
    let child = cordboard()
        .args(["splice", "-", "/dev/null"])
        .stdin(reader.try_clone().unwrap())
        .stderr(Stdio::piped())
        .start();
    let pid = child.id();
    until("the end of the opening", || {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let open = fds
            .flatten()
            .filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .any(|to| to == std::path::Path::new("/dev/null"));
        (open && sleeping(pid)).then_some(())
    });
    assert_eq!(rustix::fs::fcntl_getfl(&reader).unwrap(), flags);
    rustix::io::write(&writer, b"x").unwrap();
    drop(writer);
    end(child).ok();
    assert_eq!(rustix::fs::fcntl_getfl(&reader).unwrap(), flags);
}
