//! Pipes in packet mode (`pipe2(2)`, `O_DIRECT`): a short read loses the rest of a
//! packet, so a sink whose reader expects a stream must not get packets.

mod between;
mod few;

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::common::{self, any, only, pattern, read_packets, run, watchdog, with_control};
use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::{Control, Ended, Errno, Report, Request, Size, Stage, Transfer, start};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe, pipe_with, tee};
use testkit::needs::Need;

/// (read end, write end).
fn packet_pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::CLOEXEC | PipeFlags::DIRECT).unwrap()
}

/// Writes one packet for each of these lengths.
fn write(sink: &OwnedFd, lengths: &[usize], data: &[u8]) {
    let mut at = 0;
    for length in lengths {
        let done = rustix::io::write(sink, &data[at..at + length]);
        assert_eq!(done, Ok(*length));
        at += length;
    }
}

/// Reads little at a time, as a reader of a stream may.
fn read_shortly(reader: impl Into<OwnedFd>) -> Vec<u8> {
    let mut reader = std::fs::File::from(reader.into());
    let (mut all, mut some) = (Vec::new(), [0; 300]);
    loop {
        match reader.read(&mut some).unwrap() {
            0 => return all,
            n => all.extend_from_slice(&some[..n]),
        }
    }
}

/// Every way to run a transfer.
const WAYS: [&str; 5] = ["call", "call of a size", "thread", "control", "engine"];

fn by(way: &str, source: BorrowedFd<'_>, sink: BorrowedFd<'_>, size: usize) -> Report {
    match way {
        "call" => cordboard::splice(source, sink, Size::Eof).unwrap(),
        // The first call moves at most a packet, the second all the rest.
        "call of a size" => {
            let first = cordboard::splice(source, sink, Size::Bytes(700)).unwrap();
            assert_eq!(first.written, 700);
            let rest = Size::Bytes(size as u64 - 700);
            let mut all = cordboard::splice(source, sink, rest).unwrap();
            (all.read, all.written) = (all.read + 700, all.written + 700);
            all
        }
        "thread" => run(source, sink, any()).report,
        "control" => with_control(source, sink, any(), &Control::new().unwrap()).report,
        _ => {
            let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
            let running = start(own(source), own(sink), any()).unwrap();
            running.wait().report
        }
    }
}

/// The source is a pipe without packet mode, into which another program has spliced
/// or teed packets.
#[test]
fn packets_that_were_passed_on_are_packets() {
    let _dog = watchdog("packets_that_were_passed_on_are_packets");
    let data = pattern(3000);
    let name = "packets_that_were_passed_on_are_packets";
    for teed in [false, true] {
        for way in WAYS {
            let splices = !teed || way == "call of a size";
            if splices && testkit::needs::missing(name, &[Need::Splice]) {
                continue;
            }
            let (first, feed) = packet_pipe();
            write(&feed, &[1000; 3], &data);
            let (source, between) = pipe().unwrap();
            let none = SpliceFlags::empty();
            let moved = if teed {
                tee(&first, &between, 3000, none)
            } else {
                rustix::pipe::splice(&first, None, &between, None, 3000, none)
            };
            assert_eq!(moved, Ok(3000));
            drop(between);
            let (out, sink) = pipe().unwrap();
            let report = by(way, source.as_fd(), sink.as_fd(), 3000);
            drop(sink);
            assert_eq!((report.read, report.written), (3000, 3000));
            assert!(read_shortly(out) == data, "{way}, teed: {teed}");
        }
    }
}

/// Through a stage, and with a size below that of a packet.
#[test]
fn packets_that_pass_through_a_buffer_are_whole() {
    let _dog = watchdog("packets_that_pass_through_a_buffer_are_whole");
    let splices = common::is_open(Splice) || Need::Vmsplice.is_met();
    let data = pattern(5000);
    for (size, expected) in [(5000, 5000), (1500, if splices { 1500 } else { 1000 })] {
        let size = Size::Bytes(size);
        let (source, feed) = packet_pipe();
        write(&feed, &[1000; 5], &data);
        drop(feed);
        let (out, sink) = pipe().unwrap();
        let request = Request { size, ..any() };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let report = transfer.stage(Stage::count()).unwrap().run().report;
        drop(sink);
        assert_eq!(report.written, expected as u64);
        assert!(read_shortly(out) == data[..expected]);
        // The rest is still in the source.
        assert!(read_packets(source) == data[expected..]);
    }
}

