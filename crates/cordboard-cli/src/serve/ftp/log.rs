//! The log: a line for each transfer, each change and each failed login.
//!
//! If standard error has no room, the sessions wait for it. After a signal to stop, lines that
//! have no room are left out: the server ends.

use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::stdio::stderr;

use super::time::{Utc, now};
use crate::bounded_write::{GRACE, PIECE, has_room, pause, write_within};
use crate::output::{errno_of, one_line, print_line};
use crate::problem::Problem;
use crate::signals;

/// The interval at which a thread without room checks for a signal to stop, which interrupts
/// only the main thread.
const RETRY: Duration = Duration::from_secs(1);

/// Escapes the spaces of a name, which would otherwise be several fields of the line.
pub fn field(name: &str) -> String {
    name.replace('\\', "\\\\").replace(' ', "\\x20")
}

/// The output for log lines.
pub struct Log {
    /// `None` while a thread writes.
    output: Mutex<Option<Output>>,
    /// A thread has written.
    is_free: Condvar,
}

enum Output {
    StandardError {
        /// After a signal to stop, it had no room.
        is_abandoned: bool,
    },
    File {
        file: File,
        shown: String,
        /// The last line was lost.
        is_losing: bool,
    },
}

/// The output, while a thread writes. Its drop gives it back.
struct Writing<'a> {
    log: &'a Log,
    output: Option<Output>,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        *self.log.lock() = self.output.take();
        self.log.is_free.notify_one();
    }
}

impl Log {
    /// Opens a log that appends to this file, or writes to standard error.
    pub fn open(path: Option<&Path>) -> std::io::Result<Log> {
        let output = match path {
            Some(path) => Output::File {
                file: File::options().append(true).create(true).open(path)?,
                shown: path.display().to_string(),
                is_losing: false,
            },
            None => Output::StandardError {
                is_abandoned: false,
            },
        };
        Ok(Log {
            output: Mutex::new(Some(output)),
            is_free: Condvar::new(),
        })
    }

    /// Writes a line. Control characters in names are escaped. If the line cannot be written
    /// to the file, and the line before it could be, standard error says so.
    pub fn line(&self, text: &str) {
        let line = format!("{} {}\n", Utc::of(now()).rfc3339(), one_line(text));
        let problem = self
            .begin()
            .and_then(|mut writing| writing.output.as_mut()?.write(line.as_bytes()));
        if let Some(problem) = problem {
            print_line(problem);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Output>> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread writes. After a signal to stop, returns `None` if that takes
    /// too long: a write to a pipe that is not read never returns.
    fn begin(&self) -> Option<Writing<'_>> {
        let mut output = self.lock();
        let mut since = None;
        loop {
            if let Some(taken) = output.take() {
                return Some(Writing {
                    log: self,
                    output: Some(taken),
                });
            }
            if signals::stop().is_some()
                && since.get_or_insert_with(Instant::now).elapsed() >= GRACE
            {
                return None;
            }
            let waited = self.is_free.wait_timeout(output, RETRY);
            output = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Output {
    fn write(&mut self, line: &[u8]) -> Option<Problem> {
        match self {
            Output::StandardError { is_abandoned: true } => None,
            Output::StandardError { is_abandoned } => {
                // There is no other output to report an error to.
                *is_abandoned = write_line(stderr(), line) == Err(Errno::INTR);
                None
            }
            Output::File {
                file,
                shown,
                is_losing,
            } => {
                let error = file.write_all(line).err();
                let was_losing = std::mem::replace(is_losing, error.is_some());
                let errno = errno_of(&error.filter(|_| !was_losing)?);
                let text = format!("{errno} writing the log; lines are lost until it succeeds");
                Some(Problem::unsided(shown.as_str(), errno, text))
            }
        }
    }
}

/// Writes a line as soon as there is room. It does not block in `write(2)` meanwhile, which no
/// signal would end on the thread of a session.
///
/// # Errors
///
/// `EINTR`: a signal to stop has arrived, and there is no room.
fn write_line(out: BorrowedFd<'_>, mut line: &[u8]) -> Result<(), Errno> {
    while !line.is_empty() {
        if signals::stop().is_some() {
            return write_within(out, line, GRACE);
        }
        // If poll(2) fails, the write reports the error.
        if matches!(has_room(out, Some(RETRY)), Ok(false) | Err(Errno::INTR)) {
            continue;
        }
        match rustix::io::write(out, &line[..line.len().min(PIECE)]) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => line = &line[n..],
            // Another process may have taken the room, or it is too small.
            Err(Errno::AGAIN) => pause(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    /// Another process of the terminal may have set `O_NONBLOCK`.
    #[test]
    fn a_line_waits_for_room() {
        for flags in [PipeFlags::CLOEXEC | PipeFlags::NONBLOCK, PipeFlags::CLOEXEC] {
            let (reader, writer) = pipe_with(flags).unwrap();
            rustix::io::ioctl_fionbio(&writer, true).unwrap();
            let mut before = 0;
            while let Ok(n) = rustix::io::write(&writer, &[b'.'; 4096]) {
                before += n;
            }
            rustix::io::ioctl_fionbio(&writer, flags.contains(PipeFlags::NONBLOCK)).unwrap();
            rustix::io::ioctl_fionbio(&reader, false).unwrap();
            let line = [&[b'x'; 100_000][..], b"\n"].concat();
            let mut got = Vec::new();
            std::thread::scope(|scope| {
                let writing = scope.spawn(|| {
                    let done = write_line(writer.as_fd(), &line);
                    drop(writer);
                    done
                });
                File::from(reader).read_to_end(&mut got).unwrap();
                assert_eq!(writing.join().unwrap(), Ok(()));
            });
            assert!(got[before..] == line);
        }
    }

    /// The other thread may be in a write that never returns.
    #[test]
    fn after_a_signal_a_line_is_left_out_while_another_thread_writes() {
        assert!(testkit::child::in_a_child(|| {
            let log = Log::open(None).unwrap();
            signals::record_old_stop(libc::SIGTERM);
            let writing = log.begin().unwrap();
            let is_left_out = log.begin().is_none();
            drop(writing);
            is_left_out && log.begin().is_some()
        }));
    }
}
