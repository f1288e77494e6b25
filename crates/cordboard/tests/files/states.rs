//! Files with false sizes, appending sinks, one file on both sides, huge offsets.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;

use crate::common::{self, any, content, file_with, only, pattern, position, run, watchdog};
use cordboard::DataPath::{CopyFileRange, ReadWrite, Sendfile, Splice};
use cordboard::{DataPath, Ended, Refusal, Request, Size, Transfer};

const COPYING: [DataPath; 4] = [CopyFileRange, Sendfile, Splice, ReadWrite];

const MIB: usize = 1 << 20;

#[test]
fn files_made_up_on_the_fly_arrive_whole() {
    let _dog = watchdog("files_made_up_on_the_fly_arrive_whole");
    for name in [
        "/proc/cpuinfo",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/proc/version",
        // Its first read returns all of it.
        "/proc/sys/kernel/pid_max",
    ] {
        let Ok(mut source) = File::open(name) else {
            testkit::skip::here(format!("no {name}"));
            continue;
        };
        let sink = tempfile::tempfile().unwrap();
        let report = run(&source, &sink, any()).report;
        assert_eq!(
            (report.ended, &report.path[..]),
            (Ended::Eof, &[ReadWrite][..])
        );
        let mut expected = String::new();
        source.rewind().unwrap();
        source.read_to_string(&mut expected).unwrap();
        // Clock rates in cpuinfo change between two reads.
        let length = content(&sink).len() as u64;
        assert!(length > 0 && length == report.written, "{name}: {report:?}");
        if name == "/proc/cpuinfo" {
            continue;
        }
        assert_eq!(content(&sink), expected.as_bytes(), "{name}");
        // Also with a small block.
        let request = Request {
            block: std::num::NonZeroUsize::new(2),
            ..any()
        };
        source.rewind().unwrap();
        let sink = tempfile::tempfile().unwrap();
        let report = run(&source, &sink, request).report;
        let whole = (Ended::Eof, expected.len() as u64);
        assert_eq!((report.ended, report.written), whole, "{name}: {report:?}");
        assert_eq!(content(&sink), expected.as_bytes(), "{name}");
    }
}

#[test]
fn an_appending_sink_gets_everything_at_its_end() {
    let _dog = watchdog("an_appending_sink_gets_everything_at_its_end");
    let data = pattern(MIB);
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("log");
    std::fs::write(&name, b"before").unwrap();
    let sink = File::options().append(true).open(&name).unwrap();
    let source = file_with(&data);
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), any()).unwrap();
    let excluded = transfer.route().excluded.clone();
    let report = transfer.run().report;
    assert_eq!(report.path, [ReadWrite]);
    let why: Vec<_> = excluded
        .iter()
        .map(|d| (d.path, d.why.to_string()))
        .collect();
    // A refused call comes first.
    if testkit::needs::Need::CopyFileRange.is_met() {
        assert!(why.contains(&(CopyFileRange, "EBADF".into())), "{why:?}");
    }
    assert!(why.contains(&(Sendfile, "EINVAL".into())), "{why:?}");
    assert!(why.contains(&(Splice, "EINVAL".into())), "{why:?}");
    let got = std::fs::read(&name).unwrap();
    assert!(got == [b"before", &data[..]].concat());
}

#[test]
fn explicit_offsets_leave_both_positions() {
    let _dog = watchdog("explicit_offsets_leave_both_positions");
    let data = pattern(3 * MIB);
    for path in common::forcible(&COPYING) {
        for (from, to) in [(Some(5), Some(7)), (Some(4096), None), (None, Some(8192))] {
            if path == Sendfile && to.is_some() {
                continue;
            }
            let mut source = file_with(&data);
            let mut sink = file_with(&[9; 3]);
            source.seek(SeekFrom::Start(100)).unwrap();
            sink.seek(SeekFrom::Start(3)).unwrap();
            let request = Request {
                source_offset: from,
                sink_offset: to,
                size: (MIB as u64 + 3).into(),
                ..only(&[path])
            };
            let report = run(&source, &sink, request).report;
            let n = MIB as u64 + 3;
            assert_eq!((report.written, report.ended), (n, Ended::Size), "{path}");
            let moved = |offset: Option<u64>| if offset.is_some() { 0 } else { n };
            assert_eq!(position(&source), 100 + moved(from), "{path}");
            assert_eq!(position(&sink), 3 + moved(to), "{path}");
            let (from, to) = (from.unwrap_or(100) as usize, to.unwrap_or(3) as usize);
            let n = n as usize;
            assert!(content(&sink)[to..] == data[from..from + n], "{path}");
        }
    }
}

