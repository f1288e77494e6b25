//! The ways to run a transfer on an engine, and to find out that it has ended.

use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use crate::common::{self, any, content, file_with, only, pattern, watchdog};
use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::engine::{Backend, Options};
use cordboard::{Control, Ended, Engine, Errno, Request, Running, Size, Stranded, Transfer, start};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The test's ends of two pipes, and a transfer between them.
struct Pipes {
    feed: std::io::PipeWriter,
    end: std::io::PipeReader,
    running: Running,
}

fn pipes(request: Request) -> Pipes {
    let (source, feed) = std::io::pipe().unwrap();
    let (end, sink) = std::io::pipe().unwrap();
    let running = start(&source, &sink, request).unwrap();
    Pipes { feed, end, running }
}

impl Pipes {
    /// Feeds the source and ends it. Returns the bytes that came out.
    fn through(mut self, bytes: &[u8]) -> (Vec<u8>, Running) {
        self.feed.write_all(bytes).unwrap();
        drop(self.feed);
        let mut out = Vec::new();
        // Returns once the transfer has closed its duplicate of the sink.
        self.end.read_to_end(&mut out).unwrap();
        (out, self.running)
    }
}

fn is_readable(fd: BorrowedFd<'_>, timeout: Option<&Timespec>) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, timeout).unwrap();
    fds[0].revents().contains(PollFlags::IN)
}

/// A minimal executor.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_thread_waits() {
    let _dog = watchdog("a_thread_waits");
    let (out, running) = pipes(any()).through(b"number, please");
    let report = running.wait().report;
    assert_eq!(out, b"number, please");
    assert_eq!((report.ended, report.written), (Ended::Eof, 14));
    assert_eq!(report.path, common::carried_by(&[Splice, ReadWrite]));
}

#[test]
fn a_future_under_a_bare_executor() {
    let _dog = watchdog("a_future_under_a_bare_executor");
    let pipes = pipes(any());
    let running = std::thread::spawn(move || block_on(pipes.running));
    let (mut feed, mut end) = (pipes.feed, pipes.end);
    feed.write_all(b"number, please").unwrap();
    drop(feed);
    assert_eq!(running.join().unwrap().report.written, 14);
    let mut out = String::new();
    end.read_to_string(&mut out).unwrap();
    assert_eq!(out, "number, please");
}

/// A waker's `clone` is code of the executor, which may wait for the same transfer.
#[test]
fn a_waker_may_wait_for_the_end_while_it_is_cloned() {
    use std::task::{RawWaker, RawWakerVTable};
    struct Executor {
        feed: std::sync::Mutex<Option<std::io::PipeWriter>>,
        ended: OwnedFd,
    }
    fn nothing(_: *const ()) {}
    fn clone(data: *const ()) -> RawWaker {
        // SAFETY: the test leaks the value that all of these wakers point to.
        let executor = unsafe { &*data.cast::<Executor>() };
        executor.feed.lock().unwrap().take();
        assert!(is_readable(executor.ended.as_fd(), None));
        RawWaker::new(data, &TABLE)
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, nothing, nothing, nothing);
    let _dog = watchdog("a_waker_may_wait_for_the_end_while_it_is_cloned");
    let Pipes {
        feed,
        end: _end,
        mut running,
    } = pipes(any());
    let executor: &'static Executor = Box::leak(Box::new(Executor {
        feed: std::sync::Mutex::new(Some(feed)),
        ended: running.fd().unwrap().try_clone_to_owned().unwrap(),
    }));
    let data = std::ptr::from_ref(executor).cast();
    // SAFETY: the table's functions take a pointer to a leaked `Executor`.
    let waker = unsafe { Waker::from_raw(RawWaker::new(data, &TABLE)) };
    let polled = Pin::new(&mut running).poll(&mut Context::from_waker(&waker));
    // The transfer ended before the waker was stored, and `poll` returns the
    // outcome nevertheless.
    let Poll::Ready(outcome) = polled else {
        panic!("the wake-up was lost");
    };
    assert_eq!(outcome.report.ended, Ended::Eof);
}

