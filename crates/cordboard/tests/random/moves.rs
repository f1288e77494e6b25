//! One transfer that is not blocked, and its expected result.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cordboard::{
    Control, DataPath, Ended, Engine, Outcome, Request, Running, Size, Switches, Transfer, Tune,
};
use fastrand::Rng;
use testkit::{Ask, Sink, SinkKind, Source, SourceKind, Spec};

use crate::common::{Wrong, is_exact, is_open};
use crate::steering::Steering;

const SOURCES: [SourceKind; 13] = [
    SourceKind::File,
    SourceKind::Tmpfs,
    SourceKind::Memfd,
    SourceKind::Sparse,
    SourceKind::Direct,
    SourceKind::Zero,
    SourceKind::Tty,
    SourceKind::Pipe,
    SourceKind::PacketPipe,
    SourceKind::Fifo,
    SourceKind::Tcp,
    SourceKind::UnixStream,
    SourceKind::UnixSeqpacket,
];

const SINKS: [SinkKind; 12] = [
    SinkKind::File,
    SinkKind::Tmpfs,
    SinkKind::Memfd,
    SinkKind::Append,
    SinkKind::Direct,
    SinkKind::Null,
    SinkKind::Tty,
    SinkKind::Pipe,
    SinkKind::PacketPipe,
    SinkKind::Fifo,
    SinkKind::Tcp,
    SinkKind::UnixStream,
];

/// The largest length, as a power of two.
const LARGEST: u32 = 22;

/// Returns a length; small lengths are as frequent as large ones.
pub fn length(rng: &mut Rng) -> u64 {
    let power = rng.u32(0..LARGEST);
    rng.u64(0..1 << power)
}

/// How it runs.
enum Runner {
    Engine(Running),
    Thread(JoinHandle<Outcome>),
}

pub struct Move {
    what: String,
    source: Source,
    sink: Sink,
    /// The number of bytes that arrive if nothing ends the transfer early.
    whole: u64,
    may_end_early: bool,
    wrong: Wrong,
    runner: Runner,
}

fn request(rng: &mut Rng, whole: u64, to_a_file: bool) -> Request {
    let mut paths: Vec<DataPath> = DataPath::ALL.to_vec();
    if rng.u8(..) < 128 {
        paths.retain(|path| *path == DataPath::ReadWrite || rng.bool());
    }
    // Small blocks would take too long for large sizes.
    let least = (whole / 2000).max(1) as usize;
    let block = (rng.u8(..) < 64).then(|| rng.usize(least..least + (1 << 20)));
    Request {
        block: block.and_then(NonZeroUsize::new),
        idle: (rng.u8(..) < 32).then(|| Duration::from_millis(rng.u64(1..50))),
        stable: rng.u8(..) < 32,
        sync: to_a_file && rng.u8(..) < 64,
        switches: Some(Switches::only(&paths)),
        tune: rng.bool().then_some(Tune::EachStep),
        ..Request::default()
    }
}

impl Move {
    pub fn start(engine: &Arc<Engine>, rng: &mut Rng) -> Move {
        let from = SOURCES[rng.usize(..SOURCES.len())];
        let to = SINKS[rng.usize(..SINKS.len())];
        let bytes = length(rng);
        let spec = Spec::verify(bytes).nonblocking(rng.bool());
        let source = Source::make(from, &spec).unwrap();
        let sink = Sink::make(to, &spec.nonblocking(rng.bool())).unwrap();
        let there = source.expect.len();
        let (size, whole) = match source.ask {
            Ask::Bytes(bytes) => (Size::Bytes(bytes), bytes),
            // A smaller size would leave a part of a message in the source.
            Ask::Eof if from == SourceKind::UnixSeqpacket => (Size::Eof, there),
            // Or a part of a packet, which only `splice(2)` can take.
            Ask::Eof if from == SourceKind::PacketPipe && !is_open(DataPath::Splice) => {
                (Size::Eof, there)
            }
            Ask::Eof if rng.u8(..) < 64 => {
                let size = rng.u64(0..=there + 1);
                (Size::Bytes(size), size.min(there))
            }
            Ask::Eof => (Size::Eof, there),
        };
        let to_a_file = matches!(to, SinkKind::File | SinkKind::Tmpfs | SinkKind::Memfd);
        let request = Request {
            size,
            ..request(rng, whole, to_a_file)
        };
        let steering = Steering::draw(rng, whole);
        let what = format!(
            "{} of {bytes} to {}, {request:?}, {steering:?}",
            from.name(),
            to.name()
        );
        let may_end_early = steering.cancel_at.is_some() || request.idle.is_some();
        let control = Control::new().unwrap();
        let observer = steering.observer(&control, &request, (from, to));
        let copies = (copy(&source.fd), copy(&sink.fd));
        let mut transfer = Transfer::owning(copies.0, copies.1, request)
            .unwrap_or_else(|failure| panic!("{what}: {failure}"));
        let mut wrong = Wrong::default();
        if let Some(observer) = observer {
            wrong = observer.wrong.clone();
            transfer = transfer.control(&control).observe(observer);
        }
        let runner = match rng.u8(..4) {
            0 => Runner::Thread(std::thread::spawn(move || transfer.run())),
            1 => Runner::Engine(transfer.start().unwrap()),
            _ => Runner::Engine(engine.start(transfer).unwrap()),
        };
        Move {
            what,
            source,
            sink,
            whole,
            may_end_early,
            wrong,
            runner,
        }
    }

    /// Waits for its end, and compares the report with what has arrived, what was
    /// handed back, and what is left in the source.
    pub fn check(self) {
        let what = self.what;
        let outcome = match self.runner {
            Runner::Engine(running) => running.wait(),
            Runner::Thread(thread) => thread.join().unwrap(),
        };
        let report = &outcome.report;
        assert_eq!(report.errno, None, "{what}: {report:?}");
        assert_eq!(self.wrong.found(), None, "{what}: {report:?}");
        match report.ended {
            Ended::Eof | Ended::Size => {
                assert_eq!(report.written, self.whole, "{what}: {report:?}");
            }
            Ended::Cancelled | Ended::Idle => assert!(self.may_end_early, "{what}: {report:?}"),
            _ => panic!("{what}: {report:?}"),
        }
        is_exact(&what, outcome, &self.source, self.sink);
    }
}

fn copy(fd: &OwnedFd) -> OwnedFd {
    fd.try_clone().unwrap()
}