#[test]
fn offsets_near_the_end_of_any_file() {
    let _dog = watchdog("offsets_near_the_end_of_any_file");
    let last = i64::MAX as u64;
    for path in COPYING {
        let source = file_with(b"short");
        let sink = tempfile::tempfile().unwrap();
        for (offset, size) in [
            (last, Size::Eof),
            (last - 1, Size::Bytes(u64::MAX)),
            (3, Size::Bytes(u64::MAX)),
            (0, Size::Bytes(last)),
        ] {
            let request = Request {
                source_offset: Some(offset),
                size,
                ..only(&[path, ReadWrite])
            };
            let report = run(&source, &sink, request).report;
            assert_eq!(report.ended, Ended::Eof, "{path} {offset}: {report:?}");
            assert_eq!(
                report.written,
                5u64.saturating_sub(offset),
                "{path} {offset}"
            );
        }
        let past = Request {
            source_offset: Some(last + 1),
            ..only(&[path, ReadWrite])
        };
        let refused = Transfer::new(source.as_fd(), sink.as_fd(), past)
            .err()
            .unwrap();
        assert_eq!(refused.refusal, Some(Refusal::TooLarge));
        if path == Sendfile {
            continue;
        }
        let request = Request {
            sink_offset: Some(last),
            source_offset: Some(0),
            ..only(&[path, ReadWrite])
        };
        let report = run(&source, &sink, request).report;
        assert_eq!((report.ended, report.written), (Ended::Error, 0), "{path}");
        assert_eq!(report.read, 0, "{path}: {report:?}");
    }
}

#[test]
fn one_file_on_both_sides() {
    let _dog = watchdog("one_file_on_both_sides");
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("f");
    let data = pattern(300_000);
    std::fs::write(&name, &data).unwrap();
    let read = || File::open(&name).unwrap();
    let write = || File::options().write(true).open(&name).unwrap();
    let at = |from: u64, to: u64, n: u64| Request {
        source_offset: Some(from),
        sink_offset: Some(to),
        size: n.into(),
        ..any()
    };
    let refusal = |source: &File, sink: &File, request| {
        let failure = Transfer::new(source.as_fd(), sink.as_fd(), request).err();
        failure.and_then(|f| f.refusal)
    };
    // `cat f >> f`, and its like.
    let append = File::options().append(true).open(&name).unwrap();
    let endless = refusal(&read(), &append, any());
    assert!(
        matches!(endless, Some(Refusal::EndlessLoop { .. })),
        "{endless:?}"
    );
    // The size is beyond the end, which the writes move: the file would grow without
    // end. Another size avoids that.
    let beyond = refusal(&read(), &write(), at(188_440, 1_237_016, 223_279));
    let said = beyond.as_ref().map(Refusal::to_string).unwrap_or_default();
    assert!(
        said.contains("whose end moves") && said.contains("what is left before its end"),
        "{said}"
    );
    assert!(!said.contains("forever"), "{said}");
    let left = refusal(&read(), &write(), at(188_440, 1_237_016, 111_560));
    assert_eq!(left, None);
    // No size would avoid that.
    let over = refusal(&read(), &write(), at(0, 1000, 400_000));
    assert_eq!(over, Some(Refusal::Overlap));
    // Towards higher offsets, overlapping: refused, and the file is unchanged.
    assert_eq!(
        refusal(&read(), &write(), at(0, 1000, 200_000)),
        Some(Refusal::Overlap)
    );
    let both = File::options().read(true).write(true).open(&name).unwrap();
    assert_eq!(refusal(&both, &both, any()), Some(Refusal::SharedPosition));
    assert!(std::fs::read(&name).unwrap() == data);
    // Towards lower offsets, overlapping: each block is read before it is
    // overwritten.
    let report = run(read(), write(), at(1000, 0, 200_000)).report;
    assert_eq!(
        (report.written, &report.path[..]),
        (200_000, &[ReadWrite][..])
    );
    let mut expected = data.clone();
    expected.copy_within(1000..201_000, 0);
    assert!(std::fs::read(&name).unwrap() == expected);
    // Without overlap: any path. A block-aligned copy within the file.
    let paths = common::carried_by(&[CopyFileRange, ReadWrite]);
    let request = Request {
        switches: only(&paths).switches,
        ..at(0, 524_288, 200_000)
    };
    let report = run(read(), write(), request).report;
    assert_eq!(report.path, paths);
    expected.resize(524_288, 0);
    expected.extend_from_within(..200_000);
    assert!(std::fs::read(&name).unwrap() == expected);
}

