//! Files whose server bypasses the page cache.

use super::*;

/// The server's file bypasses the page cache, and each call returns fewer bytes than
/// requested. Paths that use pages would read zeros for the rest of a page (with
/// `FUSE_WRITEBACK_CACHE`).
#[test]
fn a_file_past_the_page_cache_is_read_as_its_server_has_it() {
    let _dog = watchdog("a_file_past_the_page_cache_is_read_as_its_server_has_it");
    if !common::is_root() {
        testkit::skip::here("mounting needs root");
        return;
    }
    let data = noise(300_003);
    for (direct, writeback, short) in [
        // Less than a page.
        (true, true, 3001),
        (true, false, 3001),
        (false, true, 0),
    ] {
        let served = Served {
            holds: &data,
            claims: data.len() as u64,
            inside: true,
            direct,
            writeback,
            short,
            ..Served::default()
        };
        let mounted = with_file(served, |at| {
            let pages = [CopyFileRange, Sendfile, Splice];
            for kind in SOURCES {
                for (request, engine, staged) in ways(&[CopyFileRange, Sendfile, Splice, ReadWrite])
                {
                    let (sink, reader) = sink(kind);
                    let source = File::open(at).unwrap().into();
                    let what = format!("direct {direct}, to {kind:?}, {request:?}, {engine}");
                    let report = moved(source, sink, request, engine, staged);
                    let what = format!("{what}: {report:?}");
                    assert_eq!(report.ended, Ended::Eof, "{what}");
                    assert_eq!(report.written, data.len() as u64, "{what}");
                    assert!(reader.all() == data, "{what}");
                    if direct {
                        assert_eq!(report.path, [ReadWrite], "{what}");
                    }
                }
            }
            // Another sink on FUSE.
            for kind in [From::File, From::Tcp] {
                let (sink, _reader) = sink(kind);
                let source = File::open(at).unwrap();
                let transfer = Transfer::new(source.as_fd(), sink.as_fd(), common::any()).unwrap();
                let excluded = &transfer.route().excluded;
                for path in pages {
                    let why = excluded
                        .iter()
                        .find(|d| d.path == path)
                        .map(|d| d.why.to_string());
                    let told = why.is_some_and(|why| why.contains("bypass the page cache"));
                    let asked = kind == From::File || path != CopyFileRange;
                    assert_eq!(told, direct && asked, "{path} to {kind:?}: {excluded:?}");
                }
            }
        });
        if !mounted {
            testkit::skip::here("no FUSE here");
            return;
        }
    }
}

/// The server's `statfs(2)` fails, and the file's size is too large or 0: it must
/// not be trusted.
#[test]
fn a_file_of_a_file_system_that_nobody_knows_is_read_as_its_server_has_it() {
    let _dog = watchdog("a_file_of_a_file_system_that_nobody_knows_is_read_as_its_server_has_it");
    if !common::is_root() {
        testkit::skip::here("mounting needs root");
        return;
    }
    let data = noise(100_003);
    let pages = [CopyFileRange, Sendfile, Splice];
    for errno in [Errno::ENOSYS, Errno::EACCES, Errno::EIO] {
        for (stream, claims) in [(false, 200_000), (true, 200_000), (true, 0)] {
            let served = Served {
                holds: &data,
                claims,
                inside: true,
                direct: true,
                stream,
                writeback: true,
                statfs: errno.raw(),
                ..Served::default()
            };
            let mounted = with_file(served, |at| {
                for kind in SOURCES {
                    for (request, engine, staged) in
                        ways(&[pages[0], pages[1], pages[2], ReadWrite])
                    {
                        let (sink, reader) = sink(kind);
                        let source = File::open(at).unwrap().into();
                        let what = format!("{served:?}, to {kind:?}, {request:?}, {engine}");
                        let report = moved(source, sink, request, engine, staged);
                        let what = format!("{what}: {report:?}");
                        assert_eq!(report.ended, Ended::Eof, "{what}");
                        assert_eq!(report.written, data.len() as u64, "{what}");
                        assert_eq!(report.path, [ReadWrite], "{what}");
                        assert!(reader.all() == data, "{what}");
                    }
                    let (sink, reader) = sink(kind);
                    let source = File::open(at).unwrap();
                    let refused = Transfer::new(source.as_fd(), sink.as_fd(), only(&pages));
                    assert!(refused.is_err(), "{errno} {stream} {claims}");
                    drop(refused);
                    drop(sink);
                    assert_eq!(reader.all(), b"");
                }
            });
            if !mounted {
                testkit::skip::here("no FUSE here");
                return;
            }
        }
    }
}

