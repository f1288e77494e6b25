//! Files and pipes that change during a transfer, and how often the transfer checks
//! for changes.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use crate::common::{self, From, any, content, file_with, meanwhile, only, pattern, run, watchdog};
use cordboard::DataPath::{CopyFileRange, ReadWrite, Sendfile, Splice};
use cordboard::{Control, DataPath, Ended, Endpoint, Errno, Request, Side, Sparse, Transfer};
use testkit::needs::Need;

const COPYING: [DataPath; 4] = [CopyFileRange, Sendfile, Splice, ReadWrite];

const MIB: usize = 1 << 20;

#[test]
fn append_set_after_open_hands_over_where_it_stopped() {
    let _dog = watchdog("append_set_after_open_hands_over_where_it_stopped");
    let data = pattern(16 * MIB);
    for path in common::forcible(&[CopyFileRange, Sendfile, Splice]) {
        // Between files of most file systems read/write comes first, and no other
        // path is left; from a pipe it comes last.
        let hands_over = path == Splice;
        let source = match hands_over {
            true => common::Source::new(From::Pipe, &data).fd,
            false => file_with(&data).into(),
        };
        let sink = tempfile::tempfile().unwrap();
        let mut append = meanwhile(|| {
            let flags = rustix::fs::fcntl_getfl(&sink).unwrap();
            rustix::fs::fcntl_setfl(&sink, flags | rustix::fs::OFlags::APPEND).unwrap();
        });
        let request = Request {
            block: std::num::NonZeroUsize::new(MIB),
            // If the sink's position may be shared, the transfer writes through a
            // second description.
            sink_unshared: path == Sendfile,
            ..match hands_over {
                true => only(&[path, ReadWrite]),
                false => only(&[path]),
            }
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let report = transfer.observe(&mut append).run().report;
        if hands_over {
            assert_eq!(report.path, [path, ReadWrite], "{report:?}");
            assert_eq!(report.ended, Ended::Eof);
            assert!(content(&sink) == data, "{report:?}");
        } else {
            let written = report.written as usize;
            assert!((1..data.len()).contains(&written), "{report:?}");
            assert_eq!((report.ended, report.stranded), (Ended::Error, 0));
            assert!(content(&sink) == data[..written], "{report:?}");
            let read = rustix::fs::tell(&source);
            assert_eq!(
                read,
                Ok(report.written),
                "the position is not behind the moved bytes"
            );
        }
        let last = report.declined.last().unwrap();
        let errno = if path == CopyFileRange {
            "EBADF"
        } else {
            "EINVAL"
        };
        assert_eq!((last.path, last.why.to_string().as_str()), (path, errno));
    }
}

#[test]
fn a_source_that_is_truncated_is_an_error_and_not_a_loop() {
    let _dog = watchdog("a_source_that_is_truncated_is_an_error_and_not_a_loop");
    let data = pattern(24 * MIB);
    for path in common::forcible(&COPYING) {
        let source = file_with(&data);
        let sink = tempfile::tempfile().unwrap();
        let mut cut = meanwhile(|| source.set_len(2 * MIB as u64).unwrap());
        let request = Request {
            block: std::num::NonZeroUsize::new(MIB),
            ..only(&[path])
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let report = transfer.observe(&mut cut).run().report;
        let failure = (report.ended, report.failed, report.errno);
        let expected = (Ended::Error, Some(Side::Source), Some(Errno::ENODATA));
        assert_eq!(failure, expected, "{path}: {report:?}");
        assert_eq!(
            (report.read, report.written),
            (2 * MIB as u64, 2 * MIB as u64)
        );
        assert!(content(&sink) == data[..2 * MIB], "{path}");
    }
}

#[test]
fn a_source_that_grows_is_read_to_its_new_end() {
    let _dog = watchdog("a_source_that_grows_is_read_to_its_new_end");
    let data = pattern(9 * MIB);
    for path in common::forcible(&COPYING) {
        let source = file_with(&data[..8 * MIB]);
        let sink = tempfile::tempfile().unwrap();
        let mut grow = meanwhile(|| {
            source
                .write_all_at(&data[8 * MIB..], 8 * MIB as u64)
                .unwrap();
        });
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), only(&[path])).unwrap();
        let report = transfer.observe(&mut grow).run().report;
        assert_eq!(
            (report.ended, report.written),
            (Ended::Eof, data.len() as u64),
            "{path}"
        );
        assert!(content(&sink) == data, "{path}");
    }
}

