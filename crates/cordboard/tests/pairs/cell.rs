//! One pair, one size, run once.

use cordboard::{
    DataPath, Ended, Outcome, Request, Side, Size, Stranded, Switches, Transfer, Tune,
};
use rustix::event::{PollFd, PollFlags, poll};
use std::fmt;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use testkit::one_processor::OneProcessor;
use testkit::{Ask, Collected, Expect, Sink, SinkKind, Source, SourceKind, Spec, model};

/// One pair under one condition.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    pub source: SourceKind,
    pub sink: SinkKind,
    pub size: u64,
    pub nonblocking: bool,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.nonblocking {
            "non-blocking"
        } else {
            "blocking"
        };
        let (source, sink) = (self.source.name(), self.sink.name());
        write!(f, "{source} -> {sink}, {} bytes, {mode}", self.size)
    }
}

/// The result of a run, with all compared values.
#[derive(Debug)]
pub struct Run {
    pub read: u64,
    pub written: u64,
    pub stranded: u64,
    pub failed: Option<(Side, i32)>,
    pub ended: Option<Ended>,
    /// The message of a refusal.
    pub refused: Option<String>,
    pub path: Vec<DataPath>,
    /// How much was read from the source.
    pub ask: Ask,
    /// The expected bytes.
    pub expect: Expect,
    /// The lengths of the expected messages.
    pub messages: Option<Vec<usize>>,
    /// The bytes that have arrived, or why they are unknown.
    pub found: Result<Collected, String>,
    /// What was handed back.
    pub handed_back: Vec<u8>,
    /// Positions of source and sink, if they have one.
    pub positions: [Option<u64>; 2],
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "read {}, written {}, stranded {}",
            self.read, self.written, self.stranded
        )?;
        if let Some((side, errno)) = self.failed {
            write!(f, ", {side} {:?}", cordboard::Errno::from_raw(errno))?;
        }
        if let Some(refused) = &self.refused {
            write!(f, ", refused: {refused}")?;
        }
        if !self.path.is_empty() {
            write!(f, ", by {:?}", self.path)?;
        }
        Ok(())
    }
}

fn fixtures(cell: &Cell) -> (Source, Sink, Option<OneProcessor>) {
    let is_udp = cell.source == SourceKind::Udp || cell.sink == SinkKind::Udp;
    let stays = is_udp.then(OneProcessor::stay);
    let spec = Spec::verify(cell.size).nonblocking(cell.nonblocking);
    let source = Source::make(cell.source, &spec).expect("a source");
    let sink = Sink::make(cell.sink, &spec).expect("a sink");
    (source, sink, stays)
}

fn position(fd: BorrowedFd<'_>) -> Option<u64> {
    rustix::fs::tell(fd).ok()
}

fn positions(cell: &Cell, source: &Source, sink: &Sink) -> [Option<u64>; 2] {
    [
        position(source.as_fd()).filter(|_| cell.source.is_seekable()),
        position(sink.as_fd()).filter(|_| sink.start.is_some()),
    ]
}

fn finish(sink: Sink, written: u64) -> Result<Collected, String> {
    sink.finish(written).map_err(|e| e.to_string())
}

/// Runs the plain loop.
pub fn by_model(cell: &Cell) -> Run {
    let (source, sink, _stays) = fixtures(cell);
    let size = source.ask.size();
    let run = model::run(source.as_fd(), sink.as_fd(), size, cell.sink.piece());
    let positions = positions(cell, &source, &sink);
    Run {
        read: run.read,
        written: run.written,
        stranded: run.read - run.written,
        failed: run.failed.map(|(side, errno)| match side {
            model::Side::Source => (Side::Source, errno),
            model::Side::Sink => (Side::Sink, errno),
        }),
        ended: None,
        refused: None,
        path: Vec::new(),
        ask: source.ask,
        expect: source.expect.clone(),
        messages: source.messages.clone(),
        found: finish(sink, run.written),
        handed_back: Vec::new(),
        positions,
    }
}

/// Runs the library.
pub fn by_library(cell: &Cell, switches: Switches, tune: Tune) -> Run {
    library(cell, switches, tune, |transfer| transfer.run())
}

/// Runs the library by single steps, and waits for the descriptor in between.
pub fn by_steps(cell: &Cell) -> Run {
    library(cell, Switches::all(), Tune::On, |transfer| {
        let mut stepping = transfer.stepping().unwrap();
        loop {
            let mut fds = [PollFd::new(&stepping, PollFlags::IN)];
            poll(&mut fds, None).unwrap();
            if let Some(outcome) = stepping.step() {
                return outcome;
            }
        }
    })
}

fn library(
    cell: &Cell,
    switches: Switches,
    tune: Tune,
    run_it: impl FnOnce(Transfer<'_>) -> Outcome,
) -> Run {
    let (source, sink, _stays) = fixtures(cell);
    let request = Request {
        size: match source.ask {
            Ask::Eof => Size::Eof,
            Ask::Bytes(n) => Size::Bytes(n),
        },
        switches: Some(switches),
        tune: Some(tune),
        ..Request::default()
    };
    let mut run = Run {
        read: 0,
        written: 0,
        stranded: 0,
        failed: None,
        ended: None,
        refused: None,
        path: Vec::new(),
        ask: source.ask,
        expect: source.expect.clone(),
        messages: source.messages.clone(),
        found: Ok(Collected::Unknown),
        handed_back: Vec::new(),
        positions: [None; 2],
    };
    let moved = catch_unwind(AssertUnwindSafe(|| {
        match Transfer::new(source.as_fd(), sink.as_fd(), request) {
            Ok(transfer) => {
                let outcome = run_it(transfer);
                let report = &outcome.report;
                let bytes: u64 = report.by_path.iter().map(|one| one.bytes).sum();
                assert!(report.path.is_empty() || bytes == report.read, "{report:?}");
                (outcome.report, outcome.stranded, None)
            }
            Err(failure) => {
                let words = failure.to_string();
                (*failure.report, failure.stranded, Some(words))
            }
        }
    }));
    let Ok((report, stranded, refused)) = moved else {
        run.refused = Some("it panicked".to_owned());
        return run;
    };
    run.positions = positions(cell, &source, &sink);
    run.found = finish(sink, report.written);
    run.handed_back = stranded.map(unpack).unwrap_or_default();
    run.refused = refused;
    run.read = report.read;
    run.written = report.written;
    run.stranded = report.stranded;
    run.ended = Some(report.ended);
    run.path = report.path;
    if report.ended == Ended::Error {
        let errno = report.errno.map_or(0, |errno| errno.raw());
        run.failed = Some((report.failed.unwrap_or(Side::Source), errno));
    }
    run
}

fn unpack(stranded: Stranded) -> Vec<u8> {
    match stranded {
        Stranded::Pipe(pipe) => {
            let mut bytes = Vec::new();
            let read = std::fs::File::from(pipe).read_to_end(&mut bytes);
            read.expect("the pipe that was handed back");
            bytes
        }
        Stranded::Buffer(bytes) => bytes,
        Stranded::Datagrams(datagrams) => datagrams.concat(),
        other => panic!("bytes handed back in a new way: {other:?}"),
    }
}
