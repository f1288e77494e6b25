//! Pipes, sockets, terminals and records whose other end is slow, silent, full or
//! closed: no call blocks without need, and no byte is lost.

mod gone;
mod slots;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::{self, any, content, only, pattern, run, watchdog, with_control};
use cordboard::DataPath::{ReadWrite, Sendfile, Splice};
use cordboard::{
    Control, Ended, Errno, Observer, Progress, Refusal, Request, Side, Stranded, Transfer,
};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use testkit::needs::Need;

const MIB: usize = 1 << 20;

fn nonblocking(fd: impl AsFd) {
    fcntl_setfl(&fd, fcntl_getfl(&fd).unwrap() | OFlags::NONBLOCK).unwrap();
}

/// Both ends with any flags, and a reader that reads little at a time: nothing is
/// lost, and the transfer ends.
#[test]
fn blocking_and_not_on_either_side() {
    let _dog = watchdog("blocking_and_not_on_either_side");
    let data = pattern(2 * MIB);
    for flags in 0..8 {
        for path in common::forcible(&[Splice, ReadWrite]) {
            let (source, mut feed) = UnixStream::pair().unwrap();
            let (mut out, sink) = std::io::pipe().unwrap();
            if flags & 1 != 0 {
                nonblocking(&source);
            }
            if flags & 2 != 0 {
                nonblocking(&sink);
            }
            let before = (fcntl_getfl(&source).unwrap(), fcntl_getfl(&sink).unwrap());
            let control = Control::new().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    feed.write_all(&data).unwrap();
                    feed.shutdown(Shutdown::Write).unwrap();
                });
                let got = scope.spawn(move || {
                    let (mut got, mut some) = (Vec::new(), [0; 1000]);
                    loop {
                        match out.read(&mut some).unwrap() {
                            0 => return got,
                            n => got.extend_from_slice(&some[..n]),
                        }
                    }
                });
                let transfer = Transfer::new(source.as_fd(), sink.as_fd(), only(&[path])).unwrap();
                let polled = flags & 4 != 0;
                let outcome = if polled {
                    transfer.control(&control).run()
                } else {
                    transfer.run()
                };
                let report = &outcome.report;
                assert_eq!(report.written, data.len() as u64, "{report:?}");
                assert_eq!(report.path, [path]);
                let after = (fcntl_getfl(&source).unwrap(), fcntl_getfl(&sink).unwrap());
                assert_eq!(before, after, "flags are as they were");
                drop(sink);
                assert!(got.join().unwrap() == data, "{flags} {path}");
            });
        }
    }
}

/// Counts the steps.
#[derive(Default)]
struct Count(u32);

impl Observer for Count {
    fn progress(&mut self, _: &Progress) {
        self.0 += 1;
    }
}

/// With a full sink and a readable source, or an empty source and a writable sink,
/// the transfer waits once until the idle limit. It makes no loop of steps without
/// effect.
#[test]
fn waiting_keeps_no_processor_busy() {
    let _dog = watchdog("waiting_keeps_no_processor_busy");
    for path in common::forcible(&[Splice, ReadWrite]) {
        for full in [true, false] {
            let (source, mut feed) = UnixStream::pair().unwrap();
            let (_out, sink) = UnixStream::pair().unwrap();
            if full {
                nonblocking(&feed);
                nonblocking(&sink);
                let lots = vec![0; 64 << 10];
                while (&sink).write(&lots).is_ok() {}
                while feed.write(&lots).is_ok() {}
            }
            let mut count = Count::default();
            let request = Request {
                idle: Some(Duration::from_millis(50)),
                ..only(&[path])
            };
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
            let report = transfer.observe(&mut count).run().report;
            assert_eq!(report.ended, Ended::Idle);
            assert!(count.0 <= 6, "{path}, full: {full}: {} steps", count.0);
        }
    }
}

#[test]
fn a_sink_that_dies_hands_back_the_private_pipe() {
    let _dog = watchdog("a_sink_that_dies_hands_back_the_private_pipe");
    if testkit::needs::missing(
        "a_sink_that_dies_hands_back_the_private_pipe",
        &[Need::Splice],
    ) {
        return;
    }
    let data = pattern(4000);
    let (source, mut feed) = UnixStream::pair().unwrap();
    let (sink, peer) = UnixStream::pair().unwrap();
    drop(peer);
    feed.write_all(&data).unwrap();
    let outcome = run(&source, &sink, only(&[Splice]));
    let report = &outcome.report;
    assert_eq!(
        (report.read, report.written, report.stranded),
        (4000, 0, 4000)
    );
    assert_eq!(
        (report.failed, report.errno),
        (Some(Side::Sink), Some(Errno::EPIPE))
    );
    let Some(Stranded::Pipe(pipe)) = outcome.stranded else {
        panic!("{:?}", outcome.stranded);
    };
    let mut back = Vec::new();
    File::from(pipe).read_to_end(&mut back).unwrap();
    assert!(back == data);
}

