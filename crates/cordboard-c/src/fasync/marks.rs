//! FASYNC on what the kernel ignores it on: regular files, for the most part.
//!
//! `F_SETFL` leaves the flag out where the file has no `fasync` operation
//! (fs/fcntl.c, `setfl`), which is why the paper's `fcntl(audiofile, F_SETFL,
//! FASYNC)` would do nothing on Linux. `F_SETSIG`, though, is kept on every
//! open description, dies with it, and is not set on any by itself. So a mark
//! is two things: the file is remembered here, and the description has a
//! signal set. A file that was closed and opened again has none, and so no
//! mark.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use cordboard::Errno;

use super::description::file;
use crate::sys;
use crate::table::{lock, table};

/// Whether there ever was one: most programs have none.
static ANY: AtomicBool = AtomicBool::new(false);

pub(super) fn is_marked(fd: BorrowedFd<'_>) -> bool {
    if !ANY.load(Ordering::Acquire) {
        return false;
    }
    let has_signal = sys::signal(fd).is_ok_and(|signal| signal > 0);
    has_signal && file(fd).is_ok_and(|file| lock(&table().marked).contains(&file))
}

pub(super) fn mark(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let file = file(fd)?;
    // SIGIO is what no signal at all would have meant.
    if sys::signal(fd)? == 0 {
        sys::set_signal(fd, libc::SIGIO)?;
    }
    lock(&table().marked).insert(file);
    ANY.store(true, Ordering::Release);
    Ok(())
}

pub(super) fn unmark(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    if !is_marked(fd) {
        return Ok(());
    }
    if sys::signal(fd)? == libc::SIGIO {
        sys::set_signal(fd, 0)?;
    }
    let file = file(fd)?;
    lock(&table().marked).remove(&file);
    Ok(())
}
