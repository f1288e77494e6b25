//! Changes at random moments, on each path, on the caller's thread and on both engines:
//! the counts are exact, the bytes are right, nothing is stuck, nothing moves faster than
//! the limits, and a paused transfer reads nothing.

use std::collections::HashSet;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cordboard::engine::{Backend, Options};
use cordboard::{
    Aim, Control, DataPath, Ended, Engine, Observer, Outcome, Progress, Request, Schedule, Transfer,
};
use fastrand::Rng;
use testkit::needs::{self, Need};
use testkit::{Sink, SinkKind, Source, SourceKind, Spec, pattern};

use super::common::mount::Mount;
use super::common::{Wrong, content, forcible, is_exact, most, only, position, taken};

/// Bytes of a transfer.
const LENGTH: u64 = (1 << 20) + 777;
/// The block of some transfers. Direct I/O has less in flight than the whole file.
const SMALL: usize = 4096;
/// The length of a block of the limits.
const BLOCK: u64 = 64 << 10;
/// The least rate, in bytes a second, and the longest rest of one block: with either, a transfer
/// takes a fraction of a second.
const SLOWEST: u64 = 16 << 20;
const LONGEST: u64 = 4;
/// The longest datagram of testkit.
const DATAGRAM: u64 = 8000;
/// The largest block that direct I/O chooses.
const LARGEST: u64 = 4 << 20;

/// The seeds of each run. A failure prints its seed.
const KEPT: &str = "0\n1";

/// A limit, and when it has taken effect at the latest.
type Tightened = (Duration, Schedule);

/// What a transfer may do. It is changed while the transfer runs.
struct Permitted {
    /// Before the start of the transfer.
    start: Instant,
    /// The limits of the rate, and those of blocks.
    limits: [Mutex<Vec<Tightened>>; 2],
    /// Odd from the end of a call that pauses to the beginning of one that resumes.
    pauses: AtomicU64,
}

impl Permitted {
    fn new() -> Permitted {
        Permitted {
            start: Instant::now(),
            limits: [
                Mutex::new(vec![(Duration::ZERO, Schedule::rate(100 << 20))]),
                Mutex::new(vec![(Duration::ZERO, blocks(32, 1))]),
            ],
            pauses: AtomicU64::new(0),
        }
    }

    fn begin(&self, control: &Control) {
        for limits in &self.limits {
            control.limit_schedule(limits.lock().unwrap()[0].1, BLOCK);
        }
    }

    /// Sets a limit: one that is tighter than the last, or one that has no effect.
    fn limit(&self, control: &Control, random: &mut Rng) {
        let limits = &self.limits[random.usize(..2)];
        let (_, last) = *limits.lock().unwrap().last().unwrap();
        let (none, next) = match last {
            Schedule::Rate(rate) => {
                let least = SLOWEST.min(rate.get());
                let next = Schedule::rate(random.u64(least..=rate.get()));
                (Schedule::rate(1 << 40), next)
            }
            Schedule::Blocks { count, rest } => {
                let rest = rest.as_millis() as u64;
                let next = blocks(random.u32(1..=count.get()), random.u64(rest..=LONGEST));
                (blocks(1 << 20, 0), next)
            }
            _ => unreachable!("no other schedule is a limit"),
        };
        if random.u8(..8) != 0 {
            return control.limit_schedule(none, 1 << 30);
        }
        control.limit_schedule(next, BLOCK);
        limits.lock().unwrap().push((self.start.elapsed(), next));
    }

    /// Returns the most bytes in this time from the start of the transfer.
    fn most(&self, time: Duration) -> u64 {
        let of = |limits: &Mutex<Vec<Tightened>>| {
            let limits = limits.lock().unwrap();
            let ends = limits.iter().skip(1).map(|(at, _)| *at);
            let ends = ends.chain([Duration::MAX]).map(|end| end.min(time));
            let spans = limits
                .iter()
                .zip(ends)
                .filter(|((begin, _), _)| *begin <= time);
            spans.fold(0, |sum: u64, ((begin, limit), end)| {
                // Each is rounded down.
                sum.saturating_add(most(*limit, BLOCK, end - *begin) + 1)
            })
        };
        self.limits.iter().map(of).min().unwrap()
    }

    fn pause(&self, control: &Control) {
        control.pause();
        self.pauses.fetch_or(1, Release);
    }

    fn resume(&self, control: &Control) {
        let pauses = self.pauses.load(Relaxed);
        self.pauses.store(pauses + (pauses & 1), Relaxed);
        control.resume();
    }
}

fn blocks(count: u32, millis: u64) -> Schedule {
    Schedule::blocks(count, Duration::from_millis(millis))
}

