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
            let word = *words(self.bytes.get(..WORD)?).first()?;
            let length = split(SORT, word).map_or(WORD, |(count, _)| (count + 1) * WORD);
            let rest = words(self.bytes.get(WORD..length)?);
            let found = Record::decode(word, &rest);
            self.bytes.drain(..length);
            if found.is_some() {
                return found;
            }
        }
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
        // The four words of the limits.
        bytes.truncate(bytes.len() - 16);
        bytes[2] -= 4;
        let mut decoder = Records::default();
        decoder.push(&bytes);
        assert_eq!(decoder.next(), Some(Record::Status(Status::idle())));
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
