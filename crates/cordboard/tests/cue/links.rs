//! A control descriptor whose sink is another one: a peer steers a transfer.

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process;

use cordboard::Ended;
use cordboard::cue::{Command, Cue, Limit, Record, State};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use testkit::owned::{Owned, Start};
use testkit::pattern::noise;

use super::common::watchdog;
use super::passed::pass;
use super::steps::{Answers, bytes_of, done, file_with, send};

fn steer(mut peer: impl Read + Write, ours: impl std::os::fd::AsFd) {
    let data = noise(100_000);
    let source = file_with(&data);
    let (mut end, sink) = std::io::pipe().unwrap();
    let cue = Cue::new(&source, &sink).unwrap();
    drop(sink);
    send(&cue, &[Command::Limit(Limit::Bytes(100_000))]);
    let link = Cue::new(&ours, &cue).unwrap();
    drop((ours, cue));
    send(&link, &[Command::WriteToEnd]);
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        end.read_to_end(&mut all).map(|_| all)
    });
    let commands = [
        Command::Write(40_000),
        Command::Write(60_000),
        Command::Write(1),
    ];
    peer.write_all(&bytes_of(&commands)).unwrap();
    let mut answers = Answers::new(&mut peer);
    let (mut ended, mut refused) = (Vec::new(), 0);
    while ended.len() < 2 || refused < 1 {
        match answers.next().expect("no more records") {
            Record::Done(done) => ended.push((done.ended, done.written)),
            Record::Refused { .. } => refused += 1,
            _ => {}
        }
    }
    assert_eq!(ended, [(Ended::Size, 40_000), (Ended::Size, 60_000)]);
    // The owner has closed its descriptor, and the peer leaves: all is closed.
    drop(link);
    drop(peer);
    assert!(reader.join().unwrap().unwrap() == data);
}

#[test]
fn a_unix_socket_steers_a_transfer() {
    let _dog = watchdog("a_unix_socket_steers_a_transfer");
    let (peer, ours) = UnixStream::pair().unwrap();
    steer(peer, ours);
}

#[test]
fn a_tcp_connection_steers_a_transfer() {
    let _dog = watchdog("a_tcp_connection_steers_a_transfer");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    steer(peer, ours);
}

/// A peer that has sent its commands and half-closes gets all answers, and then the end.
#[test]
fn a_half_closed_peer_gets_all_answers() {
    let _dog = watchdog("a_half_closed_peer_gets_all_answers");
    let (mut peer, ours) = UnixStream::pair().unwrap();
    let source = file_with(&noise(5000));
    let (mut end, sink) = std::io::pipe().unwrap();
    let cue = Cue::new(&source, &sink).unwrap();
    let link = Cue::new(&ours, &cue).unwrap();
    drop((ours, cue, sink));
    send(&link, &[Command::WriteToEnd]);
    drop(link);
    let all: Vec<_> = (0..50).map(|_| Command::Write(100)).collect();
    peer.write_all(&bytes_of(&all)).unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answers = Answers::new(peer);
    let records: Vec<_> = std::iter::from_fn(|| answers.next()).collect();
    let ends = records.iter().filter(|r| matches!(r, Record::Done(_)));
    assert_eq!(ends.count(), 50);
    let mut all = Vec::new();
    end.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 5000);
}

/// Where the peer of the next tests connects to; empty: its standard input is the socket, or the
/// control descriptor itself; [`PASSED`]: its standard input passes the control descriptor.
const PEER: &str = "CORDBOARD_TEST_CUE_PEER";
const PASSED: &str = "passed";

/// The peer of the next tests, in a process of its own. It has a socket and nothing else.
#[test]
fn peer() {
    let Some(path) = std::env::var_os(PEER) else {
        return;
    };
    let stdin = || std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    if path.is_empty() {
        command(TcpStream::from(stdin()));
    } else if path == PASSED {
        let passed = receive(&mut UnixStream::from(stdin()));
        command(UnixStream::from(passed.try_clone().unwrap()));
        // It stays open up to the end of the process, as standard input does.
        std::mem::forget(passed);
    } else {
        command(UnixStream::connect(path).unwrap());
    }
}

/// Receives a descriptor, and waits until its sender has closed its own copy and the socket.
fn receive(socket: &mut UnixStream) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let (mut bytes, flags) = ([0; 100], RecvFlags::CMSG_CLOEXEC);
    let into = &mut [IoSliceMut::new(&mut bytes)];
    recvmsg(&*socket, into, &mut ancillary, flags).unwrap();
    let passed = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    socket.read_to_end(&mut Vec::new()).unwrap();
    passed.expect("no descriptor was passed")
}

