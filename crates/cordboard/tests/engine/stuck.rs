//! Calls that wait in the kernel without a limit: the other transfers of the same
//! engine continue, and a wait that can be ended is ended.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use crate::common::{self, any, content, file_with, pattern, position, watchdog};
use cordboard::engine::Options;
use cordboard::{
    Control, DataPath, Ended, Engine, Observer, Progress, Refusal, Report, Request, Running,
    Transfer,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use testkit::locked::{Locked, held_up, threads};
use testkit::needs::Need;

fn engine_of(workers: usize) -> Engine {
    let options = Options {
        workers,
        ..Options::default()
    };
    Engine::new(options).unwrap()
}

/// Opens a terminal in raw mode: (slave, master).
fn pty() -> (OwnedFd, OwnedFd) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
    let mut modes = tcgetattr(&terminal).unwrap();
    modes.make_raw();
    tcsetattr(&terminal, OptionalActions::Now, &modes).unwrap();
    (terminal, master)
}

/// Opens a terminal without a reader: it polls writable, and accepts less than a
/// page.
fn nearly_full() -> (OwnedFd, OwnedFd) {
    let (terminal, master) = pty();
    let name = format!("/proc/self/fd/{}", terminal.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK;
    let fill = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    // The kernel moves some bytes on, so the terminal is full only after a while.
    let mut full = 0;
    while full < 100 {
        full = match rustix::io::write(&fill, &[0; 100]) {
            Ok(_) => 0,
            Err(_) => full + 1,
        };
        std::thread::yield_now();
    }
    // Waits until there is room for one byte.
    let mut fds = [PollFd::new(&terminal, PollFlags::OUT)];
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    loop {
        rustix::io::read(&master, &mut [0; 100]).unwrap();
        if poll(&mut fds, Some(&moment)) == Ok(1) {
            return (terminal, master);
        }
    }
}

fn transfer(source: &impl AsFd, sink: &impl AsFd, request: Request) -> Transfer<'static> {
    let [from, to] = [source.as_fd(), sink.as_fd()].map(|fd| fd.try_clone_to_owned().unwrap());
    Transfer::owning(from, to, request).unwrap()
}

/// All workers wait for a lock, and then their replacements do too. New workers
/// replace these, and exit once there are too many.
#[test]
fn workers_that_are_held_up_leave_room_for_files() {
    let name = "workers_that_are_held_up_leave_room_for_files";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    if !common::alone!() {
        return;
    }
    const WORKERS: usize = 2;
    const STUCK: usize = 3 * WORKERS;
    let engine = engine_of(WORKERS);
    let data = pattern(16 << 10);
    let stuck: Vec<(Locked, Running)> = (0..STUCK)
        .map(|_| {
            let locked = Locked::new();
            let running = engine.start(transfer(&file_with(&data), &locked.writer, any()));
            (locked, running.unwrap())
        })
        .collect();
    while held_up("cordboard-work") < STUCK {
        std::thread::yield_now();
    }
    for _ in 0..4 {
        let sink = tempfile::tempfile().unwrap();
        let running = engine.start(transfer(&file_with(&data), &sink, any()));
        let report = running.unwrap().wait().report;
        assert_eq!((report.ended, report.written), (Ended::Eof, 16 << 10));
        assert!(content(&sink) == data);
    }
    for (locked, running) in stuck {
        let (mut reader, writer) = locked.release();
        let report = running.wait().report;
        assert_eq!((report.ended, report.written), (Ended::Eof, 16 << 10));
        drop(writer);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert!(all[0] == b'x' && all[1..] == data);
    }
    // Workers that were replaced end.
    while threads("cordboard-work").len() > WORKERS {
        std::thread::yield_now();
    }
    engine.shutdown();
    until_gone("cordboard-work");
    until_gone("cordboard-watch");
}

/// Waits until no thread has this name. A thread that was joined is still listed for
/// a moment: the kernel wakes the joining thread before it removes it (`mm_release`,
/// kernel/fork.c).
fn until_gone(name: &str) {
    while !threads(name).is_empty() {
        std::thread::yield_now();
    }
}

