//! Records which source each byte in the channel comes from. The channel and the sink
//! preserve the order, so counts are sufficient.

use std::collections::VecDeque;

/// Contiguous bytes of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    source: usize,
    bytes: u64,
}

/// The order of the bytes that have entered the channel, after those that the sink has
/// accepted.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    runs: VecDeque<Run>,
    /// Bytes of each source that the sink has accepted.
    written: Vec<u64>,
    /// The sum of `written`.
    total: u64,
}

impl Ledger {
    pub(super) fn new(sources: usize) -> Ledger {
        Ledger {
            written: vec![0; sources],
            ..Ledger::default()
        }
    }

    /// Records that bytes of a source have entered the channel.
    pub(super) fn entered(&mut self, source: usize, bytes: u64) {
        match self.runs.back_mut() {
            _ if bytes == 0 => {}
            Some(run) if run.source == source => run.bytes += bytes,
            _ => self.runs.push_back(Run { source, bytes }),
        }
    }

    /// Records how many bytes the sink has accepted in all.
    pub(super) fn accepted(&mut self, total: u64) {
        let mut left = total.saturating_sub(self.total);
        while let Some((source, bytes)) = self.take(left) {
            self.written[source] += bytes;
            self.total += bytes;
            left -= bytes;
        }
    }

    /// Removes the first bytes, at most `most`, all of one source.
    fn take(&mut self, most: u64) -> Option<(usize, u64)> {
        let run = self.runs.front_mut().filter(|_| most > 0)?;
        let (source, bytes) = (run.source, run.bytes.min(most));
        run.bytes -= bytes;
        if run.bytes == 0 {
            self.runs.pop_front();
        }
        Some((source, bytes))
    }

    /// Returns the bytes of a source that the sink has accepted.
    pub(super) fn written(&self, source: usize) -> u64 {
        self.written[source]
    }

    /// Returns the bytes of a source that have entered and that the sink has not accepted.
    pub(super) fn left(&self, source: usize) -> u64 {
        let runs = self.runs.iter().filter(|run| run.source == source);
        runs.map(|run| run.bytes).sum()
    }

    /// Returns whether the sink has accepted all bytes that have entered.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Divides the bytes that the sink has not accepted, in their order, among the
    /// sources. A piece that is a message belongs to one source.
    pub(super) fn divide(mut self, pieces: Vec<Vec<u8>>) -> Vec<Vec<Vec<u8>>> {
        let mut shares = vec![Vec::new(); self.written.len()];
        for piece in pieces {
            let mut rest = &piece[..];
            while let Some((source, bytes)) = self.take(rest.len() as u64) {
                let (its, after) = rest.split_at(bytes as usize);
                shares[source].push(its.to_vec());
                rest = after;
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_belong_to_sources_in_their_order() {
        let mut ledger = Ledger::new(2);
        ledger.entered(0, 3);
        ledger.entered(1, 2);
        ledger.entered(1, 0);
        ledger.entered(0, 4);
        ledger.accepted(4);
        assert_eq!((ledger.written(0), ledger.written(1)), (3, 1));
        let shares = ledger.divide(vec![b"b".to_vec(), b"aaaa".to_vec()]);
        assert_eq!(shares, [vec![b"aaaa".to_vec()], vec![b"b".to_vec()]]);
    }

    proptest! {
        /// A plain model: the source of each byte, in a list.
        #[test]
        fn agrees_with_a_list_of_bytes(
            entered in prop::collection::vec((0..4usize, 0..9u64), 0..60),
            accepted in prop::collection::vec(0..20u64, 0..60),
            cuts in prop::collection::vec(1..7usize, 0..200),
        ) {
            let mut ledger = Ledger::new(4);
            let mut model: VecDeque<usize> = VecDeque::new();
            let (mut written, mut total) = ([0u64; 4], 0);
            for (index, (source, bytes)) in entered.into_iter().enumerate() {
                ledger.entered(source, bytes);
                model.extend(std::iter::repeat_n(source, bytes as usize));
                let most = accepted.get(index).copied().unwrap_or(0).min(model.len() as u64);
                for source in model.drain(..most as usize) {
                    written[source] += 1;
                }
                total += most;
                ledger.accepted(total);
                for (source, bytes) in written.iter().enumerate() {
                    prop_assert_eq!(ledger.written(source), *bytes);
                }
                prop_assert_eq!(ledger.is_empty(), model.is_empty());
            }
            let bytes: Vec<u8> = model.iter().map(|source| *source as u8).collect();
            let (mut pieces, mut rest, mut cuts) = (Vec::new(), &bytes[..], cuts.into_iter());
            while !rest.is_empty() {
                let at = cuts.next().unwrap_or(3).min(rest.len());
                pieces.push(rest[..at].to_vec());
                rest = &rest[at..];
            }
            for (source, share) in ledger.divide(pieces).into_iter().enumerate() {
                let share = share.concat();
                prop_assert!(share.iter().all(|byte| usize::from(*byte) == source));
                prop_assert_eq!(share.len(), model.iter().filter(|s| **s == source).count());
            }
        }
    }
}
