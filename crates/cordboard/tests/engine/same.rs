//! The same operations on every engine, and without one, give equal files and equal
//! counts: those of a model.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use crate::common::{self, any, content, handed_back, pattern};
use cordboard::engine::{Backend, Options};
use cordboard::{
    DataPath, Direct, Ended, Engine, Errno, Outcome, Request, Side, Size, Sparse, Transfer,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::watchdog;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Pipe,
    Socket,
}

/// A fault of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The sink's file may not grow past this (`RLIMIT_FSIZE`).
    Full(u64),
    /// The sink's reader closes after this many bytes.
    Dies(usize),
    /// The transfer is cancelled after this many bytes or a few more.
    Cancelled(u64),
}

#[derive(Debug, Clone)]
struct Case {
    source: Kind,
    sink: Kind,
    length: usize,
    size: Option<u64>,
    source_offset: Option<u64>,
    sink_offset: Option<u64>,
    block: Option<usize>,
    sparse: Sparse,
    direct: Direct,
    /// The length of the sink's file beforehand.
    before: usize,
    fault: Fault,
}

fn cases() -> impl Strategy<Value = Case> {
    let kind =
        || prop_oneof![3 => Just(Kind::File), 2 => Just(Kind::Pipe), 2 => Just(Kind::Socket)];
    // Around the sizes of pages, pipes and buffers.
    let edge = |most: usize| {
        let near = (0..=most / 4096, 0usize..3).prop_map(|(n, d)| (n * 4096 + d).saturating_sub(1));
        prop_oneof![near, 0..=most]
    };
    let fault = prop_oneof![
        4 => Just(Fault::None),
        2 => edge(200_000).prop_map(|n| Fault::Full(n as u64)),
        1 => edge(200_000).prop_map(Fault::Dies),
        1 => edge(200_000).prop_map(|n| Fault::Cancelled(n as u64)),
    ];
    let length = prop_oneof![12 => edge(300_000), 1 => edge(2_900_000)];
    let optional = |most| proptest::option::of(edge(most));
    let sparse = prop_oneof![
        Just(Sparse::Auto),
        Just(Sparse::Always),
        Just(Sparse::Never)
    ];
    let direct = prop_oneof![1 => Just(Direct::Always), 2 => Just(Direct::Never)];
    (
        (kind(), kind(), length, optional(400_000)),
        (optional(300_000), optional(100_000), optional(70_000)),
        (sparse, edge(100_000), fault, direct),
    )
        .prop_map(
            |((source, sink, length, size), mut offsets, (sparse, before, fault, direct))| {
                // Direct I/O needs files with equal block alignment.
                let (source, sink) = match direct {
                    Direct::Always => (Kind::File, Kind::File),
                    _ => (source, sink),
                };
                if direct == Direct::Always && length % 3 > 0 {
                    offsets.1 = offsets.0;
                }
                let of_file = |kind, offset: Option<usize>| {
                    offset.filter(|_| kind == Kind::File).map(|n| n as u64)
                };
                Case {
                    source,
                    sink,
                    length,
                    size: size.map(|n| n as u64),
                    source_offset: of_file(source, offsets.0),
                    sink_offset: of_file(sink, offsets.1),
                    block: offsets.2.filter(|n| *n > 0),
                    sparse,
                    direct,
                    before: if sink == Kind::File { before } else { 0 },
                    fault: match fault {
                        Fault::Full(_) if sink != Kind::File => Fault::None,
                        Fault::Dies(_) if sink == Kind::File => Fault::None,
                        fault => fault,
                    },
                }
            },
        )
}

impl Case {
    fn request(&self) -> Request {
        Request {
            size: self.size.map_or(Size::Eof, Size::Bytes),
            source_offset: self.source_offset,
            sink_offset: self.sink_offset,
            block: self.block.and_then(std::num::NonZeroUsize::new),
            sparse: self.sparse,
            direct: self.direct,
            ..any()
        }
    }

    /// The bytes to move.
    fn wanted<'d>(&self, data: &'d [u8]) -> &'d [u8] {
        let start = self.source_offset.unwrap_or(0).min(data.len() as u64) as usize;
        let size = self
            .size
            .unwrap_or(u64::MAX)
            .min((data.len() - start) as u64);
        &data[start..start + size as usize]
    }
}

/// The result of a read/write loop, as far as it is certain.
struct Model {
    file: Vec<u8>,
    written: u64,
    full: bool,
}

