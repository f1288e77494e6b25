//! The result of an idle limit, with time that passes only in waits for which
//! `poll(2)` reports nothing.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use rustix::net::SocketType;

use super::test_files::is_missing;
use super::wait::{Clock, Interest, Poll, Waiter, Wakeup};
use super::{Transfer, drive};
use crate::DataPath;
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::Request;
#[cfg(feature = "zstd")]
use crate::{Side, Stage, Stranded};
use testkit::pattern::noise;

pub(super) const LIMIT: Duration = Duration::from_secs(7);

/// The real `poll(2)`, without waiting.
struct Wakes<F> {
    now: Duration,
    poll: Poll,
    waits: u32,
    /// What other processes do while the transfer waits for this side (the sink:
    /// `true`); returns the time that passes.
    meanwhile: F,
}

impl<F> Wakes<F> {
    fn new(meanwhile: F) -> Wakes<F> {
        Wakes {
            now: Duration::from_secs(1000),
            poll: Poll::new(),
            waits: 0,
            meanwhile,
        }
    }
}

impl<F> Clock for Wakes<F> {
    fn now(&mut self) -> Duration {
        self.now
    }
}

impl<F: FnMut(bool) -> Duration> Waiter for Wakes<F> {
    fn wait(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        self.waits += 1;
        assert!(self.waits < 10_000, "it waits forever");
        let wakeup = self.poll.wait(interest, Some(Duration::ZERO))?;
        if wakeup != Wakeup::default() || timeout == Some(Duration::ZERO) {
            return Ok(wakeup);
        }
        let sink = interest.ready.is_some_and(|(_, sink)| sink);
        self.now += (self.meanwhile)(sink);
        self.poll.wait(interest, Some(Duration::ZERO))
    }
}

pub(super) fn request() -> Request {
    Request {
        idle: Some(LIMIT),
        switches: Some(crate::Switches::all()),
        ..Request::default()
    }
}

/// A pipe of 64 KiB, for any page size.
pub(super) fn pipe() -> std::io::Result<(std::io::PipeReader, std::io::PipeWriter)> {
    let (reader, writer) = std::io::pipe()?;
    rustix::pipe::fcntl_setpipe_size(&writer, 64 << 10)?;
    Ok((reader, writer))
}

/// A silent source with these bytes, and the end that keeps it open.
fn silent(bytes: &[u8]) -> (UnixStream, UnixStream) {
    let (source, mut feed) = UnixStream::pair().unwrap();
    feed.write_all(bytes).unwrap();
    (source, feed)
}

/// Writing the end of a frame continues as long as the sink accepts a part of it
/// within the limit.
#[cfg(feature = "zstd")]
#[test]
fn a_reader_that_continues_gets_all_buffered_bytes() {
    let data = noise(120_000);
    let (source, _feed) = silent(&data);
    let (mut reader, sink) = pipe().unwrap();
    let (mut got, mut parts) = (Vec::new(), 0);
    let mut time = Wakes::new(|sink| {
        if sink {
            let mut part = [0; 16 << 10];
            let n = reader.read(&mut part).unwrap();
            got.extend_from_slice(&part[..n]);
            parts += 1;
            return LIMIT * 3 / 4;
        }
        LIMIT
    });
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request()).unwrap();
    let transfer = transfer.stage(Stage::zstd(1).unwrap()).unwrap();
    let outcome = drive::run(transfer, &mut time);
    let report = &outcome.report;
    assert_eq!((report.ended, report.failed), (Ended::Idle, None));
    assert_eq!((report.read, report.stranded), (120_000, 0), "{report:?}");
    assert_eq!(report.path, [DataPath::ReadWrite]);
    assert!(parts > 2, "{parts}");
    assert_eq!(report.elapsed, LIMIT + parts * LIMIT * 3 / 4);
    drop(sink);
    reader.read_to_end(&mut got).unwrap();
    assert!(zstd::decode_all(&got[..]).unwrap() == data);
}

/// The transfer waits once more for the limit if the reader stops.
#[cfg(feature = "zstd")]
#[test]
fn a_reader_that_stops_gets_one_more_limit() {
    let data = noise(120_000);
    let (source, _feed) = silent(&data);
    let (mut reader, sink) = pipe().unwrap();
    let mut time = Wakes::new(|_| LIMIT);
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request()).unwrap();
    let transfer = transfer.stage(Stage::zstd(1).unwrap()).unwrap();
    let outcome = drive::run(transfer, &mut time);
    let report = &outcome.report;
    assert_eq!((report.ended, report.failed), (Ended::Idle, None));
    assert!(report.stranded > 0, "{report:?}");
    assert_eq!(report.elapsed, LIMIT * 2);
    drop(sink);
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert_eq!(all.len() as u64, report.written);
    let Some(Stranded::Buffer(rest)) = outcome.stranded else {
        panic!("{:?}", outcome.stranded);
    };
    all.extend(rest);
    assert!(zstd::decode_all(&all[..]).unwrap() == data);
}

