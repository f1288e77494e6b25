//! Records, which are read from a control descriptor.

use std::time::Duration;

use super::command::Command;
use super::words::{aim_of, aim_words, first, number, put, put_long, split};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::{Ended, Report};
use crate::request::{DataPath, Schedule};

/// The letter in the first word of a record: `R`.
pub(super) const SORT: u8 = b'R';

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A transfer has started. The number counts the commanded transfers of a control
    /// descriptor, from 1.
    Started(u32),
    /// A transfer has ended.
    Done(Done),
    /// The answer to [`Command::Status`](super::Command::Status), or a report of
    /// progress.
    Status(Status),
    /// A command was not carried out, and nothing has changed.
    Refused {
        /// The first word of the command. With `ENODATA`, the number of bytes of the
        /// incomplete command.
        word: u32,
        /// The reason. `EINVAL`: no command, a wrong number of words, or an invalid value.
        /// `EPERM`: a limit forbids it. `EOPNOTSUPP`: a control socket of the command does
        /// not support it. `ENODATA`: the input ended within a command.
        errno: Errno,
    },
}

/// How a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done {
    /// The number of the transfer.
    pub transfer: u32,
    /// Why it ended.
    pub ended: Ended,
    /// The side that failed.
    pub failed: Option<Side>,
    /// The errno of a failure.
    pub errno: Option<Errno>,
    /// Bytes taken from the source.
    pub read: u64,
    /// Bytes that the sink has accepted.
    pub written: u64,
    /// Bytes that were read and not written. The next transfer writes them first.
    pub stranded: u64,
    /// The duration of the transfer.
    pub elapsed: Duration,
    /// The last path that moved bytes.
    pub path: Option<DataPath>,
}

/// The state of a control descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum State {
    /// No transfer runs.
    #[default]
    Idle,
    /// A transfer runs.
    Running,
    /// Paused, with or without a transfer.
    Paused,
}

/// The progress of a control descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The state.
    pub state: State,
    /// The number of the running transfer, or of the one that has ended last, also if it was not
    /// started; 0 before the first. Transfers are counted in the order in which they were commanded.
    pub transfer: u32,
    /// The number of waiting transfers.
    pub queued: u32,
    /// The path in use, if a transfer runs.
    pub path: Option<DataPath>,
    /// Bytes that this transfer has taken from the source so far.
    pub read: u64,
    /// Bytes that the sink has accepted.
    pub written: u64,
    /// The time since the start of the transfer.
    pub elapsed: Duration,
    /// Its schedule, without the limits.
    pub schedule: Schedule,
    /// The limit of the rate; [`Schedule::Unlimited`] if there is none.
    pub rate_limit: Schedule,
    /// The limit of blocks and rests; [`Schedule::Unlimited`] if there is none.
    pub blocks_limit: Schedule,
    /// The number of reports of progress that were left out since the last one, because
    /// earlier records had not been read.
    pub left_out: u32,
    /// The total number of bytes to move, if it is known.
    pub total: Option<u64>,
    /// The number of the transfer that was commanded last; 0 before the first. Of an earlier
    /// version, the lowest number that it may have.
    pub commanded: u32,
}

impl Record {
    /// Returns the record for a command that was refused.
    pub fn refused(command: Command, errno: Errno) -> Record {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Record::Refused { word, errno }
    }

    fn code(&self) -> u16 {
        match self {
            Record::Started(_) => 1,
            Record::Done(_) => 2,
            Record::Status(_) => 3,
            Record::Refused { .. } => 4,
        }
    }

    /// Appends the record's bytes.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        put(bytes, 0);
        match self {
            Record::Started(transfer) => put(bytes, *transfer),
            Record::Done(done) => done.encode(bytes),
            Record::Status(status) => status.encode(bytes),
            Record::Refused { word, errno } => {
                put(bytes, *word);
                put(bytes, errno.raw().unsigned_abs());
            }
        }
        let words = (bytes.len() - start) / 4 - 1;
        let word = first(SORT, words, self.code());
        bytes[start..start + 4].copy_from_slice(&word.to_le_bytes());
    }

    /// Decodes a record from its first word and the words behind it. A later version
    /// may append words. `None`: it is of a later version.
    pub(super) fn decode(word: u32, rest: &[u32]) -> Option<Record> {
        let (_, code) = split(SORT, word)?;
        match (code, rest) {
            (1, [transfer, ..]) => Some(Record::Started(*transfer)),
            (2, words) => Done::decode(words).map(Record::Done),
            (3, words) => Status::decode(words).map(Record::Status),
            (4, [word, errno, ..]) => Some(Record::Refused {
                word: *word,
                errno: Errno::from_raw(*errno as i32),
            }),
            _ => None,
        }
    }
}

impl Done {
    /// Of a report.
    pub fn of(transfer: u32, report: &Report) -> Done {
        Done {
            transfer,
            ended: report.ended,
            failed: report.failed,
            errno: report.errno,
            read: report.read,
            written: report.written,
            stranded: report.stranded,
            elapsed: report.elapsed,
            path: report.path.last().copied(),
        }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        put(bytes, self.transfer);
        put(
            bytes,
            match self.ended {
                Ended::Eof => 0,
                Ended::Size => 1,
                Ended::Idle => 2,
                Ended::Cancelled => 3,
                Ended::Error => 4,
            },
        );
        put(
            bytes,
            match self.failed {
                None => 0,
                Some(Side::Source) => 1,
                Some(Side::Sink) => 2,
            },
        );
        put(bytes, self.errno.map_or(0, |e| e.raw().unsigned_abs()));
        put_long(bytes, self.read);
        put_long(bytes, self.written);
        put_long(bytes, self.stranded);
        put_long(bytes, micros(self.elapsed));
        put(bytes, path_word(self.path));
    }

