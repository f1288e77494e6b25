//! Decodes commands from bytes that arrive in pieces.

use super::command::{BadCommand, Command, Limit, SORT};
use super::record::SORT as RECORD;
use super::words::{MOST, WORD, split, words};

/// A decoder of commands. It holds the bytes of at most a few commands.
///
/// A word that does not begin a command is skipped and reported as [`BadCommand`]. A
/// command with a wrong number of words is skipped as a whole and reported. A record is
/// skipped without a report.
#[derive(Debug, Default)]
pub struct Commands {
    bytes: Vec<u8>,
}

impl Commands {
    /// The maximum number of bytes that are held. Any whole command fits.
    pub const ROOM: usize = 1024;

    /// Returns how many more bytes the decoder accepts.
    pub fn room(&self) -> usize {
        Self::ROOM.saturating_sub(self.bytes.len())
    }

    /// Accepts bytes, as many as there is [room](Commands::room) for. Returns their number.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.bytes.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// Returns the next command, if all its bytes have arrived.
    ///
    /// # Errors
    ///
    /// [`BadCommand`]: a word that begins no command, or a wrong number of words. They are
    /// skipped.
    #[expect(clippy::should_implement_trait, reason = "`None` is not the end")]
    pub fn next(&mut self) -> Option<Result<Command, BadCommand>> {
        self.next_with_word().map(|(_, found)| found)
    }

    /// As [`Commands::next`]. Also returns the first word of the command, which a refusal has:
    /// some commands have two forms.
    ///
    /// # Errors
    ///
    /// As [`Commands::next`].
    pub fn next_with_word(&mut self) -> Option<(u32, Result<Command, BadCommand>)> {
        loop {
            let (found, length) = self.peek(0)?;
            let word = self.word(0);
            self.bytes.drain(..length);
            if self.bytes.is_empty() {
                self.bytes = Vec::new();
            }
            match found {
                // Otherwise two control descriptors could answer each other forever.
                Err(bad) if split(RECORD, bad.word).is_some() => {}
                found => return Some((word, found)),
            }
        }
    }

    /// Returns the word at this byte, which has arrived.
    fn word(&self, at: usize) -> u32 {
        words(&self.bytes[at..at + WORD])[0]
    }

    /// Returns the command at this byte without removing it, and its length in bytes.
    pub(in crate::cue) fn peek(&self, at: usize) -> Option<(Result<Command, BadCommand>, usize)> {
        const _: () = assert!((MOST + 1) * WORD <= Commands::ROOM);
        let bytes = self.bytes.get(at..)?;
        let word = *words(bytes.get(..WORD)?).first()?;
        let Some((count, _)) = split(SORT, word).or_else(|| split(RECORD, word)) else {
            return Some((Err(BadCommand { word }), WORD));
        };
        let length = (count + 1) * WORD;
        let rest = words(bytes.get(WORD..length)?);
        Some((Command::decode(word, &rest), length))
    }

    /// Removes the first command that takes effect at once, behind commands that start
    /// transfers or set up the next one. Also returns its first word. No command overtakes a
    /// limit of commands, which may forbid it. A limit of the schedule does not overtake a
    /// block, which is its unit. A status does not overtake a bad word, whose refusal
    /// shows to which commands the status belongs. The caller has carried out a cancellation
    /// before, if it is allowed, because it also ends the transfers before it.
    pub(in crate::cue) fn take_ahead(&mut self) -> Option<(u32, Command)> {
        let (mut at, mut block_changes, mut has_bad) = (0, false, false);
        while let Some((found, length)) = self.peek(at) {
            match found {
                Ok(Command::Write(_) | Command::WriteToEnd)
                | Ok(Command::SourceOffset(_) | Command::SinkOffset(_)) => {}
                Err(_) => has_bad = true,
                Ok(Command::Status) if has_bad => {}
                Ok(Command::Block(_)) => block_changes = true,
                Ok(Command::Limit(Limit::Commands(_))) => return None,
                Ok(Command::Limit(Limit::Schedule { .. })) if block_changes => {}
                Ok(command) => {
                    let word = self.word(at);
                    self.bytes.drain(at..at + length);
                    return Some((word, command));
                }
            }
            at += length;
        }
        None
    }

