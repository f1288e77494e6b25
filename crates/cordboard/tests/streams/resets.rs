//! A connection is reset while both of its directions are in use. The kernel reports
//! the error once, and both transfers report it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::datagrams::{self, Sort};
use crate::common::{self, any, watchdog};
use cordboard::DataPath::{self, Datagram, ReadWrite, Splice};
use cordboard::{Control, Ended, Engine, Errno, Report, Request, Side, Transfer};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const ROUNDS: usize = 10;
/// A message of a sequenced-packet socket, several of which fit into its buffer.
const PIECE: usize = 16 << 10;

/// What runs both transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runner {
    Engine,
    /// Two threads, which sleep in their calls.
    Threads,
    /// Two threads, which poll.
    Polled,
}

/// The state of the transfer that writes to the connection at the reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateAtReset {
    /// Its source is silent.
    Rest,
    /// The peer has stopped reading.
    Stalled,
    /// The peer reads everything.
    Work,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connection {
    Tcp,
    Unix,
    Seqpacket,
}

struct Case {
    connection: Connection,
    runner: Runner,
    at: StateAtReset,
    nonblocking: bool,
    request: Request,
}

fn connection(kind: Connection) -> (OwnedFd, OwnedFd) {
    match kind {
        Connection::Tcp => {
            let (a, b) = common::tcp_pair();
            // Its buffer is soon full.
            for socket in [&a, &b] {
                rustix::net::sockopt::set_socket_recv_buffer_size(socket, 64 << 10).unwrap();
                rustix::net::sockopt::set_socket_send_buffer_size(socket, 64 << 10).unwrap();
            }
            (a.into(), b.into())
        }
        Connection::Unix => {
            let (a, b) = UnixStream::pair().unwrap();
            (a.into(), b.into())
        }
        Connection::Seqpacket => datagrams::pair(Sort::Seqpacket),
    }
}

/// Closes a socket so that the other end is reset.
fn reset(peer: OwnedFd, kind: Connection) {
    if kind == Connection::Tcp {
        let at_once = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&peer, at_once).unwrap();
    }
    // A UNIX socket is reset if it holds unread bytes.
}

/// Returns the reports of both directions between a client and a server that is
/// closed: to the server, and from it.
fn both(case: &Case, engine: &Engine) -> [Report; 2] {
    let tcp = case.connection == Connection::Tcp;
    let (near, client) = connection(case.connection);
    let (far, server) = connection(case.connection);
    for fd in [&near, &far] {
        rustix::io::ioctl_fionbio(fd, case.nonblocking).unwrap();
    }
    let client = std::fs::File::from(client);
    let copy = |fd: &OwnedFd| fd.try_clone().unwrap();
    let make = |from: &OwnedFd, to: &OwnedFd| {
        Transfer::owning(copy(from), copy(to), case.request.clone()).unwrap()
    };
    let (there, back) = (make(&near, &far), make(&far, &near));
    drop((near, far));
    // The silent side sends now.
    let say = |mut client: &std::fs::File| {
        if case.at == StateAtReset::Rest {
            let _ = client.write(b"hello");
        }
    };
    let data = vec![7; 4 << 20];
    let controls = [Control::new().unwrap(), Control::new().unwrap()];
    std::thread::scope(|scope| {
        let feeder = client.try_clone().unwrap();
        if case.at != StateAtReset::Rest {
            let data = &data;
            // The writes end with the connection.
            scope.spawn(move || {
                data.chunks(PIECE)
                    .try_for_each(|piece| (&feeder).write_all(piece))
            });
        }
        let dies = scope.spawn(move || {
            // Both directions are in use.
            (&std::fs::File::from(server.try_clone().unwrap()))
                .write_all(b"hello")
                .unwrap();
            (&client).read_exact(&mut [0; 5]).unwrap();
            match case.at {
                StateAtReset::Rest if tcp => {}
                StateAtReset::Rest => (&client).write_all(b"unread").unwrap(),
                StateAtReset::Stalled => full(&client),
                StateAtReset::Work => {
                    let mut some = vec![0; 300_000];
                    (&std::fs::File::from(server.try_clone().unwrap()))
                        .read_exact(&mut some)
                        .unwrap();
                }
            }
            if !tcp {
                // Bytes that are not read.
                while rustix::io::ioctl_fionread(&server).unwrap() == 0 {
                    std::thread::yield_now();
                }
            }
            reset(server, case.connection);
            client
        });
        let outcomes = match case.runner {
            Runner::Engine => {
                let (there, back) = (engine.start(there).unwrap(), engine.start(back).unwrap());
                let client = dies.join().unwrap();
                let back = back.wait();
                say(&client);
                let there = there.wait();
                let _ = rustix::net::shutdown(&client, rustix::net::Shutdown::Both);
                [there, back]
            }
            Runner::Threads | Runner::Polled => {
                let run = |transfer: Transfer<'static>, control: &Control| {
                    if case.runner == Runner::Polled {
                        transfer.control(control).run()
                    } else {
                        transfer.run()
                    }
                };
                let [one, other] = &controls;
                let there = scope.spawn(move || run(there, one));
                let back = scope.spawn(move || run(back, other));
                let client = dies.join().unwrap();
                let back = back.join().unwrap();
                say(&client);
                let there = there.join().unwrap();
                let _ = rustix::net::shutdown(&client, rustix::net::Shutdown::Both);
                [there, back]
            }
        };
        outcomes.map(|outcome| outcome.report)
    })
}

