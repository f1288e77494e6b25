//! Queries of a pipe's state, which take nothing from it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use rustix::event::PollFlags;

use crate::sys::{Shown, close_own, identity, is_over, poll_now, unsent};
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
    ask(reader, |reader| unsent(reader).unwrap_or(0)).ok()
}

/// The check whether a FIFO is empty and has no writer. Also detects a FIFO that was opened
/// before it had a writer, which `poll(2)` does not show (`fifo_open`, fs/pipe.c).
#[derive(Debug, Default)]
pub(crate) enum FifoCheck {
    #[default]
    Due,
    /// The thread of the query has started late, or waits for the FIFO's lock.
    Pending(Receiver<Option<bool>>),
    /// The FIFO has had a writer, so that `poll(2)` shows its end; or a filter refuses the
    /// query.
    Done,
}

impl FifoCheck {
    /// Returns whether the FIFO has ended, or a filter refuses the query. False while the
    /// answer is pending, and once the FIFO has had a writer.
    pub(crate) fn is_over(&mut self, reader: BorrowedFd<'_>) -> bool {
        let answer = match self {
            FifoCheck::Done => return false,
            FifoCheck::Pending(late) => match late.try_recv() {
                Ok(answer) => Ok(answer),
                Err(TryRecvError::Disconnected) => Ok(None),
                Err(TryRecvError::Empty) => return false,
            },
            FifoCheck::Due => match shows(reader) {
                Ok(now) if now.is_empty() => ask(reader, is_over),
                _ => Ok(Some(false)),
            },
        };
        let over = matches!(answer, Ok(None | Some(true)));
        *self = match answer {
            // The check is repeated if the next step takes nothing yet.
            Ok(Some(true)) => FifoCheck::Due,
            Ok(_) => FifoCheck::Done,
            Err(late) => FifoCheck::Pending(late),
        };
        over
    }

    pub(crate) fn is_pending(&self) -> bool {
        matches!(self, FifoCheck::Pending(_))
    }
}

/// Makes a query that takes the pipe's lock on another thread, or on the calling thread if no
/// other thread is available. Returns the receiver of the answer if the answer does not
/// arrive within 100 ms.
fn ask<T: Send + 'static>(
    reader: BorrowedFd<'_>,
    query: fn(BorrowedFd<'_>) -> T,
) -> Result<T, Receiver<T>> {
    const TIMEOUT: Duration = Duration::from_millis(100);
    let Ok(copy) = reader.try_clone_to_owned() else {
        return Ok(query(reader));
    };
    let id = identity(&copy);
    let (sender, answer) = channel();
    let call = Box::new(move || {
        let _ = sender.send(query(copy.as_fd()));
        // The query may take minutes, in which the host may close all descriptors.
        match id {
            Some(id) => close_own(copy, id),
            None => std::mem::forget(copy),
        }
    });
    match threads::spawn(call) {
        Ok(()) => answer.recv_timeout(TIMEOUT).map_err(|_| answer),
        Err(_) => Ok(query(reader)),
    }
}

/// Whether a pipe has, or may have, room for another page; `false` if a filter refuses
/// the query.
pub(crate) fn has_room(writer: BorrowedFd<'_>) -> bool {
    poll_now(writer, PollFlags::OUT).is_ok_and(|shown| shown.shows(PollFlags::OUT) != Some(false))
}
