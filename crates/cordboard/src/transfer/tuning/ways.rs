//! The settings of a transfer that measures: its paths, and the sizes of their calls.

use std::time::Duration;

use super::arrivals::Arrivals;
use crate::request::DataPath;
use crate::tune::{Arm, Arms, Controller, Key};

/// The most bytes of a call. Smaller pieces need more calls, and larger ones do not fit into
/// the buffer of a socket.
pub(super) const PIECES: [usize; 6] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20];
/// The index of the largest piece of a path that needs as much memory, in a pipe or a buffer.
const LARGEST: usize = 4;
/// The index of the calls of read/write that wake a reader least often for their bytes: larger ones do
/// not fit into the processor's cache.
pub(super) const FEW_WAKE_UPS: usize = 3;
/// The largest send buffer and receive buffer of a TCP connection, by default
/// (`tcp_wmem`, `tcp_rmem` in tcp(7)).
pub(super) const TCP_BUFFERS: u64 = 10 << 20;
/// More than the buffers of a UNIX socket and of a pipe, by default.
pub(super) const OTHER_BUFFERS: u64 = 1 << 20;
/// A longer time between two steps contains a wait for an idle peer. What is measured then is
/// discarded.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// Another path must be faster by this much more, in 1/1024. Between a cached file and a TCP
/// connection, `splice` was 5 % faster than `sendfile` in windows between those of `sendfile`, and a
/// fifth slower if it was the only path.
const ANOTHER_PATH: u64 = 51;

/// The state of a transfer that measures.
#[derive(Debug)]
pub(in crate::transfer) struct Tuning {
    pub(super) ways: Ways,
    pub(super) controller: Controller,
    pub(super) key: Key,
    /// The time of the last comparison of two settings, which may be that of an earlier transfer,
    /// or the beginning.
    pub(super) compared: Duration,
    /// The number of bytes written at the end, as far as it is known, or `u64::MAX`.
    pub(super) ends_at: u64,
    /// The time of the last step that moved bytes, and the bytes written by then.
    pub(super) last: (Duration, u64),
    /// The processor time of the steps, if other work shares the thread.
    pub(in crate::transfer) spent: Duration,
    /// What has arrived, if the sink is a TCP connection.
    pub(super) arrivals: Option<Arrivals>,
    /// The path and the piece change as soon as the path holds no bytes.
    pub(super) changes: bool,
    /// The best setting, and the bytes written when it became the best; 0: it was the first one.
    pub(super) best: (Arm, u64),
}

impl Tuning {
    /// Records that bytes were written, or that a path has declined.
    pub(super) fn note_best(&mut self, written: u64) {
        let best = self.controller.best();
        if best != self.best.0 {
            self.best = (best, written);
        }
    }
}

/// Each path with each piece. An arm is the index of the path, times the number of pieces,
/// plus the index of the piece.
#[derive(Debug)]
pub(super) struct Ways {
    /// The paths, and whether each can be used.
    pub(super) paths: Vec<(DataPath, bool)>,
    /// Only the largest piece of each path is measured.
    pub(super) only_largest: bool,
    /// The bytes between the transfer and the reader.
    pub(super) backlog: u64,
}

impl Ways {
    pub(super) fn path(&self, arm: Arm) -> DataPath {
        self.paths[Ways::index(arm)].0
    }

    /// Returns the index of the path.
    fn index(arm: Arm) -> usize {
        arm / PIECES.len()
    }

    /// Returns the index of the piece.
    pub(super) fn piece(arm: Arm) -> usize {
        arm % PIECES.len()
    }

    /// Returns the index of the longest piece that is not longer than this, or of the first.
    pub(super) fn piece_of(bytes: usize) -> usize {
        let longest = PIECES.iter().rposition(|piece| *piece <= bytes);
        longest.unwrap_or_default()
    }

    pub(super) fn arm(&self, path: DataPath, piece: usize) -> Option<Arm> {
        let index = self.paths.iter().position(|(other, _)| *other == path)?;
        Some(index * PIECES.len() + piece)
    }

    /// Returns whether it is the largest piece of its path.
    fn is_largest(&self, arm: Arm) -> bool {
        Ways::piece(arm) == self.largest(arm)
    }

    /// Returns the index of the largest piece of this arm's path.
    fn largest(&self, arm: Arm) -> usize {
        match self.path(arm) {
            DataPath::Sendfile => PIECES.len() - 1,
            _ => LARGEST,
        }
    }

    fn is_same_path(one: Arm, other: Arm) -> bool {
        Ways::index(one) == Ways::index(other)
    }