/// Writes until the peer accepts no more.
fn full(client: impl AsFd) {
    let mut before = None;
    let mut same = 0;
    // Until the count of untransmitted bytes has not changed this many times.
    while same < 300 {
        let unsent = testkit::stalled::untaken(client.as_fd());
        same = if before == Some(unsent) && unsent > 0 {
            same + 1
        } else {
            0
        };
        before = Some(unsent);
        std::thread::yield_now();
    }
}

fn both_tell(connection: Connection, runner: Runner, nonblocking: &[bool]) {
    let engine = Engine::new(cordboard::engine::Options::default()).unwrap();
    let first = match connection {
        Connection::Seqpacket => Datagram,
        _ => Splice,
    };
    for at in [
        StateAtReset::Rest,
        StateAtReset::Stalled,
        StateAtReset::Work,
    ] {
        for nonblocking in nonblocking {
            for request in common::any_and_each(&[first, ReadWrite]) {
                let mut wrong = Vec::new();
                for _ in 0..ROUNDS {
                    let case = Case {
                        connection,
                        runner,
                        at,
                        nonblocking: *nonblocking,
                        request: request.clone(),
                    };
                    let [there, back] = both(&case, &engine);
                    let told = |report: &Report, side| {
                        report.ended == Ended::Error && report.failed == Some(side)
                    };
                    let mut resets = vec![Some(Errno::ECONNRESET), Some(Errno::EPIPE)];
                    if let Connection::Seqpacket = connection {
                        // On Linux 5.10, a send that races with the close has the errno of a
                        // datagram socket, and disconnects this one.
                        resets.extend([Some(Errno::ECONNREFUSED), Some(Errno::ENOTCONN)]);
                    }
                    if !told(&back, Side::Source) || back.errno != Some(Errno::ECONNRESET) {
                        wrong.push(format!("from it: {back:?}"));
                    }
                    if !told(&there, Side::Sink) || !resets.contains(&there.errno) {
                        wrong.push(format!("to it: {there:?}"));
                    }
                }
                assert!(
                    wrong.is_empty(),
                    "{runner:?} {at:?} {nonblocking} {request:?}: {} of {ROUNDS}: {}",
                    wrong.len(),
                    wrong[0]
                );
            }
        }
    }
    engine.shutdown();
}

#[test]
fn a_reset_on_an_engine() {
    let _dog = watchdog("a_reset_on_an_engine");
    both_tell(Connection::Tcp, Runner::Engine, &[false, true]);
}

#[test]
fn a_reset_on_two_threads() {
    let _dog = watchdog("a_reset_on_two_threads");
    both_tell(Connection::Tcp, Runner::Threads, &[false, true]);
}

#[test]
fn a_reset_on_two_threads_that_poll() {
    let _dog = watchdog("a_reset_on_two_threads_that_poll");
    both_tell(Connection::Tcp, Runner::Polled, &[false, true]);
}

#[test]
fn an_unread_unix_socket_on_an_engine() {
    let _dog = watchdog("an_unread_unix_socket_on_an_engine");
    both_tell(Connection::Unix, Runner::Engine, &[false, true]);
}

#[test]
fn an_unread_unix_socket_on_two_threads() {
    let _dog = watchdog("an_unread_unix_socket_on_two_threads");
    both_tell(Connection::Unix, Runner::Threads, &[false, true]);
    both_tell(Connection::Unix, Runner::Polled, &[false, true]);
}