#[test]
fn later_writes_show_in_a_pipe_unless_the_snapshot_is_stable() {
    let _dog = watchdog("later_writes_show_in_a_pipe_unless_the_snapshot_is_stable");
    for stable in [false, true] {
        let source = file_with(&[b'O'; 32 << 10]);
        let (mut reader, writer) = std::io::pipe().unwrap();
        let report = run(&source, &writer, Request { stable, ..any() }).report;
        let path = match stable {
            true => [ReadWrite],
            false => common::carried_by(&[Splice, ReadWrite]),
        };
        assert_eq!(report.path, path, "{report:?}");
        let expected = if path == [Splice] { b'N' } else { b'O' };
        source.write_all_at(&[b'N'; 32 << 10], 0).unwrap();
        drop(writer);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert!(got == [expected; 32 << 10], "stable: {stable}");
    }
}

/// Pages of a file that another program has spliced or sent into the source, a pipe
/// or a socket.
#[test]
fn pages_in_the_source_are_copied_where_the_snapshot_is_stable() {
    use rustix::pipe::SpliceFlags;
    let name = "pages_in_the_source_are_copied_where_the_snapshot_is_stable";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice, Need::Sendfile]) {
        return;
    }
    const SIZE: usize = 16 << 10;
    for stable in [false, true] {
        for from in [From::Pipe, From::Unix, From::Tcp] {
            for to in [From::Pipe, From::Unix, From::Tcp] {
                let file = file_with(&[b'O'; SIZE]);
                let (source, feed) = pair(from);
                let moved = match from {
                    From::Pipe => {
                        let none = SpliceFlags::empty();
                        rustix::pipe::splice(&file, Some(&mut 0), &feed, None, SIZE, none)
                    }
                    _ => rustix::fs::sendfile(&feed, &file, Some(&mut 0), SIZE),
                };
                assert_eq!(moved, Ok(SIZE));
                drop(feed);
                let (out, sink) = pair(to);
                let report = run(&source, &sink, Request { stable, ..any() }).report;
                let case = format!("{from:?} {to:?} {stable}: {report:?}");
                assert_eq!(report.written, SIZE as u64, "{case}");
                file.write_all_at(&[b'N'; SIZE], 0).unwrap();
                drop(sink);
                let got = common::content_of(out);
                assert_eq!(got.len(), SIZE, "{case}");
                if stable {
                    assert_eq!(report.path, [ReadWrite], "{case}");
                    assert!(got.iter().all(|byte| *byte == b'O'), "{case}");
                }
                // Without a snapshot the page itself is passed on.
                if !stable && (from, to) == (From::Pipe, From::Pipe) {
                    assert_eq!(report.path, [Splice], "{case}");
                    assert!(got.iter().all(|byte| *byte == b'N'), "{case}");
                }
            }
        }
    }
}

/// (read end, write end).
fn pair(kind: From) -> (OwnedFd, OwnedFd) {
    match kind {
        From::Unix => {
            let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
            (a.into(), b.into())
        }
        From::Tcp => {
            let (a, b) = common::tcp_pair();
            (a.into(), b.into())
        }
        _ => rustix::pipe::pipe().unwrap(),
    }
}

/// The most bytes between two checks.
#[derive(Default)]
struct Stride {
    last: u64,
    longest: u64,
}

impl cordboard::Observer for Stride {
    fn progress(&mut self, progress: &cordboard::Progress) {
        self.longest = self.longest.max(progress.written - self.last);
        self.last = progress.written;
    }
}

#[test]
fn one_call_moves_a_bounded_piece() {
    let _dog = watchdog("one_call_moves_a_bounded_piece");
    let source = file_with(&pattern(24 * MIB));
    for path in common::forcible(&COPYING) {
        let bound = match path {
            CopyFileRange => 16,
            Sendfile => 2,
            _ => 1,
        };
        let sink = tempfile::tempfile().unwrap();
        let request = Request {
            source_offset: Some(0),
            ..only(&[path])
        };
        let mut stride = Stride::default();
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let report = transfer.observe(&mut stride).run().report;
        assert_eq!(report.written, 24 * MIB as u64);
        assert!(stride.longest <= bound << 20, "{path}: {}", stride.longest);
    }
}

