//! Keys of a terminal, from the bytes that it sends.

use std::time::Duration;

/// The longest time between the bytes of one key.
pub const OPEN: Duration = Duration::from_millis(50);

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character of ASCII.
    Char(char),
    Enter,
    Backspace,
    Escape,
    Up,
    Down,
    Home,
    End,
    /// Ctrl-L, which draws the screen again.
    Redraw,
}

/// Decodes bytes that arrive in any pieces. The escape sequences of other keys are
/// skipped: the `[` of an arrow key is no bracket.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Decoder {
    state: State,
    /// The first number of a sequence.
    number: u16,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Plain,
    /// After ESC.
    Escape,
    /// Inside a sequence, at its first number. It ends with a byte from `@` on.
    Sequence,
    /// Behind the first number.
    Rest,
    /// After ESC [ [, which the Linux console sends for F1 to F5, with a letter.
    Function,
}

impl Decoder {
    /// Takes a byte in. Returns the key that it completes.
    pub fn key(&mut self, byte: u8) -> Option<Key> {
        match (self.state, byte) {
            (_, 0x1b) => self.state = State::Escape,
            (State::Escape, b'[' | b'O') => {
                *self = Decoder {
                    state: State::Sequence,
                    number: 0,
                }
            }
            // With Alt.
            (State::Escape, _) => self.state = State::Plain,
            (State::Sequence, b'[') => self.state = State::Function,
            (State::Function, _) => self.state = State::Plain,
            (State::Sequence | State::Rest, b'@'..=b'~') => {
                self.state = State::Plain;
                return named(byte, self.number);
            }
            (State::Sequence, b'0'..=b'9') => {
                let digit = u16::from(byte - b'0');
                self.number = self.number.saturating_mul(10).saturating_add(digit);
            }
            (State::Sequence, _) => self.state = State::Rest,
            (State::Rest, _) => {}
            (State::Plain, byte) => return plain(byte),
        }
        None
    }

    /// Whether the next byte tells if ESC was a key of its own.
    pub fn is_open(&self) -> bool {
        self.state == State::Escape
    }

    /// No byte has followed for this time. Returns ESC if it was a key of its own.
    pub fn close_after(&mut self, silence: Duration) -> Option<Key> {
        let closes = self.is_open() && silence >= OPEN;
        closes.then(|| {
            self.state = State::Plain;
            Key::Escape
        })
    }
}

fn plain(byte: u8) -> Option<Key> {
    match byte {
        b'\r' | b'\n' => Some(Key::Enter),
        0x7f | 0x08 => Some(Key::Backspace),
        0x0c => Some(Key::Redraw),
        b' '..=b'~' => Some(Key::Char(char::from(byte))),
        _ => None,
    }
}

/// The key of a sequence (`console_codes(4)`, and xterm's).
fn named(end: u8, number: u16) -> Option<Key> {
    match (end, number) {
        (b'A', _) => Some(Key::Up),
        (b'B', _) => Some(Key::Down),
        (b'H', _) | (b'~', 1 | 7) => Some(Key::Home),
        (b'F', _) | (b'~', 4 | 8) => Some(Key::End),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_single_keys() {
        let mut decoder = Decoder::default();
        let typed = b"a\x1b[A\x1bOB\x1b[1;5C\x1b[5~\x1b[4~\x1b[1~\x1bx\r\x7f\x01\xc3\xa4z";
        let keys: Vec<Key> = typed.iter().filter_map(|byte| decoder.key(*byte)).collect();
        let expected = [
            Key::Char('a'),
            Key::Up,
            Key::Down,
            Key::End,
            Key::Home,
            Key::Enter,
            Key::Backspace,
            Key::Char('z'),
        ];
        assert_eq!(keys, expected);
        // F5, F6, F1, Home with Shift, and F1 of the Linux console.
        let others = b"\x1b[15~\x1b[17~\x1b[11~\x1b[1;2H\x1b[[A\x0c\x1b[71~\x1b[70000~";
        let keys: Vec<Key> = others
            .iter()
            .filter_map(|byte| decoder.key(*byte))
            .collect();
        assert_eq!(keys, [Key::Home, Key::Redraw]);
    }

    #[test]
    fn escape_is_a_key_if_nothing_follows() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.key(0x1b), None);
        assert!(decoder.is_open());
        assert_eq!(decoder.close_after(OPEN - Duration::from_nanos(1)), None);
        assert_eq!(decoder.close_after(OPEN), Some(Key::Escape));
        assert!(!decoder.is_open());
        assert_eq!(decoder.close_after(OPEN), None);
        decoder.key(0x1b);
        decoder.key(b'[');
        assert_eq!(decoder.close_after(OPEN), None, "inside a sequence");
        assert_eq!(decoder.key(b'A'), Some(Key::Up));
    }
}
