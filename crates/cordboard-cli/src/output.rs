//! Writing to standard output and standard error, which may have no room for
//! long: another program may have set `O_NONBLOCK` on them (the flag belongs to
//! the open description, and all processes of a terminal share one), and their
//! readers may read nothing.
//!
//! Results wait for room until a signal to stop arrives, and after it only as
//! long as the reader takes something within each second. Status lines do not
//! wait, and do not stop a job in the background.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use cordboard::Errno as Named;
use rustix::io::{Errno, write};
use rustix::stdio::stderr;
use rustix::termios::{LocalModes, isatty, tcgetattr};

use crate::bounded_write::{GRACE, has_room, pause, write_within};
use crate::inherited::was_closed;
use crate::signals::terminal;
use crate::{signals, sys};

/// How often a write is tried without room: only `EPIPE` reports that a full UNIX
/// socket was shut down (`unix_poll`, net/unix/af_unix.c).
const RETRY: Duration = Duration::from_secs(1);

/// Descriptors to which a result was not written because of a signal to stop, a
/// bit each. The last bit stands for all further descriptors.
static ABANDONED: AtomicU64 = AtomicU64::new(0);

fn bit(out: BorrowedFd<'_>) -> u64 {
    1 << out.as_raw_fd().clamp(0, 63)
}

fn is_abandoned(out: BorrowedFd<'_>) -> bool {
    ABANDONED.load(Ordering::SeqCst) & bit(out) != 0
}

/// Returns the signal that kept a result from being written.
pub fn abandoned_by() -> Option<i32> {
    signals::stop().filter(|_| ABANDONED.load(Ordering::SeqCst) != 0)
}

/// The line at the end of standard error.
pub static LAST_LINE: LastLine = LastLine::ended();

/// The last line of an output, which may have no line feed yet: the next output ends it.
#[derive(Debug)]
pub struct LastLine(AtomicU8);

impl LastLine {
    const ENDED: u8 = 0;
    const DRAWN: u8 = 1;
    const PARTIAL: u8 = 2;

    /// Returns a whole line.
    pub const fn ended() -> LastLine {
        LastLine(AtomicU8::new(LastLine::ENDED))
    }

    /// Records that it is drawn repeatedly, and is to be removed.
    pub fn set_drawn(&self) {
        self.0.store(LastLine::DRAWN, Ordering::Relaxed);
    }

    /// Records that a part of it was written, and stays.
    pub fn set_partial(&self) {
        self.0.store(LastLine::PARTIAL, Ordering::Relaxed);
    }

    /// Records that it is whole.
    pub fn set_ended(&self) {
        self.0.store(LastLine::ENDED, Ordering::Relaxed);
    }

    /// Returns the bytes that end it on this output. Nothing is removed from a terminal that
    /// shows the line of another process. A file or a pipe keeps what is drawn, and its reader
    /// may expect the next line to be JSON.
    pub fn end(&self, out: BorrowedFd<'_>) -> &'static str {
        match self.0.load(Ordering::Relaxed) {
            LastLine::DRAWN if !isatty(out) => "\n",
            LastLine::DRAWN if is_to_draw_on(out) => "\r\x1b[K",
            LastLine::PARTIAL => "\n",
            _ => "",
        }
    }

    /// As [`LastLine::end`], for an output that follows in any case.
    fn take_end(&self, out: BorrowedFd<'_>) -> &'static str {
        let end = self.end(out);
        self.set_ended();
        end
    }

    /// Writes text behind it, if there is room. Returns the number of bytes written, and
    /// whether they are all.
    pub fn write_status(&self, out: BorrowedFd<'_>, text: &str) -> (usize, bool) {
        let text = self.end(out).to_owned() + text;
        if text.is_empty() {
            return (0, true);
        }
        let written = write_if_room(out, text.as_bytes());
        let whole = written == text.len();
        if whole {
            self.set_ended();
        }
        (written, whole)
    }

    /// Ends it, and waits as for a result.
    pub fn finish(&self, out: BorrowedFd<'_>) -> io::Result<()> {
        write_all(out, self.take_end(out).as_bytes())
    }
}

/// Prints a line on standard error. An error is ignored: there is nowhere to
/// report it.
pub fn print_line(line: impl fmt::Display) {
    let end = LAST_LINE.take_end(stderr());
    let _ = write_all(stderr(), format!("{end}{line}\n").as_bytes());
}

/// Prints a status line on standard error if there is room. SIGALRM must
/// interrupt the thread repeatedly meanwhile.
pub fn print_status(line: impl fmt::Display) {
    LAST_LINE.write_status(stderr(), &format!("{line}\n"));
}

/// Writes to standard error what an option has requested. A failure counts as
/// that of any other result, although there is nowhere to report it.
pub fn print_result(bytes: &[u8]) -> Result<(), Named> {
    if was_closed(2) {
        return Err(Named::EBADF);
    }
    let done = LAST_LINE.finish(stderr());
    let done = done.and_then(|()| write_all(stderr(), bytes));
    done.map_err(|error| errno_of(&error))
}

/// The errno of an error of the standard library; `EIO` if it has none.
pub fn errno_of(error: &io::Error) -> Named {
    error.raw_os_error().map_or(Named::EIO, Named::from_raw)
}

/// Returns whether the terminal interprets no escape sequences (`TERM=dumb`, term(7)).
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|name| name == "dumb")
}

