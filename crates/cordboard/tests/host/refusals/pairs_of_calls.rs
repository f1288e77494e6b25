//! Any two of the calls that move or inspect messages are refused: nothing is lost,
//! cut or duplicated, whether the transfer succeeds or not.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use cordboard::{DataPath, Ended, Report, Request, Size, Transfer};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use testkit::needs::{self, Need};
use testkit::refuse::{FCNTL, POLL, PPOLL, apart, refuse};

use crate::common::datagrams::{Sort, all, pair, put};
use crate::common::{content, handed_back, only, pattern, read_packets, watchdog};

/// The calls that can inspect a socket.
const RECEIVE: [&[libc::c_long]; 2] = [
    &[libc::SYS_recvmsg, libc::SYS_recvmmsg],
    &[libc::SYS_recvfrom],
];

const MOVING: [&[libc::c_long]; 11] = [
    &[libc::SYS_splice],
    &[libc::SYS_tee],
    &[libc::SYS_vmsplice],
    &[libc::SYS_ioctl],
    &[libc::SYS_getsockopt],
    &[FCNTL],
    RECEIVE[0],
    RECEIVE[1],
    &[libc::SYS_sendmsg, libc::SYS_sendmmsg],
    &[libc::SYS_preadv2],
    &[libc::SYS_readv],
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum From {
    Packets,
    Seqpacket,
    Datagrams,
}

const FROM: [From; 3] = [From::Packets, From::Seqpacket, From::Datagrams];

#[derive(Debug, Clone, Copy, PartialEq)]
enum To {
    Pipe,
    Packets,
    Seqpacket,
    Stream,
    File,
}

/// The lengths of the messages. A pipe has no empty ones.
const LENGTHS: [usize; 6] = [1000, 4000, 1, 0, 2500, 700];
const TOTAL: usize = 8201;

/// Makes a source with all of them in it, and what keeps it open: datagrams have no
/// end.
fn source(from: From, data: &[u8]) -> (OwnedFd, Option<OwnedFd>) {
    let (far, near) = match from {
        From::Packets => {
            let (near, far) = pipe_with(PipeFlags::DIRECT | PipeFlags::CLOEXEC).unwrap();
            (far, near)
        }
        From::Seqpacket => pair(Sort::Seqpacket),
        From::Datagrams => pair(Sort::Unix),
    };
    let mut rest = data;
    for length in LENGTHS {
        let (message, behind) = rest.split_at(length);
        match from {
            From::Packets => assert_eq!(rustix::io::write(&far, message), Ok(length)),
            _ => put(&far, message),
        }
        rest = behind;
    }
    (near, (from == From::Datagrams).then_some(far))
}

fn left(from: From, source: OwnedFd) -> Vec<u8> {
    match from {
        From::Packets => read_packets(source),
        From::Seqpacket => drain(&source).concat(),
        From::Datagrams => all(&source).concat(),
    }
}

/// Reads all messages of a socket whose `FIONREAD` returns the bytes of all of them.
fn drain(socket: &OwnedFd) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while rustix::io::ioctl_fionread(socket).unwrap() > 0 {
        let mut message = vec![0; TOTAL];
        let n = rustix::io::read(socket, &mut message).unwrap();
        all.push(message[..n].to_vec());
    }
    all
}

/// Returns (the transfer's sink, the end from which the bytes are read).
fn sink(to: To) -> (OwnedFd, OwnedFd) {
    let sockets = |kind| {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, kind, flags, None).unwrap()
    };
    let (reader, writer) = match to {
        To::Pipe => pipe_with(PipeFlags::CLOEXEC).unwrap(),
        To::Packets => pipe_with(PipeFlags::DIRECT | PipeFlags::CLOEXEC).unwrap(),
        To::Seqpacket => sockets(SocketType::SEQPACKET),
        To::Stream => sockets(SocketType::STREAM),
        To::File => {
            let file = tempfile::tempfile().unwrap();
            (file.try_clone().unwrap().into(), file.into())
        }
    };
    (writer, reader)
}

/// Returns the messages that have arrived.
fn arrived(to: To, reader: OwnedFd) -> Vec<Vec<u8>> {
    match to {
        To::Pipe => vec![read_packets(reader)],
        To::File => vec![content(&reader.into())],
        To::Stream | To::Seqpacket => drain(&reader),
        To::Packets => {
            let (mut all, mut packet) = (Vec::new(), [0; 4096]);
            loop {
                match rustix::io::read(&reader, &mut packet).unwrap() {
                    0 => return all,
                    n => all.push(packet[..n].to_vec()),
                }
            }
        }
    }
}

/// Returns the sum of the first messages that fit into this many bytes.
fn whole(size: usize) -> usize {
    let mut sum = 0;
    for length in LENGTHS {
        if sum + length > size {
            break;
        }
        sum += length;
    }
    sum
}

