//! The exit status of the command.

use std::io::Write;

use crate::{output, signals, sys};

/// The status of a command whose standard output has no reader: 128 + SIGPIPE.
const READER_LEFT: u8 = 141;

/// How a command has ended. The first of these that applies determines the status.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ending {
    /// The signal that has stopped it.
    pub stopped: Option<i32>,
    /// The reader of standard output has closed it.
    pub reader_left: bool,
    /// Wrong usage.
    pub usage: bool,
    /// A failure of another kind.
    pub failed: bool,
}

impl Ending {
    /// Returns the exit status.
    pub fn status(self) -> u8 {
        match self.stopped {
            Some(signal) => signals::status_of(signal),
            None if self.reader_left => READER_LEFT,
            None if self.usage => 2,
            None => u8::from(self.failed),
        }
    }
}

/// Returns the exit status, or ends the process by SIGPIPE if standard output has no
/// reader, as a shell expects of a command in a pipeline.
///
/// A signal to stop takes precedence if it kept a result from being written. If the terminal
/// has generated it (Ctrl-C), it ends the process: a shell ends its loop only then
/// (`wait_sigint_handler` in jobs.c of bash).
pub fn leave(status: u8) -> u8 {
    let of_status = || signals::stop().filter(|signal| signals::status_of(*signal) == status);
    if let Some(signal) = output::abandoned_by().or_else(of_status) {
        if signals::is_of_terminal() {
            let _ = std::io::stdout().flush();
            // Returns in the init process of a container, which no signal ends by default.
            sys::raise_by_default(signal);
        }
        return signals::status_of(signal);
    }
    if status == READER_LEFT {
        sys::raise_by_default(libc::SIGPIPE);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_determines_the_status() {
        let mut ending = Ending::default();
        assert_eq!(ending.status(), 0);
        ending.failed = true;
        assert_eq!(ending.status(), 1);
        ending.usage = true;
        assert_eq!(ending.status(), 2);
        ending.reader_left = true;
        assert_eq!(ending.status(), 141);
        ending.stopped = Some(libc::SIGINT);
        assert_eq!(ending.status(), 130);
    }
}