#[test]
fn everything_is_drained_before_the_end_is_passed_on() {
    let _dog = watchdog("everything_is_drained_before_the_end_is_passed_on");
    let data = pattern(MIB);
    let source = common::Source::new(common::From::Tcp, &data);
    let (sink, mut peer) = UnixStream::pair().unwrap();
    let got = std::thread::spawn(move || {
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        // The other direction is still open.
        peer.write_all(b"thanks").unwrap();
        got
    });
    let report = run(&source.fd, &sink, any()).report;
    assert_eq!(report.ended, Ended::Eof);
    sink.shutdown(Shutdown::Write).unwrap();
    let mut answer = [0; 6];
    (&sink).read_exact(&mut answer).unwrap();
    assert!(got.join().unwrap() == data && &answer == b"thanks");
}

#[test]
fn an_echo_ends_with_its_client() {
    let _dog = watchdog("an_echo_ends_with_its_client");
    for path in common::forcible(&[Splice, ReadWrite]) {
        for polled in [false, true] {
            let (server, mut client) = UnixStream::pair().unwrap();
            client.write_all(b"hello").unwrap();
            let control = Control::new().unwrap();
            let report = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut back = [0; 5];
                    client.read_exact(&mut back).unwrap();
                    drop(client);
                });
                if polled {
                    with_control(&server, &server, only(&[path]), &control).report
                } else {
                    run(&server, &server, only(&[path])).report
                }
            });
            assert_eq!(
                (report.ended, report.written),
                (Ended::Eof, 5),
                "{report:?}"
            );
        }
    }
}

#[test]
fn a_packet_pipe_loses_nothing() {
    let _dog = watchdog("a_packet_pipe_loses_nothing");
    use testkit::needs::Need;
    let splices = Need::Splice.is_met() || Need::Vmsplice.is_met();
    for paths in [&[Splice, ReadWrite][..], &[ReadWrite]] {
        for size in [7u64, 100, 105, 4000, 4500] {
            let flags = rustix::pipe::PipeFlags::DIRECT;
            let (reader, writer) = rustix::pipe::pipe_with(flags).unwrap();
            let data = pattern(4500);
            for range in [0..100, 100..110, 110..4200, 4200..4500] {
                rustix::io::write(&writer, &data[range]).unwrap();
            }
            drop(writer);
            let before = fcntl_getfl(&reader).unwrap();
            let sink = tempfile::tempfile().unwrap();
            let request = Request {
                size: size.into(),
                ..only(paths)
            };
            let outcome = run(&reader, &sink, request);
            let report = &outcome.report;
            // Only `splice(2)` and `vmsplice(2)` take less than a packet.
            let whole = [4500, 4200, 110, 100, 0]
                .into_iter()
                .find(|end| *end <= size);
            let expected = if splices { size } else { whole.unwrap() };
            let ended = if expected == 0 {
                Ended::Error
            } else {
                Ended::Size
            };
            assert_eq!(
                (report.ended, report.written),
                (ended, expected),
                "{report:?}"
            );
            assert_eq!(fcntl_getfl(&reader).unwrap(), before);
            let mut rest = common::handed_back(outcome.stranded);
            // Each read has room for a packet.
            let mut packet = [0; 8192];
            while let Ok(n @ 1..) = rustix::io::read(&reader, &mut packet) {
                rest.extend_from_slice(&packet[..n]);
            }
            assert!(
                [content(&sink), rest].concat() == data,
                "{paths:?} {size}: {report:?}"
            );
        }
    }
}

/// The sink is a FIFO: its reader closes while the source is silent, and the transfer
/// detects that.
#[test]
fn a_sink_that_dies_while_the_source_is_silent() {
    let _dog = watchdog("a_sink_that_dies_while_the_source_is_silent");
    for polled in [false, true] {
        let (source, _silent) = UnixStream::pair().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let reader: OwnedFd = reader.into();
        let control = Control::new().unwrap();
        let report = std::thread::scope(|scope| {
            scope.spawn(move || drop(reader));
            let request = only(&common::carried_by(&[Splice, ReadWrite]));
            if polled {
                with_control(&source, &writer, request, &control).report
            } else {
                run(&source, &writer, request).report
            }
        });
        assert_eq!(
            (report.failed, report.errno),
            (Some(Side::Sink), Some(Errno::EPIPE))
        );
    }
}