    pub(super) fn refuse(&mut self, path: DataPath) {
        for (other, is_possible) in &mut self.paths {
            *is_possible &= *other != path;
        }
    }
}

impl Arms for Ways {
    fn len(&self) -> usize {
        self.paths.len() * PIECES.len()
    }

    /// The largest piece, another path with the same piece, or the next piece of the same path.
    /// Of the largest pieces alone, every other one.
    fn is_neighbour(&self, from: Arm, to: Arm) -> bool {
        if self.only_largest {
            return from != to;
        }
        let off = Ways::piece(from).abs_diff(Ways::piece(to));
        let is_largest = from != to && self.is_largest(to);
        let step = usize::from(Ways::is_same_path(from, to));
        is_largest || off == step
    }

    fn path_index(&self, arm: Arm) -> usize {
        Ways::index(arm)
    }

    fn reserve(&self, from: Arm, to: Arm) -> u64 {
        match Ways::is_same_path(from, to) {
            true => 0,
            false => ANOTHER_PATH,
        }
    }

    fn is_possible(&self, arm: Arm) -> bool {
        let is_measured = match self.only_largest {
            true => self.is_largest(arm),
            false => Ways::piece(arm) <= self.largest(arm),
        };
        self.paths[Ways::index(arm)].1 && is_measured
    }

    /// Returns what the buffers of the sockets hold: a faster path first fills the buffers
    /// that a slower one has left empty.
    fn in_flight(&self, _: Arm) -> u64 {
        self.backlog
    }

    /// A step writes all bytes that it has read.
    fn least(&self, _: Arm) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_change_is_a_path_or_a_step_of_the_piece() {
        let ways = Ways {
            paths: vec![(DataPath::Splice, true), (DataPath::ReadWrite, true)],
            only_largest: false,
            backlog: TCP_BUFFERS,
        };
        assert_eq!(ways.len(), 12);
        let arm = |path, piece| ways.arm(path, piece).unwrap();
        let from = arm(DataPath::Splice, 3);
        assert!(ways.is_neighbour(from, arm(DataPath::Splice, 4)));
        assert!(ways.is_neighbour(from, arm(DataPath::ReadWrite, 3)));
        assert!(ways.is_neighbour(from, arm(DataPath::ReadWrite, 4)));
        assert!(!ways.is_neighbour(from, arm(DataPath::ReadWrite, 2)));
        assert!(!ways.is_neighbour(from, arm(DataPath::Splice, 1)));
        let smallest = arm(DataPath::Splice, 0);
        assert!(ways.is_neighbour(smallest, arm(DataPath::Splice, 4)));
        assert!(!ways.is_neighbour(smallest, smallest));
        assert_eq!(ways.reserve(smallest, from), 0);
        assert!(ways.reserve(smallest, arm(DataPath::ReadWrite, 0)) > 0);
        assert_eq!(ways.path(arm(DataPath::ReadWrite, 0)), DataPath::ReadWrite);
        assert_eq!(ways.arm(DataPath::Sendfile, 0), None);
    }

    #[test]
    fn a_transfer_begins_with_the_piece_of_its_path() {
        let pieces = [1, 64 << 10, 100_000, 512 << 10, 1 << 20, 2 << 20];
        assert_eq!(pieces.map(Ways::piece_of), [0, 0, 0, 3, 4, 5]);
    }

    /// A transfer that begins with a smaller piece measures the largest one.
    #[test]
    fn only_the_largest_piece_is_possible() {
        let ways = Ways {
            paths: vec![(DataPath::Splice, true), (DataPath::ReadWrite, true)],
            only_largest: true,
            backlog: TCP_BUFFERS,
        };
        let possible = (0..ways.len()).filter(|arm| ways.is_possible(*arm));
        assert!(possible.eq([4, 10]));
        assert!(ways.is_neighbour(0, 10) && ways.is_neighbour(0, 4) && !ways.is_neighbour(4, 4));
    }

    #[test]
    fn a_path_that_is_refused_is_not_possible() {
        let mut ways = Ways {
            paths: vec![(DataPath::Splice, true), (DataPath::Sendfile, true)],
            only_largest: false,
            backlog: TCP_BUFFERS,
        };
        let possible = (0..ways.len()).filter(|arm| ways.is_possible(*arm));
        assert!(possible.eq((0..5).chain(6..12)));
        ways.refuse(DataPath::Splice);
        let possible = (0..ways.len()).filter(|arm| ways.is_possible(*arm));
        assert!(possible.eq(6..12));
    }
}