    /// Removes the last command if it is incomplete and no more bytes follow. Returns the number
    /// of its bytes.
    pub fn take_incomplete(&mut self) -> Option<u32> {
        let left = self.is_incomplete().then_some(self.bytes.len())?;
        *self = Commands::default();
        Some(left as u32)
    }

    /// Returns whether the last command is incomplete.
    pub fn is_incomplete(&self) -> bool {
        !self.bytes.is_empty() && self.peek(0).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Limit;
    use super::*;
    use crate::request::Aim;
    use proptest::prelude::*;

    fn any() -> impl Strategy<Value = Command> {
        let number = || prop_oneof![any::<u64>(), (0..10u64), Just(u64::from(u32::MAX) + 1)];
        let two = || (any::<u32>(), any::<u32>());
        use proptest::arbitrary::any;
        prop_oneof![
            number().prop_map(Command::Write),
            Just(Command::WriteToEnd),
            number().prop_map(Command::SourceOffset),
            number().prop_map(Command::SinkOffset),
            any::<u32>().prop_map(Command::Block),
            two().prop_map(|(count, rest)| Command::Schedule { count, rest }),
            number().prop_map(Command::Rate),
            any_aim().prop_map(Command::Auto),
            Just(Command::Pause),
            Just(Command::Resume),
            Just(Command::Cancel),
            Just(Command::Status),
            any::<u32>().prop_map(Command::Progress),
            number().prop_map(|n| Command::Limit(Limit::Bytes(n))),
            (number(), number())
                .prop_map(|(start, end)| Command::Limit(Limit::Range { start, end })),
            number().prop_map(|n| Command::Limit(Limit::Rate(n))),
            two().prop_map(|(count, rest)| Command::Limit(Limit::Schedule { count, rest })),
            any::<u32>().prop_map(|n| Command::Limit(Limit::Commands(n))),
            any::<u32>().prop_map(|n| Command::Limit(Limit::Time(n))),
        ]
    }

    fn any_aim() -> impl Strategy<Value = Aim> {
        prop_oneof![
            Just(Aim::Throughput),
            Just(Aim::Background),
            (1..=u32::MAX).prop_map(|weight| Aim::share(weight).unwrap()),
        ]
    }

    #[test]
    fn a_status_does_not_overtake_a_bad_word() {
        let mut decoder = Commands::default();
        let encoded = |command: Command| {
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            bytes
        };
        for command in [Command::Write(1), Command::Status, Command::Pause] {
            decoder.push(&encoded(command));
        }
        decoder.push(&Command::MARK.to_le_bytes());
        for command in [Command::Status, Command::Resume] {
            decoder.push(&encoded(command));
        }
        let mut ahead = || decoder.take_ahead().map(|(_, command)| command);
        let taken = [ahead(), ahead(), ahead(), ahead()];
        let expected = [Command::Status, Command::Pause, Command::Resume];
        assert_eq!(taken[..3], expected.map(Some));
        assert_eq!(taken[3], None);
        let mark = BadCommand {
            word: Command::MARK,
        };
        let rest = [Ok(Command::Write(1)), Err(mark), Ok(Command::Status)];
        assert_eq!([(); 3].map(|()| decoder.next().unwrap()), rest);
    }

    #[test]
    fn an_unknown_aim_is_a_bad_command() {
        for (kind, weight) in [(0, 1), (1, 1), (2, 0), (3, 0)] {
            let mut decoder = Commands::default();
            for word in [0x4302_0013_u32, kind, weight] {
                decoder.push(&word.to_le_bytes());
            }
            let bad = BadCommand { word: 0x4302_0013 };
            assert_eq!(decoder.next(), Some(Err(bad)), "{kind} {weight}");
            assert_eq!(decoder.next(), None);
        }
    }

    proptest! {
        /// Whatever the pieces in which the bytes arrive, the commands are the same.
        #[test]
        fn commands_are_decoded_from_any_pieces(
            all in prop::collection::vec(any(), 1..40),
            pieces in prop::collection::vec(1..40usize, 1..20),
        ) {
            let mut bytes = Vec::new();
            all.iter().for_each(|command| command.encode(&mut bytes));
            let (mut decoder, mut found, mut rest) = (Commands::default(), Vec::new(), &bytes[..]);
            for piece in pieces.iter().cycle() {
                let piece = (*piece).min(rest.len());
                let taken = decoder.push(&rest[..piece]);
                rest = &rest[taken..];
                while let Some(next) = decoder.next() {
                    found.push(next.unwrap());
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, all);
            prop_assert!(!decoder.is_incomplete());
        }

        /// Garbage is passed over: nothing panics, memory is bounded, and a command after
        /// the longest possible one is found.
        #[test]
        fn garbage_is_passed_over(garbage in prop::collection::vec(proptest::arbitrary::any::<u32>(), 0..300)) {
            let mut bytes = Vec::new();
            garbage.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
            bytes.extend_from_slice(&[0; (MOST + 1) * WORD]);
            Command::Cancel.encode(&mut bytes);
            let (mut decoder, mut last, mut rest) = (Commands::default(), None, &bytes[..]);
            while !rest.is_empty() {
                rest = &rest[decoder.push(rest)..];
                while let Some(next) = decoder.next() {
                    last = Some(next);
                }
            }
            prop_assert_eq!(last, Some(Ok(Command::Cancel)));
        }
    }

    fn with(commands: &[Command]) -> Commands {
        let (mut decoder, mut bytes) = (Commands::default(), Vec::new());
        commands
            .iter()
            .for_each(|command| command.encode(&mut bytes));
        assert_eq!(decoder.push(&bytes), bytes.len());
        decoder
    }

    #[test]
    fn what_takes_effect_at_once_overtakes_transfers() {
        use Command::{Block, Cancel, Pause, Rate, Resume, SourceOffset, Write};
        let writes = [Write(1), SourceOffset(3), Write(1)];
        let mut decoder = with(&[&writes[..], &[Pause, Write(2), Resume, Rate(7)]].concat());
        let all = std::iter::from_fn(|| decoder.take_ahead().map(|(_, command)| command));
        assert_eq!(all.collect::<Vec<_>>(), [Pause, Resume, Rate(7)]);
        let rest = std::iter::from_fn(|| decoder.next().map(Result::unwrap));
        let left = [&writes[..], &[Write(2)]].concat();
        assert_eq!(rest.collect::<Vec<_>>(), left);
        let ahead = |commands: &[Command]| {
            let taken = with(commands).take_ahead();
            taken.map(|(_, command)| command)
        };
        // One that is forbidden: it is refused.
        assert_eq!(ahead(&[Write(1), Cancel, Pause]), Some(Cancel));
        let commands = Command::Limit(Limit::Commands(1));
        assert_eq!(ahead(&[Write(1), commands, Pause]), None);
        let schedule = Command::Limit(Limit::Schedule { count: 1, rest: 2 });
        assert_eq!(ahead(&[Write(1), schedule]), Some(schedule));
        // Its blocks have the length that was set before it.
        assert_eq!(ahead(&[Write(1), Block(9), schedule]), None);
        let behind = [Write(1), Block(9), schedule, schedule, Resume];
        assert_eq!(ahead(&behind), Some(Resume));
    }

    #[test]
    fn a_record_is_no_command_and_has_no_answer() {
        use super::super::Record;
        let mut bytes = Vec::new();
        Record::Started(0x4300_000a).encode(&mut bytes);
        Command::Pause.encode(&mut bytes);
        let mut decoder = Commands::default();
        assert_eq!(decoder.push(&bytes), bytes.len());
        assert_eq!(decoder.next(), Some(Ok(Command::Pause)));
        assert_eq!(decoder.next(), None);
    }

    /// The words of `docs/cue-protocol.md`, as a program in C writes them.
    #[test]
    fn the_papers_command_has_two_words() {
        let mut bytes = Vec::new();
        Command::Write(4_096_000).encode(&mut bytes);
        assert_eq!(words(&bytes), [0x4301_0001, 4_096_000]);
    }

    #[test]
    fn the_mark_is_not_a_command() {
        let mut decoder = Commands::default();
        decoder.push(&Command::MARK.to_le_bytes());
        let refused = decoder.next().unwrap().unwrap_err();
        assert_eq!(refused.word, Command::MARK);
        assert!(decoder.next().is_none());
    }
}
