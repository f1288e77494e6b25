//! The work of each thread of an engine, and its continuation after the caller's
//! code panics on one of them.

use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crate::common::{self, any, content, file_with, pattern, watchdog};
use cordboard::engine::Options;
use cordboard::stage::Inspect;
use cordboard::{
    Control, Direct, Ended, Engine, Errno, Request, Running, Stage, Stranded, Transfer, start,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use testkit::child;

/// More than the threads of an engine with one worker.
const MANY: usize = 6;

/// Panics after this many bytes, or in `finish`.
struct Panics {
    after: usize,
}

impl Inspect for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn inspect(&mut self, bytes: &[u8]) {
        self.after = self
            .after
            .checked_sub(bytes.len())
            .unwrap_or_else(|| panic());
    }

    fn digest(&self) -> Option<String> {
        panic()
    }
}

/// Panics without the panic hook.
fn panic() -> ! {
    std::panic::resume_unwind(Box::new(()))
}

fn one_worker() -> Engine {
    let options = Options {
        workers: 1,
        ..Options::default()
    };
    Engine::new(options).unwrap()
}

fn copy(engine: &Engine, bytes: &[u8], stages: Vec<Stage>) -> (Running, std::fs::File) {
    let sink = tempfile::tempfile().unwrap();
    let to = sink.try_clone().unwrap();
    let mut transfer = Transfer::owning(file_with(bytes).into(), to.into(), any()).unwrap();
    for stage in stages {
        transfer = transfer.stage(stage).unwrap();
    }
    (engine.start(transfer).unwrap(), sink)
}

#[test]
fn a_stage_that_panics_at_the_end_takes_no_thread_along() {
    let _dog = watchdog("a_stage_that_panics_at_the_end_takes_no_thread_along");
    let engine = one_worker();
    for _ in 0..MANY {
        let stage = Stage::inspecting(Panics { after: usize::MAX });
        let (running, sink) = copy(&engine, b"hello", vec![stage]);
        let report = running.wait().report;
        assert_eq!(report.errno, Some(Errno::ECANCELED));
        assert_eq!((report.read, report.written), (5, 5));
        assert_eq!(content(&sink), b"hello");
    }
    // Between pipes: on the reactor.
    let (source, feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    drop(feed);
    let transfer = Transfer::owning(source.into(), sink.into(), any()).unwrap();
    let stage = Stage::inspecting(Panics { after: 0 });
    let transfer = transfer.stage(stage).unwrap();
    let report = engine.start(transfer).unwrap().wait().report;
    assert_eq!(report.errno, Some(Errno::ECANCELED));
    let (running, sink) = copy(&engine, b"goes on", Vec::new());
    assert_eq!(running.wait().report.ended, Ended::Eof);
    assert_eq!(content(&sink), b"goes on");
    engine.shutdown();
}

/// Bytes that the sink has accepted are counted before the stage sees them.
#[test]
fn a_stage_that_panics_at_a_byte_leaves_a_true_account() {
    let _dog = watchdog("a_stage_that_panics_at_a_byte_leaves_a_true_account");
    let (data, engine) = (pattern(1 << 20), one_worker());
    for after in [0, 300_000] {
        // A call of `finish` would panic again.
        struct Once(Panics);
        impl Inspect for Once {
            fn name(&self) -> &'static str {
                "once"
            }
            fn inspect(&mut self, bytes: &[u8]) {
                self.0.inspect(bytes);
            }
        }
        let stage = Stage::inspecting(Once(Panics { after }));
        let (running, sink) = copy(&engine, &data, vec![stage]);
        let outcome = running.wait();
        let report = outcome.report;
        assert_eq!((report.ended, report.failed), (Ended::Error, None));
        assert_eq!(report.errno, Some(Errno::ECANCELED));
        let written = report.written as usize;
        assert!(written > after, "{report:?}");
        assert!(content(&sink) == data[..written], "{report:?}");
        let stranded = match outcome.stranded {
            Some(Stranded::Buffer(bytes)) => bytes.len() as u64,
            _ => 0,
        };
        assert_eq!(report.stranded, stranded);
        assert_eq!(report.read, report.written + report.stranded);
    }
}

#[test]
fn a_waker_that_panics_takes_no_thread_along() {
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic();
        }
    }
    let _dog = watchdog("a_waker_that_panics_takes_no_thread_along");
    let engine = one_worker();
    let waker = Waker::from(Arc::new(Bad));
    for _ in 0..MANY {
        let (source, feed) = std::io::pipe().unwrap();
        let sink = tempfile::tempfile().unwrap();
        let transfer = Transfer::owning(source.into(), sink.into(), any()).unwrap();
        let mut running = engine.start(transfer).unwrap();
        let mut context = std::task::Context::from_waker(&waker);
        assert!(
            std::pin::Pin::new(&mut running)
                .poll(&mut context)
                .is_pending()
        );
        drop(feed);
        assert_eq!(running.wait().report.ended, Ended::Eof);
    }
    let (running, _) = copy(&engine, b"goes on", Vec::new());
    assert_eq!(running.wait().report.written, 7);
}