/// Checks that the transfer was never ahead of its limits, and read nothing in a pause.
struct Bound {
    permitted: Arc<Permitted>,
    /// A datagram may exceed the limits.
    excess: u64,
    block: u64,
    /// The pause of the last call, and the most bytes that may be read in it.
    pause: Option<(u64, u64)>,
    wrong: Wrong,
}

impl Observer for Bound {
    fn progress(&mut self, progress: &Progress) {
        let (read, at) = (progress.read, progress.elapsed);
        let most = self.permitted.most(at).saturating_add(self.excess);
        (self.wrong).unless(read <= most, || format!("{read} of {most} bytes at {at:?}"));
        let pauses = self.permitted.pauses.load(Acquire);
        match self.pause {
            // It was paused at the last call, and is since.
            Some((pause, most)) if pause == pauses => {
                (self.wrong).unless(read <= most, || format!("{read} of {most} in a pause"));
            }
            _ => self.pause = (pauses % 2 == 1).then(|| (pauses, taken(progress, self.block))),
        }
    }
}

/// Changes the transfer, at most until it has ended. `cancels`: perhaps cancels it.
fn interfere(
    permitted: &Permitted,
    control: &Control,
    ended: &AtomicBool,
    (random, cancels): (&mut Rng, bool),
) {
    let cancel = (cancels && random.u8(..4) == 0).then(|| random.u32(100..500));
    for turn in 0..random.u32(100..1000) {
        if ended.load(Relaxed) {
            return;
        }
        match random.u8(..9) {
            _ if Some(turn) == cancel => control.cancel(),
            0 => permitted.pause(control),
            1 => permitted.resume(control),
            2 => control.set_schedule(Schedule::rate(random.u64(1 << 20..1 << 40))),
            3 => control.set_schedule(blocks(random.u32(1..9), random.u64(..3))),
            4 => control.set_schedule(Schedule::Unlimited),
            5 => permitted.limit(control, random),
            6 => control.wake(),
            7 => control.set_schedule(Schedule::Auto(match random.u32(..5) {
                0 => Aim::Throughput,
                1 => Aim::Background,
                weight => Aim::share(weight).unwrap(),
            })),
            _ => {}
        }
        (0..random.u32(..40)).for_each(|_| std::thread::yield_now());
    }
    // It must end at last.
    control.set_schedule(Schedule::Unlimited);
    permitted.resume(control);
}

/// The ends of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ends {
    Of(SourceKind, SinkKind),
    /// Files on a file system that can clone.
    Cloned,
}

/// One path between two ends.
type Case = (Ends, DataPath);

/// Returns all cases of this machine.
fn cases(mount: Option<&Mount>) -> Vec<Case> {
    let pairs = [
        (SourceKind::File, SinkKind::File),
        (SourceKind::File, SinkKind::Tcp),
        (SourceKind::Pipe, SinkKind::Pipe),
        (SourceKind::Tcp, SinkKind::UnixStream),
        (SourceKind::UnixSeqpacket, SinkKind::UnixSeqpacket),
    ];
    let paths = forcible(DataPath::ALL);
    let of = |(from, to)| {
        let paths = paths.iter().filter(move |path| carries(from, to, **path));
        paths.map(move |path| (Ends::Of(from, to), *path))
    };
    let cloned = mount.map(|_| (Ends::Cloned, DataPath::Clone));
    let all: Vec<Case> = pairs.into_iter().flat_map(of).chain(cloned).collect();
    let is_missing = |path: &&DataPath| all.iter().all(|case| case.1 != **path);
    for path in DataPath::ALL.iter().filter(is_missing) {
        testkit::skip::here(format!(
            "{path} moves nothing between the ends of this test"
        ));
    }
    all
}

/// Whether this path moves bytes between these ends.
fn carries(from: SourceKind, to: SinkKind, path: DataPath) -> bool {
    let (source, sink) = make(from, to, 8192);
    match Transfer::new(source.as_fd(), sink.as_fd(), only(&[path])) {
        Ok(transfer) => transfer.run().report.path == [path],
        Err(_) => false,
    }
}

/// Makes both ends. A transfer with a control would not send pages to a blocking socket.
fn make(from: SourceKind, to: SinkKind, length: u64) -> (Source, Sink) {
    let spec = Spec::verify(length);
    let sink = Sink::make(to, &spec.nonblocking(true)).unwrap();
    (Source::make(from, &spec).unwrap(), sink)
}

fn copy(fd: impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().unwrap()
}

/// The open ends of a transfer.
enum Open {
    Kit(Source, Sink),
    Files(File, File),
}