/// Returns the number of bytes that a connection holds back.
fn held_back(sink: &std::net::TcpStream) -> libc::c_int {
    const SIOCOUTQNSD: libc::Ioctl = 0x894B;
    let mut unsent: libc::c_int = -1;
    let fd = std::os::fd::AsRawFd::as_raw_fd(sink);
    // SAFETY: fills in one integer.
    assert_eq!(unsafe { libc::ioctl(fd, SIOCOUTQNSD, &raw mut unsent) }, 0);
    unsent
}

/// A transfer announces more bytes to a connection (`MSG_MORE`) only if it has
/// already read them. Otherwise the last bytes of a message would wait for 200 ms.
#[test]
fn a_short_message_is_not_held_back() {
    let _dog = watchdog("a_short_message_is_not_held_back");
    for path in common::forcible(&[Splice, Sendfile, ReadWrite]) {
        for ends_by_size in [false, true] {
            let (sink, mut peer) = common::tcp_pair();
            sink.set_nodelay(true).unwrap();
            let source = common::file_with(&pattern(if ends_by_size { 200 } else { 100 }));
            let request = Request {
                size: if ends_by_size {
                    100.into()
                } else {
                    cordboard::Size::Eof
                },
                ..only(&[path])
            };
            assert_eq!(run(&source, &sink, request).report.written, 100);
            assert_eq!(held_back(&sink), 0, "{path}");
            peer.read_exact(&mut [0; 100]).unwrap();
        }
    }
}

/// `sendfile(2)` announces more bytes if its count is larger than the rest of the
/// file. So the count is the number of bytes from the file's position on.
#[test]
fn a_file_is_asked_for_what_it_has() {
    const PIECE: u32 = 2 << 20;
    let _dog = watchdog("a_file_is_asked_for_what_it_has");
    if testkit::needs::missing("a_file_is_asked_for_what_it_has", &[Need::Sendfile]) {
        return;
    }
    for (offset, position) in [(None, 0), (None, 30), (Some(30), 0)] {
        for grown in [0, 50] {
            let (sink, mut peer) = common::tcp_pair();
            let mut source = common::file_with(&pattern(100));
            source.seek(SeekFrom::Start(position)).unwrap();
            let request = Request {
                source_offset: offset,
                ..only(&[Sendfile])
            };
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
            source.write_all_at(&pattern(grown), 100).unwrap();
            let report = testkit::refuse::apart(|| {
                if grown == 0 {
                    // Only the call at the end has a larger count. It returns 0 here
                    // too.
                    testkit::refuse::refuse_where(libc::SYS_sendfile, 3, PIECE, 0);
                }
                transfer.run().report
            });
            let all = 100 + grown as u64 - offset.unwrap_or(position);
            let counts = (report.written, report.errno);
            assert_eq!(counts, (all, None), "{offset:?}, {position}: {report:?}");
            assert_eq!(report.path, [Sendfile]);
            assert_eq!(held_back(&sink), 0);
            peer.read_exact(&mut vec![0; all as usize]).unwrap();
        }
    }
}

/// Announced bytes do not follow, since the file was truncated. The bytes before them
/// are not held back, unless the caller has requested that (`TCP_CORK`).
#[test]
fn nothing_is_held_back_for_what_does_not_come() {
    use rustix::net::sockopt::{set_tcp_cork, tcp_cork};
    let _dog = watchdog("nothing_is_held_back_for_what_does_not_come");
    for path in common::forcible(&[Splice, Sendfile]) {
        for corked in [false, true] {
            let (sink, mut peer) = common::tcp_pair();
            set_tcp_cork(&sink, corked).unwrap();
            let source = common::file_with(&pattern(8192));
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), only(&[path])).unwrap();
            source.set_len(100).unwrap();
            let report = transfer.run().report;
            assert_eq!((report.written, report.errno), (100, Some(Errno::ENODATA)));
            assert_eq!(report.path, [path]);
            assert_eq!(tcp_cork(&sink).unwrap(), corked);
            assert_eq!(held_back(&sink), if corked { 100 } else { 0 }, "{path}");
            set_tcp_cork(&sink, false).unwrap();
            peer.read_exact(&mut [0; 100]).unwrap();
        }
    }
}

