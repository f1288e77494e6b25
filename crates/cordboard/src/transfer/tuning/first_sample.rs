//! The rate and the processor time of a transfer's first setting, before it measures others.
//!
//! The processor time of a path that hands over pages shows what its wake-ups cost. To wake an idle
//! virtual processor is an exit to the host: 50 µs on some hosts, and 2 on others. `sendfile(2)` and
//! `splice(2)` send 64 KiB at once (16 pages, `splice_to_socket` in fs/splice.c). If BBR paces the
//! connection, nearly each of them wakes the reader. A `write(2)` of 512 KiB wakes it two or three times.

use std::time::Duration;

use super::ways::PAUSE;
use crate::tune::Sample;

/// The bytes before the sample: the window of a TCP connection opens, and buffers are filled.
const SKIPPED: u64 = 2 << 20;
/// Processor time for a mebibyte, in nanoseconds, that only wake-ups take. On a host with slow wake-ups
/// `sendfile(2)` took 730 µs and read/write with 512 KiB 360 µs; beside busy processes, or on a host with
/// fast ones, 130 µs and 240 µs.
const OF_WAKE_UPS: u64 = 400_000;

/// The least number of bytes of a sample.
const LEAST: u64 = 4 << 20;

/// The sample in progress.
#[derive(Debug)]
pub(in crate::transfer) struct FirstSample {
    at: Duration,
    /// The end of the last step.
    last: Duration,
    written: u64,
    /// The thread's processor time at the beginning, unless it is shared with other transfers.
    of_thread: Option<Duration>,
    /// The processor time of the steps, if the thread is shared.
    pub(in crate::transfer) of_steps: Duration,
}

impl FirstSample {
    /// Begins once enough bytes were written. `of_thread`: the thread's processor time, unless it
    /// is shared.
    pub(super) fn begin(
        now: Duration,
        written: u64,
        of_thread: impl FnOnce() -> Option<Duration>,
    ) -> Option<FirstSample> {
        (written >= SKIPPED).then(|| FirstSample {
            at: now,
            last: now,
            written,
            of_thread: of_thread(),
            of_steps: Duration::ZERO,
        })
    }

    /// Records a step. Returns whether the sample is still valid: a wait for an idle peer is none of
    /// its time.
    pub(super) fn stepped(&mut self, now: Duration) -> bool {
        now.saturating_sub(std::mem::replace(&mut self.last, now)) <= PAUSE
    }

    /// Returns the sample if wake-ups take most of the processor time.
    pub(super) fn end(
        &self,
        now: Duration,
        written: u64,
        of_thread: impl FnOnce() -> Duration,
    ) -> Option<Sample> {
        let bytes = written.saturating_sub(self.written);
        let elapsed = now.saturating_sub(self.at);
        if bytes < LEAST || elapsed.is_zero() {
            return None;
        }
        let spent = match self.of_thread {
            Some(before) => of_thread().saturating_sub(before),
            None => self.of_steps,
        };
        let sample = Sample::of(bytes, elapsed, spent);
        (sample.cost > OF_WAKE_UPS).then_some(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn processor_time_beyond_that_of_copies_is_of_wake_ups() {
        let begin = |of_thread| FirstSample::begin(micros(10), 2 * MIB, || of_thread);
        assert!(FirstSample::begin(micros(10), 2 * MIB - 1, || unreachable!()).is_none());
        let alone = begin(Some(micros(500))).unwrap();
        let end = |spent: u64| alone.end(micros(9010), 8 * MIB, || micros(500 + spent));
        assert_eq!(end(6 * 400), None);
        let sample = end(6 * 401).unwrap();
        assert_eq!(sample, Sample::of(6 * MIB, micros(9000), micros(6 * 401)));
        assert_eq!(alone.end(micros(10), 8 * MIB, || micros(9000)), None);
        assert_eq!(alone.end(micros(9010), 6 * MIB - 1, || micros(9000)), None);
    }

    #[test]
    fn a_wait_for_an_idle_peer_ends_the_sample() {
        let mut sample = FirstSample::begin(micros(10), 2 * MIB, || None).unwrap();
        assert!(sample.stepped(micros(20_010)));
        assert!(sample.stepped(micros(40_010)));
        assert!(!sample.stepped(micros(60_011)));
    }

    #[test]
    fn the_steps_count_on_a_shared_thread() {
        let mut shared = FirstSample::begin(micros(10), 2 * MIB, || None).unwrap();
        let end = |shared: &FirstSample| shared.end(micros(9010), 8 * MIB, || unreachable!());
        assert_eq!(end(&shared), None);
        shared.of_steps = micros(6 * 500);
        assert!(end(&shared).is_some());
    }
}
