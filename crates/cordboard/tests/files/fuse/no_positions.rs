//! Files that cannot seek.

use super::*;

/// A file that cannot seek, of which a call returns 0 before the end. No call can
/// read at an offset, so only another read finds the rest.
#[test]
fn an_end_that_nobody_can_look_behind_is_read() {
    let _dog = watchdog("an_end_that_nobody_can_look_behind_is_read");
    if !common::is_root() {
        testkit::skip::here("mounting needs root");
        return;
    }
    let data = noise(300_003);
    let gets = Mutex::default();
    let served = Served {
        holds: &data,
        claims: data.len() as u64,
        stream: true,
        gets: Some(&gets),
        ..Served::default()
    };
    let calls = [
        (CopyFileRange, libc::SYS_copy_file_range),
        (Sendfile, libc::SYS_sendfile),
        (Splice, libc::SYS_splice),
    ];
    let mounted = with_file(served, |from| {
        with_file(served, |to| {
            for (path, call) in calls {
                gets.lock().unwrap().clear();
                let source = File::open(from).unwrap();
                let (sink, reader) = match path {
                    CopyFileRange => (File::options().write(true).open(to).unwrap().into(), None),
                    Sendfile => with_reader(sink(From::Tcp)),
                    _ => with_reader(sink(From::Pipe)),
                };
                let report = testkit::refuse::apart(|| {
                    testkit::refuse::refuse(&[call], 0);
                    run(&source, &sink, only(&[path, ReadWrite])).report
                });
                assert_eq!(report.ended, Ended::Eof, "{report:?}");
                assert_eq!(report.written, data.len() as u64, "{report:?}");
                assert_eq!(report.path, [ReadWrite], "{report:?}");
                let why = report.declined.iter().find(|d| d.path == path);
                let why = why.map(|d| d.why.to_string());
                assert_eq!(
                    why.as_deref(),
                    Some("the end of the source cannot be confirmed")
                );
                drop(sink);
                let got = reader.map_or_else(|| gets.lock().unwrap().clone(), Reader::all);
                assert!(got == data, "{report:?}");
            }
            // If only one path is allowed, it has no fallback, and the size
            // decides.
            let alone: &[bool] = match common::is_open(Splice) {
                true => &[true, false],
                false => &[true],
            };
            for &none in alone {
                let source = File::open(from).unwrap();
                let (sink, reader) = sink(From::Pipe);
                let report = testkit::refuse::apart(|| {
                    if none {
                        testkit::refuse::refuse(&[libc::SYS_splice], 0);
                    }
                    run(&source, &sink, only(&[Splice])).report
                });
                drop(sink);
                let (ended, got) = match none {
                    true => (Ended::Error, &data[..0]),
                    false => (Ended::Eof, &data[..]),
                };
                assert_eq!(report.ended, ended, "{report:?}");
                assert!(reader.all() == got, "{report:?}");
            }
        });
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

/// A size of 0 is not trusted for a file that cannot seek. The server allows a
/// mapping, so the file is not recognised as one that bypasses the page cache.
#[test]
fn an_end_at_a_size_of_none_is_not_believed() {
    let _dog = watchdog("an_end_at_a_size_of_none_is_not_believed");
    if !common::is_root() {
        testkit::skip::here("mounting needs root");
        return;
    }
    let data = noise(100_003);
    let served = Served {
        holds: &data,
        direct: true,
        mapped: true,
        stream: true,
        ..Served::default()
    };
    let mounted = with_file(served, |at| {
        for path in [Splice, Sendfile] {
            let source = File::open(at).unwrap();
            let (to, reader) = sink(From::Tcp);
            let report = run(&source, &to, only(&[path, ReadWrite])).report;
            drop(to);
            assert_eq!(report.ended, Ended::Eof, "{report:?}");
            assert!(reader.all() == data, "{report:?}");
            // No other path could find the rest.
            let source = File::open(at).unwrap();
            let (to, reader) = sink(From::Tcp);
            let transfer = Transfer::new(source.as_fd(), to.as_fd(), only(&[path]));
            let all = transfer.map(|transfer| {
                let report = transfer.run().report;
                let all = report.written == data.len() as u64;
                assert!(all || report.ended == Ended::Error, "{report:?}");
            });
            drop(all);
            drop(to);
            let got = reader.all();
            assert!(data.starts_with(&got), "{path}: {}", got.len());
        }
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

/// A file that cannot seek as the sink of a sparse copy: it gets zeros.
#[test]
fn zeros_are_written_where_nothing_can_be_skipped() {
    let _dog = watchdog("zeros_are_written_where_nothing_can_be_skipped");
    if !common::is_root() {
        testkit::skip::here("mounting needs root");
        return;
    }
    let mut data = noise(300_003);
    data[8192..200_000].fill(0);
    let gets = Mutex::default();
    for direct in [false, true] {
        let served = Served {
            stream: true,
            direct,
            gets: Some(&gets),
            ..Served::default()
        };
        let mounted = with_file(served, |at| {
            for kind in SOURCES {
                for sparse in [Sparse::Auto, Sparse::Always, Sparse::Never] {
                    for engine in [false, true] {
                        gets.lock().unwrap().clear();
                        let source = common::Source::new(kind, &data);
                        let sink = File::options().write(true).open(at).unwrap().into();
                        let request = Request {
                            sparse,
                            ..common::any()
                        };
                        let report = moved(source.fd, sink, request, engine, false);
                        let what = format!("{kind:?} {sparse:?} engine {engine}: {report:?}");
                        assert_eq!(report.ended, Ended::Eof, "{what}");
                        assert_eq!(report.read, data.len() as u64, "{what}");
                        assert_eq!(report.written, data.len() as u64, "{what}");
                        assert!(*gets.lock().unwrap() == data, "{what}");
                    }
                }
            }
        });
        if !mounted {
            testkit::skip::here("no FUSE here");
            return;
        }
    }
}

fn with_reader((sink, reader): (OwnedFd, Reader)) -> (OwnedFd, Option<Reader>) {
    (sink, Some(reader))
}
