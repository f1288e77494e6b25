//! Files of FUSE file systems. If the size is false, every path reads the same bytes
//! as a read loop. Calls may fail with `EAGAIN` or `EINTR` instead of waiting.

mod false_holes;
mod interrupted;
mod no_positions;
mod overlay;
mod past_the_cache;
mod unpolled;

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::thread::JoinHandle;

use crate::common::{self, From, SOURCES, content, only, pattern, run, watchdog};
use cordboard::DataPath::{self, CopyFileRange, Direct, ReadWrite, Sendfile, Splice};
use cordboard::{Ended, Errno, Report, Request, Side, Size, Sparse, Stage, Transfer};
use std::sync::Mutex;
use testkit::fuse::{Served, with_file};
use testkit::pattern::noise;

/// Writes 100,000 bytes to a file whose server reports once that it has no space. The caller's
/// own close does not get the error. `paths`: those that are used, if they are known.
fn reports_lack_of_space(way: impl FnOnce(File, &File) -> Report, paths: Option<&[DataPath]>) {
    if !common::is_root() {
        return testkit::skip::here("mounting needs root");
    }
    let source = common::file_with(&pattern(100_000));
    let mounted = with_file(Served::full(), |at| {
        let sink = File::options().write(true).open(at).unwrap();
        let report = way(source, &sink);
        assert_eq!(
            (report.ended, report.failed, report.errno),
            (Ended::Error, Some(Side::Sink), Some(Errno::ENOSPC)),
            "{report:?}"
        );
        assert_eq!(report.written, 100_000);
        assert!(paths.is_none_or(|paths| report.path == paths), "{report:?}");
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

/// The close of the engine's duplicate gets the error.
#[test]
fn an_error_that_only_the_first_close_gets_is_reported() {
    let _dog = watchdog("an_error_that_only_the_first_close_gets_is_reported");
    let started = |source, sink: &File| {
        let running = cordboard::start(source, sink, Request::default());
        running.unwrap().wait().report
    };
    let owning = |source: File, sink: &File| {
        let sink = sink.try_clone().unwrap().into();
        let transfer = Transfer::owning(source.into(), sink, Request::default());
        transfer.unwrap().run().report
    };
    let stepping = |source: File, sink: &File| {
        let request = Request::default();
        let transfer = Transfer::duplicating(source.as_fd(), sink.as_fd(), request).unwrap();
        let mut stepping = transfer.stepping().unwrap();
        loop {
            if let Some(outcome) = stepping.step() {
                return outcome.report;
            }
        }
    };
    reports_lack_of_space(started, None);
    reports_lack_of_space(owning, None);
    reports_lack_of_space(stepping, None);
}

/// `sendfile(2)` writes to another open file description if the position is shared, and direct
/// I/O always does.
#[test]
fn an_error_of_another_description_is_reported() {
    let _dog = watchdog("an_error_of_another_description_is_reported");
    let path = common::forcible(&[Sendfile]);
    if !path.is_empty() {
        let by = |source: File, sink: &File| run(&source, sink, only(&[Sendfile])).report;
        reports_lack_of_space(by, Some(&path));
    }
    let by = |source: File, sink: &File| {
        let here = tempfile::tempfile_in(".").unwrap();
        here.write_all_at(&content(&source), 0).unwrap();
        let request = Request {
            direct: cordboard::Direct::Always,
            ..only(&[Direct])
        };
        run(&here, sink, request).report
    };
    reports_lack_of_space(by, Some(&[Direct]));
}

/// One file on both sides: the descriptor of the source, or one that only the search for holes
/// uses, is closed first.
#[test]
fn an_error_of_the_sink_that_the_close_of_the_source_gets_is_reported() {
    let _dog = watchdog("an_error_of_the_sink_that_the_close_of_the_source_gets_is_reported");
    for sparse in [Sparse::Never, Sparse::Always] {
        let request = Request {
            size: Size::Bytes(100_000),
            source_offset: Some(0),
            sink_offset: Some(1 << 20),
            sparse,
            ..Request::default()
        };
        from_a_full_server(true, true, |file| {
            let running = cordboard::start(file, file, request).unwrap();
            let report = running.wait().report;
            let failed = (report.failed, report.errno);
            assert_eq!(
                failed,
                (Some(Side::Sink), Some(Errno::ENOSPC)),
                "{sparse:?}"
            );
            assert_eq!((report.ended, report.written), (Ended::Error, 100_000));
        });
    }
}

/// The error of what the caller has written to the source. If that is open for reading only, the
/// caller has another descriptor.
#[test]
fn an_error_that_only_the_close_of_the_source_gets_is_reported() {
    let _dog = watchdog("an_error_that_only_the_close_of_the_source_gets_is_reported");
    for (writable, sparse) in [(false, false), (false, true), (true, false), (true, true)] {
        from_a_full_server(writable, sparse, |source| {
            let sink = common::file_with(b"");
            let report = cordboard::start(source, &sink, Request::default());
            let report = report.unwrap().wait().report;
            let expected = match writable {
                false => (Ended::Eof, None, None),
                true => (Ended::Error, Some(Side::Source), Some(Errno::ENOSPC)),
            };
            assert_eq!((report.ended, report.failed, report.errno), expected);
            assert_eq!(report.written, 100_000);
        });
    }
}

/// A file to which a byte was written, and whose server reports once that it has no space.
fn from_a_full_server(writable: bool, sparse: bool, test: impl FnOnce(&File)) {
    if !common::is_root() {
        return testkit::skip::here("mounting needs root");
    }
    let data = pattern(100_000);
    let served = Served {
        holds: &data,
        claims: 100_000,
        sparse,
        ..Served::full()
    };
    let mounted = with_file(served, |at| {
        let open = |write| File::options().read(true).write(write).open(at).unwrap();
        let (file, writer) = (open(writable), open(true));
        writer.write_all_at(&data[..1], 0).unwrap();
        test(&file);
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

#[test]
fn a_false_size_ends_nothing_early() {
    let _dog = watchdog("a_false_size_ends_nothing_early");
    if !common::is_root() {
        testkit::skip::here("mounting needs root");
        return;
    }
    let data = pattern(100_000);
    for (direct, mapped) in [(false, false), (true, false), (true, true)] {
        for claims in [0, 10, 99_999, 100_000, 150_000, 1 << 40] {
            let claim = format!("{claims}, direct {direct}, mapped {mapped}");
            let served = Served {
                holds: &data,
                claims,
                direct,
                mapped,
                ..Served::default()
            };
            let mounted = with_file(served, |at| {
                let mut source = File::open(at).unwrap();
                // The result of a read loop.
                let (mut expected, mut block) = (Vec::new(), vec![0; 4096]);
                while let Ok(n @ 1..) = source.read_at(&mut block, expected.len() as u64) {
                    expected.extend_from_slice(&block[..n]);
                    assert!(expected.len() < 1 << 20, "{claim}");
                }
                if direct {
                    assert_eq!(expected.len(), 100_000, "{claim}");
                }
                for paths in [
                    &[CopyFileRange, Sendfile, Splice, ReadWrite][..],
                    &[Sendfile, ReadWrite],
                    &[Splice, ReadWrite],
                    &[ReadWrite],
                ] {
                    source.rewind().unwrap();
                    let sink = tempfile::tempfile().unwrap();
                    let report = run(source.as_fd(), &sink, only(paths)).report;
                    let what = format!("{claim} by {paths:?}: {report:?}");
                    assert_eq!(report.ended, Ended::Eof, "{what}");
                    assert_eq!(report.written, expected.len() as u64, "{what}");
                    assert!(content(&sink) == expected, "{what}");
                    if direct
                        && claims == 99_999
                        && paths.len() == 2
                        && common::forcible(paths) == paths
                    {
                        // The reported size is a byte too small, which a read
                        // detects.
                        source.rewind().unwrap();
                        let (sink, mut peer) = common::tcp_pair();
                        let reader = std::thread::spawn(move || {
                            let mut got = Vec::new();
                            peer.read_to_end(&mut got).unwrap();
                            got
                        });
                        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), only(paths));
                        let transfer = transfer.unwrap();
                        let choices = &transfer.route().choices;
                        // Always true since Linux 6.6.
                        let taken = choices.iter().any(|choice| choice.path == paths[0]);
                        assert!(mapped || !taken, "{choices:?}");
                        let report = transfer.run().report;
                        drop(sink);
                        // Linux 5.10 sends beyond the size that the server reports.
                        let first = &paths[..1];
                        let past = rustix::fs::sendfile(
                            std::fs::File::options()
                                .write(true)
                                .open("/dev/null")
                                .unwrap(),
                            source.as_fd(),
                            Some(&mut 0),
                            100_000,
                        );
                        let at_once = past == Ok(100_000) && report.path == first;
                        let right = if taken { paths } else { &[ReadWrite] };
                        assert!(at_once || report.path == right, "{report:?}");
                        assert!(reader.join().unwrap() == expected, "{report:?}");
                    }
                }
            });
            if !mounted {
                testkit::skip::here("no FUSE here");
                return;
            }
        }
    }
}

/// A thread that reads a sink to its end.
enum Reader {
    File(File),
    Thread(JoinHandle<Vec<u8>>),
}

impl Reader {
    fn all(self) -> Vec<u8> {
        match self {
            Reader::File(file) => content(&file),
            Reader::Thread(thread) => thread.join().unwrap(),
        }
    }
}

/// Makes a sink of each kind of stream, with its reader.
fn sink(kind: From) -> (OwnedFd, Reader) {
    let (sink, peer): (OwnedFd, OwnedFd) = match kind {
        From::File => {
            let file = tempfile::tempfile().unwrap();
            return (file.try_clone().unwrap().into(), Reader::File(file));
        }
        From::Pipe => {
            let (reader, writer) = std::io::pipe().unwrap();
            (writer.into(), reader.into())
        }
        From::Unix => {
            let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
            (a.into(), b.into())
        }
        From::Tcp => {
            let (a, b) = common::tcp_pair();
            (a.into(), b.into())
        }
    };
    let read = move || common::content_of(peer);
    (sink, Reader::Thread(std::thread::spawn(read)))
}

/// Runs a transfer on this thread or on an engine.
fn moved(source: OwnedFd, sink: OwnedFd, request: Request, engine: bool, staged: bool) -> Report {
    let mut transfer = Transfer::owning(source, sink, request).unwrap();
    if staged {
        transfer = transfer.stage(Stage::transforming(common::Same)).unwrap();
    }
    match engine {
        true => transfer.start().unwrap().wait().report,
        false => transfer.run().report,
    }
}

/// Every way to move a file's bytes that can be forced here: by one path and its
/// fallbacks, through stages, with holes, on an engine.
fn ways(paths: &[DataPath]) -> Vec<(Request, bool, bool)> {
    let mut all = Vec::new();
    for engine in [false, true] {
        for path in common::forcible(paths) {
            all.push((only(&[path, ReadWrite]), engine, false));
        }
        for sparse in [Sparse::Auto, Sparse::Always, Sparse::Never] {
            let request = Request {
                sparse,
                ..common::any()
            };
            all.push((request, engine, false));
        }
        all.push((common::any(), engine, true));
    }
    all
}

/// `EAGAIN` of a call that may wait, on a file that always polls ready.
#[test]
fn a_file_that_answers_eagain_each_time_fails() {
    let _dog = watchdog("a_file_that_answers_eagain_each_time_fails");
    if !common::is_root() {
        testkit::skip::here("mounting needs root");
        return;
    }
    let data = pattern(1 << 20);
    for (good, direct) in [(0, false), (0, true), (1 << 18, false), (1 << 18, true)] {
        let served = Served {
            holds: &data,
            claims: data.len() as u64,
            direct,
            fails: (good, Errno::EAGAIN.raw()),
            ..Served::default()
        };
        let check = |side, report: &Report, staged: bool, what: &str| {
            let what = format!("{side} good up to {good}, direct {direct}, {what}: {report:?}");
            assert_eq!(report.ended, Ended::Error, "{what}");
            assert_eq!(report.failed, Some(side), "{what}");
            // Linux 7.3 reports this as `EIO` for pages.
            let by_pages = side == Side::Source && !direct && report.errno == Some(Errno::EIO);
            assert!(by_pages || report.errno == Some(Errno::EAGAIN), "{what}");
            assert!(report.written <= good, "{what}");
            if !staged {
                assert_eq!(report.read, report.written + report.stranded, "{what}");
            }
            what
        };
        let mounted = with_file(served, |at| {
            let all = [CopyFileRange, Sendfile, Splice, ReadWrite];
            for kind in SOURCES {
                for (request, engine, staged) in ways(&all) {
                    let what = format!("to {kind:?}, {request:?}, engine {engine}");
                    let (sink, reader) = sink(kind);
                    let source = File::open(at).unwrap().into();
                    let report = moved(source, sink, request, engine, staged);
                    let what = check(Side::Source, &report, staged, &what);
                    assert!(reader.all() == data[..report.written as usize], "{what}");
                }
                for (request, engine, staged) in ways(&all) {
                    let what = format!("from {kind:?}, {request:?}, engine {engine}");
                    let source = common::Source::new(kind, &data);
                    let sink = File::options().write(true).open(at).unwrap().into();
                    let report = moved(source.fd, sink, request, engine, staged);
                    check(Side::Sink, &report, staged, &what);
                }
            }
        });
        if !mounted {
            testkit::skip::here("no FUSE here");
            return;
        }
    }
}

/// The same with a generated file, as in sysfs: a filter fails every read.
#[test]
fn a_made_up_file_that_answers_eagain_each_time_fails() {
    let _dog = watchdog("a_made_up_file_that_answers_eagain_each_time_fails");
    testkit::refuse::apart(|| {
        let source = File::open("/proc/self/status").unwrap();
        let sink = tempfile::tempfile().unwrap();
        let calls = [libc::SYS_read, libc::SYS_pread64];
        testkit::refuse::refuse(&calls, Errno::EAGAIN.raw());
        let report = run(&source, &sink, common::any()).report;
        assert_eq!(report.ended, Ended::Error, "{report:?}");
        assert_eq!(report.failed, Some(Side::Source), "{report:?}");
        assert_eq!(report.errno, Some(Errno::EAGAIN), "{report:?}");
        assert_eq!((report.read, report.written), (0, 0), "{report:?}");
    });
}