impl Open {
    fn new(ends: Ends, mount: Option<&Mount>) -> Open {
        match (ends, mount) {
            (Ends::Of(from, to), _) => {
                let (source, sink) = make(from, to, LENGTH);
                Open::Kit(source, sink)
            }
            (Ends::Cloned, mount) => {
                let folder = mount.expect("the file system is mounted").path();
                let [source, sink] = [(); 2].map(|()| tempfile::tempfile_in(&folder).unwrap());
                let bytes = pattern::bytes(0, LENGTH as usize);
                source.write_all_at(&bytes, 0).unwrap();
                Open::Files(source, sink)
            }
        }
    }

    fn copies(&self) -> (OwnedFd, OwnedFd) {
        match self {
            Open::Kit(source, sink) => (copy(source), copy(sink)),
            Open::Files(source, sink) => (copy(source), copy(sink)),
        }
    }

    fn check(self, what: &str, outcome: Outcome) {
        match self {
            Open::Kit(source, sink) => is_exact(what, outcome, &source, sink),
            Open::Files(source, sink) => {
                let written = outcome.report.written;
                assert_eq!(outcome.report.read, written, "{what}");
                assert_eq!(
                    (position(&source), position(&sink)),
                    (written, written),
                    "{what}"
                );
                let bytes = pattern::bytes(0, written as usize);
                assert!(content(&sink) == bytes, "{what}");
            }
        }
    }
}

/// Runs and checks one transfer. Returns whether it has moved all bytes.
fn run(
    (ends, path): Case,
    mount: Option<&Mount>,
    engine: Option<&Engine>,
    (random, cancels): (&mut Rng, bool),
) -> bool {
    let open = Open::new(ends, mount);
    let block = random.bool().then_some(SMALL);
    let request = Request {
        block: block.and_then(NonZeroUsize::new),
        ..only(&[path])
    };
    let is_of_datagrams = matches!(ends, Ends::Of(SourceKind::UnixSeqpacket, _));
    let (control, wrong) = (Control::new().unwrap(), Wrong::default());
    let permitted = Arc::new(Permitted::new());
    permitted.begin(&control);
    let bound = Bound {
        permitted: Arc::clone(&permitted),
        excess: if is_of_datagrams { DATAGRAM } else { 0 },
        block: block.map_or(LARGEST, |block| block as u64),
        pause: None,
        wrong: wrong.clone(),
    };
    let (source, sink) = open.copies();
    let transfer = Transfer::owning(source, sink, request).unwrap();
    let transfer = transfer.control(&control).observe(bound);
    let ended = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let _ends = testkit::ends::Ends(&ended);
        scope.spawn(|| interfere(&permitted, &control, &ended, (random, cancels)));
        match engine {
            Some(engine) => engine.start(transfer).unwrap().wait(),
            None => transfer.run(),
        }
    });
    let report = &outcome.report;
    let limits = permitted.limits.each_ref();
    let limits = limits.map(|limits| limits.lock().unwrap().clone());
    let what = format!("{ends:?} by {path}, blocks of {block:?}, {limits:?}: {report:?}");
    assert_eq!(wrong.found(), None, "{what}");
    let is_whole = match report.ended {
        Ended::Eof => true,
        Ended::Cancelled => control.is_cancelled().then_some(false).expect(&what),
        _ => panic!("{what}"),
    };
    assert!(!is_whole || report.written == LENGTH, "{what}");
    assert!(report.read == 0 || report.path == [path], "{what}");
    open.check(&what, outcome);
    is_whole
}

#[test]
fn changes_at_random_moments_on_each_path() {
    let engine = |backend| {
        let options = Options {
            backend,
            ..Options::default()
        };
        Engine::new(options).unwrap()
    };
    let uring = &[Need::IoUring];
    // The rest of the test continues without that engine.
    let uring = !needs::missing("random changes on the engine with io_uring", uring);
    let engines = [
        None,
        Some(engine(Backend::Epoll)),
        uring.then(|| engine(Backend::Uring)),
    ];
    let runners = if uring { &engines[..] } else { &engines[..2] };
    let mount = Mount::new("xfs", 320 << 20);
    let mount = mount.as_ref();
    let cases = cases(mount);
    let (whole, mut is_later) = (Mutex::new(HashSet::new()), false);
    let round = |random: &mut Rng| {
        // The first round takes each path to its end.
        let cancels = std::mem::replace(&mut is_later, true);
        std::thread::scope(|scope| {
            for engine in runners {
                let mut random = Rng::with_seed(random.u64(..));
                let (cases, whole) = (&cases, &whole);
                scope.spawn(move || {
                    for case in cases {
                        if run(*case, mount, engine.as_ref(), (&mut random, cancels)) {
                            whole.lock().unwrap().insert(*case);
                        }
                    }
                });
            }
        });
    };
    testkit::rounds::run(KEPT, 1, round);
    assert_eq!(whole.lock().unwrap().len(), cases.len());
}
