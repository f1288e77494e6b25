//! A pause: nothing more is read, what was read is written, and nothing is lost.

use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::test_files::{file_with, is_missing, paths_between_files};
use super::wait::{Clock, Interest, Poll, Waiter, Wakeup};
use super::{Control, Observer, Progress, Transfer, drive};
use crate::engine::{Engine, Options};
use crate::errno::Errno;
use crate::report::{Ended, Report};
use crate::request::{DataPath, Request, Size, Switches};
use testkit::pattern::noise;

/// The most blocks that direct I/O has in flight, or in the sink behind one in flight (`AHEAD` in
/// `path/direct/window.rs`).
const AHEAD: u64 = 128;
/// The largest block that direct I/O chooses.
const LARGEST: usize = 4 << 20;

/// Bytes read and written at the last call of the observer.
#[derive(Default)]
struct Counts {
    read: AtomicU64,
    written: AtomicU64,
    /// Bytes that were read, or in flight, when the transfer was paused.
    taken: AtomicU64,
}

/// Pauses the transfer once it has moved bytes.
struct Pauses {
    control: Control,
    counts: Arc<Counts>,
    once: bool,
    /// The length of the blocks of direct I/O.
    block: usize,
}

impl Observer for Pauses {
    fn progress(&mut self, progress: &Progress) {
        self.counts.read.store(progress.read, Relaxed);
        self.counts.written.store(progress.written, Relaxed);
        if progress.read > 0 && !std::mem::replace(&mut self.once, true) {
            let in_flight = match progress.path {
                DataPath::Direct => AHEAD * self.block as u64,
                _ => 0,
            };
            (self.counts.taken).store(progress.read + in_flight, Relaxed);
            self.control.pause();
        }
    }
}

/// The real `poll(2)`. The first wait of a paused transfer returns as if it had
/// been woken without a cause; the second one resumes it.
struct Resumes {
    control: Control,
    counts: Arc<Counts>,
    poll: Poll,
    now: Duration,
    /// The bytes read and written at each wait of a paused transfer.
    paused_at: Vec<(u64, u64)>,
    /// The time that passes in each of them.
    passes: Duration,
}

impl Clock for Resumes {
    fn now(&mut self) -> Duration {
        self.now
    }
}

impl Waiter for Resumes {
    fn wait(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        if interest.ready.is_some() || !self.control.is_paused() {
            return self.poll.wait(interest, timeout);
        }
        assert!(interest.wake.is_some(), "nothing would wake it");
        // Another transfer that shares the control may take the wakeup.
        assert!(timeout.is_some(), "it would sleep on");
        let Counts { read, written, .. } = &*self.counts;
        self.paused_at
            .push((read.load(Relaxed), written.load(Relaxed)));
        self.now += self.passes;
        if self.paused_at.len() >= 2 {
            self.control.resume();
        }
        Ok(Wakeup {
            woken: true,
            ..Wakeup::default()
        })
    }
}

/// Runs a transfer by this path only, paused after its first step. Checks that it has read
/// nothing after the pause. Returns its report, and the bytes written when it was paused.
fn paused(
    source: impl AsFd,
    sink: impl AsFd,
    path: DataPath,
    (size, block): (Size, Option<NonZeroUsize>),
) -> (Report, u64) {
    let control = Control::new().unwrap();
    let counts = Arc::new(Counts::default());
    let request = Request {
        size,
        block,
        idle: Some(Duration::from_secs(7)),
        switches: Some(Switches::only(&[path])),
        ..Request::default()
    };
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let transfer = transfer.control(&control).observe(Pauses {
        control: control.clone(),
        counts: Arc::clone(&counts),
        once: false,
        block: block.map_or(LARGEST, NonZeroUsize::get),
    });
    let mut waiter = Resumes {
        control,
        counts: Arc::clone(&counts),
        poll: Poll::new(),
        now: Duration::ZERO,
        paused_at: Vec::new(),
        // A pause does not count as idle.
        passes: Duration::from_secs(60),
    };
    let report = drive::run(transfer, &mut waiter).report;
    let [first, second] = waiter.paused_at[..] else {
        panic!("{path}: paused at {:?}", waiter.paused_at);
    };
    assert_eq!(first, second, "{path} went on while it was paused");
    let (read, written) = first;
    let taken = counts.taken.load(Relaxed);
    assert!(read <= taken, "{path} has read {read} instead of {taken}");
    (report, written)
}