/// Two transfers at once: the second ends first.
async fn two(first: Running, second: Running, mut feeds: [std::io::PipeWriter; 2]) -> [u64; 2] {
    feeds[1].write_all(b"second").unwrap();
    let [feed, other] = feeds;
    drop(other);
    let second = second.await.report.written;
    drop(feed);
    [first.await.report.written, second]
}

fn two_on(run: impl FnOnce(Pin<Box<dyn Future<Output = [u64; 2]> + Send>>) -> [u64; 2]) {
    let (first, second) = (pipes(any()), pipes(any()));
    let ends = (first.end, second.end);
    let future = two(first.running, second.running, [first.feed, second.feed]);
    assert_eq!(run(Box::pin(future)), [0, 6]);
    drop(ends);
}

#[test]
fn futures_under_tokio() {
    let _dog = watchdog("futures_under_tokio");
    let runtime = tokio::runtime::Builder::new_current_thread();
    two_on(|future| {
        let runtime = { runtime }.build().unwrap();
        // As a spawned task too, which moves the future.
        runtime.block_on(async { tokio::spawn(future).await.unwrap() })
    });
}

#[test]
fn futures_under_smol() {
    let _dog = watchdog("futures_under_smol");
    two_on(|future| smol::block_on(async { smol::spawn(future).await }));
    two_on(block_on);
}

/// Dropping the future, as a timeout does, cancels the transfer.
#[test]
fn a_future_that_is_dropped_cancels() {
    let _dog = watchdog("a_future_that_is_dropped_cancels");
    let Pipes {
        feed: _feed,
        mut end,
        running,
    } = pipes(any());
    let done = smol::block_on(smol::future::or(async { Some(running.await) }, async {
        None
    }));
    assert!(done.is_none());
    assert_eq!(end.read_to_end(&mut Vec::new()).unwrap(), 0);
}

#[test]
fn a_descriptor_to_poll() {
    let _dog = watchdog("a_descriptor_to_poll");
    let pipes = pipes(any());
    let fd = pipes.running.fd().unwrap().try_clone_to_owned().unwrap();
    assert!(!is_readable(fd.as_fd(), Some(&Timespec::default())));
    let (_, running) = pipes.through(b"x");
    assert!(is_readable(fd.as_fd(), None));
    // The descriptor stays readable. If it is made after the end, it is readable at
    // once.
    assert!(running.try_wait().is_some());
    assert!(is_readable(
        running.fd().unwrap(),
        Some(&Timespec::default())
    ));
    let (_, late) = self::pipes(any()).through(b"x");
    let late_end = late.status();
    while !late.status().ended {
        std::thread::yield_now();
    }
    assert!(late_end.written <= 1);
    assert!(is_readable(late.fd().unwrap(), Some(&Timespec::default())));
}

#[test]
fn callbacks_before_and_after_the_end() {
    let _dog = watchdog("callbacks_before_and_after_the_end");
    let (sender, told) = mpsc::channel();
    let pipes = pipes(any());
    for n in 0..3 {
        let sender = sender.clone();
        (pipes.running).on_end(move |report| sender.send((n, report.written)).unwrap());
    }
    // A callback that panics stops neither the others nor the engine.
    pipes
        .running
        .on_end(|_| std::panic::resume_unwind(Box::new(())));
    let (_, running) = pipes.through(b"abc");
    assert_eq!(told.recv().unwrap(), (0, 3));
    assert_eq!(told.recv().unwrap(), (1, 3));
    assert_eq!(told.recv().unwrap(), (2, 3));
    assert_eq!(block_on(running).report.written, 3);
    let (_, running) = self::pipes(any()).through(b"abcd");
    while running.try_wait().is_none() {
        std::thread::yield_now();
    }
    running.on_end(move |report| sender.send((9, report.written)).unwrap());
    assert_eq!(told.recv().unwrap(), (9, 4));
    // The outcome is already taken: the report is returned again, without the
    // stranded bytes.
    assert_eq!(running.wait().report.written, 4);
}