/// Direct I/O on both sides by request, with a server that moves fewer bytes than
/// each call requests.
#[test]
fn blocks_of_a_fuse_file_are_counted_as_they_came() {
    let _dog = watchdog("blocks_of_a_fuse_file_are_counted_as_they_came");
    if !common::is_root() {
        testkit::skip::here("mounting needs root");
        return;
    }
    let data = noise((4 << 20) + 5);
    let gets = Mutex::default();
    for (direct, short) in [(false, 5001), (true, 5001), (true, 40_961), (false, 8192)] {
        let served = Served {
            holds: &data,
            claims: data.len() as u64,
            direct,
            short,
            gets: Some(&gets),
            ..Served::default()
        };
        let mounted = with_file(served, |at| {
            for engine in [false, true] {
                let here = tempfile::tempfile_in(".").unwrap();
                let source = File::open(at).unwrap().into();
                let sink = here.try_clone().unwrap().into();
                let paths = Request {
                    direct: cordboard::Direct::Always,
                    ..only(&[Direct, ReadWrite])
                };
                let report = moved(source, sink, paths.clone(), engine, false);
                let what = format!("from: direct {direct}, {short}, engine {engine}: {report:?}");
                assert_eq!(report.ended, Ended::Eof, "{what}");
                assert_eq!(report.written, data.len() as u64, "{what}");
                assert!(content(&here) == data, "{what}");
                assert!(report.path.contains(&Direct), "{what}");

                gets.lock().unwrap().clear();
                let sink = File::options().write(true).open(at).unwrap().into();
                let source = here.try_clone().unwrap();
                (&source).rewind().unwrap();
                let report = moved(source.into(), sink, paths, engine, false);
                let what = format!("to: direct {direct}, {short}, engine {engine}: {report:?}");
                assert_eq!(report.ended, Ended::Eof, "{what}");
                assert_eq!(report.written, data.len() as u64, "{what}");
                assert!(*gets.lock().unwrap() == data, "{what}");
                assert!(report.path.contains(&Direct), "{what}");
            }
            // If only rings are allowed for blocks, direct I/O is declined.
            let ring = cordboard::engine::Options {
                backend: cordboard::engine::Backend::Uring,
                ..cordboard::engine::Options::default()
            };
            let Ok(engine) = cordboard::Engine::new(ring) else {
                return testkit::skip::here("no io_uring here");
            };
            let here = tempfile::tempfile_in(".").unwrap();
            let source = File::open(at).unwrap().into();
            let paths = Request {
                direct: cordboard::Direct::Always,
                ..only(&[Direct, ReadWrite])
            };
            let sink = here.try_clone().unwrap().into();
            let transfer = Transfer::owning(source, sink, paths).unwrap();
            let report = engine.start(transfer).unwrap().wait().report;
            assert_eq!(report.path, [ReadWrite], "{report:?}");
            let why = report.declined.iter().find(|d| d.path == Direct);
            let why = why.map(|d| d.why.to_string());
            assert!(
                why.is_some_and(|why| why.contains("io_uring")),
                "{report:?}"
            );
            assert!(content(&here) == data, "{report:?}");
        });
        if !mounted {
            testkit::skip::here("no FUSE here");
            return;
        }
    }
}
