//! Code of the caller that forks on a thread of an engine.

use std::future::Future;
use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use crate::common::{self, any, watchdog};
use cordboard::stage::{Fault, Finished, Inspect, Passed, Transform};
use cordboard::{Engine, Observer, Progress, Running, Stage, Transfer, engine::Options};
use testkit::child::Child;

/// Forks once, and returns in both processes.
#[derive(Default)]
struct Forks(Mutex<Option<Child>>);

impl Forks {
    fn fork(&self) {
        let mut forked = self.0.lock().unwrap();
        if forked.is_none() {
            *forked = Child::fork();
        }
    }

    /// Returns the exit status of the child, once there is one.
    fn status(&self) -> Option<i32> {
        loop {
            let forked = self.0.lock().unwrap().take();
            match forked {
                Some(child) => return child.status(),
                None => std::thread::yield_now(),
            }
        }
    }
}

struct Code(Arc<Forks>);

impl Observer for Code {
    fn progress(&mut self, _: &Progress) {
        self.0.fork();
    }
}

impl Inspect for Code {
    fn name(&self) -> &'static str {
        "forks"
    }

    fn inspect(&mut self, _: &[u8]) {
        self.0.fork();
    }
}

impl Transform for Code {
    fn name(&self) -> &'static str {
        "forks"
    }

    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
        self.0.fork();
        let n = input.len().min(output.len());
        output[..n].copy_from_slice(&input[..n]);
        Ok(Passed { taken: n, made: n })
    }

    fn finish(&mut self, _: &mut [u8]) -> Result<Finished, Fault> {
        Ok(Finished {
            made: 0,
            done: true,
        })
    }
}

impl Wake for Code {
    fn wake(self: Arc<Self>) {
        self.0.fork();
    }
}

/// A transfer from pipe to pipe that waits for its source, and the caller's ends.
fn waiting(
    engine: &Engine,
    with: impl FnOnce(Transfer<'static>) -> Transfer<'static>,
) -> (Running, std::io::PipeWriter, std::io::PipeReader) {
    let (source, feed) = std::io::pipe().unwrap();
    let (end, sink) = std::io::pipe().unwrap();
    let transfer = Transfer::owning(source.into(), sink.into(), any()).unwrap();
    (engine.start(with(transfer)).unwrap(), feed, end)
}

/// The child would take the events of the parent's other transfers, and move their bytes.
#[test]
fn a_child_that_returns_into_the_library_ends() {
    let _dog = watchdog("a_child_that_returns_into_the_library_ends");
    if !common::alone!() {
        return;
    }
    for place in 0..5 {
        let engine = Engine::new(Options::default()).unwrap();
        let (other, mut feed_other, mut end_other) = waiting(&engine, |transfer| transfer);
        let forks = Arc::new(Forks::default());
        let code = Code(Arc::clone(&forks));
        let (mut running, mut feed, mut end) = waiting(&engine, |transfer| match place {
            0 => transfer.observe(code),
            1 => transfer.stage(Stage::inspecting(code)).unwrap(),
            2 => transfer.stage(Stage::transforming(code)).unwrap(),
            _ => transfer,
        });
        let code = Code(Arc::clone(&forks));
        match place {
            3 => running.on_end(move |_| code.0.fork()),
            4 => {
                let waker = Waker::from(Arc::new(code));
                let mut context = Context::from_waker(&waker);
                assert!(Pin::new(&mut running).poll(&mut context).is_pending());
            }
            _ => {}
        }
        feed.write_all(b"abc").unwrap();
        drop(feed);
        assert_eq!(forks.status(), Some(1), "{place}");
        let mut text = String::new();
        end.read_to_string(&mut text).unwrap();
        assert_eq!((running.wait().report.written, &*text), (3, "abc"));
        feed_other.write_all(b"other").unwrap();
        drop(feed_other);
        let mut text = String::new();
        end_other.read_to_string(&mut text).unwrap();
        assert_eq!((other.wait().report.written, &*text), (5, "other"));
        engine.shutdown();
    }
}