fn command(mut socket: impl Read + Write) {
    let commands = [
        Command::Pause,
        Command::Write(1000),
        Command::Status,
        Command::Resume,
    ];
    socket.write_all(&bytes_of(&commands)).unwrap();
    let mut answers = Answers::new(socket);
    let mut all = std::iter::from_fn(|| answers.next());
    assert_eq!(all.next(), Some(Record::Started(1)));
    let Some(Record::Status(status)) = all.next() else {
        panic!("no status");
    };
    assert_eq!((status.state, status.read), (State::Paused, 0));
    let Some(Record::Done(done)) = all.next() else {
        panic!("no end");
    };
    assert_eq!((done.ended, done.written), (Ended::Size, 1000));
}

#[test]
fn a_process_in_another_network_namespace_steers_a_transfer() {
    let name = "a_process_in_another_network_namespace_steers_a_transfer";
    let _dog = watchdog(name);
    let mut unshare = process::Command::new("unshare");
    let can = unshare.args(["--net", "true"]).output();
    if !can.is_ok_and(|out| out.status.success()) {
        return testkit::skip::report(name, "unshare(1) makes no network namespace here");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let peer = spawn_peer(path.as_os_str(), process::Stdio::null());
    let (ours, _) = listener.accept().unwrap();
    is_steered(ours.into(), peer);
}

/// By TCP, over a veth pair.
#[test]
fn a_process_on_another_network_steers_a_transfer() {
    let name = "a_process_on_another_network_steers_a_transfer";
    let _dog = watchdog(name);
    let (ours, theirs) = match testkit::veth::Veth::new(1500).and_then(|veth| veth.connection()) {
        Ok(both) => both,
        Err(error) => {
            return testkit::skip::report(name, &format!("no veth pair here: {error}"));
        }
    };
    let peer = spawn_peer("".as_ref(), OwnedFd::from(theirs).into());
    is_steered(ours.into(), peer);
}

fn spawn_peer(path: &std::ffi::OsStr, stdin: process::Stdio) -> Owned {
    let mut unshare = process::Command::new("unshare");
    unshare.arg("--net").arg(std::env::current_exe().unwrap());
    start_peer(unshare, path, stdin)
}

fn start_peer(
    mut command: process::Command,
    path: &std::ffi::OsStr,
    stdin: process::Stdio,
) -> Owned {
    command
        .args(["--exact", "links::peer", "--nocapture"])
        .env(PEER, path)
        .stdin(stdin)
        .stdout(process::Stdio::piped())
        .stderr(process::Stdio::piped())
        .start()
}

/// Links a control descriptor with the socket, and waits for the peer.
fn is_steered(ours: OwnedFd, peer: Owned) {
    let data = noise(2000);
    let source = file_with(&data);
    let sink = file_with(b"");
    let cue = Cue::new(&source, &sink).unwrap();
    let link = Cue::new(&ours, &cue).unwrap();
    drop((ours, cue));
    send(&link, &[Command::WriteToEnd]);
    drop(link);
    has_passed(peer);
    let mut copy = [0; 1001];
    assert_eq!(rustix::io::pread(&sink, &mut copy, 0).unwrap(), 1000);
    assert!(copy[..1000] == data[..1000]);
}

/// Waits for the peer, and checks that it has found what it expects.
fn has_passed(peer: Owned) {
    let peer = peer.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&peer.stdout) + String::from_utf8_lossy(&peer.stderr);
    assert!(peer.status.success() && text.contains("1 passed"), "{text}");
}

/// The control descriptor itself is inherited by another process, or passed to it. The owner
/// closes its copy, and the process ends without closing its own: the sink is closed.
#[test]
fn a_process_with_the_descriptor_itself_steers_a_transfer() {
    let _dog = watchdog("a_process_with_the_descriptor_itself_steers_a_transfer");
    let data = noise(2000);
    let source = file_with(&data);
    for passes in [false, true] {
        rustix::fs::seek(&source, rustix::fs::SeekFrom::Start(0)).unwrap();
        let (mut end, sink) = std::io::pipe().unwrap();
        let cue = Cue::new(&source, &sink).unwrap();
        drop(sink);
        let own = process::Command::new(std::env::current_exe().unwrap());
        let peer = if passes {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let peer = start_peer(own, PASSED.as_ref(), OwnedFd::from(theirs).into());
            pass(&ours, &[Command::Status], cue.as_fd()).unwrap();
            drop(cue);
            peer
        } else {
            start_peer(own, "".as_ref(), OwnedFd::from(cue).into())
        };
        has_passed(peer);
        let mut copy = Vec::new();
        end.read_to_end(&mut copy).unwrap();
        assert!(copy == data[..1000], "{passes}: {} bytes", copy.len());
    }
}