/// From file to file by each path that moves a file in pieces. Direct blocks in
/// flight complete.
#[test]
fn a_file_is_paused_on_each_path() {
    let data = noise(48 << 20);
    for path in paths_between_files("a_file_is_paused_on_each_path") {
        for block in [None, NonZeroUsize::new(64 << 10)] {
            let (source, mut sink) = (file_with(&data), file_with(b""));
            let (report, written) = paused(&source, &sink, path, (Size::Eof, block));
            assert_eq!(report.ended, Ended::Eof, "{path}: {report:?}");
            assert_eq!(report.written, data.len() as u64, "{path}: {report:?}");
            assert_eq!(report.path, [path]);
            assert!(
                (1..data.len() as u64).contains(&written),
                "{path}: {written}"
            );
            let mut copy = Vec::new();
            std::io::Seek::rewind(&mut sink).unwrap();
            sink.read_to_end(&mut copy).unwrap();
            assert!(copy == data, "{path}");
        }
    }
}

/// The size is reached exactly, despite a pause before it.
#[test]
fn a_stream_is_paused_within_its_size() {
    for path in [DataPath::Splice, DataPath::ReadWrite] {
        if is_missing("a pause", path) {
            continue;
        }
        let (source, mut feed) = std::io::pipe().unwrap();
        let (mut end, sink) = std::io::pipe().unwrap();
        feed.write_all(&noise(10_000)).unwrap();
        let (has_paused, pauses) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; 10_000];
            end.read_exact(&mut all).unwrap();
            has_paused.send(()).unwrap();
            end.read_to_end(&mut all).map(|_| all)
        });
        // One step moves all that a pipe holds.
        let more = std::thread::spawn(move || {
            pauses.recv().unwrap();
            feed.write_all(&noise(200_000))
        });
        let (report, _) = paused(&source, &sink, path, (Size::Bytes(150_000), None));
        assert_eq!((report.ended, report.written), (Ended::Size, 150_000));
        drop((source, sink));
        let _ = more.join().unwrap();
        assert_eq!(reader.join().unwrap().unwrap().len(), 150_000);
    }
}

/// Datagrams stay whole, and none is lost.
#[test]
fn datagrams_are_paused_between_two() {
    let (feed, source) = UnixDatagram::pair().unwrap();
    let (sink, end) = UnixDatagram::pair().unwrap();
    let sender = std::thread::spawn(move || {
        // More than one batch, and more than the size.
        (0..250u8).try_for_each(|n| feed.send(&[n; 100]).map(|_| ()))
    });
    let reader = std::thread::spawn(move || {
        for n in 0..200 {
            let mut datagram = [0; 200];
            assert_eq!(end.recv(&mut datagram).unwrap(), 100);
            assert_eq!(datagram[..100], [n; 100]);
        }
    });
    let (report, _) = paused(
        &source,
        &sink,
        DataPath::Datagram,
        (Size::Bytes(20_000), None),
    );
    assert_eq!((report.ended, report.written), (Ended::Size, 20_000));
    reader.join().unwrap();
    drop(source);
    // It may have sent all by then, to a queue without a reader.
    let _ = sender.join().unwrap();
}