#[test]
fn files_on_the_workers() {
    let _dog = watchdog("files_on_the_workers");
    let data = pattern(3_000_000);
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    let running = start(&source, &sink, any()).unwrap();
    let report = running.wait().report;
    assert_eq!((report.ended, report.written), (Ended::Eof, 3_000_000));
    assert!(content(&sink) == data);
    // With offsets: no position is used.
    let request = Request {
        size: Size::Bytes(1000),
        source_offset: Some(5),
        sink_offset: Some(7),
        ..any()
    };
    let sink = tempfile::tempfile().unwrap();
    let running = Transfer::new(source.as_fd(), sink.as_fd(), request.clone());
    drop(running);
    let report = start(&source, &sink, request).unwrap().wait().report;
    assert_eq!((report.ended, report.written), (Ended::Size, 1000));
    assert!(content(&sink)[7..] == data[5..1005]);
}

#[test]
fn cancelled_with_bytes_in_hand() {
    let _dog = watchdog("cancelled_with_bytes_in_hand");
    let data = pattern(400_000);
    let paths = common::forcible(&[Splice, ReadWrite]);
    for (path, how) in paths.into_iter().flat_map(|path| [(path, 0), (path, 1)]) {
        let (source, feed) = std::os::unix::net::UnixStream::pair().unwrap();
        // The sink has no reader: it fills up, and the transfer holds the rest.
        let (_end, sink) = std::os::unix::net::UnixStream::pair().unwrap();
        let control = Control::new().unwrap();
        let (from, to): (OwnedFd, OwnedFd) = (source.try_clone().unwrap().into(), sink.into());
        let transfer = Transfer::owning(from, to, only(&[path])).unwrap();
        let running = transfer.control(&control).start().unwrap();
        feed.set_nonblocking(true).unwrap();
        let mut fed = 0;
        // More bytes than are in flight for a moment.
        let mut held = 0;
        while held < 1000 {
            let more = (&feed).write(&data[fed..]).unwrap_or(0);
            let holds = more == 0 && running.status().in_transit() > 0;
            held = if holds { held + 1 } else { 0 };
            fed += more;
            std::thread::yield_now();
        }
        match how {
            0 => running.cancel(),
            _ => control.cancel(),
        }
        let outcome = running.wait();
        let report = outcome.report;
        assert_eq!(report.ended, Ended::Cancelled);
        assert!(report.stranded > 0, "{report:?}");
        assert_eq!(report.read, report.written + report.stranded);
        let stranded = common::handed_back(outcome.stranded);
        let (written, read) = (report.written as usize, report.read as usize);
        assert!(stranded == data[written..read]);
    }
}

#[test]
fn dropped_it_ends_and_detached_it_does_not() {
    let _dog = watchdog("dropped_it_ends_and_detached_it_does_not");
    let Pipes {
        feed: _feed,
        mut end,
        running,
    } = pipes(any());
    drop(running);
    let mut out = Vec::new();
    // The feed is still open: only a cancel closes the sink.
    assert_eq!(end.read_to_end(&mut out).unwrap(), 0);
    let Pipes {
        mut feed,
        mut end,
        running,
    } = pipes(any());
    let (sender, told) = mpsc::channel();
    running.on_end(move |report| sender.send(report.written).unwrap());
    running.detach();
    feed.write_all(b"on and on").unwrap();
    drop(feed);
    end.read_to_end(&mut out).unwrap();
    assert_eq!((out.as_slice(), told.recv()), (&b"on and on"[..], Ok(9)));
}

#[test]
fn an_engine_that_shuts_down_delivers_every_outcome() {
    let _dog = watchdog("an_engine_that_shuts_down_delivers_every_outcome");
    let engine = Engine::new(Options {
        backend: Backend::Epoll,
        workers: 2,
    })
    .unwrap();
    let (source, mut feed) = std::io::pipe().unwrap();
    let (end, sink) = std::os::unix::net::UnixStream::pair().unwrap();
    feed.write_all(b"hello").unwrap();
    let transfer = |request| {
        let copies = (
            source.try_clone().unwrap().into(),
            sink.try_clone().unwrap().into(),
        );
        Transfer::owning(copies.0, copies.1, request).unwrap()
    };
    let idle: Vec<Running> = (0..20)
        .map(|_| engine.start(transfer(any())).unwrap())
        .collect();
    (&end).read_exact(&mut [0; 5]).unwrap();
    engine.shutdown();
    let mut written = 0;
    for running in idle {
        let outcome = running.try_wait().expect("delivered");
        assert_eq!(outcome.report.ended, Ended::Cancelled);
        written += outcome.report.written;
    }
    assert_eq!(written, 5);
    let late = engine.start(transfer(any())).unwrap_err();
    assert_eq!(late.report.errno, Some(Errno::ESHUTDOWN));
    assert_eq!(late.to_string(), "the engine has shut down");
}

