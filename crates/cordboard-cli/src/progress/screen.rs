//! One line on standard error that is drawn repeatedly. It is only a status:
//! without room it is omitted, and no byte waits for it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{fstat, major, minor};
use rustix::stdio::stderr;
use rustix::termios::isatty;

use crate::output;

const WIPED: &str = "\r\x1b[K";

/// The line on the screen.
#[derive(Debug, Default)]
pub struct Screen {
    on: bool,
}

impl Screen {
    /// Draws a line in place of the one before. Clears it if nothing fits,
    /// since the terminal has become narrower.
    pub fn draw(&mut self, line: &str) {
        if line.is_empty() {
            return self.print("");
        }
        let line = format!("\r{line}\x1b[K");
        self.on |= output::write_if_room(stderr(), line.as_bytes()) > 0;
    }

    /// Prints a status line in place of the line that is drawn.
    pub fn print(&mut self, line: &str) {
        let line = match self.on {
            true => WIPED.to_owned() + line,
            false if line.is_empty() => return,
            false => line.to_owned(),
        };
        if output::write_if_room(stderr(), line.as_bytes()) == line.len() {
            self.on = false;
        }
    }

    /// Clears the line, so that a result can be printed, and waits as for a
    /// result. An error of the terminal does not stop the transfer.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.on) {
            let _ = output::write_all(stderr(), WIPED.as_bytes());
        }
    }
}

/// Returns the columns to draw in: those of the terminal but the last, after
/// which some terminals wrap. 79 for a terminal that does not know its width (0
/// columns, `ioctl_tty(2)`), and for other files.
pub fn width() -> usize {
    match rustix::termios::tcgetwinsize(stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col) - 1,
        _ => 79,
    }
}

/// Whether progress would mix with what is typed at this terminal, or written
/// to it. Some device numbers, such as that of `/dev/tty`, do not identify the
/// terminal.
pub fn is_on(fd: impl AsFd) -> bool {
    /// `/dev/tty0`, `/dev/tty` and `/dev/console`.
    const ANY: [(u32, u32); 3] = [(4, 0), (5, 0), (5, 1)];
    if !isatty(&fd) {
        return false;
    }
    let number = |fd: BorrowedFd<'_>| fstat(fd).map(|stat| stat.st_rdev);
    match (number(fd.as_fd()), number(stderr())) {
        (Ok(a), Ok(b)) => {
            let any = |number| ANY.contains(&(major(number), minor(number)));
            a == b || any(a) || any(b)
        }
        _ => true,
    }
}