/// A direct copy waits for its disk now and then. The reactor never does.
#[test]
fn direct_copies_have_a_thread_of_their_own() {
    let name = "direct_copies_have_a_thread_of_their_own";
    let _dog = watchdog(name);
    if !common::alone!() {
        return;
    }
    let threads = || -> Vec<String> {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.map(|name| name.trim().to_owned()).collect()
    };
    let data = pattern(4 << 20);
    let sink = tempfile::tempfile().unwrap();
    let wished = |direct| Request { direct, ..any() };
    let source = file_with(&data);
    let plain = start(&source, &sink, wished(Direct::Never)).unwrap().wait();
    assert_eq!(plain.report.written, data.len() as u64);
    assert!(!threads().contains(&"cordboard-disk".into()));
    common::rewind(&source);
    common::rewind(&sink);
    let report = start(&source, &sink, wished(Direct::Always))
        .unwrap()
        .wait()
        .report;
    assert!(content(&sink) == data);
    if report.path.first() != Some(&cordboard::DataPath::Direct) {
        testkit::skip::here(format!("no direct I/O here: {:?}", report.declined));
        return;
    }
    assert!(
        threads().contains(&"cordboard-disk".into()),
        "{:?}",
        threads()
    );
}

/// The timer expires while a worker has the transfer, and is set again at the
/// transfer's next wait.
#[test]
fn idle_after_it_was_busy_for_longer_than_that() {
    let _dog = watchdog("idle_after_it_was_busy_for_longer_than_that");
    // Longer limits too: the reader may have been delayed for longer than the first.
    let told = [30, 300, 3000].map(Duration::from_millis);
    assert!(told.into_iter().any(idle_after_it_was_busy));
}

/// Returns false if the transfer was idle too early.
fn idle_after_it_was_busy(idle: Duration) -> bool {
    let source = std::fs::File::open("/dev/zero").unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let request = Request {
        idle: Some(idle),
        ..any()
    };
    let running = start(&source, &sink, request).unwrap();
    drop(sink);
    // The pipe is full repeatedly, and the transfer waits each time.
    let (began, mut buffer) = (Instant::now(), vec![0; 64 << 10]);
    let mut busy = true;
    while busy && began.elapsed() < 4 * idle {
        busy = end.read_exact(&mut buffer).is_ok();
    }
    assert_eq!(running.wait().report.ended, Ended::Idle);
    busy
}

/// A second call waits too.
#[test]
fn two_that_shut_it_down_at_once_both_see_the_end() {
    let _dog = watchdog("two_that_shut_it_down_at_once_both_see_the_end");
    for _ in 0..50 {
        let engine = Engine::new(Options::default()).unwrap();
        let (source, _feed) = std::io::pipe().unwrap();
        let (_end, sink) = std::io::pipe().unwrap();
        let transfer = Transfer::owning(source.into(), sink.into(), any()).unwrap();
        let running = engine.start(transfer).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    engine.shutdown();
                    assert!(running.status().ended);
                });
            }
        });
        assert_eq!(running.wait().report.ended, Ended::Cancelled);
    }
}

/// The descriptor that reports the end is not made in a descriptor table that the
/// engine does not share. If a thread with the engine's table makes it, it works
/// there and in a copy of that table.
#[test]
fn what_tells_of_the_end_is_made_where_the_engine_has_it() {
    let _dog = watchdog("what_tells_of_the_end_is_made_where_the_engine_has_it");
    if !common::alone!() {
        return;
    }
    let (source, feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let running = start(&source, &sink, any()).unwrap();
    let elsewhere = |look: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                child::own_descriptors();
                look();
            });
        });
    };
    elsewhere(&|| assert_eq!(running.fd().err(), Some(Errno::EBADF)));
    let tells = |timeout: Option<Timespec>| {
        let fd = running.fd().unwrap();
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        poll(&mut fds, timeout.as_ref()).unwrap() == 1
    };
    assert!(!tells(Some(Timespec::default())));
    drop(feed);
    assert!(tells(None));
    elsewhere(&|| assert!(tells(None)));
    assert_eq!(running.wait().report.ended, Ended::Eof);
}

/// Waits until this thread sleeps.
fn until_asleep(task: &Path) {
    let asleep = || {
        let stat = std::fs::read_to_string(task.join("stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('S')
    };
    while !asleep() {
        std::thread::yield_now();
    }
}

/// The control's descriptor numbers are other files in the transfer's table.
#[test]
fn a_control_of_another_table_ends_a_transfer() {
    let _dog = watchdog("a_control_of_another_table_ends_a_transfer");
    if !common::alone!() {
        return;
    }
    let elsewhere = || {
        let made = std::thread::spawn(|| {
            child::own_descriptors();
            Control::new().unwrap()
        });
        // In this table the numbers refer to the control's files.
        (made.join().unwrap(), std::io::pipe().unwrap())
    };
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let (control, _silent) = elsewhere();
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), any()).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| {
            tell.send(rustix::thread::gettid()).unwrap();
            transfer.control(&control).run()
        });
        let task = told.recv().unwrap().as_raw_nonzero();
        feed.write_all(b"a").unwrap();
        end.read_exact(&mut [0]).unwrap();
        until_asleep(format!("/proc/self/task/{task}").as_ref());
        control.cancel();
        assert_eq!(runs.join().unwrap().report.ended, Ended::Cancelled);
    });
    let (control, _silent) = elsewhere();
    let [source, sink] = [source.into(), sink.into()];
    let transfer = Transfer::owning(source, sink, any()).unwrap();
    let running = transfer.control(&control).start().unwrap();
    feed.write_all(b"a").unwrap();
    end.read_exact(&mut [0]).unwrap();
    for task in testkit::locked::threads("cordboard") {
        until_asleep(&task);
    }
    control.cancel();
    assert_eq!(running.wait().report.ended, Ended::Cancelled);
}