/// One transfer.
struct Case {
    from: From,
    to: To,
    size: usize,
    block: Option<usize>,
    paths: &'static [DataPath],
    source: OwnedFd,
    /// Keeps the source open: datagrams have no end.
    open: Option<OwnedFd>,
    sink: OwnedFd,
    reader: OwnedFd,
}

impl Case {
    /// `timed`: the transfer does not wait inside a call.
    fn run(&self, timed: bool) -> (Report, Vec<u8>) {
        let request = Request {
            size: match self.size {
                TOTAL if self.open.is_none() => Size::Eof,
                size => Size::Bytes(size as u64),
            },
            block: self.block.and_then(NonZeroUsize::new),
            idle: timed.then_some(Duration::from_secs(100)),
            ..only(self.paths)
        };
        match Transfer::new(self.source.as_fd(), self.sink.as_fd(), request) {
            Ok(transfer) => {
                let outcome = transfer.run();
                (outcome.report, handed_back(outcome.stranded))
            }
            Err(failure) => (*failure.report, Vec::new()),
        }
    }

    /// Checks that each byte is in exactly one place. `blind`: no call can inspect a
    /// socket's next message.
    fn check(self, (report, rest): (Report, Vec<u8>), data: &[u8], blind: bool, refused: &str) {
        drop((self.sink, self.open));
        let (from, to, size) = (self.from, self.to, self.size);
        let case = format!(
            "{refused}: {from:?} {to:?} {size} {:?}: {report:?}",
            self.block
        );
        let pieces = arrived(to, self.reader);
        let got = pieces.concat();
        assert_eq!(got.len() as u64, report.written, "{case}");
        let found = [got.clone(), rest, left(from, self.source)].concat();
        assert_eq!(found.len(), TOTAL, "{case}");
        assert!(found == data, "{case}");
        assert_eq!(report.truncated, 0, "{case}");
        if to == To::Seqpacket && from != From::Packets {
            let lengths = pieces.iter().map(Vec::len).filter(|n| *n > 0);
            let messages = LENGTHS.into_iter().filter(|n| *n > 0);
            assert!(lengths.clone().eq(messages.take(lengths.count())), "{case}");
        }
        if report.errno.is_some() {
            return;
        }
        // A part of a pipe's packet may be taken.
        let part = from == From::Packets && got.len() == size;
        // For sequenced packets `FIONREAD` returns the bytes of all waiting
        // messages.
        let few = blind && from == From::Seqpacket && size < TOTAL;
        let all = got.len() == whole(size) || part || few;
        let ended = report.ended == Ended::Size || report.ended == Ended::Eof && size == TOTAL;
        assert!(all && ended, "{case}");
    }
}

fn cases(from: From, data: &[u8]) -> Vec<Case> {
    const SIZES: [(usize, Option<usize>); 4] = [
        (TOTAL, None),
        (TOTAL, Some(700)),
        (1500, None),
        (5001, Some(700)),
    ];
    let mut all = Vec::new();
    for to in [To::Pipe, To::Packets, To::Seqpacket, To::Stream, To::File] {
        for (size, block) in SIZES {
            for paths in [DataPath::ALL, &[DataPath::ReadWrite]] {
                let ((source, open), (sink, reader)) = (source(from, data), sink(to));
                all.push(Case {
                    from,
                    to,
                    size,
                    block,
                    paths,
                    source,
                    open,
                    sink,
                    reader,
                });
            }
        }
    }
    all
}

#[test]
fn no_two_calls_that_are_refused_lose_a_message() {
    let name = "no_two_calls_that_are_refused_lose_a_message";
    let _dog = watchdog(name);
    // With a third call refused, a message may be cut.
    if needs::missing(name, &[Need::Splice, Need::Vmsplice]) {
        return;
    }
    let data = pattern(TOTAL);
    let poll = [PPOLL, POLL].concat();
    let calls = [&MOVING[..], &[&poll]].concat();
    for (n, one) in calls.iter().enumerate() {
        for (m, other) in calls.iter().enumerate().skip(n) {
            for (k, from) in FROM.into_iter().enumerate() {
                // Each call, and each pair of calls, is refused with both errnos, or
                // with one for some sources.
                let errno = [libc::EPERM, libc::ENOSYS][(n + m + k) % 2];
                let cases = cases(from, &data);
                let done: Vec<_> = apart(|| {
                    refuse(&[*one, *other].concat(), errno);
                    cases.iter().map(|case| case.run(m % 2 == 1)).collect()
                });
                let refused = format!("{one:?} {other:?} {errno}");
                let blind = [RECEIVE[0], RECEIVE[1]]
                    .iter()
                    .all(|c| [one, other].contains(&c));
                for (case, done) in cases.into_iter().zip(done) {
                    case.check(done, &data, blind, &refused);
                }
            }
        }
    }
}