/// No thread waits for the lock of an empty pipe, which `poll(2)` reports without the
/// lock: neither at a start nor at a cancel.
#[test]
fn an_empty_pipe_that_is_locked_is_not_waited_for() {
    let name = "an_empty_pipe_that_is_locked_is_not_waited_for";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    if !common::alone!() {
        return;
    }
    let locked = Locked::new();
    let (_end, sink) = std::io::pipe().unwrap();
    for time in [0, 20] {
        let idle = Request {
            idle: Some(Duration::from_millis(time)),
            ..any()
        };
        let report = common::run(&locked.reader, &sink, idle).report;
        assert_eq!((report.ended, report.read), (Ended::Idle, 0));
    }
    let control = Control::new().unwrap();
    let report = std::thread::scope(|scope| {
        scope.spawn(|| control.cancel());
        common::with_control(&locked.reader, &sink, any(), &control).report
    });
    assert_eq!((report.ended, report.read), (Ended::Cancelled, 0));
    // The content is counted only if the pipe is both sides.
    let onto_itself =
        |request| Transfer::new(locked.reader.as_fd(), locked.writer.as_fd(), request);
    let refusal = onto_itself(any()).err().unwrap().refusal;
    assert!(
        matches!(refusal, Some(Refusal::SamePipe { holds: 0, .. })),
        "{refusal:?}"
    );
    let (reader, writer) = locked.release();
    // Not empty, and locked: the holder takes the lock before its first byte.
    let locked = Locked::of(reader, writer);
    let onto_itself =
        |request| Transfer::new(locked.reader.as_fd(), locked.writer.as_fd(), request);
    let byte = Request {
        size: 1.into(),
        ..any()
    };
    let refusal = onto_itself(byte.clone()).err().unwrap().refusal;
    assert!(
        matches!(refusal, Some(Refusal::SamePipe { holds: 0, .. })),
        "{refusal:?}"
    );
    locked.release();
    // On an engine: the transfer continues once the lock is free.
    let locked = Locked::new();
    let engine = engine_of(1);
    let start = |request| engine.start(transfer(&locked.reader, &sink, request));
    let (waits, cancelled) = (start(byte).unwrap(), start(any()).unwrap());
    cancelled.cancel();
    let report = cancelled.wait().report;
    assert_eq!((report.ended, report.read), (Ended::Cancelled, 0));
    let idle = Request {
        idle: Some(Duration::from_millis(20)),
        ..any()
    };
    let report = start(idle).unwrap().wait().report;
    assert_eq!((report.ended, report.read), (Ended::Idle, 0));
    assert_eq!(held_up("cordboard"), 0);
    locked.release();
    let report = waits.wait().report;
    assert_eq!((report.ended, report.written), (Ended::Size, 1));
}

/// Asserts that a transfer into a terminal has written a part, and ended in this way.
fn stopped(report: &Report, ended: Ended, source: &File) {
    assert_eq!(report.ended, ended, "{report:?}");
    assert!(report.written > 0 && report.written < 1 << 16, "{report:?}");
    assert_eq!((report.read, report.stranded), (report.written, 0));
    assert_eq!(position(source), report.written);
}

