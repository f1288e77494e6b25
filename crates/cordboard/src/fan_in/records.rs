//! Divides the bytes of one source into records.

use crate::errno::Errno;

/// Bytes of a source that are not written yet.
#[derive(Debug)]
pub(super) struct Records {
    delimiter: u8,
    /// The length of the longest record that is not divided.
    longest: usize,
    bytes: Vec<u8>,
    /// The index of the first byte that is not written.
    start: usize,
    /// The number of bytes after `start` that are known to contain no delimiter.
    searched: usize,
    /// The number of records that were divided.
    pub(super) divided: u64,
    /// The last piece did not end its record.
    inside: bool,
}

impl Records {
    pub(super) fn new(delimiter: u8, longest: usize) -> Records {
        Records {
            delimiter,
            longest: longest.max(1),
            bytes: Vec::new(),
            start: 0,
            searched: 0,
            divided: 0,
            inside: false,
        }
    }

    /// Makes room for bytes of the source.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<(), Errno> {
        self.discard_written();
        // Doubling the buffer may need more memory than there is.
        let done = self.bytes.try_reserve(bytes);
        let done = done.or_else(|_| self.bytes.try_reserve_exact(bytes));
        done.map_err(|_| Errno::ENOMEM)
    }

    /// Adds bytes of the source.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.discard_written();
        self.bytes.extend_from_slice(bytes);
    }

    fn discard_written(&mut self) {
        self.bytes.drain(..std::mem::take(&mut self.start));
    }

    /// Returns the bytes that are not written yet.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.discard_written();
        self.bytes
    }

    /// Returns the bytes that are not written yet.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Returns how many bytes are to be written together: whole records, as many as
    /// fit into `most`, but at least one; or a piece of a record that is too long.
    /// 0: the next record is incomplete. `ended`: the source has ended, and the bytes
    /// after the last delimiter are a record.
    pub(super) fn ready(&mut self, most: usize, ended: bool) -> usize {
        let bytes = &self.bytes[self.start..];
        let is_end = |byte: &u8| *byte == self.delimiter;
        let fits = bytes.len().min(most.max(1)).min(self.longest);
        let from = self.searched.min(fits);
        let last = bytes[from..fits].iter().rposition(is_end);
        let last = last.map(|index| from + index);
        let first = || {
            let after = bytes[self.searched..].iter().position(is_end);
            after.map(|index| self.searched + index)
        };
        if let Some(end) = last.or_else(first) {
            if end < self.longest {
                self.inside = false;
                return end + 1;
            }
        // The longest record is whole if the source ends after it.
        } else if bytes.len() <= self.longest {
            self.searched = bytes.len();
            return if ended { bytes.len() } else { 0 };
        }
        self.divided += u64::from(!self.inside);
        self.inside = true;
        self.longest
    }

    /// Counts bytes that were written.
    pub(super) fn written(&mut self, bytes: usize) {
        self.start += bytes;
        self.searched = self.searched.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_records_are_written_together() {
        let mut records = Records::new(b'\n', 100);
        records.push(b"one\ntwo\nthr");
        assert_eq!(records.ready(100, false), 8);
        // At least one record, even if it does not fit.
        assert_eq!(records.ready(2, false), 4);
        records.written(4);
        assert_eq!(records.ready(2, false), 4);
        records.written(4);
        assert_eq!(records.ready(2, false), 0);
        records.push(b"ee");
        assert_eq!(records.ready(9, false), 0);
        assert_eq!(records.ready(9, true), 5);
        records.written(5);
        assert_eq!(records.ready(9, true), 0);
        assert_eq!(records.divided, 0);
    }

    #[test]
    fn a_record_that_is_too_long_is_divided_and_counted_once() {
        let mut records = Records::new(b'\n', 4);
        records.push(b"0123456789\nab\n");
        let mut pieces = Vec::new();
        while let length @ 1.. = records.ready(100, false) {
            pieces.push(records.bytes()[..length].to_vec());
            records.written(length);
        }
        assert_eq!(pieces, [&b"0123"[..], b"4567", b"89\n", b"ab\n"]);
        assert_eq!(records.divided, 1);
    }

    #[test]
    fn a_last_record_of_the_greatest_length_is_not_divided() {
        let mut records = Records::new(b'\n', 4);
        records.push(b"abcd");
        assert_eq!(records.ready(100, false), 0);
        assert_eq!(records.ready(100, true), 4);
        assert_eq!(records.divided, 0);
        // It is longer after all.
        records.push(b"\n");
        assert_eq!(records.ready(100, false), 4);
        assert_eq!(records.divided, 1);
        records.written(4);
        assert_eq!(records.ready(100, false), 1);
    }

    proptest! {
        /// Records that arrive in pieces of any length stay whole.
        #[test]
        fn records_stay_whole_across_reads(
            text in prop::collection::vec(prop_oneof![Just(b'\n'), b'a'..=b'd'], 0..300),
            reads in prop::collection::vec(1..40usize, 1..100),
            most in 1..50usize,
            longest in 1..30usize,
        ) {
            let mut records = Records::new(b'\n', longest);
            let (mut rest, mut reads) = (&text[..], reads.into_iter().cycle());
            let mut pieces: Vec<Vec<u8>> = Vec::new();
            let mut ended = false;
            loop {
                while let length @ 1.. = records.ready(most, ended) {
                    prop_assert!(length <= most.max(longest));
                    pieces.push(records.bytes()[..length].to_vec());
                    records.written(length);
                }
                if ended {
                    break;
                }
                // The end is found after the last byte.
                ended = rest.is_empty();
                let at = reads.next().unwrap_or(1).min(rest.len());
                records.push(&rest[..at]);
                rest = &rest[at..];
            }
            prop_assert_eq!(pieces.concat(), &text[..]);
            let mut lines = text.split_inclusive(|byte| *byte == b'\n');
            let long = lines.clone().filter(|line| line.len() > longest).count();
            prop_assert_eq!(records.divided, long as u64);
            // Each piece ends at the end of a record, or after `longest` bytes of one
            // that is too long.
            let mut line: &[u8] = &[];
            for piece in &pieces {
                let mut left = &piece[..];
                while !left.is_empty() {
                    if line.is_empty() {
                        line = lines.next().unwrap();
                    }
                    let whole = line.len() <= longest;
                    let taken = left.len().min(line.len());
                    prop_assert!(!whole || taken == line.len());
                    left = &left[taken..];
                    line = &line[taken..];
                }
            }
        }
    }
}
