//! The terminal: its modes, the alternate screen, and the lines on it.

use std::io::Write as _;

use cordboard::Errno;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{tcgetattr, tcgetwinsize};

use super::has_utf_8;
use super::text::width;
use super::view::{Line, Size};
use crate::output::{errno_of, write_while};
use crate::signals::terminal;
use crate::sys;

/// The alternate screen, without the cursor; lines do not wrap. As bytes, because a signal
/// handler writes them.
const ALTERNATE: terminal::Screen = terminal::Screen {
    enter: b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J",
    again: b"\x1b[?25l\x1b[?7l",
    leave: b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l",
};

/// The terminal, which is restored when this is dropped.
pub struct Screen {
    /// The lines on the screen.
    lines: Vec<Line>,
    size: Option<Size>,
    unicode: bool,
}

impl Screen {
    /// Sets the modes of the terminal, and enters the alternate screen. Both are restored at
    /// any end of the process, even by a signal or a panic.
    pub fn open() -> Result<Screen, Errno> {
        let before = tcgetattr(stdin()).map_err(Errno::from)?;
        let each = terminal::of_keys(&before);
        terminal::take_screen(before, each, ALTERNATE).map_err(Errno::from)?;
        // A change of the size interrupts a wait.
        sys::handle(libc::SIGWINCH, on_resize);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // The message is printed on the normal screen.
            terminal::give_back();
            hook(panic);
        }));
        Ok(Screen {
            lines: Vec::new(),
            size: None,
            unicode: has_utf_8(|name| std::env::var_os(name)),
        })
    }

    /// Returns the present size, or 80 columns and 24 rows if the terminal does not report it.
    pub fn size(&self) -> Size {
        let known = |count: u16, usual: usize| match count {
            0 => usual,
            n => usize::from(n),
        };
        let size = tcgetwinsize(stdout()).ok();
        Size {
            columns: known(size.map_or(0, |size| size.ws_col), 80),
            rows: known(size.map_or(0, |size| size.ws_row), 24),
            unicode: self.unicode,
        }
    }

    /// Makes the next [`Screen::draw`] draw all lines: another process may have written to the
    /// terminal.
    pub fn forget(&mut self) {
        self.size = None;
    }

    /// Draws the lines that have changed; all of them after a change of the size, and
    /// after the process was stopped. In the background, the terminal belongs to another
    /// process.
    pub fn draw(&mut self, size: Size, lines: Vec<Line>) -> Result<(), Errno> {
        if !terminal::is_foreground() {
            return Ok(());
        }
        terminal::take_back();
        let mut bytes = Vec::new();
        let resized = self.size.replace(size) != Some(size);
        let all = terminal::was_entered() || resized;
        if all {
            bytes.extend_from_slice(b"\x1b[2J");
        }
        for (row, line) in lines.iter().enumerate() {
            if !all && self.lines.get(row) == Some(line) {
                continue;
            }
            // Rows count from 1.
            let style = if line.selected { "\x1b[7m" } else { "" };
            let _ = write!(bytes, "\x1b[{};1H{style}{}\x1b[0m", row + 1, line.text);
            // After a full line the cursor is on its last column, which must stay.
            if width(&line.text) < size.columns {
                bytes.extend_from_slice(b"\x1b[K");
            }
        }
        self.lines = lines;
        // A write may wait until the process is stopped (Ctrl-S, Ctrl-Z). What follows it would be
        // drawn over the output of the shell.
        let written = write_while(stdout(), &bytes, || {
            terminal::is_foreground() && !terminal::is_entered()
        });
        if !written.map_err(|error| errno_of(&error))? {
            self.forget();
        }
        Ok(())
    }
}

extern "C" fn on_resize(_: libc::c_int) {}

impl Drop for Screen {
    fn drop(&mut self) {
        terminal::give_back();
    }
}
