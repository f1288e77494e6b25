//! Unit tests of the two parts of a download.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A later close of theirs could be the one that reports that the file system is full.
#[test]
fn the_descriptors_are_closed_before_the_first_command() {
    let (source, _writer) = std::io::pipe().unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    // Both ends of a pipe have the same link.
    let link_of = |fd: &str| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
    let links =
        [source.as_fd(), sink.as_fd()].map(|fd| link_of(&fd.as_raw_fd().to_string()).unwrap());
    let _cue = super::super::mover::cue_of(source.into(), sink.into()).unwrap();
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let open: Vec<_> = numbers.filter_map(|number| link_of(&number)).collect();
    for link in links {
        // The end that this test holds, and that of the service.
        let count = open.iter().filter(|other| **other == link).count();
        assert_eq!(count, 2, "{link:?}");
    }
}

/// The second transfer of the download begins behind the new end.
#[test]
fn a_file_that_is_truncated_behind_its_head_is_not_complete() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _control = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut lines = Lines::new(listener.accept().unwrap().0);
    let (ending, _held) = rustix::pipe::pipe().unwrap();
    let server = Server::with_end(ending);
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let source = rustix::fs::memfd_create("source", flags).unwrap();
    rustix::fs::ftruncate(&source, 4 << 20).unwrap();
    let (sink, mut client) = std::os::unix::net::UnixStream::pair().unwrap();
    sink.set_nonblocking(true).unwrap();
    let (socket, file) = (sink.try_clone().unwrap(), source.try_clone().unwrap());
    let mut watch = Watch::new(None, String::new(), SECOND);
    watch.extent = Extent::of(&source).unwrap();
    let sink = OwnedFd::from(sink);
    let mut head = Head::new(&source, &sink).unwrap();
    while head.is_due() {
        assert!(head.advance().is_none());
    }
    head.hand_over();
    while watch.sent.written == 0 {
        watch.sent = head.advance().unwrap_or_default();
    }
    drop(head);
    assert!(watch.sent.done.is_none() && watch.sent.written > 1000);
    rustix::fs::ftruncate(&file, 1000).unwrap();
    let reads = std::thread::spawn(move || client.read_to_end(&mut Vec::new()));
    let to = Client {
        socket: socket.as_fd(),
        received: None,
    };
    let mover = Mover::new(source, sink, None, (0, SECOND), None).unwrap();
    let carried = go_on(&server, &mut lines, &to, mover, Carried::default(), watch);
    drop(socket);
    assert!(!carried.complete);
    let failed = (carried.failed, carried.errno);
    assert_eq!(failed, (Some(Side::Source), Some(Errno::ENODATA)));
    reads.join().unwrap().unwrap();
}
