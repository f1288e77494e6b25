//! The time for which no byte of a transfer has moved.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sys;

/// The bounds of the interval at which the progress is checked.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);

/// Returns the interval at which the progress is checked: the time of the last change is at
/// most one interval late, and so is the end of the idle time.
pub fn interval(idle: Duration) -> Duration {
    (idle / 32).clamp(SHORTEST, LONGEST)
}

/// The data connection.
pub struct Client<'a> {
    pub socket: BorrowedFd<'a>,
    /// The bytes of TLS that have arrived. The sink gets them only as whole records.
    pub received: Option<Arc<AtomicU64>>,
}

impl Client<'_> {
    /// Returns the counts that change while bytes move. `written`: bytes that the sink has accepted.
    pub fn counts(&self, written: u64) -> (u64, i32) {
        let received = self.received.as_deref();
        let received = received.map_or(0, |count| count.load(Ordering::Relaxed));
        (written.wrapping_add(received), sys::unsent(self.socket))
    }
}

/// The last change of the counts of a transfer.
///
/// The bytes that the socket has accepted are not enough: a full send buffer of several MiB
/// accepts no further byte before the client has acknowledged a third of it
/// (`sk_stream_is_writeable`, include/net/sock.h). So the bytes that are not acknowledged
/// count as well.
#[derive(Debug)]
pub struct Progress {
    counts: (u64, i32),
    changed: Instant,
}

impl Progress {
    /// The progress of a transfer that has moved bytes just now.
    pub fn since(now: Instant) -> Progress {
        Progress {
            counts: (0, 0),
            changed: now,
        }
    }

    /// Stores the number of bytes that the sink has accepted, and of those that the client has
    /// not acknowledged.
    pub fn update(&mut self, counts: (u64, i32), now: Instant) {
        if counts != std::mem::replace(&mut self.counts, counts) {
            self.changed = now;
        }
    }

    /// Returns the time since the last change.
    pub fn idle(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.changed)
    }

    /// Returns the time at which the idle time is over if the counts do not change. `None`:
    /// never.
    pub fn idle_at(&self, idle: Duration) -> Option<Instant> {
        self.changed.checked_add(idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledged_byte_is_progress() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut progress = Progress::since(start);
        for (seconds, counts, idle) in [
            (1, (4_000_000, 2_500_000), 0),
            (2, (4_000_000, 2_500_000), 1),
            (3, (4_000_000, 2_400_000), 0),
            (5, (4_000_000, 2_400_000), 2),
            (6, (4_800_000, 2_400_000), 0),
            (9, (4_800_000, 2_400_000), 3),
        ] {
            progress.update(counts, at(seconds));
            let idle = Duration::from_secs(idle);
            assert_eq!(progress.idle(at(seconds)), idle, "at {seconds} s");
        }
    }
}