/// Returns whether a line can be drawn on this output. The last line of a terminal is one of
/// another process if this one is in the background, and while another program of the job has
/// set its modes: a pager or an editor reads each key (`ICANON`), the prompt of a password
/// switches the echo off (`ECHO`).
pub fn is_to_draw_on(out: BorrowedFd<'_>) -> bool {
    const LINES: LocalModes = LocalModes::ICANON.union(LocalModes::ECHO);
    // A file has no modes.
    let is_read_by_line = || tcgetattr(out).map_or(true, |modes| modes.local_modes.contains(LINES));
    sys::is_foreground(out) && (terminal::is_set() || is_read_by_line())
}

/// Returns whether a character affects a terminal, or the order of other characters in the
/// line: control characters, separators of lines, and marks of direction.
pub fn affects_line(c: char) -> bool {
    let orders = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || orders
}

/// Escapes characters that affect the line. File names may contain any byte; what is printed
/// stays one line, in its order, and does not affect a terminal.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(affects_line) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().map(|c| match affects_line(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    });
    Cow::Owned(escaped.collect())
}

/// Escapes the characters of JSON text that affect a terminal or the order of its line. All of
/// them have four hexadecimal digits, and are parts of strings.
pub fn one_line_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match affects_line(c) {
            true => out += &format!("\\u{:04x}", u32::from(c)),
            false => out.push(c),
        }
    }
    out
}

/// Writes all bytes. Waits as long as there is no room; after a signal to stop,
/// no longer than [`GRACE`] for each piece, and not again after that. A second
/// signal ends the process.
pub fn write_all(out: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    write_while(out, bytes, || true).map(drop)
}