fn model(case: &Case, data: &[u8]) -> Model {
    let wanted = case.wanted(data);
    let at = case.sink_offset.unwrap_or(0);
    let room = match case.fault {
        Fault::Full(limit) => limit.saturating_sub(at),
        _ => u64::MAX,
    };
    let written = room.min(wanted.len() as u64);
    let mut file = vec![0xee; case.before];
    if written > 0 {
        let end = at as usize + written as usize;
        file.resize(file.len().max(end), 0);
        file[at as usize..end].copy_from_slice(&wanted[..written as usize]);
    }
    Model {
        file,
        written,
        full: written < wanted.len() as u64,
    }
}

fn data(length: usize) -> &'static [u8] {
    static DATA: OnceLock<Vec<u8>> = OnceLock::new();
    &DATA.get_or_init(|| pattern(3_000_000))[..length]
}

/// Makes a source that gives `data` and ends, and the thread that writes to it.
fn source(kind: Kind, data: &'static [u8]) -> (OwnedFd, Option<JoinHandle<()>>) {
    let (fd, feed): (OwnedFd, OwnedFd) = match kind {
        Kind::File => return (common::file_with(data).into(), None),
        Kind::Pipe => {
            let (reader, writer) = std::io::pipe().unwrap();
            (reader.into(), writer.into())
        }
        Kind::Socket => {
            let (a, b) = UnixStream::pair().unwrap();
            (a.into(), b.into())
        }
    };
    let feeder = std::thread::spawn(move || {
        // Fails once the reader is closed.
        let _ = File::from(feed).write_all(data);
    });
    (fd, Some(feeder))
}

/// Makes a sink, and the thread that returns the bytes it has read from it.
fn sink(case: &Case) -> (OwnedFd, Option<JoinHandle<Vec<u8>>>) {
    let (fd, end): (OwnedFd, OwnedFd) = match case.sink {
        Kind::File => {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&vec![0xee; case.before], 0).unwrap();
            return (file.into(), None);
        }
        Kind::Pipe => {
            let (reader, writer) = std::io::pipe().unwrap();
            (writer.into(), reader.into())
        }
        Kind::Socket => {
            let (a, b) = UnixStream::pair().unwrap();
            (a.into(), b.into())
        }
    };
    let most = match case.fault {
        Fault::Dies(n) => n as u64,
        _ => u64::MAX,
    };
    let reader = std::thread::spawn(move || {
        let mut out = Vec::new();
        File::from(end).take(most).read_to_end(&mut out).unwrap();
        out
    });
    (fd, Some(reader))
}

fn run(case: &Case, transfer: Transfer<'static>, engine: Option<&Engine>) -> Outcome {
    let Some(engine) = engine else {
        return transfer.run();
    };
    let running = engine.start(transfer).unwrap();
    if let Fault::Cancelled(after) = case.fault {
        while running.status().written < after && !running.status().ended {
            std::thread::yield_now();
        }
        running.cancel();
    }
    running.wait()
}

/// The number of transfers that used direct I/O.
static DIRECT: AtomicU32 = AtomicU32::new(0);