#[test]
fn a_switch_turns_a_path_off() {
    let _dog = watchdog("a_switch_turns_a_path_off");
    let data = pattern(MIB);
    let mut left: Vec<DataPath> = DataPath::ALL.to_vec();
    for off in [DataPath::Clone, CopyFileRange, Sendfile, Splice] {
        left.retain(|path| *path != off);
        let sink = tempfile::tempfile().unwrap();
        let mut source = file_with(&data);
        source.flush().unwrap();
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), only(&left)).unwrap();
        let excluded = transfer.route().excluded.clone();
        let report = transfer.run().report;
        assert!(
            !report.path.contains(&off) && content(&sink) == data,
            "{report:?}"
        );
        let named = excluded.iter().find(|d| d.path == off);
        assert_eq!(named.unwrap().why.to_string(), "turned off");
    }
}

/// Counts the open descriptors of the file of this name during a transfer.
struct Openings<'a>(&'a std::path::Path, usize);

impl cordboard::Observer for &mut Openings<'_> {
    fn progress(&mut self, _: &cordboard::Progress) {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        self.1 = self.1.max(links.filter(|link| link == self.0).count());
    }
}

/// The tail of a file that is open with `O_DIRECT` and has a lease: the transfer does
/// not wait for a second descriptor.
#[test]
fn a_lease_holds_up_no_unaligned_tail() {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    let _dog = watchdog("a_lease_holds_up_no_unaligned_tail");
    const F_SETSIG: i32 = 10;
    let dir = tempfile::tempdir_in(".").unwrap();
    let (name, data) = (dir.path().join("f").to_owned(), pattern(8192 + 77));
    std::fs::write(&name, &data).unwrap();
    let name = name.canonicalize().unwrap();
    let mut options = File::options();
    let options = options.read(true).write(true);
    let Ok(source) = options.custom_flags(libc::O_DIRECT).open(&name) else {
        testkit::skip::here("no direct I/O here");
        return;
    };
    let ask = |command, argument: i32| {
        // SAFETY: both commands take an integer.
        unsafe { libc::fcntl(source.as_raw_fd(), command, argument) }
    };
    // Instead of SIGIO, which would end the process.
    assert_eq!(ask(F_SETSIG, libc::SIGURG), 0);
    if ask(libc::F_SETLEASE, libc::F_WRLCK) != 0 {
        testkit::skip::here("no leases here");
        return;
    }
    let sink = tempfile::tempfile().unwrap();
    let mut openings = Openings(&name, 0);
    let request = Request {
        // From an unaligned offset.
        source_offset: Some(100),
        ..only(&[DataPath::ReadWrite])
    };
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let report = transfer.observe(&mut openings).run().report;
    assert_eq!(report.written, data.len() as u64 - 100, "{report:?}");
    assert!(content(&sink) == data[100..]);
    assert_eq!(openings.1, 1, "the transfer has waited for the lease");
}

#[test]
fn the_last_bytes_that_a_file_can_have() {
    let _dog = watchdog("the_last_bytes_that_a_file_can_have");
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut source = File::from(rustix::fs::memfd_create("long", flags).unwrap());
    source.set_len(i64::MAX as u64).unwrap();
    for path in COPYING {
        source
            .seek(SeekFrom::Start(i64::MAX as u64 - 300_000))
            .unwrap();
        let (reader, sink) = std::io::pipe().unwrap();
        let drain = std::thread::spawn(move || std::io::copy(&mut &reader, &mut std::io::sink()));
        let report = run(&source, &sink, only(&[path, ReadWrite])).report;
        assert_eq!((report.ended, report.errno), (Ended::Eof, None), "{path}");
        assert_eq!(report.written, 300_000, "{path}");
        drop(sink);
        assert_eq!(drain.join().unwrap().unwrap(), 300_000);
    }
}