/// If `splice(2)` and `vmsplice(2)` are refused, no call takes a part of a packet
/// out of a pipe: a packet that is longer than the rest of the size stays.
#[test]
fn a_packet_that_cannot_be_cut_stays() {
    use std::os::unix::net::UnixDatagram;
    use testkit::refuse::{apart, refuse};
    let _dog = watchdog("a_packet_that_cannot_be_cut_stays");
    let data = pattern(5000);
    for errno in [libc::EPERM, libc::ENOSYS] {
        for way in ["thread", "control", "engine", "stage", "datagrams"] {
            for (size, packets, expected) in [
                (1500, true, 1000),
                (999, true, 0),
                (2000, true, 2000),
                (1500, false, 1500),
            ] {
                let (source, feed) = match packets {
                    true => packet_pipe(),
                    false => pipe().unwrap(),
                };
                write(&feed, &[1000; 5], &data);
                drop(feed);
                let (out, sink) = match way {
                    "datagrams" => {
                        let (to, from) = UnixDatagram::pair().unwrap();
                        from.set_nonblocking(true).unwrap();
                        (from.into(), to.into())
                    }
                    _ => pipe().unwrap(),
                };
                let request = Request {
                    size: Size::Bytes(size),
                    ..any()
                };
                let report = apart(|| {
                    refuse(&[libc::SYS_splice, libc::SYS_vmsplice], errno);
                    let own = [&source, &sink].map(|fd| fd.try_clone().unwrap());
                    let [from, to] = own;
                    let transfer = Transfer::owning(from, to, request).unwrap();
                    let control = Control::new().unwrap();
                    match way {
                        "control" => transfer.control(&control).run().report,
                        "stage" => transfer.stage(Stage::count()).unwrap().run().report,
                        "engine" => {
                            let engine = cordboard::Engine::new(Default::default()).unwrap();
                            engine.start(transfer).unwrap().wait().report
                        }
                        _ => transfer.run().report,
                    }
                });
                drop(sink);
                let case = format!("{way} {size} {packets} {errno}: {report:?}");
                // If not even the first packet fits, nothing is moved.
                let errno = (expected == 0).then_some(Errno::EMSGSIZE);
                assert_eq!(report.errno, errno, "{case}");
                if errno.is_none() {
                    assert_eq!(report.ended, Ended::Size, "{case}");
                }
                let counts = (report.read, report.written, report.stranded);
                assert_eq!(counts, (expected, expected, 0), "{case}");
                let expected = expected as usize;
                let got = match way {
                    "datagrams" => common::datagrams::all(&out).concat(),
                    _ => read_packets(out),
                };
                assert!(got == data[..expected], "{case}");
                assert!(read_packets(source) == data[expected..], "{case}");
            }
        }
    }
}

/// A sink in packet mode has a reader that expects packets. Each read of the source
/// becomes a packet.
#[test]
fn a_sink_in_packet_mode_gets_packets() {
    let _dog = watchdog("a_sink_in_packet_mode_gets_packets");
    let data = pattern(15_000);
    let file = common::file_with(&data);
    for from in ["packets", "a stream", "both", "a file"] {
        for way in ["thread", "control", "engine"] {
            let (source, feed) = pipe().unwrap();
            let plain = fcntl_getfl(&feed).unwrap();
            if from == "packets" {
                fcntl_setfl(&feed, plain | OFlags::DIRECT).unwrap();
            }
            write(&feed, &[3000], &data);
            if from == "both" {
                fcntl_setfl(&feed, plain | OFlags::DIRECT).unwrap();
            }
            write(&feed, &[4000; 3], &data[3000..]);
            drop(feed);
            let (out, sink) = packet_pipe();
            let source = match from {
                "a file" => {
                    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
                    file.as_fd()
                }
                _ => source.as_fd(),
            };
            let report = by(way, source, sink.as_fd(), 15_000);
            drop(sink);
            let case = format!("{from}, {way}: {report:?}");
            assert_eq!(report.written, 15_000, "{case}");
            assert_eq!(report.path, [ReadWrite], "{case}");
            if from == "packets" {
                let mut packet = [0; 4096];
                assert_eq!(rustix::io::read(&out, &mut packet), Ok(3000), "{case}");
                assert!(packet[..3000] == data[..3000]);
                for part in data[3000..].chunks(4000) {
                    assert_eq!(rustix::io::read(&out, &mut packet), Ok(4000), "{case}");
                    assert!(packet[..4000] == *part);
                }
            } else {
                assert!(read_packets(out) == data, "{case}");
            }
        }
    }
}

/// The same with so few bytes that the first call moves them, before the transfer
/// knows the kinds of the descriptors.
#[test]
fn a_little_for_a_sink_in_packet_mode_is_a_packet() {
    let _dog = watchdog("a_little_for_a_sink_in_packet_mode_is_a_packet");
    let data = pattern(4700);
    for packets in [true, false] {
        let (source, feed) = pipe().unwrap();
        write(&feed, &[700], &data);
        let (out, sink) = packet_pipe();
        if !packets {
            fcntl_setfl(&sink, fcntl_getfl(&sink).unwrap() - OFlags::DIRECT).unwrap();
        }
        let report = cordboard::splice(&source, &sink, Size::Bytes(700)).unwrap();
        assert_eq!((report.ended, report.written), (Ended::Size, 700));
        let expected = match !packets && common::is_open(Splice) {
            true => Splice,
            false => ReadWrite,
        };
        assert_eq!(report.path, [expected], "{packets}: {report:?}");
        if packets {
            write(&sink, &[4000], &data[700..]);
            let mut packet = [0; 4096];
            assert_eq!(rustix::io::read(&out, &mut packet), Ok(700));
            assert!(packet[..700] == data[..700]);
            assert_eq!(rustix::io::read(&out, &mut packet), Ok(4000));
            assert!(packet[..4000] == data[700..]);
        }
    }
}

