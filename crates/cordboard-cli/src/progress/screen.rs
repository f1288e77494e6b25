//! One line on standard error that is drawn repeatedly, or a line after the other. It is
//! only a status: without room it is omitted, and no byte waits for it.

use std::os::fd::{AsFd, BorrowedFd};

use cordboard::fstat;
use rustix::fs::{major, minor};
use rustix::stdio::stderr;
use rustix::termios::isatty;

use super::style::Style;
use crate::output::{self, LAST_LINE, LastLine};

/// The line on the screen.
#[derive(Debug)]
pub struct Screen {
    /// The line that is drawn; of lines: the last one may be a part.
    last: &'static LastLine,
    style: Style,
    out: BorrowedFd<'static>,
}

impl Screen {
    /// On standard error.
    pub fn new(style: Style) -> Screen {
        Screen {
            last: &LAST_LINE,
            style,
            out: stderr(),
        }
    }

    /// On another descriptor.
    #[cfg(test)]
    pub fn on(style: Style, out: BorrowedFd<'static>) -> Screen {
        Screen {
            last: Box::leak(Box::new(LastLine::ended())),
            style,
            out,
        }
    }

    /// Draws a line in place of the one before, or prints it behind that. Clears it
    /// if nothing fits, since the terminal has become narrower. Nothing is drawn while another
    /// program uses the terminal.
    pub fn draw(&mut self, line: &str) {
        if line.is_empty() {
            return self.print("");
        }
        if self.style == Style::Lines {
            return self.print(&format!("{line}\n"));
        }
        if !output::is_to_draw_on(self.out) {
            return self.last.set_ended();
        }
        let line = format!("\r{line}\x1b[K");
        if output::write_if_room(self.out, line.as_bytes()) > 0 {
            self.last.set_drawn();
        }
    }

    /// Prints a status line in place of the line that is drawn.
    pub fn print(&mut self, line: &str) {
        let (written, whole) = self.last.write_status(self.out, line);
        if self.style == Style::Lines && written > 0 && !whole {
            self.last.set_partial();
        }
    }

    /// Clears the line, so that a result can be printed, and waits as for a
    /// result. An error of the terminal does not stop the transfer.
    pub fn clear(&mut self) {
        let _ = self.last.finish(self.out);
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;

    /// What a screen writes.
    fn written(style: Style, use_it: impl FnOnce(&mut Screen)) -> String {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let writer: &'static std::io::PipeWriter = Box::leak(Box::new(writer));
        let mut screen = Screen::on(style, writer.as_fd());
        use_it(&mut screen);
        (&mut &*writer).write_all(b"|").unwrap();
        let mut all = [0; 4096];
        let length = reader.read(&mut all).unwrap();
        String::from_utf8(all[..length].to_vec()).unwrap()
    }

    fn two_and_a_message(screen: &mut Screen) {
        screen.draw("one");
        screen.draw("");
        screen.draw("two");
        screen.print("message\n");
        screen.draw("three");
        screen.clear();
    }

    #[test]
    fn lines_have_no_control_characters() {
        let lines = written(Style::Lines, two_and_a_message);
        assert_eq!(lines, "one\ntwo\nmessage\nthree\n|");
        let drawn = written(Style::Drawn, two_and_a_message);
        let expected = "\rone\x1b[K\n\rtwo\x1b[K\nmessage\n\rthree\x1b[K\n|";
        assert_eq!(drawn, expected);
    }

    /// A pager, or the prompt of a password.
    #[test]
    fn nothing_is_drawn_on_the_screen_of_another_program() {
        use rustix::fs::{Mode, OFlags, open};
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let terminal = open(name.as_c_str(), flags, Mode::empty()).unwrap();
        let terminal: &'static OwnedFd = Box::leak(Box::new(terminal));
        let mut screen = Screen::on(Style::Drawn, terminal.as_fd());
        let set = |mode: LocalModes, is_on: bool| {
            let mut modes = tcgetattr(terminal).unwrap();
            modes.local_modes.set(mode, is_on);
            tcsetattr(terminal, OptionalActions::Now, &modes).unwrap();
        };
        let written = || {
            rustix::io::write(terminal, b"|").unwrap();
            let mut all = Vec::new();
            while !all.ends_with(b"|") {
                let mut byte = [0];
                rustix::io::read(&master, &mut byte).unwrap();
                all.extend(byte);
            }
            String::from_utf8(all).unwrap()
        };
        for mode in [LocalModes::ICANON, LocalModes::ECHO] {
            screen.draw("one");
            assert_eq!(written(), "\rone\x1b[K|");
            set(mode, false);
            screen.draw("two");
            screen.clear();
            assert_eq!(written(), "|");
            set(mode, true);
            screen.draw("three");
            set(mode, false);
            screen.clear();
            assert_eq!(written(), "\rthree\x1b[K|");
            set(mode, true);
        }
    }

    /// The line before had room for a part of it only.
    #[test]
    fn a_line_begins_a_line() {
        let lines = written(Style::Lines, |screen| {
            screen.last.set_partial();
            screen.draw("one");
            screen.last.set_partial();
            screen.clear();
        });
        assert_eq!(lines, "\none\n\n|");
    }
}