/// Part of a block is buffered, and there is no room for its message.
#[test]
fn a_part_of_a_block_waits_for_room_too() {
    let data = noise(700);
    let (source, _feed) = silent(&data);
    let (sink, reader) = UnixDatagram::pair().unwrap();
    sink.set_nonblocking(true).unwrap();
    let mut before = 0;
    while sink.send(b"before").is_ok() {
        before += 1;
    }
    let mut received = 0;
    let mut time = Wakes::new(|sink| {
        if sink {
            let mut message = [0; 6];
            while received < before {
                assert_eq!(reader.recv(&mut message).unwrap(), 6);
                received += 1;
            }
        }
        LIMIT / 2
    });
    let request = Request {
        block: std::num::NonZeroUsize::new(1000),
        ..request()
    };
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let report = drive::run(transfer, &mut time).report;
    let counts = (report.ended, report.read, report.written, report.stranded);
    assert_eq!(counts, (Ended::Idle, 700, 700, 0), "{report:?}");
    let mut message = [0; 1000];
    assert_eq!(reader.recv(&mut message).unwrap(), 700);
    assert!(message[..700] == data);
}

/// The source is silent for most of the limit. The sink is full at first, and has the whole limit
/// for the bytes that come then.
#[test]
fn bytes_that_come_just_before_the_limit_have_the_whole_limit() {
    for path in [DataPath::Splice, DataPath::ReadWrite, DataPath::Datagram] {
        if is_missing("bytes just before the limit", path) {
            continue;
        }
        let pair = || -> (OwnedFd, OwnedFd) {
            match path {
                DataPath::Datagram => UnixDatagram::pair().map(|(a, b)| (a.into(), b.into())),
                _ => UnixStream::pair().map(|(a, b)| (a.into(), b.into())),
            }
            .unwrap()
        };
        let ((source, feed), (sink, reader)) = (pair(), pair());
        rustix::io::ioctl_fionbio(&sink, true).unwrap();
        let mut before = 0;
        while let Ok(n) = rustix::io::write(&sink, &[b'.'; 4096]) {
            before += n;
        }
        let mut for_sink = 0;
        let mut time = Wakes::new(|is_sink: bool| {
            if !is_sink {
                rustix::io::write(&feed, &[7; 1000]).unwrap();
                return LIMIT / 10 * 9;
            }
            for_sink += 1;
            while for_sink == 2 && before > 0 {
                before -= rustix::io::read(&reader, &mut [0; 4096]).unwrap();
            }
            LIMIT / 2
        });
        let request = Request {
            size: crate::Size::Bytes(1000),
            switches: Some(crate::Switches::only(&[path])),
            ..request()
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let report = drive::run(transfer, &mut time).report;
        let counts = (report.ended, report.written, report.stranded);
        assert_eq!(counts, (Ended::Size, 1000, 0), "{path}: {report:?}");
        assert_eq!(report.path, [path]);
    }
}

/// Decompressed data that stops within a frame is incomplete, as at the end of a
/// file.
#[cfg(feature = "zstd")]
#[test]
fn a_source_that_falls_silent_within_a_frame_has_failed() {
    let data = noise(1000);
    let frame = zstd::encode_all(&data[..], 1).unwrap();
    for (length, errno) in [(frame.len(), None), (frame.len() - 1, Some(Errno::EBADMSG))] {
        let (source, _feed) = silent(&frame[..length]);
        let (_reader, sink) = pipe().unwrap();
        let mut time = Wakes::new(|_| LIMIT);
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request()).unwrap();
        let transfer = transfer.stage(Stage::unzstd().unwrap()).unwrap();
        let report = drive::run(transfer, &mut time).report;
        let ended = match errno {
            None => (Ended::Idle, None, None),
            Some(_) => (Ended::Error, Some(Side::Source), errno),
        };
        let got = (report.ended, report.failed, report.errno);
        assert_eq!(got, ended, "{length}: {report:?}");
        assert_eq!(report.stages[0].fault.is_some(), errno.is_some());
        assert_eq!(report.elapsed, LIMIT);
    }
}