/// Packets behind bytes of a stream in the same pipe, moved through a buffer that
/// is shorter than either.
#[test]
fn packets_behind_a_stream_are_whole_in_any_buffer() {
    let _dog = watchdog("packets_behind_a_stream_are_whole_in_any_buffer");
    let name = "packets_behind_a_stream_are_whole_in_any_buffer";
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    let data = pattern(400_000);
    let cases = [
        (3000, 5345, None),
        (3000, 4096, None),
        (30_000, 32_768, None),
        (3000, 1 << 20, Some(5000)),
        (262_000, 131_072, None),
    ];
    for (stream, block, size) in cases {
        for way in ["thread", "engine", "stage", "append"] {
            let (source, feed) = pipe().unwrap();
            rustix::pipe::fcntl_setpipe_size(&feed, 1 << 20).unwrap();
            write(&feed, &[stream], &data);
            let plain = fcntl_getfl(&feed).unwrap();
            fcntl_setfl(&feed, plain | OFlags::DIRECT).unwrap();
            write(&feed, &[4000; 20], &data[stream..]);
            drop(feed);
            let all = stream + 20 * 4000;
            let expected = size.unwrap_or(all);
            let sink = tempfile::tempfile().unwrap();
            if way == "append" {
                let flags = fcntl_getfl(&sink).unwrap();
                fcntl_setfl(&sink, flags | OFlags::APPEND).unwrap();
            }
            let request = Request {
                block: std::num::NonZeroUsize::new(block),
                size: size.map_or(Size::Eof, |size| Size::Bytes(size as u64)),
                ..only(&[ReadWrite])
            };
            let own = [
                source.try_clone().unwrap(),
                sink.try_clone().unwrap().into(),
            ];
            let [from, to] = own;
            let transfer = Transfer::owning(from, to, request).unwrap();
            let report = match way {
                "engine" => {
                    let engine = cordboard::Engine::new(Default::default()).unwrap();
                    engine.start(transfer).unwrap().wait().report
                }
                "stage" => transfer.stage(Stage::count()).unwrap().run().report,
                _ => transfer.run().report,
            };
            let case = format!("{way} {stream} {block} {size:?}: {report:?}");
            assert_eq!(report.written, expected as u64, "{case}");
            let mut got = vec![0; expected + 1];
            assert_eq!(
                rustix::io::pread(&sink, &mut got, 0),
                Ok(expected),
                "{case}"
            );
            assert!(got[..expected] == data[..expected], "{case}");
            assert!(read_packets(source) == data[expected..all], "{case}");
        }
    }
}

/// The writer turns packet mode on during the transfer.
#[test]
fn packets_that_follow_at_once_are_whole() {
    let _dog = watchdog("packets_that_follow_at_once_are_whole");
    let data = pattern(300 * 1000);
    for way in ["thread", "control", "engine"] {
        for switch in [0, 1, 7, 100] {
            let (source, feed) = pipe().unwrap();
            let (out, sink) = pipe().unwrap();
            let got = std::thread::scope(|scope| {
                let data = &data;
                scope.spawn(move || {
                    for (i, part) in data.chunks(1000).enumerate() {
                        if i == switch {
                            let plain = fcntl_getfl(&feed).unwrap();
                            fcntl_setfl(&feed, plain | OFlags::DIRECT).unwrap();
                        }
                        write(&feed, &[part.len()], part);
                    }
                });
                let got = scope.spawn(move || read_shortly(out));
                let report = by(way, source.as_fd(), sink.as_fd(), data.len());
                drop(sink);
                assert_eq!(report.written, data.len() as u64);
                got.join().unwrap()
            });
            assert!(got == data, "{way}: {} bytes", got.len());
        }
    }
}

/// If packets cannot be distinguished from a stream, read/write carries both.
#[test]
fn without_a_pipe_to_look_with_a_buffer_is_used() {
    if !common::alone!() {
        return;
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let data = pattern(3000);
    let (source, feed) = packet_pipe();
    write(&feed, &[1000; 3], &data);
    drop(feed);
    let (out, sink) = pipe().unwrap();
    let limit = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(3),
        ..limit
    };
    setrlimit(Resource::Nofile, none).unwrap();
    let report = run(&source, &sink, only(&[Splice, ReadWrite])).report;
    setrlimit(Resource::Nofile, limit).unwrap();
    drop(sink);
    assert_eq!((report.written, &report.path[..]), (3000, &[ReadWrite][..]));
    assert!(read_shortly(out) == data);
}
