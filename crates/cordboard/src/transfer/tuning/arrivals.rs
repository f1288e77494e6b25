//! The bytes that the reader of a TCP connection has taken.
//!
//! The buffers of a connection hold more than a window of a measurement: `tcp_rmem` permits 32 MiB
//! and more. Bytes go into free buffers as fast as into memory, so the bytes written in a window
//! tell little about the rate of the connection. What the reader takes moves the right edge of the
//! window that it advertises: the acknowledged bytes plus the free receive buffer.

use crate::sys::TcpProgress;

/// The least number of bytes written between two queries. A query takes as long as a few KiB.
const STEP: u64 = 4 << 20;
/// If the edge does not move while this many bytes are written, it is not known, as with several
/// subflows of MPTCP.
const UNMOVED: u64 = 64 << 20;
/// The largest send buffer, by default (`tcp_wmem` in tcp(7)).
const SEND_BUFFER: u64 = 4 << 20;

/// Follows the edge of a connection.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// The bytes written at the last query.
    written: u64,
    /// What was taken by then, relative to a fixed number.
    taken: Option<u64>,
    /// The most recent free receive buffer, and the largest one: that of a reader that has taken
    /// everything.
    free: u64,
    most_free: u64,
    /// The bytes written since the edge has moved.
    unmoved: u64,
    /// The edge is not known.
    is_unknown: bool,
}

impl Arrivals {
    /// Begins at this number of bytes written.
    pub(super) fn from(written: u64) -> Arrivals {
        Arrivals {
            written,
            ..Arrivals::default()
        }
    }

    /// Begins anew at this number of bytes written: those before it are in no window.
    pub(super) fn skip_to(&mut self, written: u64) {
        (self.written, self.taken) = (written, None);
    }

    /// Returns the number of bytes taken since the last call that returned a number, or `None` if
    /// it is too early. Without an edge, these are the bytes written.
    pub(super) fn until(
        &mut self,
        written: u64,
        query: impl FnOnce() -> Option<TcpProgress>,
    ) -> Option<u64> {
        let more = written.saturating_sub(self.written);
        if self.is_unknown {
            self.written = written;
            return Some(more);
        }
        if more < STEP {
            return None;
        }
        self.written = written;
        let Some(progress) = query().filter(|_| self.unmoved < UNMOVED) else {
            self.is_unknown = true;
            return Some(more);
        };
        (self.free, self.most_free) = (progress.free, self.most_free.max(progress.free));
        let edge = progress.acknowledged.wrapping_add(progress.free);
        // The receive buffer has grown if more of it is free than ever before.
        let taken = edge.wrapping_sub(self.most_free);
        let Some(before) = self.taken.replace(taken) else {
            return Some(more);
        };
        match taken.wrapping_sub(before) as i64 {
            moved @ 1.. => {
                self.unmoved = 0;
                Some(moved.unsigned_abs())
            }
            _ => {
                // What the next call returns begins at the highest edge.
                self.taken = Some(before);
                self.unmoved += more;
                Some(0)
            }
        }
    }

    /// Returns the largest number of bytes that are written and not taken, if it is known.
    pub(super) fn backlog(&self) -> Option<u64> {
        let is_known = !self.is_unknown && self.taken.is_some();
        is_known.then(|| SEND_BUFFER + (self.most_free - self.free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(acknowledged: u64, free: u64) -> Option<TcpProgress> {
        Some(TcpProgress {
            acknowledged: acknowledged * MIB,
            free: free * MIB,
        })
    }

    #[test]
    fn what_fills_a_buffer_has_not_arrived() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.backlog(), None);
        assert_eq!(arrivals.until(MIB, || unreachable!()), None);
        assert_eq!(arrivals.until(4 * MIB, || at(4, 32)), Some(4 * MIB));
        assert_eq!(arrivals.backlog(), Some(4 * MIB));
        // The reader is stopped, and 20 MiB go into its buffer.
        assert_eq!(arrivals.until(24 * MIB, || at(24, 12)), Some(0));
        assert_eq!(arrivals.backlog(), Some(24 * MIB));
        // It takes 15 MiB of them.
        assert_eq!(arrivals.until(28 * MIB, || at(28, 23)), Some(15 * MIB));
    }

    #[test]
    fn a_receive_buffer_that_grows_takes_nothing() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.until(4 * MIB, || at(4, 8)), Some(4 * MIB));
        assert_eq!(arrivals.until(8 * MIB, || at(8, 16)), Some(4 * MIB));
        assert_eq!(arrivals.until(12 * MIB, || at(12, 16)), Some(4 * MIB));
    }

    /// A schedule has limited the rate, or the search has begun late.
    #[test]
    fn bytes_before_the_beginning_do_not_count() {
        let mut arrivals = Arrivals::from(1024 * MIB);
        let mut until = |written, taken| arrivals.until(written * MIB, || at(taken, 8));
        assert_eq!(until(1026, 1026), None);
        assert_eq!(until(1028, 1028), Some(4 * MIB));
        arrivals.skip_to(2048 * MIB);
        assert_eq!(arrivals.backlog(), None);
        let mut until = |written, taken| arrivals.until(written * MIB, || at(taken, 8));
        assert_eq!(until(2052, 2052), Some(4 * MIB));
        assert_eq!(until(2057, 2057), Some(5 * MIB));
    }

    #[test]
    fn without_an_edge_the_written_bytes_count() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.until(4 * MIB, || None), Some(4 * MIB));
        assert_eq!(arrivals.until(4 * MIB + 1, || unreachable!()), Some(1));
        assert_eq!(arrivals.backlog(), None);
    }

    #[test]
    fn an_edge_that_does_not_move_is_unknown() {
        let mut arrivals = Arrivals::default();
        let mut written = 0;
        let mut next = || {
            written += 16 * MIB;
            arrivals.until(written, || at(4, 8))
        };
        let taken: Vec<_> = (0..7).map(|_| next()).collect();
        let more = Some(16 * MIB);
        assert_eq!(taken[0], more);
        assert_eq!(taken[1..5], [Some(0); 4]);
        assert_eq!(taken[5..], [more; 2]);
    }
}
