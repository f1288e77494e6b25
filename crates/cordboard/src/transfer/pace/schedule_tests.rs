//! A schedule on each path: never more than it permits, on the same path as without
//! one, and no byte is lost.

use std::cell::RefCell;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::auto::SHARES_OF_TESTS;
use crate::errno::Errno;
use crate::path::{Flow, Step, Verdict};
use crate::report::{Ended, Report};
use crate::request::{Aim, DataPath, Request, Schedule, Size, Switches, Tune};
use crate::transfer::stepper::Stepper;
use crate::transfer::test_files::{file_with, is_missing, paths_between_files};
use crate::transfer::turn::{Next, Wait, WaitFor};
use crate::transfer::wait::{Clock, Interest, Poll, Waiter, Wakeup};
use crate::transfer::{Control, Observer, Progress, Transfer, drive};
use testkit::pattern::noise;

const RATE: u64 = 10 << 20;

/// Time passes in waits for the schedule only; all others are real.
struct Paced {
    poll: Poll,
    now: Duration,
    /// Called before each wait for the schedule.
    rests: Box<dyn FnMut(Duration)>,
}

impl Clock for Paced {
    fn now(&mut self) -> Duration {
        self.now
    }
}

impl Waiter for Paced {
    fn wait(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        if interest.ready.is_some() {
            return self.poll.wait(interest, timeout);
        }
        let wakeup = self.poll.wait(interest, Some(Duration::ZERO))?;
        if wakeup == Wakeup::default() && timeout != Some(Duration::ZERO) {
            (self.rests)(self.now);
            self.now += timeout.expect("nothing would wake it");
        }
        Ok(wakeup)
    }
}

/// Stores the progress after each step.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(Duration, u64)>>>);

impl Observer for Seen {
    fn progress(&mut self, progress: &Progress) {
        let mut seen = self.0.lock().unwrap();
        seen.push((progress.elapsed, progress.read));
    }
}

/// Runs a transfer by one path only. Returns its report, its progress and its time by
/// the injected clock.
pub(super) fn run(
    source: impl AsFd,
    sink: impl AsFd,
    (path, size): (DataPath, Size),
    control: &Control,
    rests: Box<dyn FnMut(Duration)>,
) -> (Report, Vec<(Duration, u64)>, Duration) {
    let request = Request {
        size,
        // A wait for the schedule is not idle.
        idle: Some(Duration::from_millis(1)),
        switches: Some(Switches::only(&[path])),
        ..Request::default()
    };
    let seen = Seen::default();
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let transfer = transfer.control(control).observe(seen.clone());
    let mut waiter = Paced {
        poll: Poll::new(),
        now: Duration::ZERO,
        rests,
    };
    let report = drive::run(transfer, &mut waiter).report;
    let seen = seen.0.lock().unwrap().clone();
    (report, seen, waiter.now)
}

pub(super) fn paced(schedule: Schedule) -> Control {
    let control = Control::without_descriptor();
    control.set_schedule(schedule);
    control
}

fn bytes_in(time: Duration, rate: u64) -> u64 {
    u64::try_from(u128::from(rate) * time.as_nanos() / 1_000_000_000).unwrap()
}

/// From file to file by each path: at no step more than the rate permits, and at the
/// end within 1 % of it.
#[test]
fn a_rate_holds_on_each_path_between_files() {
    let data = noise(12 << 20);
    for path in paths_between_files("a rate") {
        let (source, mut sink) = (file_with(&data), file_with(b""));
        let control = paced(Schedule::rate(RATE));
        let what = (path, Size::Eof);
        let (report, seen, took) = run(&source, &sink, what, &control, Box::new(|_| {}));
        assert_eq!(report.path, [path], "{report:?}");
        assert_eq!(report.ended, Ended::Eof, "{path}: {report:?}");
        for (at, read) in seen {
            assert!(read <= bytes_in(at, RATE), "{path}: {read} at {at:?}");
        }
        let exact = Duration::from_millis(1200);
        assert!(
            took >= exact && took <= exact + exact / 100,
            "{path}: {took:?}"
        );
        let mut copy = Vec::new();
        sink.rewind().unwrap();
        sink.read_to_end(&mut copy).unwrap();
        assert!(copy == data, "{path}");
    }
}