    fn decode(words: &[u32]) -> Option<Done> {
        Some(Done {
            transfer: *words.first()?,
            ended: match words.get(1)? {
                0 => Ended::Eof,
                1 => Ended::Size,
                2 => Ended::Idle,
                3 => Ended::Cancelled,
                _ => Ended::Error,
            },
            failed: match words.get(2)? {
                1 => Some(Side::Source),
                2 => Some(Side::Sink),
                _ => None,
            },
            errno: match words.get(3)? {
                0 => None,
                errno => Some(Errno::from_raw(*errno as i32)),
            },
            read: number(words.get(4..6)?)?,
            written: number(words.get(6..8)?)?,
            stranded: number(words.get(8..10)?)?,
            elapsed: Duration::from_micros(number(words.get(10..12)?)?),
            path: words.get(12).and_then(|word| path_of(*word)),
        })
    }
}

impl Status {
    /// Of a control descriptor that has done nothing.
    pub fn idle() -> Status {
        Status {
            state: State::Idle,
            transfer: 0,
            queued: 0,
            path: None,
            read: 0,
            written: 0,
            elapsed: Duration::ZERO,
            schedule: Schedule::Unlimited,
            rate_limit: Schedule::Unlimited,
            blocks_limit: Schedule::Unlimited,
            left_out: 0,
            total: None,
            commanded: 0,
        }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        let state = match self.state {
            State::Idle => 0,
            State::Running => 1,
            State::Paused => 2,
        };
        put(bytes, state);
        put(bytes, self.transfer);
        put(bytes, self.queued);
        put(bytes, path_word(self.path));
        put_long(bytes, self.read);
        put_long(bytes, self.written);
        put_long(bytes, micros(self.elapsed));
        let (kind, one, other) = match self.schedule {
            Schedule::Unlimited => (0, 0, 0),
            Schedule::Rate(rate) => (1, rate.get() as u32, (rate.get() >> 32) as u32),
            Schedule::Blocks { count, rest } => (2, count.get(), rest.as_millis() as u32),
            Schedule::Auto(aim) => {
                let (kind, weight) = aim_words(aim);
                (3, kind, weight)
            }
        };
        for word in [kind, one, other, self.left_out] {
            put(bytes, word);
        }
        put_long(bytes, self.total.unwrap_or(u64::MAX));
        put_long(
            bytes,
            match self.rate_limit {
                Schedule::Rate(rate) => rate.get(),
                _ => 0,
            },
        );
        let (count, rest) = match self.blocks_limit {
            Schedule::Blocks { count, rest } => (count.get(), rest.as_millis() as u32),
            _ => (0, 0),
        };
        put(bytes, count);
        put(bytes, rest);
        put(bytes, self.commanded);
    }

    fn decode(words: &[u32]) -> Option<Status> {
        let (transfer, queued) = (*words.get(1)?, *words.get(2)?);
        Some(Status {
            state: match words.first()? {
                0 => State::Idle,
                1 => State::Running,
                _ => State::Paused,
            },
            transfer,
            queued,
            path: path_of(*words.get(3)?),
            read: number(words.get(4..6)?)?,
            written: number(words.get(6..8)?)?,
            elapsed: Duration::from_micros(number(words.get(8..10)?)?),
            schedule: match words.get(10..13)? {
                [1, low, high] => Schedule::rate(number(&[*low, *high])?),
                [2, count, rest] => {
                    Schedule::blocks(*count, Duration::from_millis(u64::from(*rest)))
                }
                [3, kind, weight] => Schedule::Auto(aim_of(*kind, *weight)?),
                _ => Schedule::Unlimited,
            },
            left_out: *words.get(13)?,
            total: number(words.get(14..16)?).filter(|total| *total != u64::MAX),
            // An earlier version sends no limits.
            rate_limit: Schedule::rate(words.get(16..18).and_then(number).unwrap_or(0)),
            blocks_limit: match words.get(18..20) {
                Some([count, rest]) => {
                    Schedule::blocks(*count, Duration::from_millis(u64::from(*rest)))
                }
                _ => Schedule::Unlimited,
            },
            // An earlier version does not send it.
            commanded: (words.get(20).copied()).unwrap_or(transfer.wrapping_add(queued)),
        })
    }
}

/// Returns the word of a path: its index in the list, from 1. `docs/cue-protocol.md` has the
/// numbers.
fn path_word(path: Option<DataPath>) -> u32 {
    path.map_or(0, |path| path as u32 + 1)
}

fn path_of(word: u32) -> Option<DataPath> {
    let place = word.checked_sub(1)?;
    let mut all = DataPath::ALL.iter().copied();
    all.find(|known| *known as u32 == place)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_path_never_changes() {
        let names = DataPath::ALL
            .iter()
            .map(|path| (path_word(Some(*path)), path.name()));
        let documented = [
            (1, "clone"),
            (2, "direct"),
            (3, "copy_file_range"),
            (4, "sendfile"),
            (5, "splice"),
            (6, "datagram"),
            (7, "read/write"),
        ];
        assert!(names.eq(documented), "a new path comes last");
    }
}