#[test]
fn stranded_bytes_go_to_whoever_takes_the_outcome_first() {
    let _dog = watchdog("stranded_bytes_go_to_whoever_takes_the_outcome_first");
    let (source, feed) = std::os::unix::net::UnixStream::pair().unwrap();
    let (dead, peer) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(peer);
    let running = start(&source, &dead, only(&[ReadWrite])).unwrap();
    // The transfer may detect the closed sink before there is a byte, or after.
    let _ = (&feed).write_all(b"lost?");
    drop(feed);
    let outcome = loop {
        if let Some(outcome) = running.try_wait() {
            break outcome;
        }
        std::thread::yield_now();
    };
    assert_eq!(outcome.report.errno, Some(Errno::EPIPE));
    assert_eq!(outcome.report.read, outcome.report.stranded);
    if outcome.report.read > 0 {
        assert!(matches!(outcome.stranded, Some(Stranded::Buffer(b)) if b == b"lost?"));
    }
    let again = running.wait();
    assert!(again.stranded.is_none() && again.report == outcome.report);
}

/// Cancels at this call of the observer.
struct Calls(u32, Control);

impl cordboard::Observer for Calls {
    fn progress(&mut self, progress: &cordboard::Progress) {
        assert_eq!(progress.written, 0);
        self.0 += 1;
        if self.0 == 3 {
            self.1.cancel();
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

/// The clock of a status begins before the first step, and runs until the end is reported.
#[test]
fn no_report_has_a_shorter_time_than_a_status_before_it() {
    let _dog = watchdog("no_report_has_a_shorter_time_than_a_status_before_it");
    for _ in 0..300 {
        let mut fed = pipes(any());
        fed.feed.write_all(b"hello").unwrap();
        drop(fed.feed);
        let mut longest = Duration::ZERO;
        let last = loop {
            let status = fed.running.status();
            if status.ended {
                break status.elapsed;
            }
            longest = longest.max(status.elapsed);
        };
        assert!(last >= longest, "{last:?} after {longest:?}");
        assert_eq!(fed.running.wait().report.elapsed, last);
    }
}

#[test]
fn time_passes_for_those_that_sleep() {
    let _dog = watchdog("time_passes_for_those_that_sleep");
    let idle = Request {
        idle: Some(Duration::from_millis(20)),
        ..any()
    };
    let mut fed = pipes(idle.clone());
    fed.feed.write_all(b"hello").unwrap();
    let report = fed.running.wait().report;
    assert_eq!((report.ended, report.read), (Ended::Idle, report.written));
    let silent = pipes(idle);
    let report = silent.running.wait().report;
    assert_eq!((report.ended, report.written), (Ended::Idle, 0));
    assert!(report.elapsed >= Duration::from_millis(20));
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let control = Control::new().unwrap();
    let transfer = Transfer::owning(source.into(), sink.into(), any()).unwrap();
    let calls = Calls(0, control.clone());
    let running = transfer.control(&control).observe(calls).start().unwrap();
    assert_eq!(running.wait().report.ended, Ended::Cancelled);
}

/// An observer that panics ends its own transfer, and no other.
#[test]
fn an_observer_that_panics() {
    struct Panics;
    impl cordboard::Observer for Panics {
        fn progress(&mut self, _: &cordboard::Progress) {
            std::panic::resume_unwind(Box::new(()));
        }
    }
    let _dog = watchdog("an_observer_that_panics");
    let beside = pipes(any());
    let data = file_with(b"hello");
    let sink = tempfile::tempfile().unwrap();
    let transfer = Transfer::owning(data.into(), sink.into(), any()).unwrap();
    let report = transfer.observe(Panics).start().unwrap().wait().report;
    assert_eq!(
        (report.ended, report.errno),
        (Ended::Error, Some(Errno::ECANCELED))
    );
    assert_eq!(report.read, report.written + report.stranded);
    assert_eq!(beside.through(b"goes on").0, b"goes on");
}