/// A read of a queue returns as many whole records as fit. None is taken before its time, except
/// the rest of a record.
#[test]
fn a_rate_holds_for_records() {
    use rustix::fs::inotify;
    /// Bytes of an event: a header and a name of up to 15 bytes.
    const EVENT: u64 = 32;
    const EVENTS: u64 = 500;
    let dir = tempfile::tempdir().unwrap();
    let source = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&source, dir.path(), inotify::WatchFlags::CREATE).unwrap();
    for number in 0..EVENTS {
        std::fs::write(dir.path().join(number.to_string()), b"").unwrap();
    }
    let (rate, size) = (10_000, EVENT * EVENTS);
    let what = (DataPath::ReadWrite, size.into());
    let control = paced(Schedule::rate(rate));
    let (report, seen, _) = run(&source, file_with(b""), what, &control, Box::new(|_| {}));
    assert_eq!((report.ended, report.written), (Ended::Size, size));
    for (at, read) in seen {
        let most = bytes_in(at, rate) + 272;
        assert!(read <= most, "{read} of {most} at {at:?}");
    }
}

/// A rate of less than a page in each piece: paths that move whole pages wait for one.
#[test]
fn a_rate_of_few_bytes_holds_on_each_path_between_files() {
    let data = noise(20_000);
    for path in paths_between_files("a low rate") {
        let (source, sink) = (file_with(&data), file_with(b""));
        let control = paced(Schedule::rate(1000));
        let what = (path, Size::Eof);
        let (report, seen, took) = run(&source, &sink, what, &control, Box::new(|_| {}));
        assert_eq!(report.path, [path], "{report:?}");
        assert_eq!(report.written, 20_000);
        assert!(seen.iter().all(|(at, read)| *read <= bytes_in(*at, 1000)));
        assert!(took <= Duration::from_millis(20_200), "{path}: {took:?}");
    }
}

/// (k, t) by each path: bursts of k blocks, and nothing in between.
#[test]
fn blocks_come_between_rests_on_each_path() {
    let data = noise(4 << 20);
    let burst = 3 * Schedule::BLOCK;
    for path in paths_between_files("blocks") {
        let (source, sink) = (file_with(&data), file_with(b""));
        let control = paced(Schedule::blocks(3, Duration::from_millis(70)));
        let what = (path, Size::Eof);
        let (report, seen, took) = run(&source, &sink, what, &control, Box::new(|_| {}));
        assert_eq!(report.path, [path], "{report:?}");
        assert_eq!(report.written, data.len() as u64);
        for (at, read) in seen {
            let bursts = at.as_millis() as u64 / 70 + 1;
            assert!(read <= burst * bursts, "{path}: {read} at {at:?}");
        }
        let rests = (data.len() as u64).div_ceil(burst) as u32 - 1;
        // A last rest may come before the end is found.
        let least = Duration::from_millis(70) * rests;
        assert!(
            (least..=least + Duration::from_millis(70)).contains(&took),
            "{path}: {took:?}"
        );
    }
}

#[test]
fn a_rate_holds_for_streams() {
    for path in [DataPath::Splice, DataPath::ReadWrite] {
        if is_missing("a rate", path) {
            continue;
        }
        let (source, mut feed) = std::io::pipe().unwrap();
        let (mut end, sink) = std::io::pipe().unwrap();
        let data = noise(300_000);
        let sent = data.clone();
        let feeder = std::thread::spawn(move || feed.write_all(&sent));
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            end.read_to_end(&mut all).map(|_| all)
        });
        let control = paced(Schedule::rate(1_000_000));
        let what = (path, Size::Eof);
        let (report, seen, took) = run(&source, &sink, what, &control, Box::new(|_| {}));
        drop((source, sink));
        feeder.join().unwrap().unwrap();
        assert!(reader.join().unwrap().unwrap() == data);
        assert_eq!((&report.path[..], report.ended), (&[path][..], Ended::Eof));
        let permitted = |at| bytes_in(at, 1_000_000);
        assert!(seen.iter().all(|(at, read)| *read <= permitted(*at)));
        assert!(took >= Duration::from_millis(300), "{path}: {took:?}");
    }
}

