//! Keys at a terminal, as in mpv: Space pauses and resumes, `[` and `]` change
//! the speed by a tenth, `{` and `}` by half, Backspace resets it, `q` quits.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use cordboard::poll_for;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::stdio::stdin;
use rustix::termios::{isatty, tcgetattr};

use super::show::Order;
use crate::keyboard::{Decoder, Key};
use crate::signals::terminal;

/// A terminal in a mode that reports each key at once, until this is dropped.
pub struct Keys {
    decoder: Decoder,
    /// A time before the last bytes were read.
    typed_at: Instant,
    orders: VecDeque<Order>,
    hung_up: bool,
    quit: bool,
}

impl Keys {
    /// Of standard input, if it is a terminal that this process may read.
    pub fn listen() -> Option<Keys> {
        if !isatty(stdin()) || !terminal::is_foreground() {
            return None;
        }
        let before = tcgetattr(stdin()).ok()?;
        let each = terminal::of_keys(&before);
        terminal::take(before, each).ok()?;
        Some(Keys {
            decoder: Decoder::default(),
            typed_at: Instant::now(),
            orders: VecDeque::new(),
            hung_up: false,
            quit: false,
        })
    }

    /// The descriptor to poll for reading. In the background, input belongs to
    /// another process.
    pub fn fd(&self) -> Option<BorrowedFd<'static>> {
        terminal::take_back();
        (!self.hung_up && terminal::is_foreground()).then(stdin)
    }

    /// Reads keys. Called only after a poll has found input.
    pub fn read(&mut self) {
        if !terminal::is_foreground() {
            // Reading would stop the process (SIGTTIN).
            return;
        }
        // As many as a terminal holds, so that the bytes of a key are read together
        // (`N_TTY_BUF_SIZE`, drivers/tty/n_tty.c).
        let mut buffer = [0u8; 4096];
        let now = Instant::now();
        match rustix::io::read(stdin(), &mut buffer) {
            Ok(0) => self.hung_up = true,
            Ok(n) => {
                // ESC gives no order. What follows later is a key of its own.
                let before = std::mem::replace(&mut self.typed_at, now);
                self.decoder.close_after(now - before);
                let keys = (buffer[..n].iter()).filter_map(|byte| self.decoder.key(*byte));
                self.orders.extend(keys.filter_map(order));
                self.quit |= self.orders.contains(&Order::Quit);
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => self.hung_up = true,
        }
    }

    /// Reads keys, if there are any, without waiting. Returns whether the user
    /// has quit.
    pub fn end(&mut self) -> bool {
        if let Some(fd) = self.fd() {
            let mut typed = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            if poll_for(&mut typed, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
                self.read();
            }
        }
        self.has_quit()
    }

    /// Whether the user has quit.
    pub fn has_quit(&self) -> bool {
        self.quit
    }

    /// Returns the next order.
    pub fn order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        terminal::give_back();
    }
}

fn order(key: Key) -> Option<Order> {
    Some(match key {
        Key::Char(']') => Order::Times(1.1),
        Key::Char('[') => Order::Times(1.0 / 1.1),
        Key::Char('}') => Order::Times(2.0),
        Key::Char('{') => Order::Times(0.5),
        Key::Backspace => Order::Plain,
        Key::Char(' ') => Order::Pause,
        Key::Char('q' | 'Q') => Order::Quit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_are_no_brackets() {
        let mut decoder = Decoder::default();
        let typed = b"]\x1b[A\x1bOP\x1b[1;5C\x1bx{\x7f z\x1b q";
        let keys = typed.iter().filter_map(|byte| decoder.key(*byte));
        let orders: Vec<Order> = keys.filter_map(order).collect();
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
