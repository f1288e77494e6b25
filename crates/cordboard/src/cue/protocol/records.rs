//! Decodes records from bytes that arrive in pieces.

use super::record::{Record, SORT};
use super::words::{WORD, split, words};

/// A decoder of records. Words that do not begin a record, and records with an unknown
/// code, are skipped.
#[derive(Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
}

impl Records {
    /// Accepts bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next record, if all its bytes have arrived.
    #[expect(clippy::should_implement_trait, reason = "`None` is not the end")]
    pub fn next(&mut self) -> Option<Record> {
        loop {
            let length = self.length();
            let all = words(self.bytes.get(..length)?);
            let found = Record::decode(all[0], &all[1..]);
            self.bytes.drain(..length);
            if found.is_some() {
                return found;
            }
        }
    }

    /// Returns how many bytes the next record lacks at least. A reader that receives no more
    /// than these takes nothing of the record behind it.
    pub fn missing(&self) -> usize {
        self.length().saturating_sub(self.bytes.len())
    }

    /// Returns the length of the next record, or of a word that does not begin one. Before
    /// the first word has arrived, it is the length of a word.
    fn length(&self) -> usize {
        let first = self.bytes.get(..WORD).map(|bytes| words(bytes)[0]);
        let behind = first.and_then(|word| split(SORT, word));
        behind.map_or(WORD, |(count, _)| (count + 1) * WORD)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Done, State, Status};
    use super::*;
    use crate::endpoint::Side;
    use crate::errno::Errno;
    use crate::report::Ended;
    use crate::request::{Aim, DataPath, Schedule};

    #[test]
    fn a_status_without_limits_is_decoded() {
        let mut bytes = Vec::new();
        Record::Status(Status::idle()).encode(&mut bytes);
        // The number of the last transfer, and the four words of the limits.
        for words in [1, 4] {
            bytes.truncate(bytes.len() - 4 * words);
            bytes[2] -= words as u8;
            let mut decoder = Records::default();
            decoder.push(&bytes);
            assert_eq!(decoder.next(), Some(Record::Status(Status::idle())));
        }
    }

    #[test]
    fn no_more_than_the_missing_bytes_are_of_the_next_record() {
        let (mut bytes, mut decoder) = (Vec::new(), Records::default());
        Record::Started(7).encode(&mut bytes);
        for (pushed, missing) in [(0..0, 4), (0..1, 3), (1..4, 4), (4..7, 1), (7..8, 0)] {
            decoder.push(&bytes[pushed]);
            assert_eq!(decoder.missing(), missing);
        }
        assert_eq!(decoder.next(), Some(Record::Started(7)));
        // A word that begins no record is passed over.
        decoder.push(&[0; 4]);
        assert_eq!(decoder.missing(), 0);
        assert_eq!((decoder.next(), decoder.missing()), (None, 4));
    }

    #[test]
    fn records_are_decoded_from_any_pieces() {
        let status = |schedule, path| {
            Record::Status(Status {
                state: State::Paused,
                transfer: 3,
                queued: 2,
                path,
                read: 1 << 40,
                written: 5,
                elapsed: Duration::from_micros(1 << 33),
                schedule,
                rate_limit: Schedule::rate(1 << 33),
                blocks_limit: Schedule::blocks(7, Duration::from_millis(9)),
                left_out: 9,
                total: Some(1 << 41),
                commanded: 17,
            })
        };
        let done = Record::Done(Done {
            transfer: 3,
            ended: Ended::Error,
            failed: Some(Side::Sink),
            errno: Some(Errno::ENOSPC),
            read: u64::MAX,
            written: 1,
            stranded: 2,
            elapsed: Duration::from_millis(7),
            path: Some(DataPath::Splice),
        });
        let all = [
            Record::Started(1),
            done,
            status(Schedule::Unlimited, None),
            status(Schedule::rate(u64::MAX), Some(DataPath::ReadWrite)),
            status(
                Schedule::blocks(4, Duration::from_millis(70)),
                DataPath::ALL.last().copied(),
            ),
            status(Schedule::Auto(Aim::Background), None),
            status(Schedule::Auto(Aim::share(7).unwrap()), None),
            Record::Refused {
                word: 0xffff_ffff,
                errno: Errno::EPERM,
            },
        ];
        let mut bytes = Vec::new();
        for record in &all {
            // A record of a later version, and a word of none.
            bytes.extend_from_slice(&0x5201_0063_u32.to_le_bytes());
            bytes.extend_from_slice(&0x5201_0001_u32.to_le_bytes());
            bytes.extend_from_slice(&7_u32.to_le_bytes());
            record.encode(&mut bytes);
        }
        for piece in [1, 3, 4, 64, 1000] {
            let (mut decoder, mut found) = (Records::default(), Vec::new());
            for part in bytes.chunks(piece) {
                decoder.push(part);
                found.extend(std::iter::from_fn(|| decoder.next()));
            }
            assert_eq!(found, all, "pieces of {piece}");
        }
    }
}
