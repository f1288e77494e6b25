//! What the kernel tells of a pipe's state, asked without taking anything.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;

use crate::sys::{Shown, is_over, poll_now, unsent};
use crate::threads;

/// Whether no process has a write end of it any more. A child of `fork(2)` may
/// have one: then no end follows what is in it. `poll(2)`; where a filter
/// refuses that, nothing says otherwise.
pub(super) fn has_no_writer(reader: &OwnedFd) -> bool {
    let told = |now: Shown| now.is_empty() || now.shows(PollFlags::HUP) != Some(false);
    shows(reader.as_fd()).map_or(true, told)
}

/// What `poll(2)` says of a pipe's read end at this moment: `IN` where it has
/// bytes, `HUP` where it has no writer.
pub(super) fn shows(reader: BorrowedFd<'_>) -> rustix::io::Result<Shown> {
    poll_now(reader, PollFlags::IN)
}

/// Whether a pipe is empty and has no writer, as far as `poll(2)` shows it. `None`:
/// a filter refuses to tell, or `select(2)` has told, which does not tell an end from
/// bytes.
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

/// What is in somebody's pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Bytes to be read.
    pub(crate) bytes: u64,
    /// There is no room for another page.
    pub(crate) full: bool,
}

/// Looks into a pipe by both its ends. `ioctl(2)`, `FIONREAD`; `poll(2)`.
/// `None`: the pipe's lock is held elsewhere, and this call does not wait for
/// it.
pub(crate) fn contents(reader: BorrowedFd<'_>, writer: BorrowedFd<'_>) -> Option<Contents> {
    let bytes = match shows(reader) {
        // Takes no lock.
        Ok(now) if now.is_empty() => 0,
        _ => bytes_in(reader)?,
    };
    Some(Contents {
        bytes,
        full: !has_room(writer),
    })
}

fn bytes_in(reader: BorrowedFd<'_>) -> Option<u64> {
    patiently(reader, |reader| unsent(reader).unwrap_or(0))
}

/// Whether a FIFO has no writer, and nothing to be read, also where it was opened
/// before it had one, which `poll(2)` does not show (`fifo_open`, fs/pipe.c). `None`:
/// a filter refuses to tell. One whose lock is held elsewhere has a writer.
pub(crate) fn fifo_is_over(reader: BorrowedFd<'_>) -> Option<bool> {
    match shows(reader) {
        Ok(now) if now.is_empty() => patiently(reader, is_over).unwrap_or(Some(false)),
        _ => Some(false),
    }
}

/// Has another thread wait for the lock, for a while; if no thread is available, the
/// calling thread waits.
fn patiently<T: Send + 'static>(reader: BorrowedFd<'_>, ask: fn(BorrowedFd<'_>) -> T) -> Option<T> {
    const PATIENCE: Duration = Duration::from_millis(100);
    let Ok(copy) = reader.try_clone_to_owned() else {
        return Some(ask(reader));
    };
    let (sender, answer) = std::sync::mpsc::channel();
    let call = Box::new(move || {
        let _ = sender.send(ask(copy.as_fd()));
    });
    match threads::spawn(call) {
        Ok(()) => answer.recv_timeout(PATIENCE).ok(),
        Err(_) => Some(ask(reader)),
    }
}

/// Whether somebody's pipe takes another page, or may; `false` where a filter
/// refuses to tell.
pub(crate) fn has_room(writer: BorrowedFd<'_>) -> bool {
    poll_now(writer, PollFlags::OUT).is_ok_and(|shown| shown.shows(PollFlags::OUT) != Some(false))
}