/// The records of one control descriptor are the input of another, and the other way
/// round: they come to rest.
#[test]
fn two_that_read_each_other_come_to_rest() {
    let _dog = watchdog("two_that_read_each_other_come_to_rest");
    let source = file_with(&noise(100));
    let sink = file_with(b"");
    let first = Cue::new(&source, &sink).unwrap();
    let second = Cue::new(&source, &sink).unwrap();
    let mut link = Cue::new(&first, &second).unwrap();
    send(&link, &[Command::WriteToEnd, Command::Status]);
    // Its record goes to the second one.
    send(&first, &[Command::Status]);
    let mut before = None;
    loop {
        send(&link, &[Command::Status]);
        let status = loop {
            if let Some(Record::Status(status)) = link.receive().unwrap() {
                break status;
            }
        };
        if before.replace(status.read) == Some(status.read) && status.read > 0 {
            break;
        }
    }
}

/// The peer has sent its last commands, and the link has not moved all of them yet.
#[test]
fn commands_before_the_end_of_a_peer_take_effect() {
    let _dog = watchdog("commands_before_the_end_of_a_peer_take_effect");
    let first = bytes_of(&[Command::Pause, Command::Write(6)]);
    for closes in [false, true] {
        let (source, sink) = (file_with(b"number, please"), file_with(b""));
        let cue = Cue::new(&source, &sink).unwrap();
        let (mut peer, ours) = UnixStream::pair().unwrap();
        let mut link = Cue::new(&ours, &cue).unwrap();
        send(&link, &[Command::Write(first.len() as u64)]);
        peer.write_all(&first).unwrap();
        peer.write_all(&bytes_of(&[Command::Resume])).unwrap();
        drop((ours, cue));
        match closes {
            true => drop(peer),
            false => peer.shutdown(Shutdown::Write).unwrap(),
        }
        assert_eq!(done(&mut link).ended, Ended::Size);
        send(&link, &[Command::WriteToEnd, Command::Status]);
        done(&mut link);
        drop(link);
        while sink.metadata().unwrap().len() < 6 {
            std::thread::yield_now();
        }
    }
}

/// The link has moved a number of bytes and ends, while the commands that it has moved have no
/// room.
#[test]
fn commands_of_a_link_that_ends_are_cancelled_behind_a_full_queue() {
    let _dog = watchdog("commands_of_a_link_that_ends_are_cancelled_behind_a_full_queue");
    let (source, _feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let cue = Cue::new(&source, &sink).unwrap();
    let (mut peer, ours) = UnixStream::pair().unwrap();
    let mut link = Cue::new(&ours, &cue).unwrap();
    drop((ours, sink));
    let commands = bytes_of(&[Command::WriteToEnd; 400]);
    send(&link, &[Command::Write(commands.len() as u64)]);
    peer.write_all(&commands).unwrap();
    assert_eq!(done(&mut link).ended, Ended::Size);
    drop((cue, link));
    assert_eq!(end.read(&mut [0]).unwrap(), 0);
}

/// The owner still steers a descriptor that is linked, and both read some of the
/// records; the link can be cancelled.
#[test]
fn the_owner_unlinks_a_peer() {
    let _dog = watchdog("the_owner_unlinks_a_peer");
    let (peer, ours) = UnixStream::pair().unwrap();
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let cue = Cue::new(&source, &sink).unwrap();
    let mut link = Cue::new(&ours, &cue).unwrap();
    drop(ours);
    send(&link, &[Command::WriteToEnd]);
    (&peer)
        .write_all(&bytes_of(&[Command::WriteToEnd]))
        .unwrap();
    let mut answers = Answers::new(&peer);
    assert_eq!(answers.next(), Some(Record::Started(1)));
    send(&link, &[Command::Cancel]);
    assert_eq!(done(&mut link).ended, Ended::Cancelled);
    drop((link, cue));
    // The peer sees the end: the transfer from the silent pipe was cancelled.
    while let Some(record) = answers.next() {
        if let Record::Done(done) = record {
            assert_eq!(done.ended, Ended::Cancelled);
        }
    }
}