/// The process was stopped for longer than the limit, and the sink was read
/// meanwhile: both sides are ready.
#[test]
fn what_became_ready_while_the_process_was_stopped_is_moved() {
    for nonblocking in [false, true] {
        let data = noise(2000);
        let (source, _feed) = silent(&data);
        source.set_nonblocking(nonblocking).unwrap();
        let (mut reader, mut sink) = pipe().unwrap();
        sink.write_all(&[1; 64 << 10]).unwrap();
        let mut stopped = false;
        let mut time = Wakes::new(|sink| {
            if sink && !stopped {
                stopped = true;
                reader.read_exact(&mut [0; 64 << 10]).unwrap();
                return LIMIT * 3;
            }
            LIMIT
        });
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request()).unwrap();
        let report = drive::run(transfer, &mut time).report;
        assert!(stopped);
        let counts = (report.ended, report.read, report.written, report.stranded);
        assert_eq!(counts, (Ended::Idle, 2000, 2000, 0), "{report:?}");
        assert_eq!(report.elapsed, LIMIT * 4);
        let path = match testkit::needs::Need::Splice.is_met() {
            true => DataPath::Splice,
            false => DataPath::ReadWrite,
        };
        assert_eq!(report.path, [path]);
        let mut got = vec![0; 2000];
        reader.read_exact(&mut got).unwrap();
        assert!(got == data);
    }
}

/// The real `poll(2)`, and time that passes with each query.
struct Passing {
    now: Duration,
    poll: Poll,
}

impl Clock for Passing {
    fn now(&mut self) -> Duration {
        self.now += Duration::from_secs(1);
        assert!(self.now < Duration::from_secs(10_000), "no end");
        self.now
    }
}

impl Waiter for Passing {
    fn wait(
        &mut self,
        interest: &Interest<'_>,
        _timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        self.poll.wait(interest, Some(Duration::ZERO))
    }
}

/// A socket that returns 0 bytes again and again, and whose end is not known.
#[test]
fn endless_empty_messages_are_no_progress() {
    use rustix::net::{AddressFamily, SocketFlags, socketpair};
    for path in [DataPath::Datagram, DataPath::ReadWrite] {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let (near, far) = socketpair(family, SocketType::SEQPACKET, flags, None).unwrap();
        drop(far);
        let sink = tempfile::tempfile().unwrap();
        let request = Request {
            switches: Some(crate::Switches::only(&[path])),
            ..request()
        };
        let mut transfer = Transfer::new(near.as_fd(), sink.as_fd(), request).unwrap();
        let source = &mut transfer.flow.source;
        source.set_endpoint(source.endpoint().with_facts(crate::endpoint::Facts {
            kind: crate::endpoint::Kind::DatagramSocket,
            ..*source.facts()
        }));
        let mut time = Passing {
            now: Duration::ZERO,
            poll: Poll::new(),
        };
        let report = drive::run(transfer, &mut time).report;
        assert_eq!((report.ended, report.read), (Ended::Idle, 0), "{report:?}");
    }
}

/// A stream socket in place of a message socket that counts bytes, such as KCM and
/// `AF_ALG`: it accepts a part of a message.
#[test]
fn the_rest_of_a_message_follows_the_part_that_was_sent() {
    let data = noise(120_000);
    for path in [DataPath::Datagram, DataPath::ReadWrite] {
        let (source, feed) = UnixDatagram::pair().unwrap();
        for message in data.chunks(60_000) {
            feed.send(message).unwrap();
        }
        let (sink, mut reader) = UnixStream::pair().unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&sink, 0).unwrap();
        sink.set_nonblocking(true).unwrap();
        reader.set_nonblocking(true).unwrap();
        let (mut got, mut parts) = (Vec::new(), 0);
        let mut time = Wakes::new(|_| {
            let mut part = [0; 60_000];
            while let Ok(n) = reader.read(&mut part) {
                got.extend_from_slice(&part[..n]);
                parts += 1;
            }
            LIMIT / 2
        });
        let request = Request {
            size: 120_000.into(),
            switches: Some(crate::Switches::only(&[path])),
            ..request()
        };
        // The route is that of a message socket.
        let (messages, _) = UnixDatagram::pair().unwrap();
        let mut transfer = Transfer::new(source.as_fd(), messages.as_fd(), request).unwrap();
        let facts = *transfer.flow.sink.facts();
        let end = crate::Endpoint::probe(sink.as_fd()).unwrap();
        let facts = crate::endpoint::Facts {
            kind: crate::endpoint::Kind::DatagramSocket,
            nonblocking: true,
            ..facts
        };
        transfer.flow.sink.set_endpoint(end.with_facts(facts));
        let report = drive::run(transfer, &mut time).report;
        let counts = (report.ended, report.written, report.stranded);
        assert_eq!(counts, (Ended::Size, 120_000, 0), "{report:?}");
        assert_eq!(report.path, [path]);
        drop(sink);
        reader.set_nonblocking(false).unwrap();
        reader.read_to_end(&mut got).unwrap();
        assert!(got == data, "{path}");
        assert!(parts > 1, "{path}: the sink has taken all at once");
    }
}
