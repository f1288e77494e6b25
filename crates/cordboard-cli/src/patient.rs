//! Writing to standard output and standard error, which may have no room for
//! long: another program may have left them with `O_NONBLOCK` (the flag belongs
//! to the open description, and a terminal's is shared by all that was started
//! there), and their readers may read nothing.
//!
//! Results are waited for until a signal to stop comes; from then on only for a
//! reader that takes something within a second. Status lines are not waited for.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, write};

use crate::signals;
use crate::sys::now;

/// Between two writes where `poll(2)` says that there is room, and a write that
/// there is too little: a terminal takes a line feed as two characters
/// (`do_output_char`, drivers/tty/n_tty.c).
const SHORT_OF_ROOM: Duration = Duration::from_millis(10);

/// How often a write is made without room: nothing but `EPIPE` tells that a full UNIX
/// socket was shut down (`unix_poll`, net/unix/af_unix.c).
const LOOK: Duration = Duration::from_secs(1);

/// For how long a reader may take nothing once a signal to stop has come.
pub const GRACE: Duration = Duration::from_secs(1);

/// A pipe that `poll(2)` reports as writable takes this much without blocking
/// (`PIPE_BUF`, `pipe(7)`).
const PIECE: usize = 4096;

/// Descriptors to which a result was left unwritten because of a signal to stop,
/// a bit each. The last is for all that have no bit of their own.
static GIVEN_UP: AtomicU64 = AtomicU64::new(0);

fn bit(out: BorrowedFd<'_>) -> u64 {
    1 << out.as_raw_fd().clamp(0, 63)
}

fn is_given_up(out: BorrowedFd<'_>) -> bool {
    GIVEN_UP.load(Ordering::SeqCst) & bit(out) != 0
}

/// The signal because of which a result was left unwritten.
pub fn given_up() -> Option<i32> {
    signals::stop().filter(|_| GIVEN_UP.load(Ordering::SeqCst) != 0)
}

/// Writes all of this. Waits as long as there is no room; after a signal to
/// stop no longer than [`GRACE`] for each piece, and then not again. A second
/// signal ends the process.
pub fn write_all(out: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    let mut was_ready = false;
    while !bytes.is_empty() {
        if signals::stop().is_some() {
            return report(out, bytes);
        }
        match write(out, bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => (bytes, was_ready) = (&bytes[n..], false),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if was_ready {
                    pause();
                }
                match room(out, Some(LOOK)) {
                    Ok(ready) => was_ready = ready,
                    Err(Errno::INTR) => was_ready = false,
                    // poll(2) fails (RLIMIT_NOFILE, a filter).
                    Err(_) => return Err(Errno::AGAIN.into()),
                }
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Writes as much of a status line as there is room for now; how much it was.
/// A terminal may have less room than the line needs, and another process may
/// take what there is: an interval timer of the caller's then ends the write.
pub fn at_once(out: BorrowedFd<'_>, bytes: &[u8]) -> usize {
    if is_given_up(out) {
        return 0;
    }
    match room(out, Some(Duration::ZERO)) {
        Ok(false) | Err(Errno::INTR) => 0,
        Ok(true) | Err(_) => write(out, bytes).unwrap_or(0),
    }
}

/// The same as [`write_all`] after a signal to stop.
fn report(out: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    if is_given_up(out) {
        return Err(Errno::INTR.into());
    }
    let done = within(out, bytes, GRACE);
    if done == Err(Errno::INTR) {
        GIVEN_UP.fetch_or(bit(out), Ordering::SeqCst);
    }
    Ok(done?)
}

/// Writes all of this to a reader that never takes nothing for this long: else
/// `EINTR`. SIGALRM has to interrupt the thread again and again, which ends a
/// write that blocks all the same. Fit for a signal handler.
pub fn within(out: BorrowedFd<'_>, mut bytes: &[u8], grace: Duration) -> Result<(), Errno> {
    let mut last = now();
    while !bytes.is_empty() {
        let left = grace.saturating_sub(now().saturating_sub(last));
        // If poll(2) fails, the write itself finds out.
        let ready = room(out, Some(left));
        if !matches!(ready, Ok(false) | Err(Errno::INTR)) {
            match write(out, &bytes[..bytes.len().min(PIECE)]) {
                Ok(0) => return Err(Errno::IO),
                Ok(n) => {
                    (bytes, last) = (&bytes[n..], now());
                    continue;
                }
                Err(Errno::AGAIN) if !left.is_zero() => pause(),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if left.is_zero() {
            return Err(Errno::INTR);
        }
    }
    Ok(())
}

/// Waits until there is room, or an error to be told of, for so long at most.
fn room(out: BorrowedFd<'_>, time: Option<Duration>) -> Result<bool, Errno> {
    let time = time.map(timespec);
    let mut fds = [PollFd::from_borrowed_fd(out, PollFlags::OUT)];
    poll(&mut fds, time.as_ref()).map(|ready| ready > 0)
}

fn pause() {
    let _ = poll(&mut [], Some(&timespec(SHORT_OF_ROOM)));
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::{AsFd, OwnedFd};
    use std::thread::JoinHandle;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    /// A pipe that has no room, its write end with these flags; and how much
    /// is in it.
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
    fn what_does_not_fit_waits_for_room() {
        const LONG: Duration = Duration::from_secs(3600);
        let bytes: Vec<u8> = (0..1 << 20).map(|n| (n % 251) as u8).collect();
        for flags in [PipeFlags::NONBLOCK, PipeFlags::empty()] {
            for hurried in [false, true] {
                let (reader, writer, there) = full(flags);
                let reading = reads(reader);
                match hurried {
                    false => write_all(writer.as_fd(), &bytes).unwrap(),
                    true => within(writer.as_fd(), &bytes, LONG).unwrap(),
                }
                drop(writer);
                assert!(reading.join().unwrap()[there..] == bytes);
            }
        }
    }

    #[test]
    fn what_there_is_no_room_for_is_left_out() {
        for flags in [PipeFlags::NONBLOCK, PipeFlags::empty()] {
            let (reader, writer, there) = full(flags);
            assert_eq!(at_once(writer.as_fd(), b"status"), 0);
            let none = within(writer.as_fd(), b"result", Duration::ZERO);
            assert_eq!(none, Err(Errno::INTR));
            let mut page = [0; 4096];
            assert_eq!(rustix::io::read(&reader, &mut page), Ok(4096));
            assert_eq!(at_once(writer.as_fd(), b"status"), 6);
            drop(writer);
            let all = reads(reader).join().unwrap();
            assert_eq!(&all[there - 4096..], b"status");
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_an_error() {
        for flags in [PipeFlags::NONBLOCK, PipeFlags::empty()] {
            let (reader, writer, _) = full(flags);
            drop(reader);
            let error = write_all(writer.as_fd(), b"x").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            let error = within(writer.as_fd(), b"x", Duration::ZERO);
            assert_eq!(error, Err(Errno::PIPE));
        }
    }

    /// `poll(2)` shows nothing of it, where the writer waits already.
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