/// A FIFO that was opened before it had a writer: `read(2)` finds its end, which
/// `poll(2)` does not report.
#[test]
fn a_fifo_that_never_had_a_writer_has_ended() {
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
    let _dog = common::watchdog("a_fifo_that_never_had_a_writer_has_ended");
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("fifo");
    mknodat(CWD, &name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let source = open(&name, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
    for request in
        common::any_and_each(&[cordboard::DataPath::Splice, cordboard::DataPath::ReadWrite])
    {
        let sink = tempfile::tempfile().unwrap();
        let report = common::run(&source, &sink, request).report;
        assert_eq!(
            (report.ended, report.read),
            (cordboard::Ended::Eof, 0),
            "{report:?}"
        );
        assert_eq!(common::position(&sink), 0, "{report:?}");
    }
}

/// The same into any sink, however the transfer is run. The transfer waits for a FIFO
/// with a writer.
#[test]
fn a_fifo_without_a_writer_ends_every_transfer() {
    use cordboard::{Control, Ended, Stage, Transfer};
    use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_setfl, mknodat, open};
    use std::os::fd::{AsFd, OwnedFd};
    let _dog = common::watchdog("a_fifo_without_a_writer_ends_every_transfer");
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("fifo");
    mknodat(CWD, &name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let engine = cordboard::Engine::new(Default::default()).unwrap();
    for to in ["file", "pipe", "packets", "socket", "datagrams"] {
        for run in ["call", "control", "idle", "stage", "engine", "inspected"] {
            for (blocking, writer) in [(true, false), (false, false), (true, true), (false, true)] {
                // A transfer that must stay cancellable opens no FIFO again, whose
                // lock may be held.
                if blocking && !writer && ["control", "idle", "engine"].contains(&run) {
                    continue;
                }
                let case = format!("{to} {run} {blocking} {writer}");
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let source = open(&name, flags, Mode::empty()).unwrap();
                if blocking {
                    fcntl_setfl(&source, OFlags::empty()).unwrap();
                }
                let feed = writer.then(|| {
                    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                    open(&name, flags, Mode::empty()).unwrap()
                });
                let (out, sink): (OwnedFd, OwnedFd) = match to {
                    "pipe" => rustix::pipe::pipe().unwrap(),
                    "packets" => rustix::pipe::pipe_with(rustix::pipe::PipeFlags::DIRECT).unwrap(),
                    "socket" => {
                        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
                        (a.into(), b.into())
                    }
                    "datagrams" => common::datagrams::pair(common::datagrams::Sort::Unix),
                    _ => {
                        let file = tempfile::tempfile().unwrap();
                        (file.try_clone().unwrap().into(), file.into())
                    }
                };
                let mut request = common::any();
                // A limit that the test does not reach.
                request.idle = (run == "idle").then(|| std::time::Duration::from_secs(3600));
                let control = Control::new().unwrap();
                let report = std::thread::scope(|scope| {
                    let work = scope.spawn(|| {
                        if run == "inspected" {
                            common::refuse_own_socket_pairs();
                        }
                        let new = || Transfer::new(source.as_fd(), sink.as_fd(), request);
                        match run {
                            "engine" => {
                                let own = [&source, &sink].map(|fd| fd.try_clone().unwrap());
                                let [from, to] = own;
                                let transfer = Transfer::owning(from, to, common::any()).unwrap();
                                engine.start(transfer).unwrap().wait().report
                            }
                            "control" => new().unwrap().control(&control).run().report,
                            "stage" => new().unwrap().stage(Stage::count()).unwrap().run().report,
                            _ => new().unwrap().run().report,
                        }
                    });
                    if let Some(feed) = feed {
                        rustix::io::write(&feed, b"some").unwrap();
                    }
                    work.join().unwrap()
                });
                assert_eq!(report.ended, Ended::Eof, "{case}: {report:?}");
                let expected = if writer { 4 } else { 0 };
                assert_eq!(
                    (report.read, report.written),
                    (expected, expected),
                    "{case}"
                );
                drop(out);
            }
        }
    }
}
