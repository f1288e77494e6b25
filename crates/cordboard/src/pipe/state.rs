//! Queries of a pipe's state, which take nothing from it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;

use crate::sys::{Shown, is_over, poll_now, unsent};
use crate::threads;

/// Whether no process has the pipe's write end open. If a child of `fork(2)` has it,
/// no end of file follows the content. Uses `poll(2)`; true if a filter refuses it.
pub(super) fn has_no_writer(reader: &OwnedFd) -> bool {
    let told = |now: Shown| now.is_empty() || now.shows(PollFlags::HUP) != Some(false);
    shows(reader.as_fd()).map_or(true, told)
}

/// Polls a pipe's read end without waiting: `IN` if it has bytes, `HUP` if it has no
/// writer.
pub(super) fn shows(reader: BorrowedFd<'_>) -> rustix::io::Result<Shown> {
    poll_now(reader, PollFlags::IN)
}

/// Whether a pipe is empty and has no writer, as far as `poll(2)` shows it. `None`: a
/// filter refuses the query, or allows only `select(2)`, which does not distinguish an
/// end from bytes.
pub(crate) fn has_ended(reader: BorrowedFd<'_>) -> Option<bool> {
    let now = shows(reader).ok()?;
    match now.shows(PollFlags::IN) {
        Some(true) => Some(false),
        Some(false) => now.shows(PollFlags::HUP),
        None => match unsent(reader) {
            Ok(1..) => Some(false),
            // Another reader may have taken them.
            _ => None,
        },
    }
}

/// The content of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Bytes to read.
    pub(crate) bytes: u64,
    /// The pipe has no room for another page.
    pub(crate) full: bool,
}

/// Queries a pipe through both its ends, by `FIONREAD` (`ioctl(2)`) and `poll(2)`.
/// `None`: another thread has held the pipe's lock for 100 ms.
pub(crate) fn contents(reader: BorrowedFd<'_>, writer: BorrowedFd<'_>) -> Option<Contents> {
    let bytes = match shows(reader) {
        // poll(2) takes no lock.
        Ok(now) if now.is_empty() => 0,
        _ => bytes_in(reader)?,
    };
    Some(Contents {
        bytes,
        full: !has_room(writer),
    })
}

fn bytes_in(reader: BorrowedFd<'_>) -> Option<u64> {
    with_timeout(reader, |reader| unsent(reader).unwrap_or(0))
}

/// Whether a FIFO is empty and has no writer. Also detects one that was opened before
/// it had a writer, which `poll(2)` does not show (`fifo_open`, fs/pipe.c). `None`: a
/// filter refuses the query. If another thread holds the FIFO's lock, it counts as
/// having a writer.
pub(crate) fn fifo_is_over(reader: BorrowedFd<'_>) -> Option<bool> {
    match shows(reader) {
        Ok(now) if now.is_empty() => with_timeout(reader, is_over).unwrap_or(Some(false)),
        _ => Some(false),
    }
}

/// Makes a query that takes the pipe's lock on another thread; `None` if it does not
/// return within 100 ms. Makes it on the calling thread if no other thread is
/// available.
fn with_timeout<T: Send + 'static>(
    reader: BorrowedFd<'_>,
    ask: fn(BorrowedFd<'_>) -> T,
) -> Option<T> {
    const TIMEOUT: Duration = Duration::from_millis(100);
    let Ok(copy) = reader.try_clone_to_owned() else {
        return Some(ask(reader));
    };
    let (sender, answer) = std::sync::mpsc::channel();
    let call = Box::new(move || {
        let _ = sender.send(ask(copy.as_fd()));
    });
    match threads::spawn(call) {
        Ok(()) => answer.recv_timeout(TIMEOUT).ok(),
        Err(_) => Some(ask(reader)),
    }
}

/// Whether a pipe has, or may have, room for another page; `false` if a filter refuses
/// the query.
pub(crate) fn has_room(writer: BorrowedFd<'_>) -> bool {
    poll_now(writer, PollFlags::OUT).is_ok_and(|shown| shown.shows(PollFlags::OUT) != Some(false))
}
