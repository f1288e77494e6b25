//! The papers' test program: bound to the processor, in equal operations that
//! are counted, so that what disturbs it shows.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::time::{ClockId, clock_gettime};

use super::cores;
use super::files::Noise;

/// What one operation fills: stays in the first-level cache, takes about 10 µs.
const PIECE: usize = 16 << 10;
/// Until it has its core.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The test program, running on one core until it is dropped.
#[derive(Debug)]
pub struct Load {
    core: usize,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    operations: AtomicU64,
    processor: AtomicU64,
    stop: AtomicBool,
}

/// How far the test program was at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    at: Instant,
    operations: u64,
    processor: u64,
}

/// What it did between two moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadDelta {
    /// Operations completed.
    pub operations: f64,
    /// Wall seconds.
    pub seconds: f64,
    /// Its own processor seconds.
    pub processor: f64,
}

impl Load {
    /// Starts it on this core.
    pub fn start(core: usize) -> Result<Load> {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("test program".to_owned())
            .spawn(move || {
                // Where it cannot be put on the core it must not run at all.
                let _ = cores::on_core(core, || work(&its));
            })?;
        let load = Load {
            core,
            shared,
            thread: Some(thread),
        };
        while load.mark().operations == 0 {
            let ended = load.thread.as_ref().is_none_or(JoinHandle::is_finished);
            ensure!(!ended, "the test program cannot run on core {core}");
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(load)
    }

    /// Its core.
    pub fn core(&self) -> usize {
        self.core
    }

    /// How far it is now.
    pub fn mark(&self) -> Mark {
        Mark {
            at: Instant::now(),
            operations: self.shared.operations.load(Ordering::Relaxed),
            processor: self.shared.processor.load(Ordering::Relaxed),
        }
    }

    /// What it does in this time.
    pub fn during(&self, time: Duration) -> LoadDelta {
        let before = self.mark();
        std::thread::sleep(time);
        self.mark().since(&before)
    }
}

impl Mark {
    /// What was done since.
    pub fn since(&self, before: &Mark) -> LoadDelta {
        LoadDelta {
            operations: (self.operations - before.operations) as f64,
            seconds: (self.at - before.at).as_secs_f64(),
            processor: (self.processor - before.processor) as f64 / 1e9,
        }
    }
}

impl LoadDelta {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations / self.seconds
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared) {
    let mut noise = Noise::new(1);
    let mut piece = [0; PIECE];
    while !shared.stop.load(Ordering::Relaxed) {
        noise.fill(&mut piece);
        black_box(&piece);
        shared.operations.fetch_add(1, Ordering::Relaxed);
        // A short system call in each operation: the same beside everybody.
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let nanoseconds = time.tv_sec * 1_000_000_000 + time.tv_nsec;
        let nanoseconds = u64::try_from(nanoseconds).unwrap_or(0);
        shared.processor.store(nanoseconds, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_works_until_it_is_dropped_and_what_it_did_is_counted() {
        let core = cores::allowed().unwrap()[0];
        let load = Load::start(core).unwrap();
        assert_eq!(load.core(), core);
        let before = load.mark();
        while load.mark().operations < before.operations + 10 {
            std::thread::yield_now();
        }
        let done = load.mark().since(&before);
        assert!(done.operations >= 10.0 && done.rate() > 0.0);
        assert!(done.processor >= 0.0);
        let shared = Arc::clone(&load.shared);
        drop(load);
        assert_eq!(Arc::strong_count(&shared), 1, "the thread has ended");
    }

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        assert!(Load::start(100_000).is_err());
    }
}