/// A paused transfer can be cancelled, and loses nothing.
#[test]
fn a_paused_transfer_is_cancelled() {
    let (source, mut feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    feed.write_all(b"hello").unwrap();
    let control = Control::new().unwrap();
    control.pause();
    assert!(control.is_paused());
    let source: OwnedFd = source.into();
    let copy = source.try_clone().unwrap();
    let engine = Engine::new(Options::default()).unwrap();
    let transfer = Transfer::owning(source, sink.into(), Request::default()).unwrap();
    let running = engine.start(transfer.control(&control)).unwrap();
    // The engine runs transfers in the order of their starts. By then the paused one waits.
    let (from, to) = (std::io::pipe().unwrap().0, std::io::pipe().unwrap().1);
    let next = Transfer::owning(from.into(), to.into(), Request::default()).unwrap();
    engine.start(next).unwrap().wait_for_end();
    control.cancel();
    let report = running.wait().report;
    assert_eq!((report.ended, report.read), (Ended::Cancelled, 0));
    let mut left = [0; 5];
    std::fs::File::from(copy).read_exact(&mut left).unwrap();
    assert_eq!(&left, b"hello");
}

/// Cancels a transfer as soon as it waits for the end of a pause.
struct CancelsPaused {
    control: Control,
    poll: Poll,
}

impl Clock for CancelsPaused {
    fn now(&mut self) -> Duration {
        self.poll.now()
    }
}

impl Waiter for CancelsPaused {
    fn wait(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        if interest.ready.is_none() && self.control.is_paused() {
            self.control.cancel();
        }
        self.poll.wait(interest, timeout)
    }
}

/// A cancelled transfer writes the bytes that it holds, even if it is paused.
#[test]
fn the_rest_of_a_block_is_written_by_a_cancelled_pause() {
    let (source, mut feed) = std::io::pipe().unwrap();
    let (sink, end) = UnixDatagram::pair().unwrap();
    feed.write_all(&noise(250)).unwrap();
    let control = Control::new().unwrap();
    let request = Request {
        block: NonZeroUsize::new(100),
        switches: Some(Switches::only(&[DataPath::Datagram])),
        ..Request::default()
    };
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let transfer = transfer.control(&control).observe(Pauses {
        control: control.clone(),
        counts: Arc::default(),
        once: false,
        block: 0,
    });
    let mut waiter = CancelsPaused {
        control,
        poll: Poll::new(),
    };
    let report = drive::run(transfer, &mut waiter).report;
    assert_eq!(report.ended, Ended::Cancelled, "{report:?}");
    assert_eq!((report.read, report.written), (250, 250), "{report:?}");
    for length in [100, 100, 50] {
        assert_eq!(end.recv(&mut [0; 200]).unwrap(), length);
    }
}

/// Lets a minute pass in each wait for a full sink. Pauses the transfer in the first and
/// resumes it in the third.
struct FullSink {
    control: Control,
    poll: Poll,
    now: Duration,
    waits: u32,
    /// Another transfer takes the wakeups of the pause, which ends in the same wait.
    is_short: bool,
    /// The timeout of the last wait during the pause.
    paused: Option<Duration>,
}

impl FullSink {
    fn with(control: &Control) -> FullSink {
        FullSink {
            control: control.clone(),
            poll: Poll::new(),
            now: Duration::ZERO,
            waits: 0,
            is_short: false,
            paused: None,
        }
    }
}

impl Clock for FullSink {
    fn now(&mut self) -> Duration {
        self.now
    }
}

impl Waiter for FullSink {
    fn wait(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        let for_sink = matches!(interest.ready, Some((_, true)));
        let zero = Some(Duration::ZERO);
        let now = self
            .poll
            .wait(interest, if for_sink { zero } else { timeout })?;
        if !for_sink || now != Wakeup::default() || timeout == zero {
            // The time of one poll: a thread polls a full sink for a while.
            self.now += Duration::from_micros(1);
            return Ok(now);
        }
        self.waits += 1;
        self.now += Duration::from_secs(60);
        if self.control.is_paused() {
            self.paused = timeout;
        }
        match self.waits {
            1 => self.control.pause(),
            3 => self.control.resume(),
            _ => {}
        }
        if self.is_short {
            self.control.resume();
        }
        Ok(Wakeup::default())
    }
}

/// The idle limit does not run while a paused transfer waits for room for the bytes
/// that it holds, and starts again when it is resumed.
#[test]
fn a_full_sink_is_not_idle_during_a_pause() {
    // With a size, all bytes are read at the time of the pause.
    for size in [Size::Eof, Size::Bytes(100_000)] {
        let source = file_with(&noise(4 << 20));
        let (_reader, sink) = std::io::pipe().unwrap();
        let control = Control::new().unwrap();
        let request = Request {
            size,
            idle: Some(Duration::from_secs(7)),
            switches: Some(Switches::only(&[DataPath::ReadWrite])),
            ..Request::default()
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let mut waiter = FullSink::with(&control);
        let report = drive::run(transfer.control(&control), &mut waiter).report;
        assert_eq!(report.ended, Ended::Idle, "{report:?}");
        // The wait after the pause lasts longer than the limit.
        assert_eq!(waiter.waits, 4, "{report:?}");
    }
}

/// Another transfer that shares the control takes the wakeups.
#[test]
fn a_pause_that_another_transfer_notices_restarts_the_idle_limit() {
    for is_short in [false, true] {
        let source = file_with(&noise(4 << 20));
        let (_reader, sink) = std::io::pipe().unwrap();
        let control = Control::new().unwrap();
        let mut other = control.clone();
        other.listen();
        let request = Request {
            idle: Some(Duration::from_secs(7)),
            switches: Some(Switches::only(&[DataPath::ReadWrite])),
            ..Request::default()
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let mut waiter = FullSink {
            is_short,
            ..FullSink::with(&control)
        };
        let report = drive::run(transfer.control(&control), &mut waiter).report;
        assert_eq!(report.ended, Ended::Idle, "{report:?}");
        if is_short {
            assert_eq!(waiter.waits, 2);
        } else {
            assert_eq!(waiter.paused, Some(Duration::from_millis(20)));
        }
    }
}

/// On an engine, several transfers that share one control.
#[test]
fn an_engine_resumes_all_that_share_a_control() {
    let control = Control::new().unwrap();
    control.pause();
    let mut all = Vec::new();
    for _ in 0..3 {
        let (source, mut feed) = std::io::pipe().unwrap();
        let (end, sink) = std::io::pipe().unwrap();
        feed.write_all(b"hello").unwrap();
        let transfer = Transfer::owning(source.into(), sink.into(), Request::default()).unwrap();
        all.push((transfer.control(&control).start().unwrap(), end));
    }
    for (running, _) in &all {
        assert_eq!(running.status().read, 0);
    }
    control.resume();
    for (running, mut end) in all {
        let mut bytes = [0; 5];
        end.read_exact(&mut bytes).unwrap();
        assert_eq!(running.wait().report.written, 5);
    }
}

/// A paused transfer polls its handle only while another transfer shares the wakeup.
#[test]
fn a_transfer_that_has_ended_shares_no_handle() {
    let control = Control::new().unwrap();
    let listen = || {
        let mut of_transfer = control.clone();
        of_transfer.listen();
        of_transfer
    };
    drop(listen());
    let second = listen();
    let alone = second.pause_interval();
    let third = listen();
    assert!(third.pause_interval() < alone, "{alone:?}");
    drop(third);
    assert_eq!(second.pause_interval(), alone);
}

/// A thousand paused control descriptors would cost a thousand wakeups a second.
#[test]
fn a_paused_transfer_with_an_exclusive_handle_sleeps_until_it_is_woken() {
    let control = Control::new().unwrap().exclusive();
    let mut other = control.clone();
    other.listen();
    assert_eq!(other.pause_interval(), None);
    // Two transfers use it nevertheless, or nothing can wake it.
    let mut third = control.clone();
    third.listen();
    assert!(third.pause_interval().is_some());
    drop(third);
    assert_eq!(other.pause_interval(), None);
    let unwoken = Control::without_descriptor().exclusive();
    assert!(unwoken.pause_interval().is_some());
}
