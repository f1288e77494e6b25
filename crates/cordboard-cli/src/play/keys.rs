//! Keys at a live terminal, those of mpv: Space to pause and to go on, `[` and
//! `]` slower and faster by a tenth, `{` and `}` by half, Backspace the plain
//! speed, `q` the end.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, isatty, tcgetattr};

use super::show::Order;
use crate::signals::terminal;

/// A terminal that tells of each key at once, until this is dropped.
pub struct Keys {
    parser: Parser,
    orders: VecDeque<Order>,
    hung_up: bool,
    quit: bool,
}

impl Keys {
    /// Of standard input, if it is a terminal that is ours to read.
    pub fn listen() -> Option<Keys> {
        if !isatty(stdin()) || !terminal::is_foreground() {
            return None;
        }
        let before = tcgetattr(stdin()).ok()?;
        let mut each = before.clone();
        // Signals of keys (^C) stay as they are.
        each.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        terminal::take(before, each).ok()?;
        Some(Keys {
            parser: Parser::default(),
            orders: VecDeque::new(),
            hung_up: false,
            quit: false,
        })
    }

    /// To be polled for reading. In the background, what is typed is another's; a
    /// SIGCONT tells when that is over.
    pub fn fd(&self) -> Option<BorrowedFd<'static>> {
        (!self.hung_up && terminal::is_foreground()).then(stdin)
    }

    /// Takes what was typed; only after a poll has found something.
    pub fn read(&mut self) {
        if !terminal::is_foreground() {
            // It would stop us (SIGTTIN).
            return;
        }
        let mut buffer = [0u8; 64];
        match rustix::io::read(stdin(), &mut buffer) {
            Ok(0) => self.hung_up = true,
            Ok(n) => {
                let parser = &mut self.parser;
                self.orders
                    .extend(buffer[..n].iter().filter_map(|byte| parser.order(*byte)));
                self.quit |= self.orders.contains(&Order::Quit);
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => self.hung_up = true,
        }
    }

    /// Takes what was typed, if anything, without waiting for it; true if the
    /// end is wished.
    pub fn end(&mut self) -> bool {
        if let Some(fd) = self.fd() {
            let mut typed = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            if poll(&mut typed, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
                self.read();
            }
        }
        self.was_quit()
    }

    /// Whether the end was ever wished.
    pub fn was_quit(&self) -> bool {
        self.quit
    }

    /// The next order that was given.
    pub fn order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        terminal::give_back();
    }
}

/// Keys that are more than one byte mean nothing here; the `[` of an arrow is
/// not to be taken for one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Parser {
    #[default]
    Plain,
    /// After ESC.
    Escape,
    /// Within a sequence, which ends with a byte from `@` on.
    Sequence,
}

impl Parser {
    fn order(&mut self, byte: u8) -> Option<Order> {
        match (*self, byte) {
            (_, 0x1b) => *self = Parser::Escape,
            (Parser::Escape, b'[' | b'O') => *self = Parser::Sequence,
            (Parser::Escape, _) => *self = Parser::Plain,
            (Parser::Sequence, b'@'..=b'~') => *self = Parser::Plain,
            (Parser::Sequence, _) => {}
            (Parser::Plain, byte) => return plain(byte),
        }
        None
    }
}

fn plain(byte: u8) -> Option<Order> {
    Some(match byte {
        b']' => Order::Times(1.1),
        b'[' => Order::Times(1.0 / 1.1),
        b'}' => Order::Times(2.0),
        b'{' => Order::Times(0.5),
        0x7f | 0x08 => Order::Plain,
        b' ' => Order::Pause,
        b'q' | b'Q' => Order::Quit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_are_no_brackets() {
        let mut parser = Parser::default();
        let typed = b"]\x1b[A\x1bOP\x1b[1;5C\x1bx{\x7f z\x1b q";
        let orders: Vec<Order> = (typed.iter()).filter_map(|b| parser.order(*b)).collect();
        assert_eq!(
            orders,
            [
                Order::Times(1.1),
                Order::Times(0.5),
                Order::Plain,
                Order::Pause,
                Order::Quit
            ]
        );
    }
}