/// Datagrams stay whole: one may exceed the grant, and is paid for afterwards.
#[test]
fn a_rate_holds_for_datagrams() {
    let (feed, source) = UnixDatagram::pair().unwrap();
    let (sink, end) = UnixDatagram::pair().unwrap();
    let sender =
        std::thread::spawn(move || (0..100u8).try_for_each(|n| feed.send(&[n; 500]).map(drop)));
    let reader = std::thread::spawn(move || {
        for n in 0..100 {
            let mut datagram = [0; 600];
            assert_eq!(end.recv(&mut datagram).unwrap(), 500);
            assert_eq!(datagram[..500], [n; 500]);
        }
    });
    let control = paced(Schedule::rate(10_000));
    let what = (DataPath::Datagram, Size::Bytes(50_000));
    let (report, seen, took) = run(&source, &sink, what, &control, Box::new(|_| {}));
    sender.join().unwrap().unwrap();
    reader.join().unwrap();
    assert_eq!((report.ended, report.written), (Ended::Size, 50_000));
    for (at, read) in seen {
        assert!(read <= bytes_in(at, 10_000) + 500, "{read} at {at:?}");
    }
    // All but the last datagram were paid for.
    let paid = Duration::from_millis(4_900);
    assert!(took >= paid, "{took:?}");
}

/// A change takes effect at the next step; a change to no schedule ends the rest.
#[test]
fn a_schedule_changes_while_it_runs() {
    let data = noise(3 << 20);
    for path in paths_between_files("a change") {
        let (source, sink) = (file_with(&data), file_with(b""));
        let control = paced(Schedule::rate(1 << 20));
        let changes = Rc::new(RefCell::new(Vec::new()));
        let (handle, log) = (control.clone(), Rc::clone(&changes));
        let rests = Box::new(move |now: Duration| {
            let second = Duration::from_secs(1);
            let next = match log.borrow().len() {
                0 if now >= second => Schedule::rate(2 << 20),
                1 if now >= second * 3 / 2 => Schedule::Unlimited,
                _ => return,
            };
            handle.set_schedule(next);
            log.borrow_mut().push(now);
        });
        let what = (path, Size::Eof);
        let (report, seen, took) = run(&source, &sink, what, &control, rests);
        assert_eq!(report.written, data.len() as u64, "{path}: {report:?}");
        let changes = changes.borrow();
        let [first, second] = changes[..] else {
            panic!("{path}: {changes:?}");
        };
        for (at, read) in seen.iter().filter(|(at, _)| *at <= second) {
            let slow = bytes_in(*at.min(&first), 1 << 20);
            let fast = bytes_in(at.saturating_sub(first), 2 << 20);
            // Nothing is taken at once because of the change.
            assert!(*read <= slow + fast + (1 << 15), "{path}: {read} at {at:?}");
        }
        // The rest comes without a wait, but for the one that was under way.
        assert!(
            took <= second + Duration::from_millis(20),
            "{path}: {took:?}"
        );
    }
}

/// A paused transfer takes a step at each wakeup. The others do not wait for it.
#[test]
fn a_paused_share_delays_no_other() {
    let _shares = SHARES_OF_TESTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let null = std::fs::File::options().write(true).open("/dev/null");
    let null = null.unwrap();
    let share = || paced(Schedule::Auto(Aim::share(1).unwrap()));
    let (pausing, other) = (share(), share());
    let of = |control: &Control| {
        let request = Request {
            switches: Some(Switches::only(&[DataPath::ReadWrite])),
            ..Request::default()
        };
        let transfer = Transfer::new(zero.as_fd(), null.as_fd(), request).unwrap();
        (transfer.control(control), Stepper::begin(Duration::ZERO))
    };
    let (mut still, mut moving) = (of(&pausing), of(&other));
    let mut waiter = Paced {
        poll: Poll::new(),
        now: Duration::ZERO,
        rests: Box::new(|_| {}),
    };
    let ms = Duration::from_millis(1);
    // Both are active.
    for (transfer, stepper) in [&mut still, &mut moving] {
        assert!(matches!(
            stepper.step(transfer, false, &mut waiter),
            Next::Step
        ));
    }
    pausing.pause();
    let before = [still.0.counts(), moving.0.counts()];
    for n in 0..1000 {
        if n % 5 == 0 {
            let next = still.1.step(&mut still.0, false, &mut waiter);
            assert!(matches!(next, Next::Wait(_)));
        }
        moving.1.step(&mut moving.0, false, &mut waiter);
        waiter.now += ms;
    }
    assert_eq!(still.0.counts(), before[0]);
    let moved = moving.0.counts().0 - before[1].0;
    assert!(moved > 100 << 20, "{moved}");
}

