//! Sockets without a connection: a call on such a socket fails at once, and `poll(2)`
//! of some of them never shows anything.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use cordboard::{Control, DataPath, Ended, Errno, Refusal, Report, Request, Side, Size, Transfer};
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::common::{any_and_each, content_of, only, watchdog};

/// Makes a socket of each family and type of this kernel that needs a connection.
fn sockets() -> Vec<(String, OwnedFd)> {
    const VSOCK: AddressFamily = AddressFamily::from_raw(libc::AF_VSOCK as _);
    const TIPC: AddressFamily = AddressFamily::from_raw(libc::AF_TIPC as _);
    const SMC: AddressFamily = AddressFamily::from_raw(43);
    let families = [
        ("IPv4", AddressFamily::INET),
        ("IPv6", AddressFamily::INET6),
        ("UNIX", AddressFamily::UNIX),
        ("VSOCK", VSOCK),
        ("TIPC", TIPC),
        ("SMC", SMC),
    ];
    let mut all = Vec::new();
    for (name, family) in families {
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            // One of SCTP with many peers: it waits for the first of them.
            if name.starts_with("IP") && kind == SocketType::SEQPACKET {
                continue;
            }
            let made = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
            let name = format!("{name} {kind:?}");
            match made {
                Ok(socket) => all.push((name, socket)),
                Err(_) => testkit::skip::report(&name, "no such sockets here"),
            }
        }
    }
    all
}

fn nonblocking(fd: &OwnedFd, on: bool) {
    let flags = rustix::fs::fcntl_getfl(fd).unwrap() - OFlags::NONBLOCK;
    let flag = if on {
        OFlags::NONBLOCK
    } else {
        OFlags::empty()
    };
    rustix::fs::fcntl_setfl(fd, flags | flag).unwrap();
}

#[derive(Debug, Clone, Copy)]
enum RunMode {
    Plain,
    Idle,
    Controlled,
    ByEngine,
}

/// Runs a transfer with the socket as one side, and returns its report.
fn moved(how: RunMode, source: &OwnedFd, sink: &OwnedFd, request: &Request) -> Report {
    let mut request = request.clone();
    if let RunMode::Idle = how {
        request.idle = Some(Duration::from_secs(100));
    }
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request.clone()).unwrap();
    match how {
        RunMode::Plain | RunMode::Idle => transfer.run().report,
        RunMode::Controlled => transfer.control(&Control::new().unwrap()).run().report,
        RunMode::ByEngine => {
            let running = cordboard::start(source, sink, request).unwrap();
            running.wait().report
        }
    }
}

const WAYS: [RunMode; 4] = [
    RunMode::Plain,
    RunMode::Idle,
    RunMode::Controlled,
    RunMode::ByEngine,
];

/// As a source: the error of `recv(2)`, and no wait.
#[test]
fn a_source_without_a_connection_fails_at_once() {
    let _dog = watchdog("a_source_without_a_connection_fails_at_once");
    for (name, socket) in sockets() {
        let says = rustix::net::recv(&socket, &mut [0u8; 1], RecvFlags::DONTWAIT).unwrap_err();
        let says = Errno::from_raw(says.raw_os_error());
        for request in any_and_each(&[DataPath::Splice, DataPath::ReadWrite]) {
            for (how, waits) in WAYS.into_iter().flat_map(|how| [(how, true), (how, false)]) {
                nonblocking(&socket, !waits);
                let (end, pipe) = std::io::pipe().unwrap();
                let (_peer, stream) = std::os::unix::net::UnixStream::pair().unwrap();
                let file = tempfile::tempfile().unwrap();
                for sink in [OwnedFd::from(pipe), stream.into(), file.into()] {
                    let what = format!("{name}, {how:?}, {waits}, {request:?}");
                    // A path without datagrams is not tried.
                    if Transfer::new(socket.as_fd(), sink.as_fd(), request.clone()).is_err() {
                        continue;
                    }
                    let report = moved(how, &socket, &sink, &request);
                    let what = format!("{what}: {report:?}");
                    assert_eq!(
                        (report.ended, report.errno),
                        (Ended::Error, Some(says)),
                        "{what}"
                    );
                    assert_eq!((report.read, report.written), (0, 0), "{what}");
                    let splices_only = !request.switches.unwrap().allows(DataPath::ReadWrite);
                    // The splice fails at once, and no path is named.
                    let side = (!splices_only || report.failed.is_some()).then_some(Side::Source);
                    assert_eq!(report.failed, side, "{what}");
                }
                assert_eq!(content_of(end), b"");
            }
        }
    }
}

