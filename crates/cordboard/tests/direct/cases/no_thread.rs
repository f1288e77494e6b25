//! An engine without a thread for direct copies: the reactor takes their steps.

use std::fs::File;
use std::io::{PipeWriter, Write};
use std::time::{Duration, Instant};

use super::direct;
use crate::common::{self, MIB, any, content, file_with, pattern, watchdog};
use cordboard::DataPath::Direct;
use cordboard::{Ended, Engine, Observer, Progress, Transfer};
use testkit::locked::threads;

/// Blocks in one step until another thread replaces this one, or for a long time.
#[derive(Default)]
struct Blocks(bool);

impl Observer for Blocks {
    fn progress(&mut self, progress: &Progress) {
        if std::mem::replace(&mut self.0, progress.written > 0) || progress.written == 0 {
            return;
        }
        let start = Instant::now();
        while threads("cordboard").len() < 2 && start.elapsed() < Duration::from_millis(500) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Feeds another transfer once some bytes are written.
struct Feeds(Option<PipeWriter>);

impl Observer for Feeds {
    fn progress(&mut self, progress: &Progress) {
        if progress.written > 0
            && let Some(mut feed) = self.0.take()
        {
            feed.write_all(b"x").unwrap();
        }
    }
}

/// Returns an engine that can start no more threads, and a direct copy with its data and
/// its sink.
fn without_threads() -> (Engine, Transfer<'static>, Vec<u8>, File) {
    let data = pattern(24 * MIB);
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    let copies = [&source, &sink].map(|file| file.try_clone().unwrap().into());
    let engine = Engine::new(Default::default()).unwrap();
    while threads("cordboard-watch").is_empty() {
        std::thread::yield_now();
    }
    let [from, to] = copies;
    let transfer = Transfer::owning(from, to, direct()).unwrap();
    testkit::refuse::refuse_all(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
    (engine, transfer, data, sink)
}

/// A ring belongs to the thread that made it, so a long step does not move to another
/// thread.
#[test]
fn a_ring_stays_with_its_thread() {
    let _dog = watchdog("a_ring_stays_with_its_thread");
    if !common::alone!() {
        return;
    }
    let (engine, transfer, data, sink) = without_threads();
    let running = engine.start(transfer.observe(Blocks::default())).unwrap();
    let report = running.wait().report;
    assert_eq!(report.errno, None, "{report:?}");
    assert_eq!(report.path, [Direct], "{report:?}");
    assert_eq!(report.written, data.len() as u64);
    assert!(content(&sink) == data);
}

/// Nor does a long step of another transfer move the ring to another thread.
#[test]
fn a_ring_stays_with_its_thread_if_another_transfer_blocks() {
    let _dog = watchdog("a_ring_stays_with_its_thread_if_another_transfer_blocks");
    if !common::alone!() {
        return;
    }
    let (engine, transfer, data, sink) = without_threads();
    let (source, feed) = std::io::pipe().unwrap();
    let (_end, other_sink) = std::io::pipe().unwrap();
    let other = Transfer::owning(source.into(), other_sink.into(), any()).unwrap();
    let other = engine.start(other.observe(Blocks::default())).unwrap();
    let running = engine.start(transfer.observe(Feeds(Some(feed)))).unwrap();
    let report = running.wait().report;
    assert_eq!(report.errno, None, "{report:?}");
    assert_eq!(report.path, [Direct], "{report:?}");
    assert_eq!(report.written, data.len() as u64);
    assert!(content(&sink) == data);
    let report = other.wait().report;
    assert_eq!((report.ended, report.written), (Ended::Eof, 1));
}