#[test]
fn an_unread_seqpacket_socket_on_an_engine() {
    let _dog = watchdog("an_unread_seqpacket_socket_on_an_engine");
    both_tell(Connection::Seqpacket, Runner::Engine, &[false, true]);
    the_reader_tells_it_too(unread, Errno::ECONNRESET, Datagram, Runner::Engine);
}

#[test]
fn an_unread_seqpacket_socket_on_two_threads() {
    let _dog = watchdog("an_unread_seqpacket_socket_on_two_threads");
    both_tell(Connection::Seqpacket, Runner::Threads, &[false, true]);
    both_tell(Connection::Seqpacket, Runner::Polled, &[false, true]);
    the_reader_tells_it_too(unread, Errno::ECONNRESET, Datagram, Runner::Threads);
}

/// Returns a socket whose peer has closed without reading.
fn unread() -> OwnedFd {
    let (socket, peer) = connection(Connection::Seqpacket);
    datagrams::put(&socket, b"unread");
    drop(peer);
    socket
}

#[test]
fn a_refused_connection_on_an_engine() {
    let _dog = watchdog("a_refused_connection_on_an_engine");
    let closed = ClosedPort::new();
    let dead = || closed.refuses();
    the_reader_tells_it_too(dead, Errno::ECONNREFUSED, Splice, Runner::Engine);
}

#[test]
fn a_refused_connection_on_two_threads() {
    let _dog = watchdog("a_refused_connection_on_two_threads");
    let closed = ClosedPort::new();
    let dead = || closed.refuses();
    the_reader_tells_it_too(dead, Errno::ECONNREFUSED, Splice, Runner::Threads);
}

/// A port on which no socket listens. No other socket can be bound to it.
struct ClosedPort(OwnedFd);

impl ClosedPort {
    fn new() -> ClosedPort {
        let flags = SocketFlags::CLOEXEC;
        let bound = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&bound, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        ClosedPort(bound)
    }

    /// Returns a socket whose connection to this port was begun, and then refused.
    fn refuses(&self) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        let address = rustix::net::getsockname(&self.0).unwrap();
        let begun = rustix::net::connect(&socket, &address);
        assert_eq!(begun, Err(rustix::io::Errno::INPROGRESS));
        let mut fds = [PollFd::new(&socket, PollFlags::OUT)];
        assert_eq!(poll(&mut fds, None), Ok(1));
        socket
    }
}

/// A transfer that writes to the connection gets its error, and ends before a transfer from
/// the connection makes its first call.
fn the_reader_tells_it_too(
    dead: impl Fn() -> OwnedFd,
    errno: Errno,
    path: DataPath,
    runner: Runner,
) {
    let engine = Engine::new(cordboard::engine::Options::default()).unwrap();
    for request in common::any_and_each(&[path, ReadWrite]) {
        let socket = dead();
        let (source, mut feed) = std::io::pipe().unwrap();
        feed.write_all(b"hello").unwrap();
        let copy = || socket.try_clone().unwrap();
        let make = |from, to| Transfer::owning(from, to, request.clone()).unwrap();
        let there = make(source.into(), copy());
        let back = make(copy(), tempfile::tempfile().unwrap().into());
        let reports = [there, back].map(|transfer| match runner {
            Runner::Engine => engine.start(transfer).unwrap().wait().report,
            _ => {
                let run = || transfer.run().report;
                std::thread::spawn(run).join().unwrap()
            }
        });
        let failures = [&reports[0], &reports[1]].map(|report| (report.failed, report.errno));
        let expected = [Side::Sink, Side::Source].map(|side| (Some(side), Some(errno)));
        assert_eq!(failures, expected, "{request:?}: {reports:?}");
    }
    engine.shutdown();
}