#[test]
fn idle_and_cancel_hold_for_a_terminal_that_nobody_reads() {
    let _dog = watchdog("idle_and_cancel_hold_for_a_terminal_that_nobody_reads");
    let idle = || Request {
        idle: Some(Duration::from_millis(20)),
        ..any()
    };
    let data = pattern(1 << 20);
    let engine = engine_of(1);
    let nonblocking = |fd: &OwnedFd| {
        let flags = rustix::fs::fcntl_getfl(fd).unwrap();
        flags.contains(OFlags::NONBLOCK)
    };

    let (source, (terminal, master)) = (file_with(&data), nearly_full());
    let running = engine.start(transfer(&source, &terminal, idle())).unwrap();
    stopped(&running.wait().report, Ended::Idle, &source);
    assert!(!nonblocking(&terminal));

    let (source, (terminal, _master)) = (file_with(&data), nearly_full());
    let running = engine.start(transfer(&source, &terminal, any())).unwrap();
    let mut before = (0, 0);
    // Until the transfer has filled the terminal, with pauses in between.
    while before.0 == 0 || before.1 < 1000 {
        let written = running.status().written;
        before = (written, if written == before.0 { before.1 + 1 } else { 0 });
        std::thread::yield_now();
    }
    running.cancel();
    stopped(&running.wait().report, Ended::Cancelled, &source);
    assert!(!nonblocking(&terminal));

    // The same on the caller's thread.
    let (source, (terminal, _master)) = (file_with(&data), nearly_full());
    let report = common::run(&source, &terminal, idle()).report;
    stopped(&report, Ended::Idle, &source);

    let (source, (terminal, _master)) = (file_with(&data), nearly_full());
    let control = Control::new().unwrap();
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The transfer reads one buffer ahead of the terminal.
            while position(&source) == 0 {
                std::thread::yield_now();
            }
            control.cancel();
        });
        common::with_control(&source, &terminal, any(), &control).report
    });
    assert_eq!(report.ended, Ended::Cancelled);
    assert_eq!(position(&source), report.written);
    drop(master);
}

/// Moves these bytes, and ends.
fn carries_on(engine: &Engine, bytes: &[u8]) {
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let running = engine.start(transfer(&source, &sink, any())).unwrap();
    drop((source, sink));
    feed.write_all(bytes).unwrap();
    drop(feed);
    let mut out = Vec::new();
    end.read_to_end(&mut out).unwrap();
    assert_eq!(out, bytes);
    let report = running.wait().report;
    assert_eq!(
        (report.ended, report.written),
        (Ended::Eof, bytes.len() as u64)
    );
    assert_eq!(report.path, [DataPath::Splice]);
}

/// The reactor is blocked, and then each reactor that replaces it.
#[test]
fn a_reactor_that_is_held_up_leaves_the_others_to_another_one() {
    let name = "a_reactor_that_is_held_up_leaves_the_others_to_another_one";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    if !common::alone!() {
        return;
    }
    const STUCK: usize = 3;
    let engine = engine_of(2);
    // The transfer has waited on the reactor before, with a timer, and new bytes wake
    // it.
    let (silent, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let hour = Request {
        idle: Some(Duration::from_secs(3600)),
        ..any()
    };
    let waits = engine.start(transfer(&silent, &sink, hour)).unwrap();
    let mut stuck = Vec::new();
    for n in 1..=STUCK {
        let locked = Locked::new();
        let (source, mut feed) = std::io::pipe().unwrap();
        feed.write_all(b"hello").unwrap();
        let running = engine.start(transfer(&source, &locked.writer, any()));
        while held_up("cordboard") < n {
            std::thread::yield_now();
        }
        carries_on(&engine, b"meanwhile");
        stuck.push((locked, feed, running.unwrap()));
    }
    // The locked pipe as the source, too, with bytes in it.
    let (reader, writer) = Locked::new().release();
    let locked = Locked::of(reader, writer);
    let (_nobody, nowhere) = std::io::pipe().unwrap();
    let cancelled = engine.start(transfer(&locked.reader, &nowhere, any()));
    let cancelled = cancelled.unwrap();
    while held_up("cordboard") <= STUCK {
        std::thread::yield_now();
    }
    cancelled.cancel();
    carries_on(&engine, b"meanwhile");
    // So does a transfer that ends by its idle limit, and one that is cancelled.
    let (quiet, _feed) = std::io::pipe().unwrap();
    let idle = Request {
        idle: Some(Duration::from_millis(5)),
        ..any()
    };
    let report = engine.start(transfer(&quiet, &sink, idle)).unwrap().wait();
    assert_eq!(report.report.ended, Ended::Idle);
    feed.write_all(b"heard").unwrap();
    end.read_exact(&mut [0; 5]).unwrap();
    waits.cancel();
    let report = waits.wait().report;
    assert_eq!((report.ended, report.written), (Ended::Cancelled, 5));

    let (mut reader, writer) = locked.release();
    let report = cancelled.wait().report;
    assert_eq!(report.ended, Ended::Cancelled, "{report:?}");
    drop(writer);
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len() as u64 + report.read, 2);
    assert_eq!(report.read, report.written + report.stranded);
    for (locked, feed, running) in stuck {
        let (mut reader, writer) = locked.release();
        drop((feed, writer));
        let report = running.wait().report;
        assert_eq!((report.ended, report.written), (Ended::Eof, 5));
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"xhello");
    }
    // The threads that were held up have ended.
    while threads("cordboard").len() > 1 {
        std::thread::yield_now();
    }
    carries_on(&engine, b"afterwards");
    engine.shutdown();
    until_gone("cordboard");
    until_gone("cordboard-watch");
}

