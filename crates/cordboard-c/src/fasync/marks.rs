//! FASYNC on what the kernel ignores it on: regular files, for the most part.
//!
//! `F_SETFL` leaves the flag out where the file has no `fasync` operation
//! (fs/fcntl.c, `setfl`), which is why the paper's `fcntl(audiofile, F_SETFL,
//! FASYNC)` would do nothing on Linux. `F_SETSIG`, though, is kept on every
//! open description, dies with it, and is not set on any by itself. So a mark
//! is two things: the number is remembered here with its file, and the
//! description has a signal set.
//!
//! No duplicate is kept: it would hold the file open, with its locks and its
//! leases, after the program has closed it. So another number is compared with
//! the one that is remembered. Where that leads elsewhere by now, or nobody can
//! compare, SIGIO is taken as the sign: hardly anybody but a mark sets it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use cordboard::Errno;

use super::description::same;
use crate::kept::{FileId, file};
use crate::sys;
use crate::table::lock;

/// Whether there ever was one: most programs have none.
static ANY: AtomicBool = AtomicBool::new(false);

/// The marks of one process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks {
    /// The numbers that were marked, by their file.
    numbers: BTreeMap<FileId, Vec<RawFd>>,
    /// So many files, and it is time to look which are open no more.
    sweep_at: usize,
}

/// Nobody tells of a close, so files are looked for when their count has
/// doubled, and this is the first time.
const FIRST_SWEEP: usize = 64;

impl Marks {
    fn contains(&self, file: FileId, fd: BorrowedFd<'_>, signal: libc::c_int) -> bool {
        let Some(numbers) = self.numbers.get(&file) else {
            return false;
        };
        let leads_to_it =
            |number: &RawFd| compare(*number, file, fd).unwrap_or(signal == libc::SIGIO);
        numbers.contains(&fd.as_raw_fd()) || numbers.iter().any(leads_to_it)
    }

    fn insert(&mut self, file: FileId, number: RawFd) {
        if self.numbers.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.sweep();
        }
        let numbers = self.numbers.entry(file).or_default();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }

    fn forget(&mut self, file: FileId, which: impl Fn(RawFd) -> bool) {
        if let Some(numbers) = self.numbers.get_mut(&file) {
            numbers.retain(|number| !which(*number));
            if numbers.is_empty() {
                self.numbers.remove(&file);
            }
        }
    }

    /// Forgets the files of which nothing with a signal is open any more.
    fn sweep(&mut self) {
        let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
            return;
        };
        let names = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let marked = names.filter_map(|number: RawFd| {
            let fd = sys::lend(number).ok()?;
            let has_signal = sys::signal(fd).is_ok_and(|signal| signal > 0);
            has_signal.then(|| file(fd).ok())?
        });
        let alive: BTreeSet<FileId> = marked.collect();
        self.numbers.retain(|file, _| alive.contains(file));
        self.sweep_at = 2 * self.numbers.len();
    }
}

/// Whether `fd` is the description that this number leads to; `None` where the
/// number leads to another file by now, or nobody can compare.
fn compare(number: RawFd, of: FileId, fd: BorrowedFd<'_>) -> Option<bool> {
    let known = sys::lend(number).ok()?;
    if file(known) != Ok(of) {
        return None;
    }
    same(known, fd)
}

pub(super) fn is_marked(fd: BorrowedFd<'_>) -> bool {
    if !ANY.load(Ordering::Acquire) {
        return false;
    }
    let (Ok(signal), Ok(file)) = (sys::signal(fd), file(fd)) else {
        return false;
    };
    let mut marks = lock(|table| &table.marks);
    if signal == 0 {
        // Closed and opened again, or ended by F_SETSIG.
        marks.forget(file, |number| number == fd.as_raw_fd());
        return false;
    }
    marks.contains(file, fd, signal)
}

pub(super) fn mark(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let file = file(fd)?;
    // SIGIO is what no signal at all would have meant.
    if sys::signal(fd)? == 0 {
        sys::set_signal(fd, libc::SIGIO)?;
    }
    lock(|table| &table.marks).insert(file, fd.as_raw_fd());
    ANY.store(true, Ordering::Release);
    Ok(())
}

pub(super) fn unmark(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    if !is_marked(fd) {
        return Ok(());
    }
    let file = file(fd)?;
    // Where it was known by its signal alone, that is all there is to take.
    lock(|table| &table.marks).forget(file, |number| {
        number == fd.as_raw_fd() || compare(number, file, fd) == Some(true)
    });
    if sys::signal(fd)? == libc::SIGIO {
        sys::set_signal(fd, 0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn files_that_were_closed_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let open = |n: usize| {
            let path = folder.path().join(n.to_string());
            std::fs::File::create(path).unwrap()
        };
        let stays = open(0);
        mark(stays.as_fd()).unwrap();
        // Of one of these only a duplicate is left.
        let first = open(1);
        mark(first.as_fd()).unwrap();
        let copy = first.try_clone().unwrap();
        drop(first);
        for n in 2..5 * FIRST_SWEEP {
            // The names stay, and so no inode comes twice.
            mark(open(n).as_fd()).unwrap();
        }
        let left = lock(|table| &table.marks).numbers.len();
        assert!((2..=FIRST_SWEEP).contains(&left), "{left}");
        assert!(is_marked(stays.as_fd()) && is_marked(copy.as_fd()));
        unmark(copy.as_fd()).unwrap();
        assert!(!is_marked(copy.as_fd()) && is_marked(stays.as_fd()));
    }
}