/// As a sink: the error of `send(2)`, and what was read is handed back.
#[test]
fn a_sink_without_a_connection_fails_at_the_first_byte() {
    let _dog = watchdog("a_sink_without_a_connection_fails_at_the_first_byte");
    for (name, socket) in sockets() {
        let says = rustix::net::send(&socket, b"x", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        let says = Errno::from_raw(says.unwrap_err().raw_os_error());
        for paths in [DataPath::ALL, &[DataPath::ReadWrite]] {
            for (how, waits) in WAYS.into_iter().flat_map(|how| [(how, true), (how, false)]) {
                nonblocking(&socket, !waits);
                let (source, mut feed) = std::io::pipe().unwrap();
                feed.write_all(b"bytes").unwrap();
                let report = moved(how, &source.into(), &socket, &only(paths));
                let what = format!("{name}, {how:?}, {waits}, {paths:?}: {report:?}");
                assert_eq!(report.ended, Ended::Error, "{what}");
                // Before Linux 6.5 pages have a call of their own, with another errno
                // (`smc_sendpage`, net/smc/af_smc.c).
                let by_pages = name.starts_with("SMC") && report.errno == Some(Errno::EPIPE);
                assert!(report.errno == Some(says) || by_pages, "{what}");
                assert_eq!(
                    (report.failed, report.written),
                    (Some(Side::Sink), 0),
                    "{what}"
                );
                assert_eq!(report.read, report.stranded, "{what}");
            }
        }
    }
}

/// The first call, before the kinds are known, is for pipes only.
#[test]
fn a_little_from_a_socket_without_a_connection() {
    let _dog = watchdog("a_little_from_a_socket_without_a_connection");
    for (name, socket) in sockets() {
        let (_end, sink) = std::io::pipe().unwrap();
        for size in [1, 4096, 1 << 20] {
            let failure = cordboard::splice(&socket, &sink, size).unwrap_err();
            assert_eq!(
                failure.report.failed,
                Some(Side::Source),
                "{name}: {failure:?}"
            );
        }
    }
}

/// Makes listening sockets that return connections with bytes, and with messages.
fn listeners() -> Vec<(&'static str, OwnedFd)> {
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut all = vec![("TCP", tcp.into())];
    let kinds = [
        ("UNIX stream", SocketType::STREAM),
        ("UNIX seqpacket", SocketType::SEQPACKET),
    ];
    for (name, kind) in kinds {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
        // The kernel chooses an abstract address (unix(7), autobind).
        rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new_unnamed()).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        all.push((name, socket));
    }
    all
}

/// A read from it fails with `ENOTCONN`, but only once a client connects: until then it never
/// polls readable.
#[test]
fn a_listening_socket_is_refused() {
    let _dog = watchdog("a_listening_socket_is_refused");
    for (name, listener) in listeners() {
        let (source, _feed) = std::io::pipe().unwrap();
        let (_end, sink) = std::io::pipe().unwrap();
        for (side, source, sink) in [
            (Side::Source, listener.as_fd(), sink.as_fd()),
            (Side::Sink, source.as_fd(), listener.as_fd()),
        ] {
            let request = || only(DataPath::ALL);
            let failures = [
                cordboard::splice(source, sink, 1).map(drop),
                cordboard::splice(source, sink, Size::Eof).map(drop),
                cordboard::start(source, sink, request()).map(drop),
                Transfer::new(source, sink, request()).map(drop),
                Transfer::duplicating(source, sink, request()).map(drop),
            ];
            for (call, failure) in failures.into_iter().enumerate() {
                let what = format!("{name}, {side}, call {call}");
                let failure = failure.expect_err(&what);
                let refusal = Some(Refusal::Listening { side });
                assert_eq!(failure.refusal, refusal, "{what}");
                let report = failure.report;
                let errno = Some(Errno::EINVAL);
                assert_eq!((report.failed, report.errno), (Some(side), errno), "{what}");
                assert_eq!((report.read, report.written), (0, 0), "{what}");
            }
        }
    }
}