fn check(case: &Case, engine: Option<&Engine>, how: &str) -> Result<(), TestCaseError> {
    if engine.is_none() && matches!(case.fault, Fault::Cancelled(_)) {
        return Ok(());
    }
    // One watchdog for each case: all cases together take minutes on a busy
    // machine.
    let _watched = watchdog::watch(format!("{how}: {case:?}"));
    let data = data(case.length);
    let (from, feeder) = source(case.source, data);
    let (to, reader) = sink(case);
    let expected = model(case, data);
    let own = |fd: &OwnedFd| fd.try_clone().unwrap();
    let transfer = Transfer::owning(own(&from), own(&to), case.request()).unwrap();
    let limits = getrlimit(Resource::Fsize);
    if let Fault::Full(limit) = case.fault {
        let lower = Rlimit {
            current: Some(limit),
            ..limits
        };
        setrlimit(Resource::Fsize, lower).unwrap();
    }
    let outcome = run(case, transfer, engine);
    setrlimit(Resource::Fsize, limits).unwrap();
    let report = &outcome.report;
    let direct = report.path.contains(&DataPath::Direct);
    DIRECT.fetch_add(u32::from(direct), Ordering::Relaxed);
    let said = format!("{how}: {report:?}");
    // True in every case.
    prop_assert_eq!(report.read, report.written + report.stranded, "{}", &said);
    common::adds_up(report);
    let wanted = case.wanted(data);
    let written = report.written as usize;
    prop_assert!(written <= wanted.len(), "{}", &said);
    let stranded = handed_back(outcome.stranded);
    prop_assert_eq!(stranded.len() as u64, report.stranded, "{}", &said);
    prop_assert!(wanted[written..].starts_with(&stranded), "{}", &said);
    // Nothing is lost: the rest is in the source.
    match case.source {
        Kind::File => {
            let here = rustix::fs::tell(&from).unwrap();
            let moved = if case.source_offset.is_some() {
                0
            } else {
                report.read
            };
            prop_assert_eq!(here, moved, "{}", &said);
        }
        _ => {
            let mut left = Vec::new();
            File::from(from).read_to_end(&mut left).unwrap();
            prop_assert!(left == data[report.read as usize..], "{}", &said);
        }
    }
    // The reader receives what was written, unless it closes early.
    match reader {
        None => {
            let file = content(&File::from(to));
            let at = case.sink_offset.unwrap_or(0) as usize;
            let there = &file[at.min(file.len())..];
            prop_assert!(there.starts_with(&wanted[..written]), "{}", &said);
            if !matches!(case.fault, Fault::Cancelled(_)) {
                prop_assert!(file == expected.file, "{} {}", &said, file.len());
            }
        }
        Some(reader) => {
            drop(to);
            let out = reader.join().unwrap();
            prop_assert!(wanted[..written].starts_with(&out), "{}", &said);
            if !matches!(case.fault, Fault::Dies(_)) {
                prop_assert_eq!(out.len(), written, "{}", &said);
            }
        }
    }
    if let Some(feeder) = feeder {
        feeder.join().unwrap();
    }
    let ended = (report.ended, report.failed, report.errno);
    match case.fault {
        Fault::None | Fault::Full(_) if !expected.full => {
            prop_assert_eq!(report.written, expected.written, "{}", &said);
            prop_assert_eq!(report.stranded, 0, "{}", &said);
            prop_assert!(
                matches!(report.ended, Ended::Eof | Ended::Size),
                "{}",
                &said
            );
        }
        Fault::None | Fault::Full(_) => {
            prop_assert_eq!(report.written, expected.written, "{}", &said);
            let full = (Ended::Error, Some(Side::Sink), Some(Errno::EFBIG));
            prop_assert_eq!(ended, full, "{}", &said);
        }
        // A UNIX socket that is closed with bytes unread resets.
        Fault::Dies(_) if ended.2 == Some(Errno::ECONNRESET) => {
            prop_assert_eq!(
                (ended.1, case.sink),
                (Some(Side::Sink), Kind::Socket),
                "{}",
                &said
            );
        }
        Fault::Dies(_) if report.ended == Ended::Error => {
            prop_assert_eq!(
                (ended.1, ended.2),
                (Some(Side::Sink), Some(Errno::EPIPE)),
                "{}",
                &said
            );
        }
        Fault::Dies(_) | Fault::Cancelled(_) => {
            prop_assert!(report.ended != Ended::Error, "{}", &said);
            if report.ended != Ended::Cancelled {
                prop_assert_eq!(written, wanted.len(), "{}", &said);
            }
        }
    }
    Ok(())
}

fn file_system_is_direct() -> bool {
    let file = tempfile::tempfile().unwrap();
    let endpoint = cordboard::Endpoint::probe(file.as_fd()).unwrap();
    endpoint.direct_alignment().is_some()
}

#[test]
fn every_engine_does_what_the_model_does() {
    if !common::alone!() {
        return;
    }
    let engine = |backend| {
        Engine::new(Options {
            backend,
            ..Options::default()
        })
    };
    let epoll = engine(Backend::Epoll).unwrap();
    let uring = match engine(Backend::Uring) {
        Ok(engine) => Some(engine),
        Err(errno) => {
            testkit::skip::here(format!("no io_uring here: {errno}"));
            None
        }
    };
    let config = Config {
        cases: 500,
        failure_persistence: None,
        ..Config::default()
    };
    let done = TestRunner::new(config).run(&cases(), |case| {
        check(&case, Some(&epoll), "epoll")?;
        if let Some(uring) = &uring {
            check(&case, Some(uring), "io_uring")?;
        }
        check(&case, None, "synchronous")
    });
    if let Err(failure) = done {
        panic!("{failure}");
    }
    if file_system_is_direct() {
        assert!(DIRECT.load(Ordering::Relaxed) > 100, "{DIRECT:?}");
    } else {
        testkit::skip::here("no direct I/O on the file system of temporary files");
    }
}