/// `shutdown` waits for all outcomes and all threads.
#[test]
fn an_engine_shuts_down_once_nothing_is_held_up_any_more() {
    let name = "an_engine_shuts_down_once_nothing_is_held_up_any_more";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    if !common::alone!() {
        return;
    }
    let engine = engine_of(1);
    let locked = Locked::new();
    let (source, mut feed) = std::io::pipe().unwrap();
    feed.write_all(b"hello").unwrap();
    let running = engine.start(transfer(&source, &locked.writer, any()));
    while held_up("cordboard") < 1 {
        std::thread::yield_now();
    }
    carries_on(&engine, b"meanwhile");
    std::thread::scope(|scope| {
        let down = scope.spawn(|| engine.shutdown());
        // Starts are refused from here on.
        let refused = || {
            let late = engine.start(transfer(&source, &std::io::stderr(), any()));
            late.is_err()
        };
        while !refused() {
            std::thread::yield_now();
        }
        assert!(!down.is_finished());
        let (_reader, _writer) = locked.release();
        down.join().unwrap();
    });
    let report = running.unwrap().try_wait().expect("delivered").report;
    assert_eq!(report.ended, Ended::Cancelled);
    assert_eq!(report.read, report.written + report.stranded);
    until_gone("cordboard");
}

/// Locks the pipe after the first bytes are written to it.
struct Locks(Option<(OwnedFd, OwnedFd)>, std::sync::mpsc::Sender<Locked>);

impl Observer for Locks {
    fn progress(&mut self, progress: &Progress) {
        if progress.written > 0
            && let Some((reader, writer)) = self.0.take()
        {
            let locked = Locked::of(reader.into(), writer.into());
            self.1.send(locked).unwrap();
        }
    }
}

/// Closing an end of a pipe waits for its lock too. A transfer that goes to sleep
/// closes its second description of a FIFO.
#[test]
fn a_transfer_that_goes_to_sleep_holds_nobody_up() {
    let name = "a_transfer_that_goes_to_sleep_holds_nobody_up";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    if !common::alone!() {
        return;
    }
    let engine = engine_of(1);
    let (reader, writer) = testkit::obstacle::fifo().unwrap();
    let (mut feed, source) = common::tcp_pair();
    let copies = [&reader, &writer].map(|fd| fd.try_clone().unwrap());
    let [lock_reader, lock_writer] = copies;
    let (sender, locked) = std::sync::mpsc::channel();
    let locks = Locks(Some((lock_reader, lock_writer)), sender);
    let running = engine.start(transfer(&source, &writer, any()).observe(locks));
    feed.write_all(b"hello").unwrap();
    let locked = locked.recv().unwrap();
    while held_up("cordboard") < 1 {
        std::thread::yield_now();
    }
    carries_on(&engine, b"meanwhile");
    let ends = locked.release();
    while held_up("cordboard") > 0 {
        std::thread::yield_now();
    }
    feed.write_all(b", world").unwrap();
    drop((feed, ends, writer));
    let report = running.unwrap().wait().report;
    assert_eq!((report.ended, report.written), (Ended::Eof, 12));
    assert_eq!(report.path, [DataPath::ReadWrite]);
    let mut all = Vec::new();
    File::from(reader).read_to_end(&mut all).unwrap();
    assert_eq!(all, b"hellox, world");
}