/// A connection between two pipes. A single call moves bytes from a pipe until the
/// pipe is empty.
#[test]
fn a_reset_between_pipes() {
    let _dog = watchdog("a_reset_between_pipes");
    for polled in [false, true] {
        for nonblocking in [false, true] {
            for request in common::any_and_each(&[Splice]) {
                for _ in 0..ROUNDS {
                    let (far, server) = connection(Connection::Tcp);
                    rustix::io::ioctl_fionbio(&far, nonblocking).unwrap();
                    let (source, mut feed) = std::io::pipe().unwrap();
                    let (_out, sink) = std::io::pipe().unwrap();
                    let copy = |fd: &OwnedFd| fd.try_clone().unwrap();
                    let make = |from: OwnedFd, to: OwnedFd| {
                        Transfer::owning(from, to, request.clone()).unwrap()
                    };
                    let there = make(source.try_clone().unwrap().into(), copy(&far));
                    let back = make(copy(&far), sink.into());
                    let controls = [Control::new().unwrap(), Control::new().unwrap()];
                    let run = |transfer: Transfer<'static>, control: &Control| match polled {
                        true => transfer.control(control).run().report,
                        false => transfer.run().report,
                    };
                    let [there, back] = std::thread::scope(|scope| {
                        let there = scope.spawn(|| run(there, &controls[0]));
                        let back = scope.spawn(|| run(back, &controls[1]));
                        // Fails when the transfer ends.
                        scope.spawn(move || feed.write_all(&vec![7; 4 << 20]));
                        // The pipe may be locked.
                        full(&far);
                        drop(source);
                        reset(server, Connection::Tcp);
                        [there.join().unwrap(), back.join().unwrap()]
                    });
                    assert_eq!(back.errno, Some(Errno::ECONNRESET), "{polled} {back:?}");
                    assert_eq!(back.failed, Some(Side::Source));
                    assert_eq!(there.failed, Some(Side::Sink), "{polled} {there:?}");
                }
            }
        }
    }
}

/// If nothing was written to the sink, its error is left to its reader.
#[test]
fn a_sink_that_dies_keeps_its_error_for_its_reader() {
    let _dog = watchdog("a_sink_that_dies_keeps_its_error_for_its_reader");
    let (sink, peer) = connection(Connection::Tcp);
    let (source, _feed) = std::io::pipe().unwrap();
    let control = Control::new().unwrap();
    reset(peer, Connection::Tcp);
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), any()).unwrap();
    let report = transfer.control(&control).run().report;
    let failed = (report.failed, report.errno);
    assert_eq!(failed, (Some(Side::Sink), Some(Errno::EPIPE)));
    let told = rustix::io::read(&sink, &mut [0; 1]);
    assert_eq!(told, Err(rustix::io::Errno::CONNRESET));
}

/// Both ends close one after the other, in either order; and a socket is connected
/// again after a reset. These are ends, not resets.
#[test]
fn a_clean_end_stays_one() {
    use std::net::{Shutdown, TcpListener, TcpStream};
    let _dog = watchdog("a_clean_end_stays_one");
    let engine = Engine::new(cordboard::engine::Options::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for first_ours in [false, true] {
        for _ in 0..ROUNDS {
            let far = TcpStream::connect(address).unwrap();
            let server = listener.accept().unwrap().0;
            let through = |far: &TcpStream, server: TcpStream| {
                let (source, feed) = std::io::pipe().unwrap();
                let (mut out, sink) = std::io::pipe().unwrap();
                let owning = |from: OwnedFd, to: OwnedFd| {
                    engine.start(Transfer::owning(from, to, any()).unwrap())
                };
                let copy = || OwnedFd::from(far.try_clone().unwrap());
                let there = owning(source.into(), copy()).unwrap();
                let back = owning(copy(), sink.into()).unwrap();
                (&feed).write_all(b"hello").unwrap();
                (&server).read_exact(&mut [0; 5]).unwrap();
                (&server).write_all(b"world").unwrap();
                out.read_exact(&mut [0; 5]).unwrap();
                let ours = |feed: std::io::PipeWriter| {
                    drop(feed);
                    assert_eq!(there.wait().report.ended, Ended::Eof);
                    far.shutdown(Shutdown::Write).unwrap();
                };
                if first_ours {
                    ours(feed);
                    drop(server);
                    back.wait().report
                } else {
                    server.shutdown(Shutdown::Write).unwrap();
                    let report = back.wait().report;
                    ours(feed);
                    report
                }
            };
            let report = through(&far, server);
            assert_eq!((report.ended, report.written), (Ended::Eof, 5));
        }
    }
    let (far, server) = (
        TcpStream::connect(address).unwrap(),
        listener.accept().unwrap().0,
    );
    reset(server.into(), Connection::Tcp);
    let out = tempfile::tempfile().unwrap();
    let read = || {
        let report = common::run(&far, &out, any()).report;
        (report.ended, report.errno)
    };
    assert_eq!(read(), (Ended::Error, Some(Errno::ECONNRESET)));
    rustix::net::connect_unspec(&far).unwrap();
    rustix::net::connect(&far, &address).unwrap();
    drop(listener.accept().unwrap());
    assert_eq!(read(), (Ended::Eof, None));
}