/// Two transfers that share a handle share its rate.
#[test]
fn transfers_share_the_schedule_of_their_handle() {
    let data = noise(1 << 20);
    let control = paced(Schedule::rate(1 << 20));
    let (sources, sinks) = (
        [(); 2].map(|()| file_with(&data)),
        [(); 2].map(|()| file_with(b"")),
    );
    let mut all = Duration::ZERO;
    for (source, sink) in sources.iter().zip(&sinks) {
        let what = (DataPath::ReadWrite, Size::Eof);
        // One after the other, by one clock: each has its own bytes of the rate.
        let (report, _, took) = run(source, sink, what, &control, Box::new(|_| {}));
        assert_eq!(report.written, data.len() as u64);
        all += took;
    }
    assert!(all >= Duration::from_millis(1990), "{all:?}");
}

/// A schedule divides no read of a pseudo-file: a sysctl has nothing for a second read, and
/// others require an alignment. What was taken beyond the grant is waited for.
#[test]
fn a_pseudo_file_is_read_whole_at_any_rate() {
    let text = std::fs::read("/proc/sys/kernel/printk").unwrap();
    let sources = [
        ("/proc/sys/kernel/printk", Size::Eof, text.len() as u64),
        ("/proc/self/pagemap", Size::Bytes(80_000), 80_000),
    ];
    for (name, size, length) in sources {
        let source = std::fs::File::open(name).unwrap();
        let mut sink = file_with(b"");
        let control = paced(Schedule::rate(500));
        let what = (DataPath::ReadWrite, size);
        let (report, _, took) = run(&source, &sink, what, &control, Box::new(|_| {}));
        assert_eq!((report.errno, report.written), (None, length), "{name}");
        assert!(
            bytes_in(took, 500) + 500 >= length.min(1 << 16),
            "{name}: {took:?}"
        );
        let mut copy = Vec::new();
        sink.rewind().unwrap();
        sink.read_to_end(&mut copy).unwrap();
        assert!(copy.len() > text.len() || copy == text, "{name}: {copy:?}");
    }
}

/// Each write to a pseudo-file is a value of its own.
#[test]
fn a_pseudo_file_is_written_whole_at_any_rate() {
    let sink = std::fs::File::options();
    let sink = sink
        .clone()
        .write(true)
        .open("/proc/thread-self/comm")
        .unwrap();
    let source = file_with(b"paced-name");
    let control = paced(Schedule::rate(100));
    let what = (DataPath::ReadWrite, Size::Eof);
    let (report, ..) = run(&source, &sink, what, &control, Box::new(|_| {}));
    assert_eq!(report.written, 10, "{report:?}");
    assert_eq!(
        std::fs::read("/proc/thread-self/comm").unwrap(),
        b"paced-name\n"
    );
}

const MIB: u64 = 1 << 20;

/// Bytes in flight, of which each step completes a block.
struct InFlight(u64);

impl Step for InFlight {
    fn step(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let block = self.0.min(MIB);
        self.0 -= block;
        flow.took(block);
        flow.gave(block);
        Verdict::Moved(block)
    }

    fn pending(&self) -> (u32, u32) {
        (0, self.0.div_ceil(MIB) as u32)
    }

    fn in_flight(&self) -> u64 {
        self.0
    }
}

/// Blocks that were in flight before the first schedule are no debt of it.
#[test]
fn a_first_schedule_charges_no_bytes_in_flight() {
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let null = std::fs::File::options().write(true).open("/dev/null");
    let null = null.unwrap();
    for pauses in [false, true] {
        let control = Control::without_descriptor();
        let request = Request {
            tune: Some(Tune::Off),
            ..Request::default()
        };
        let transfer = Transfer::new(zero.as_fd(), null.as_fd(), request).unwrap();
        let mut transfer = transfer.control(&control);
        transfer.current = Some((DataPath::Direct, Box::new(InFlight(8 * MIB))));
        let mut stepper = Stepper::begin(Duration::ZERO);
        let mut waiter = Paced {
            poll: Poll::new(),
            now: Duration::ZERO,
            rests: Box::new(|_| {}),
        };
        let mut step = |transfer: &mut _| stepper.step(transfer, false, &mut waiter);
        assert_eq!(step(&mut transfer), Next::Step);
        control.set_schedule(Schedule::rate(100_000));
        if pauses {
            control.pause();
        }
        for _ in 1..8 {
            assert_eq!(step(&mut transfer), Next::Step, "{pauses}");
        }
        assert_eq!(transfer.counts(), (8 * MIB, 8 * MIB));
        control.resume();
        // A piece of the rate.
        let wait = Wait {
            target: WaitFor::Grant,
            timeout: Some(Duration::from_millis(10)),
        };
        assert_eq!(step(&mut transfer), Next::Wait(wait), "{pauses}");
    }
}