/// Blocks reserved behind `RLIMIT_FSIZE` could not be released: each write there fails.
#[test]
fn no_room_is_reserved_behind_the_size_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::unix::fs::MetadataExt;
    let name = "no_room_is_reserved_behind_the_size_limit";
    let _dog = watchdog(name);
    if !common::alone!() {
        return;
    }
    for path in common::forcible(&COPYING) {
        for most in [5 * MIB as u64, 5 * MIB as u64 + 100] {
            let (source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
            let filesystem = Endpoint::probe(sink.as_fd()).unwrap().facts().filesystem;
            if !filesystem.is_some_and(|fs| fs.reserves_by_page()) {
                return testkit::skip::report(name, "temporary files are not on ext4");
            }
            source.set_len(512 << 20).unwrap();
            let request = Request {
                sparse: Sparse::Never,
                ..only(&[path])
            };
            let before = getrlimit(Resource::Fsize);
            let current = Some(most);
            setrlimit(Resource::Fsize, Rlimit { current, ..before }).unwrap();
            let report = run(&source, &sink, request).report;
            setrlimit(Resource::Fsize, before).unwrap();
            let failure = (report.failed, report.errno, report.written);
            let expected = (Some(Side::Sink), Some(Errno::EFBIG), most);
            assert_eq!(failure, expected, "{path}: {report:?}");
            // And a few blocks for the map of the other blocks.
            let allocated = sink.metadata().unwrap().blocks() * 512;
            assert!(allocated <= most + 64 * 1024, "{path}: {allocated}");
        }
    }
}

