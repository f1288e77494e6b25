//! Transfers that are run to their end, and checks of their outcome.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;

use cordboard::{
    Control, DataPath, Ended, Observer, Outcome, Progress, Report, Request, Stranded, Transfer,
};

use super::requests::any;
use super::sources::{From, Source};

pub fn run(source: impl AsFd, sink: impl AsFd, request: Request) -> Outcome {
    Transfer::new(source.as_fd(), sink.as_fd(), request)
        .unwrap_or_else(|failure| panic!("refused: {failure}"))
        .run()
}

pub fn with_control(
    source: impl AsFd,
    sink: impl AsFd,
    request: Request,
    control: &Control,
) -> Outcome {
    Transfer::new(source.as_fd(), sink.as_fd(), request)
        .unwrap()
        .control(control)
        .run()
}

/// Moves these bytes from one pipe to another. One thread writes to the first,
/// another reads from the second. `refuse` decides for each of the calls, as in
/// [`testkit::midst::refusing`]. Returns the number of those calls, the report, and
/// the bytes that arrived; `None` if calls cannot be held.
pub fn piped(
    data: &[u8],
    calls: &[std::ffi::c_long],
    refuse: impl FnMut(usize) -> Option<i32>,
) -> Option<(usize, Report, Vec<u8>)> {
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut out, sink) = std::io::pipe().unwrap();
    let mut report = None;
    let body = || {
        report = Some(run(&source, &sink, any()).report);
        drop((source, sink));
    };
    let (count, got) = std::thread::scope(|scope| {
        // Fails if the transfer ends first.
        scope.spawn(move || _ = feed.write_all(data));
        let got = scope.spawn(move || {
            let mut all = Vec::new();
            out.read_to_end(&mut all).unwrap();
            all
        });
        let count = testkit::midst::refusing(calls, body, refuse);
        (count, got.join().unwrap())
    });
    Some((count?, report?, got))
}

/// Returns the bytes that were handed back, joined.
pub fn handed_back(stranded: Option<Stranded>) -> Vec<u8> {
    match stranded {
        None => Vec::new(),
        Some(Stranded::Buffer(bytes)) => bytes,
        Some(Stranded::Datagrams(all)) => all.concat(),
        Some(Stranded::Pipe(pipe)) => {
            let mut all = Vec::new();
            File::from(pipe).read_to_end(&mut all).unwrap();
            all
        }
        Some(_) => panic!("a new kind of stranded bytes"),
    }
}

/// Asserts that no byte is lost and that the counts are right: the bytes written,
/// those handed back and those left in the source add up to `data`.
pub fn audit(what: &str, outcome: Outcome, source: Source, kind: From, data: &[u8]) {
    let report = &outcome.report;
    let (read, written) = (report.read as usize, report.written as usize);
    assert_eq!(
        report.read,
        report.written + report.stranded,
        "{what}: {report:?}"
    );
    adds_up(report);
    let stranded = handed_back(outcome.stranded);
    assert_eq!(stranded.len() as u64, report.stranded, "{what}: {report:?}");
    if kind == From::File {
        assert_eq!(report.stranded, 0, "{what}: a file is rewound: {report:?}");
    }
    assert!(stranded == data[written..read], "{what}: stranded bytes");
    assert!(source.rest() == data[read..], "{what}: rest of the source");
}

/// Checks that each path has its bytes.
pub fn adds_up(report: &Report) {
    let paths: Vec<_> = report.by_path.iter().map(|one| one.path).collect();
    assert_eq!(paths, report.path, "{report:?}");
    let bytes: u64 = report.by_path.iter().map(|one| one.bytes).sum();
    assert!(paths.is_empty() || bytes == report.read, "{report:?}");
}

/// Calls a function once, after the first bytes have moved.
pub struct Meanwhile<F: FnMut()> {
    what: F,
    done: bool,
}

impl<F: FnMut()> Observer for Meanwhile<F> {
    fn progress(&mut self, progress: &Progress) {
        if progress.written > 0 && !self.done {
            self.done = true;
            (self.what)();
        }
    }
}

pub fn meanwhile<F: FnMut()>(what: F) -> Meanwhile<F> {
    Meanwhile { what, done: false }
}

/// The most blocks that direct I/O has in flight, or in the sink behind one in flight (`AHEAD` in
/// `path/direct/window.rs`).
pub const AHEAD: u64 = 128;

/// Returns the most bytes that are read if nothing more is begun: those that were read, and the
/// blocks of direct I/O in flight, which have this length.
pub fn taken(progress: &Progress, block: u64) -> u64 {
    match progress.path {
        DataPath::Direct => progress.read + AHEAD * block,
        _ => progress.read,
    }
}

/// Cancels once this many bytes are written.
pub struct Cancelling {
    at: u64,
    control: Control,
    block: u64,
    taken: Option<u64>,
}

impl Cancelling {
    /// `block`: the length of the blocks of direct I/O.
    pub fn at(at: u64, control: &Control, block: u64) -> Cancelling {
        Cancelling {
            at,
            control: control.clone(),
            block,
            taken: None,
        }
    }

    /// Asserts that nothing was begun after the cancellation.
    pub fn check(&self, report: &Report) {
        assert_eq!(report.ended, Ended::Cancelled, "{report:?}");
        let taken = self.taken.expect("it was cancelled");
        assert!(report.read <= taken, "more than {taken}: {report:?}");
        assert!(report.written <= taken, "more than {taken}: {report:?}");
    }
}

impl Observer for Cancelling {
    fn progress(&mut self, progress: &Progress) {
        if progress.written >= self.at {
            self.control.cancel();
            self.taken.get_or_insert(taken(progress, self.block));
        }
    }
}
