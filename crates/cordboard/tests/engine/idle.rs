//! The cost of an idle transfer: little memory, and no wake-ups. Each test runs
//! alone, because the allocator counts for the whole process.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use crate::common::{self, any, asleep, descriptors, only, switches, watchdog};
use cordboard::DataPath::{Datagram, ReadWrite, Splice};
use cordboard::engine::Options;
use cordboard::{DataPath, Ended, Engine, Request, Running, Transfer};
use testkit::allocated::{Counting, in_use};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of pairs. Each needs four descriptors here, and two for its transfer.
const IDLE: usize = 10_000;

const REACTOR: &[&str] = &["cordboard"];
/// The reactor and the watching thread.
const BOTH: &[&str] = &["cordboard", "cordboard-watch"];

#[test]
fn ten_thousand_idle_pipe_pairs() {
    let _dog = watchdog("ten_thousand_idle_pipe_pairs");
    if !common::alone!() {
        return;
    }
    let Some(pairs) = common::allowed(IDLE, 6, 1000) else {
        return;
    };
    let engine = Engine::new(Options::default()).unwrap();
    let all: Vec<_> = (0..pairs)
        .map(|_| (std::io::pipe().unwrap(), std::io::pipe().unwrap()))
        .collect();
    let (memory, open) = (in_use(), descriptors());
    let mut running: Vec<Running> = Vec::with_capacity(pairs);
    let handles = pairs * size_of::<Running>();
    for ((source, _), (_, sink)) in &all {
        let transfer = Transfer::owning(
            source.try_clone().unwrap().into(),
            sink.try_clone().unwrap().into(),
            any(),
        );
        running.push(engine.start(transfer.unwrap()).unwrap());
    }
    asleep(BOTH);
    let each = (in_use() - memory - handles) / pairs;
    eprintln!("{pairs} idle transfers: {each} bytes each");
    assert!(each <= 2048, "{each}");
    assert_eq!(descriptors(), open + 2 * pairs);
    assert_eq!(
        common::threads(BOTH).len(),
        2,
        "the reactor and the watching thread"
    );
    // Waits for a synchronous transfer that is idle for a while. The watching
    // thread checks at most twice more, and not every 20 ms.
    let (before, reactor) = (switches(BOTH), switches(REACTOR));
    let spent = passes(Duration::from_millis(200));
    assert!(spent >= Duration::from_millis(200));
    assert_eq!(switches(REACTOR), reactor, "a thread was woken");
    assert!(switches(BOTH) <= before + 2, "the watching thread runs on");
    let before = switches(BOTH);
    passes(Duration::from_millis(100));
    assert_eq!(switches(BOTH), before, "a thread was woken");
    // The transfers still work.
    let ((_, feed), _) = &all[pairs / 2];
    let mut feed = feed;
    feed.write_all(b"x").unwrap();
    while running[pairs / 2].status().written == 0 {
        std::thread::yield_now();
    }
    drop(all);
    engine.shutdown();
    for running in running {
        let ended = running.wait().report.ended;
        assert!(
            matches!(ended, Ended::Cancelled | Ended::Error | Ended::Eof),
            "{ended}"
        );
    }
    // The pool keeps the socket pair or the pipe that was used.
    assert!(descriptors() <= open - 4 * pairs + 4);
}

/// The timer of an idle limit is removed with its transfer, not when it expires.
#[test]
fn what_has_ended_leaves_no_alarm() {
    let name = "what_has_ended_leaves_no_alarm";
    let _dog = watchdog(name);
    if !common::alone!() {
        return;
    }
    const MANY: usize = 4000;
    let engine = Engine::new(Options::default()).unwrap();
    let hour = || Request {
        idle: Some(Duration::from_secs(3600)),
        ..any()
    };
    // One transfer that ends on the reactor, and one that waits there and ends
    // on a worker.
    let through = |sink: std::os::fd::OwnedFd| {
        let (source, feed) = std::io::pipe().unwrap();
        let transfer = Transfer::owning(source.into(), sink, hour()).unwrap();
        let running = engine.start(transfer).unwrap();
        (&feed).write_all(b"x").unwrap();
        while running.status().written == 0 {
            std::thread::yield_now();
        }
        drop(feed);
        assert_eq!(running.wait().report.ended, Ended::Eof);
    };
    let both = || {
        let (_end, sink) = std::io::pipe().unwrap();
        through(sink.into());
        through(std::fs::File::create("/dev/null").unwrap().into());
    };
    // By then the engine has allocated the memory that it keeps.
    (0..100).for_each(|_| both());
    let before = in_use();
    (0..MANY).for_each(|_| both());
    let kept = in_use().saturating_sub(before);
    assert!(kept < MANY * 4, "{kept} bytes of {MANY} transfers");
}

/// Runs a synchronous transfer that is idle for this long.
fn passes(time: Duration) -> Duration {
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let request = Request {
        idle: Some(time),
        ..any()
    };
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    transfer.run().report.elapsed
}

/// On every path, a waiting transfer releases its buffers and private pipes.
#[test]
fn no_path_keeps_what_it_does_not_need() {
    let _dog = watchdog("no_path_keeps_what_it_does_not_need");
    if !common::alone!() {
        return;
    }
    const PAIRS: usize = 100;
    for path in common::forcible(&[Splice, ReadWrite, Datagram]) {
        let engine = Engine::new(Options::default()).unwrap();
        let all: Vec<_> = (0..PAIRS).map(|_| pair(path)).collect();
        let (memory, open) = (in_use(), descriptors());
        let mapped = mapped();
        let start = |(source, sink): &(Ends, Ends)| {
            let transfer = Transfer::owning(
                source.1.try_clone().unwrap(),
                sink.0.try_clone().unwrap(),
                only(&[path]),
            );
            engine.start(transfer.unwrap()).unwrap()
        };
        let running: Vec<Running> = all.iter().map(start).collect();
        // Each transfer moves a few bytes, and sleeps again.
        for (source, sink) in &all {
            rustix::io::write(&source.0, b"hello").unwrap();
            rustix::io::read(&sink.1, &mut [0; 16]).unwrap();
        }
        asleep(BOTH);
        let each = (in_use() - memory) / PAIRS;
        assert!(each <= 2700, "{path}: {each} bytes");
        // The pool keeps a few pipes.
        assert!(descriptors() <= open + 2 * PAIRS + 16, "{path}");
        assert!(self::mapped() < mapped + PAIRS, "{path}: mappings are kept");
        drop(running);
    }
}

type Ends = (std::os::fd::OwnedFd, std::os::fd::OwnedFd);

fn pair(path: DataPath) -> (Ends, Ends) {
    let ends = || -> Ends {
        if path == Datagram {
            let (a, b) = UnixDatagram::pair().unwrap();
            (a.into(), b.into())
        } else {
            let (a, b) = UnixStream::pair().unwrap();
            (a.into(), b.into())
        }
    };
    (ends(), ends())
}

/// Returns the number of mappings of this process.
fn mapped() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}