/// As [`write_all`]. After each interruption and each part, the rest is left out unless
/// `continues`. Returns whether all bytes were written.
pub fn write_while(
    out: BorrowedFd<'_>,
    mut bytes: &[u8],
    continues: impl Fn() -> bool,
) -> io::Result<bool> {
    let mut was_ready = false;
    while !bytes.is_empty() {
        if signals::stop().is_some() {
            return write_after_stop(out, bytes).map(|()| true);
        }
        if !continues() {
            return Ok(false);
        }
        match write(out, bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => (bytes, was_ready) = (&bytes[n..], false),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if was_ready {
                    pause();
                }
                match has_room(out, Some(RETRY)) {
                    Ok(ready) => was_ready = ready,
                    Err(Errno::INTR) => was_ready = false,
                    // poll(2) fails (RLIMIT_NOFILE, a filter).
                    Err(_) => return Err(Errno::AGAIN.into()),
                }
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(true)
}

/// Writes as much of a status line as there is room for, and returns that
/// length. A terminal may have less room than the line needs, and another process
/// may take the room: an interval timer of the caller then ends the write.
pub fn write_if_room(out: BorrowedFd<'_>, bytes: &[u8]) -> usize {
    if is_abandoned(out) || stops(out) {
        return 0;
    }
    match has_room(out, Some(Duration::ZERO)) {
        Ok(false) | Err(Errno::INTR) => 0,
        Ok(true) | Err(_) => write(out, bytes).unwrap_or(0),
    }
}

/// Returns whether the terminal stops this process, a job in the background, when it writes
/// (`stty tostop`; `__tty_check_change`, drivers/tty/tty_jobctrl.c).
pub fn stops(out: BorrowedFd<'_>) -> bool {
    let tostop = || tcgetattr(out).is_ok_and(|it| it.local_modes.contains(LocalModes::TOSTOP));
    !sys::is_foreground(out) && tostop() && !sys::ignores(libc::SIGTTOU)
}

/// [`write_all`] after a signal to stop.
fn write_after_stop(out: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    if is_abandoned(out) {
        return Err(Errno::INTR.into());
    }
    let done = write_within(out, bytes, GRACE);
    if done == Err(Errno::INTR) {
        ABANDONED.fetch_or(bit(out), Ordering::SeqCst);
    }
    Ok(done?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::{AsFd, OwnedFd};
    use std::thread::JoinHandle;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;
    use crate::bounded_write::write_within;

    /// A full pipe, its write end with these flags, and the number of bytes in it.
    fn full(flags: PipeFlags) -> (OwnedFd, OwnedFd, usize) {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
        let mut there = 0;
        while let Ok(n) = write(&writer, &[b'.'; 4096]) {
            there += n;
        }
        rustix::io::ioctl_fionbio(&writer, flags.contains(PipeFlags::NONBLOCK)).unwrap();
        rustix::io::ioctl_fionbio(&reader, false).unwrap();
        (reader, writer, there)
    }

    fn reads(reader: OwnedFd) -> JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            std::fs::File::from(reader).read_to_end(&mut all).unwrap();
            all
        })
    }

    #[test]
    fn the_errno_of_an_error() {
        let failed = std::fs::File::open("/no/such").unwrap_err();
        assert_eq!(errno_of(&failed), Named::ENOENT);
        assert_eq!(errno_of(&ErrorKind::WriteZero.into()), Named::EIO);
    }

    #[test]
    fn a_result_waits_for_room() {
        const LONG: Duration = Duration::from_secs(3600);
        let bytes: Vec<u8> = (0..1 << 20).map(|n| (n % 251) as u8).collect();
        for flags in [PipeFlags::NONBLOCK, PipeFlags::empty()] {
            for hurried in [false, true] {
                let (reader, writer, there) = full(flags);
                let reading = reads(reader);
                match hurried {
                    false => write_all(writer.as_fd(), &bytes).unwrap(),
                    true => write_within(writer.as_fd(), &bytes, LONG).unwrap(),
                }
                drop(writer);
                assert!(reading.join().unwrap()[there..] == bytes);
            }
        }
    }

    #[test]
    fn a_status_line_without_room_is_dropped() {
        for flags in [PipeFlags::NONBLOCK, PipeFlags::empty()] {
            let (reader, writer, there) = full(flags);
            assert_eq!(write_if_room(writer.as_fd(), b"status"), 0);
            let none = write_within(writer.as_fd(), b"result", Duration::ZERO);
            assert_eq!(none, Err(Errno::INTR));
            let mut page = [0; 4096];
            assert_eq!(rustix::io::read(&reader, &mut page), Ok(4096));
            assert_eq!(write_if_room(writer.as_fd(), b"status"), 6);
            drop(writer);
            let all = reads(reader).join().unwrap();
            assert_eq!(&all[there - 4096..], b"status");
        }
    }

    #[test]
    fn a_closed_reader_is_an_error() {
        for flags in [PipeFlags::NONBLOCK, PipeFlags::empty()] {
            let (reader, writer, _) = full(flags);
            drop(reader);
            let error = write_all(writer.as_fd(), b"x").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            let error = write_within(writer.as_fd(), b"x", Duration::ZERO);
            assert_eq!(error, Err(Errno::PIPE));
        }
    }

    #[test]
    fn a_name_does_not_affect_its_line() {
        let name = "a\n\u{1b}[2J\u{202e}b\u{2028}é字";
        assert_eq!(one_line(name), "a\\n\\u{1b}[2J\\u{202e}b\\u{2028}é字");
        assert!(matches!(one_line("é字"), Cow::Borrowed(_)));
    }

    /// `poll(2)` does not report it to a writer that waits already.
    #[test]
    fn a_full_socket_that_is_shut_down_is_an_error() {
        use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
        let _hangs = testkit::watchdog::watch("a_full_socket_that_is_shut_down_is_an_error");
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            for by_peer in [false, true] {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let (out, peer) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
                while write(&out, &[b'.'; 4096]).is_ok() {}
                let end = out.try_clone().unwrap();
                let (sender, number) = std::sync::mpsc::channel();
                let writing = std::thread::spawn(move || {
                    sender.send(rustix::thread::gettid()).unwrap();
                    write_all(out.as_fd(), b"result").unwrap_err().kind()
                });
                let thread = number.recv().unwrap().as_raw_nonzero();
                let task = std::path::PathBuf::from(format!("/proc/self/task/{thread}"));
                while !testkit::locked::polls(&task) {
                    std::thread::yield_now();
                }
                match by_peer {
                    true => shutdown(&peer, Shutdown::Read).unwrap(),
                    false => shutdown(&end, Shutdown::Write).unwrap(),
                }
                assert_eq!(writing.join().unwrap(), ErrorKind::BrokenPipe);
            }
        }
    }
}
