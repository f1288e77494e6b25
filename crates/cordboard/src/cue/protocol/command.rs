//! Commands, which are written to a control descriptor.

use super::words::{aim_of, aim_words, first, number, put, put_long, split};
use crate::request::Aim;

/// The letter in the first word of a command: `C`.
pub(super) const SORT: u8 = b'C';

/// A command of a control descriptor.
///
/// Offsets and the block apply to transfers that are commanded after them. Transfers are
/// carried out one after the other. All other commands take effect at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Transfer this many bytes: the paper's `WRITE`.
    Write(u64),
    /// Transfer all bytes up to the end of the source.
    WriteToEnd,
    /// The next transfer reads from this offset. Without it, a transfer continues where
    /// the previous one has ended.
    SourceOffset(u64),
    /// The next transfer writes at this offset.
    SinkOffset(u64),
    /// Set the length of a block, in bytes. 0: the library chooses it for the pair.
    Block(u32),
    /// Set the schedule (k, t) of the paper: k blocks, then a rest of t milliseconds.
    Schedule {
        /// The number of blocks; 0: no schedule.
        count: u32,
        /// The rest in milliseconds.
        rest: u32,
    },
    /// Limit the rate to this many bytes a second; 0: no schedule.
    Rate(u64),
    /// Determine the schedule automatically, for this aim.
    Auto(Aim),
    /// Take no more bytes from the source.
    Pause,
    /// Continue after a pause.
    Resume,
    /// End the running transfer and all waiting ones.
    Cancel,
    /// Answer with a [`Status`](super::Status).
    Status,
    /// Send a [`Status`](super::Status) at this interval in milliseconds while a transfer
    /// runs. 1 to 9 count as 10. 0: send none.
    Progress(u32),
    /// Limit further commands.
    Limit(Limit),
}

/// A limit of a control descriptor. It can only be tightened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// All transfers together take no more than this many bytes.
    Bytes(u64),
    /// Transfers read offsets of the source from `start` to before `end`.
    Range {
        /// The first offset.
        start: u64,
        /// The offset after the last one.
        end: u64,
    },
    /// No transfer is faster than this many bytes a second. 0 is refused with `EINVAL`.
    Rate(u64),
    /// No schedule has more than this many blocks between two rests, or shorter rests. The
    /// length of a block is the present one.
    Schedule {
        /// The number of blocks. 0 is refused with `EINVAL`.
        count: u32,
        /// The rest in milliseconds.
        rest: u32,
    },
    /// Only commands whose bit is set are allowed: bit `n` is that of code `n`. If the peer
    /// of a link has sent it, it applies to the commands of this peer only.
    Commands(u32),
    /// All transfers end after this many milliseconds, and no other one starts.
    Time(u32),
}

/// A word that does not begin a command, or a command with a wrong number of words or an
/// invalid value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadCommand {
    /// The first word.
    pub word: u32,
}

impl Command {
    /// A first word that is not a command in any version. Its refusal shows that all commands
    /// before it were carried out or refused.
    pub const MARK: u32 = 0x4300_ffff;

    /// Returns the number of the command in a first word.
    pub fn code(self) -> u16 {
        match self {
            Command::Write(_) => 1,
            Command::WriteToEnd => 2,
            Command::SourceOffset(_) => 3,
            Command::SinkOffset(_) => 4,
            Command::Block(_) => 5,
            Command::Schedule { .. } => 6,
            Command::Rate(_) => 7,
            Command::Pause => 8,
            Command::Resume => 9,
            Command::Cancel => 10,
            Command::Status => 11,
            Command::Progress(_) => 12,
            Command::Limit(Limit::Bytes(_)) => 13,
            Command::Limit(Limit::Range { .. }) => 14,
            Command::Limit(Limit::Rate(_)) => 15,
            Command::Limit(Limit::Schedule { .. }) => 16,
            Command::Limit(Limit::Commands(_)) => 17,
            Command::Limit(Limit::Time(_)) => 18,
            Command::Auto(_) => 19,
        }
    }

    /// Returns the bit of the command in [`Limit::Commands`].
    pub fn bit(self) -> u32 {
        1 << self.code()
    }

    /// Appends the command's bytes.
    pub fn encode(self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        put(bytes, 0);
        match self {
            Command::Write(n)
            | Command::SourceOffset(n)
            | Command::SinkOffset(n)
            | Command::Rate(n)
            | Command::Limit(Limit::Bytes(n) | Limit::Rate(n)) => match u32::try_from(n) {
                Ok(n) => put(bytes, n),
                Err(_) => put_long(bytes, n),
            },
            Command::Limit(Limit::Range { start, end }) => {
                put_long(bytes, start);
                put_long(bytes, end);
            }
            Command::Schedule { count, rest } | Command::Limit(Limit::Schedule { count, rest }) => {
                put(bytes, count);
                put(bytes, rest);
            }
            Command::Auto(aim) => {
                let (kind, weight) = aim_words(aim);
                put(bytes, kind);
                put(bytes, weight);
            }
            Command::Block(n)
            | Command::Progress(n)
            | Command::Limit(Limit::Commands(n) | Limit::Time(n)) => put(bytes, n),
            Command::WriteToEnd
            | Command::Pause
            | Command::Resume
            | Command::Cancel
            | Command::Status => {}
        }
        let words = (bytes.len() - start) / 4 - 1;
        let word = first(SORT, words, self.code());
        bytes[start..start + 4].copy_from_slice(&word.to_le_bytes());
    }

    /// Decodes a command from its first word and the words behind it.
    pub(super) fn decode(word: u32, rest: &[u32]) -> Result<Command, BadCommand> {
        let code = split(SORT, word).map_or(0, |(_, code)| code);
        let one = |words: &[u32]| match words {
            [n] => Some(*n),
            _ => None,
        };
        let two = |words: &[u32]| match words {
            [count, rest] => Some((*count, *rest)),
            _ => None,
        };
        let long = number;
        let command = match (code, rest) {
            (1, n) => long(n).map(Command::Write),
            (2, []) => Some(Command::WriteToEnd),
            (3, n) => long(n).map(Command::SourceOffset),
            (4, n) => long(n).map(Command::SinkOffset),
            (5, n) => one(n).map(Command::Block),
            (6, n) => two(n).map(|(count, rest)| Command::Schedule { count, rest }),
            (7, n) => long(n).map(Command::Rate),
            (8, []) => Some(Command::Pause),
            (9, []) => Some(Command::Resume),
            (10, []) => Some(Command::Cancel),
            (11, []) => Some(Command::Status),
            (12, n) => one(n).map(Command::Progress),
            (13, n) => long(n).map(|n| Command::Limit(Limit::Bytes(n))),
            (14, [_, _, _, _]) => match (long(&rest[..2]), long(&rest[2..])) {
                (Some(start), Some(end)) => Some(Command::Limit(Limit::Range { start, end })),
                _ => None,
            },
            (15, n) => long(n).map(|n| Command::Limit(Limit::Rate(n))),
            (16, n) => two(n).map(|(count, rest)| Command::Limit(Limit::Schedule { count, rest })),
            (17, n) => one(n).map(|n| Command::Limit(Limit::Commands(n))),
            (18, n) => one(n).map(|n| Command::Limit(Limit::Time(n))),
            (19, n) => two(n).and_then(|(kind, weight)| aim_of(kind, weight).map(Command::Auto)),
            _ => None,
        };
        command.ok_or(BadCommand { word })
    }
}