/// `splice(2)` returns 0 at a TCP peer's urgent byte each time. The stream goes on.
#[test]
fn urgent_data_is_not_the_end_of_a_tcp_stream() {
    let _dog = watchdog("urgent_data_is_not_the_end_of_a_tcp_stream");
    // Also if the calls that inspect the stream are refused.
    let looks: [fn(); 4] = [
        || {},
        || testkit::refuse::refuse(&[libc::SYS_recvfrom], libc::EPERM),
        || testkit::refuse::refuse(&[libc::SYS_recvfrom, libc::SYS_recvmsg], libc::EPERM),
        || {
            let peek = (libc::MSG_PEEK | libc::MSG_DONTWAIT) as u32;
            testkit::refuse::refuse_where(libc::SYS_recvfrom, 3, peek, libc::EINVAL);
        },
    ];
    // The bytes after the urgent byte are there already, or follow later.
    for (number, refuse, later) in (looks.iter().enumerate())
        .flat_map(|(number, refuse)| [(number, refuse, false), (number, refuse, true)])
    {
        for to_pipe in [false, true] {
            let (source, mut feed) = common::tcp_pair();
            let (mut out, writer) = std::io::pipe().unwrap();
            let file = tempfile::tempfile().unwrap();
            let sink: OwnedFd = match to_pipe {
                true => writer.into(),
                false => file.try_clone().unwrap().into(),
            };
            feed.write_all(b"abc").unwrap();
            look_past_everything(&source);
            rustix::net::send(&feed, b"!", rustix::net::SendFlags::OOB).unwrap();
            let rest = move || {
                if later {
                    std::thread::sleep(Duration::from_millis(100));
                }
                feed.write_all(b"def").unwrap();
            };
            let feeder = std::thread::spawn(rest);
            if !later {
                feeder.join().unwrap();
            }
            let report = testkit::refuse::apart(|| {
                refuse();
                run(&source, &sink, any()).report
            });
            assert_eq!(report.ended, Ended::Eof, "{number}: {report:?}");
            assert_eq!((report.read, report.written), (6, 6), "{report:?}");
            drop(sink);
            let got = match to_pipe {
                true => {
                    let mut got = Vec::new();
                    out.read_to_end(&mut got).unwrap();
                    got
                }
                false => content(&file),
            };
            assert_eq!(got, b"abcdef");
        }
    }
}

/// `SO_PEEK_OFF`, since Linux 6.9 for TCP: `MSG_PEEK` then shows nothing.
fn look_past_everything(socket: &std::net::TcpStream) {
    let socket = std::os::fd::AsRawFd::as_raw_fd(socket);
    let offset: libc::c_int = 1000;
    let (at, length) = ((&raw const offset).cast(), size_of_val(&offset) as _);
    // SAFETY: the kernel reads an i32.
    unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF, at, length) };
}

/// If a pipe is both sides, each byte is moved once: a second time would be without
/// end.
#[test]
fn a_pipe_onto_itself_goes_round_once() {
    let _dog = watchdog("a_pipe_onto_itself_goes_round_once");
    let refusal = |reader: &std::io::PipeReader, writer: &std::io::PipeWriter, request| {
        let failure = Transfer::new(reader.as_fd(), writer.as_fd(), request).err();
        failure.and_then(|f| f.refusal)
    };
    let size = |n: usize| Request {
        size: (n as u64).into(),
        ..any()
    };
    // Some bytes, and a full pipe of whole pages.
    for full in [false, true] {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let length = match full {
            false => 10_000,
            true => rustix::pipe::fcntl_getpipe_size(&writer).unwrap(),
        };
        let data = pattern(length);
        writer.write_all(&data).unwrap();
        for request in [any(), size(length + 1)] {
            let refused = refusal(&reader, &writer, request);
            assert!(
                matches!(refused, Some(Refusal::SamePipe { holds, .. }) if holds == length as u64),
                "{refused:?}"
            );
        }
        let refused = refusal(&reader, &writer, size(100));
        assert_eq!(refused.is_some(), full, "{refused:?}");
        let mut turned = data.clone();
        for n in if full {
            vec![length, 0]
        } else {
            vec![100, length, 0]
        } {
            let report = run(&reader, &writer, size(n)).report;
            assert_eq!((report.ended, report.written), (Ended::Size, n as u64));
            if n > 0 {
                assert_eq!(report.path, [ReadWrite]);
            }
            turned.rotate_left(n);
        }
        drop(writer);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert!(got == turned);
    }
    // Empty: the transfer does not wait.
    let (reader, writer) = std::io::pipe().unwrap();
    let refused = refusal(&reader, &writer, size(1));
    assert!(matches!(refused, Some(Refusal::SamePipe { holds: 0, .. })));
}