/// Space reserved behind a sink's end is released, however the transfer ends. Bytes
/// that others have written there meanwhile stay.
#[test]
fn room_that_is_not_filled_is_given_back() {
    use std::os::unix::fs::MetadataExt;
    let name = "room_that_is_not_filled_is_given_back";
    let _dog = watchdog(name);
    let sink = tempfile::tempfile().unwrap();
    let reserves = Endpoint::probe(sink.as_fd()).unwrap().facts().filesystem;
    if !reserves.is_some_and(|fs| fs.reserves_by_page()) {
        return testkit::skip::report(name, "the directory for temporary files is not on ext4");
    }
    let m = MIB as u64;
    for path in common::forcible(&COPYING) {
        for (cut, theirs) in [(false, None), (false, Some(40 * m)), (true, None)] {
            let (source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
            // The source is written completely, as zeros.
            source.set_len(512 * m).unwrap();
            let request = Request {
                sparse: Sparse::Never,
                block: std::num::NonZeroUsize::new(MIB + 300),
                ..only(&[path])
            };
            let control = Control::new().unwrap();
            let mut reserved = 0;
            let mut early = meanwhile(|| {
                reserved = sink.metadata().unwrap().blocks() * 512;
                match theirs {
                    Some(at) => sink.write_all_at(b"theirs", at).unwrap(),
                    None if cut => source.set_len(m).unwrap(),
                    None => {}
                }
                if !cut {
                    control.cancel();
                }
            });
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
            let transfer = transfer.control(&control).observe(&mut early);
            let report = transfer.run().report;
            let what = format!("{path} {cut} {theirs:?}: {report:?}");
            assert!(reserved >= 32 * m, "{what}: {reserved}");
            let expected = if cut { Ended::Error } else { Ended::Cancelled };
            assert_eq!(report.ended, expected, "{what}");
            let stat = sink.metadata().unwrap();
            let end = theirs.map_or(report.written, |at| at + 6);
            assert_eq!(stat.len(), end, "{what}");
            // And a few blocks for the map of the other blocks.
            let most = end.next_multiple_of(4096) + 64 * 1024;
            assert!(stat.blocks() * 512 <= most, "{what}: {}", stat.blocks());
            if let Some(at) = theirs {
                let mut found = [0; 6];
                sink.read_exact_at(&mut found, at).unwrap();
                assert_eq!(&found, b"theirs", "{what}");
            }
        }
    }
}

/// Between the transfer's query of the pipe and its next call, a writer writes bytes
/// of a stream, turns packet mode on and writes a packet. The call reads no more
/// bytes than the query has found, and cuts no packet.
#[test]
fn packets_that_come_behind_a_look_are_whole() {
    use common::datagrams::{Sort, all, pair};
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::pipe::{PipeFlags, pipe, pipe_with};
    const PACKET: usize = 4000;
    let name = "packets_that_come_behind_a_look_are_whole";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    // Properties that are read once per process are read before the calls are held.
    let (source, feed) = std::io::pipe().unwrap();
    drop(feed);
    run(&source, tempfile::tempfile().unwrap(), only(&[ReadWrite]));
    let mut calls = vec![libc::SYS_read, libc::SYS_preadv2, libc::SYS_splice];
    calls.extend(testkit::refuse::PPOLL);
    let data = pattern(40_000);
    let sinks = ["a pipe", "zstd", "a packet pipe", "datagrams"];
    let cases = sinks.into_iter().flat_map(|to| {
        let blocks = [1000, 4096, 4097, 9000, 16_384];
        blocks.into_iter().map(move |block| (to, block))
    });
    for (to, block) in cases {
        for (there, at, nonblocking) in [
            (0, 0, false),
            (0, 0, true),
            (700, 0, false),
            (700, 1, false),
            (700, 2, true),
            (5000, 0, false),
            (5000, 1, true),
        ] {
            if to == "zstd" && cfg!(not(feature = "zstd")) {
                continue;
            }
            let case = format!("{to}, block {block}, {there} there, at {at}, {nonblocking}");
            let (source, feed) = pipe().unwrap();
            if nonblocking {
                fcntl_setfl(&source, OFlags::NONBLOCK).unwrap();
            }
            let (out, sink) = match to {
                "a packet pipe" => pipe_with(PipeFlags::DIRECT).unwrap(),
                "datagrams" => pair(Sort::Seqpacket),
                _ => pipe().unwrap(),
            };
            assert_eq!(rustix::io::write(&feed, &data[..there]), Ok(there));
            // More bytes than the query has found, with a part of a packet.
            let stream = block.max(1200) - 1000;
            let total = there + stream + PACKET;
            let (mut feed, mut held) = (Some(feed), 0);
            let come = || {
                if held == at
                    && let Some(feed) = feed.take()
                {
                    let (stream, packet) = data[there..total].split_at(stream);
                    assert_eq!(rustix::io::write(&feed, stream), Ok(stream.len()));
                    let flags = fcntl_getfl(&feed).unwrap();
                    fcntl_setfl(&feed, flags | OFlags::DIRECT).unwrap();
                    assert_eq!(rustix::io::write(&feed, packet), Ok(PACKET));
                }
                held += 1;
            };
            let mut report = None;
            let body = || {
                let request = Request {
                    block: std::num::NonZeroUsize::new(block),
                    ..any()
                };
                let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
                let transfer = match to {
                    #[cfg(feature = "zstd")]
                    "zstd" => transfer.stage(cordboard::Stage::zstd(1).unwrap()).unwrap(),
                    "a pipe" => transfer.stage(cordboard::Stage::count()).unwrap(),
                    _ => transfer,
                };
                report = Some(transfer.run().report);
                drop(sink);
            };
            if testkit::midst::at_each(&calls, body, come).is_none() {
                return testkit::skip::report(name, "calls of another thread cannot be held");
            }
            let report = report.unwrap();
            assert_eq!(
                (report.ended, report.read),
                (Ended::Eof, total as u64),
                "{case}"
            );
            if to != "zstd" {
                assert_eq!(report.written, total as u64, "{case}: {report:?}");
                let got = match to {
                    "datagrams" => all(&out).concat(),
                    _ => {
                        let (mut got, mut packet) = (Vec::new(), [0; 4096]);
                        while let Ok(n @ 1..) = rustix::io::read(&out, &mut packet) {
                            got.extend_from_slice(&packet[..n]);
                        }
                        got
                    }
                };
                assert!(got == data[..total], "{case}: {report:?}");
            }
        }
    }
}
