//! Emulates FASYNC on files on which the kernel does not keep it, mostly
//! regular files.
//!
//! `F_SETFL` ignores the flag if the file has no `fasync` operation
//! (fs/fcntl.c, `setfl`), so the paper's `fcntl(audiofile, F_SETFL, FASYNC)`
//! would have no effect on Linux. In contrast, every open file description
//! keeps the signal of `F_SETSIG`, and none has one by default. So the emulated
//! flag consists of two things: the descriptor number is recorded here with its
//! file, and the description has a signal set.
//!
//! No duplicate is kept: it would hold the file open, with its locks and its
//! leases, after the program has closed it. So a descriptor with another number
//! is compared with the recorded number. If the recorded number refers to
//! another file now, or the kernel cannot compare, the flag counts as set if
//! the signal is SIGIO: programs hardly ever set SIGIO explicitly.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

use cordboard::endpoint::compare_descriptions;
use cordboard::{Errno, Lock, PerProcess};

use crate::checked_fd::{FileId, file_id};
use crate::process::{self, lock};
use crate::sys;

/// Whether the flag was ever emulated. Saves the lookup in most programs.
static ANY: AtomicBool = AtomicBool::new(false);

/// The emulated flags of one process.
#[derive(Debug, Clone, Default)]
struct Emulated {
    /// The numbers that have the flag, by their file.
    numbers: BTreeMap<FileId, Vec<RawFd>>,
    /// The number of files at which `sweep` runs next.
    sweep_at: usize,
}

/// The number of files at which `sweep` runs first; then it runs each time the
/// number has doubled. The kernel does not report a close.
const FIRST_SWEEP: usize = 64;

/// Locks this process's flags. A child inherits those of its parent, unless
/// another thread was changing them at the moment of the fork.
fn emulated() -> MutexGuard<'static, Emulated> {
    static EMULATED: PerProcess<Lock<Emulated>> = PerProcess::new();
    let inherited = |parents: &Lock<Emulated>| parents.try_lock().map(|flags| flags.clone());
    let make = |parents: Option<_>| Lock::new(parents.and_then(inherited).unwrap_or_default());
    lock(|| process::value(&EMULATED, make))
}

impl Emulated {
    fn contains(&self, file: FileId, fd: BorrowedFd<'_>, signal: libc::c_int) -> bool {
        let Some(numbers) = self.numbers.get(&file) else {
            return false;
        };
        let is_description =
            |number: &RawFd| compare(*number, file, fd).unwrap_or(signal == libc::SIGIO);
        numbers.contains(&fd.as_raw_fd()) || numbers.iter().any(is_description)
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

    fn remove(&mut self, file: FileId, which: impl Fn(RawFd) -> bool) {
        if let Some(numbers) = self.numbers.get_mut(&file) {
            numbers.retain(|number| !which(*number));
            if numbers.is_empty() {
                self.numbers.remove(&file);
            }
        }
    }

    /// Removes the files that are no longer open with a signal set.
    fn sweep(&mut self) {
        let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
            return;
        };
        let names = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let with_signal = names.filter_map(|number: RawFd| {
            let fd = sys::lend(number).ok()?;
            let has_signal = sys::signal(fd).is_ok_and(|signal| signal > 0);
            has_signal.then(|| file_id(fd).ok())?
        });
        let alive: BTreeSet<FileId> = with_signal.collect();
        self.numbers.retain(|file, _| alive.contains(file));
        self.sweep_at = 2 * self.numbers.len();
    }
}

/// Whether `fd` shares the open file description of `number`; `None` if the
/// number refers to another file now, or the kernel cannot compare.
fn compare(number: RawFd, of: FileId, fd: BorrowedFd<'_>) -> Option<bool> {
    let known = sys::lend(number).ok()?;
    if file_id(known) != Ok(of) {
        return None;
    }
    compare_descriptions(known, fd)
}

pub(super) fn is_set(fd: BorrowedFd<'_>) -> bool {
    if !ANY.load(Ordering::Acquire) {
        return false;
    }
    let (Ok(signal), Ok(file)) = (sys::signal(fd), file_id(fd)) else {
        return false;
    };
    let mut emulated = emulated();
    if signal == 0 {
        // The file was closed and opened again, or F_SETSIG has cleared the
        // flag.
        emulated.remove(file, |number| number == fd.as_raw_fd());
        return false;
    }
    emulated.contains(file, fd, signal)
}

pub(super) fn set(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let file = file_id(fd)?;
    // 0 means SIGIO, so the program gets the same signal.
    if sys::signal(fd)? == 0 {
        sys::set_signal(fd, libc::SIGIO)?;
    }
    emulated().insert(file, fd.as_raw_fd());
    ANY.store(true, Ordering::Release);
    Ok(())
}

pub(super) fn clear(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    if !is_set(fd) {
        return Ok(());
    }
    let file = file_id(fd)?;
    // Removes nothing if only the signal has shown the flag.
    emulated().remove(file, |number| {
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
    fn closed_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let open = |n: usize| {
            let path = folder.path().join(n.to_string());
            std::fs::File::create(path).unwrap()
        };
        let open_file = open(0);
        set(open_file.as_fd()).unwrap();
        // Only a duplicate of this one stays open.
        let first = open(1);
        set(first.as_fd()).unwrap();
        let copy = first.try_clone().unwrap();
        drop(first);
        for n in 2..5 * FIRST_SWEEP {
            // The names stay, so no inode is used twice.
            set(open(n).as_fd()).unwrap();
        }
        let left = emulated().numbers.len();
        assert!((2..=FIRST_SWEEP).contains(&left), "{left}");
        assert!(is_set(open_file.as_fd()) && is_set(copy.as_fd()));
        clear(copy.as_fd()).unwrap();
        assert!(!is_set(copy.as_fd()) && is_set(open_file.as_fd()));
    }
}
