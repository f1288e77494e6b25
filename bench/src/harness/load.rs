//! The papers' test program: processor-bound, in equal operations. Their rate
//! shows how much processor time other programs leave.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::time::{ClockId, clock_gettime};

use super::cores;
use super::files::Noise;
use super::sys;

/// The buffer of one operation: it fits the first-level cache and takes about
/// 10 µs.
const PIECE: usize = 16 << 10;
/// The calls of one operation of the metering program: the operation takes about
/// as long as the other's.
const CALLS: u64 = 256;
/// The interval of polling for its start.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The test program, which runs on one core until it is dropped.
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

/// The counters of the test program at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    at: Instant,
    operations: u64,
    processor: u64,
}

/// The work of the test program between two moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadDelta {
    /// Completed operations.
    pub operations: f64,
    /// Wall seconds.
    pub seconds: f64,
    /// Its own processor seconds.
    pub processor: f64,
}

impl Load {
    /// Starts the test program on this core.
    pub fn start(core: usize) -> Result<Load> {
        Load::running(core, work)
    }

    /// Starts the metering program of the paper on `cue()` on this core. It calls
    /// `gettimeofday(2)`, and each call counts as an operation.
    pub fn metering(core: usize) -> Result<Load> {
        Load::running(core, ask_for_the_time)
    }

    fn running(core: usize, work: fn(&Shared)) -> Result<Load> {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("test program".to_owned())
            .spawn(move || {
                // If the affinity cannot be set, it must not run at all.
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

    /// The current counters.
    pub fn mark(&self) -> Mark {
        Mark {
            at: Instant::now(),
            operations: self.shared.operations.load(Ordering::Relaxed),
            processor: self.shared.processor.load(Ordering::Relaxed),
        }
    }

    /// Its work during this time.
    pub fn during(&self, time: Duration) -> LoadDelta {
        let before = self.mark();
        std::thread::sleep(time);
        self.mark().since(&before)
    }
}

impl Mark {
    /// The work since `before`.
    pub fn since(&self, before: &Mark) -> LoadDelta {
        LoadDelta {
            operations: (self.operations - before.operations) as f64,
            seconds: (self.at - before.at).as_secs_f64(),
            processor: (self.processor - before.processor) as f64 / 1e9,
        }
    }
}

impl LoadDelta {
    /// Operations per second.
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
        shared.done(1);
    }
}

fn ask_for_the_time(shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        for _ in 0..CALLS {
            black_box(sys::time_of_day());
        }
        shared.done(CALLS);
    }
}

impl Shared {
    /// Counts operations. The system call is a part of them, for each contestant.
    fn done(&self, operations: u64) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let nanoseconds = time.tv_sec * 1_000_000_000 + time.tv_nsec;
        let nanoseconds = u64::try_from(nanoseconds).unwrap_or(0);
        self.processor.store(nanoseconds, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_operations_until_it_is_dropped() {
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
    fn the_metering_program_counts_its_calls() {
        let load = Load::metering(cores::allowed().unwrap()[0]).unwrap();
        let before = load.mark();
        while load.mark().operations < before.operations + 10 * CALLS {
            std::thread::yield_now();
        }
        assert_eq!(load.mark().operations % CALLS, 0);
    }

    #[test]
    fn a_missing_core_is_refused() {
        assert!(Load::start(100_000).is_err());
    }
}
