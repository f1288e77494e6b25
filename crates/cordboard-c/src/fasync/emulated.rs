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
    files: BTreeMap<FileId, Recorded>,
    /// The number of insertions so far.
    insertions: u64,
    /// The number of files at which `sweep` runs next.
    sweep_at: usize,
}

/// The numbers of one file that have the flag.
#[derive(Debug, Clone, Default)]
struct Recorded {
    numbers: Vec<RawFd>,
    /// The latest insertion.
    inserted: u64,
}

/// The number of files at which `sweep` runs first; then it runs each time the
/// number has doubled. The kernel does not report a close.
const FIRST_SWEEP: usize = 64;

/// Locks this process's flags. A child inherits those of its parent, unless
/// another thread was changing them at the moment of the fork. No file is queried
/// meanwhile: the query may wait for its server.
fn emulated() -> MutexGuard<'static, Emulated> {
    static EMULATED: PerProcess<Lock<Emulated>> = PerProcess::new();
    let inherited = |parents: &Lock<Emulated>| parents.try_lock().map(|flags| flags.clone());
    let make = |parents: Option<_>| Lock::new(parents.and_then(inherited).unwrap_or_default());
    lock(|| process::value(&EMULATED, make))
}

impl Emulated {
    fn numbers(&self, file: FileId) -> Vec<RawFd> {
        (self.files.get(&file)).map_or_else(Vec::new, |recorded| recorded.numbers.clone())
    }

    fn insert(&mut self, file: FileId, number: RawFd) {
        self.insertions += 1;
        let recorded = self.files.entry(file).or_default();
        recorded.inserted = self.insertions;
        if !recorded.numbers.contains(&number) {
            recorded.numbers.push(number);
        }
    }

    fn remove(&mut self, file: FileId, which: impl Fn(RawFd) -> bool) {
        if let Some(recorded) = self.files.get_mut(&file) {
            recorded.numbers.retain(|number| !which(*number));
            if recorded.numbers.is_empty() {
                self.files.remove(&file);
            }
        }
    }

    fn is_crowded(&self) -> bool {
        self.files.len() >= self.sweep_at.max(FIRST_SWEEP)
    }

    /// Removes the files that are not `alive`, except those with later insertions.
    fn sweep(&mut self, alive: &BTreeSet<FileId>, insertions: u64) {
        (self.files)
            .retain(|file, recorded| alive.contains(file) || recorded.inserted > insertions);
        self.sweep_at = 2 * self.files.len();
    }
}

/// Returns the files that are open with a signal set in the calling thread's descriptor table;
/// `None` without a procfs, or if a file cannot be queried. `/proc/self` is the first thread,
/// which may have ended or have a table of its own, and `/proc/thread-self` exists since Linux
/// 3.17.
fn with_signal() -> Option<BTreeSet<FileId>> {
    let mut files = BTreeSet::new();
    let thread = rustix::thread::gettid();
    for entry in std::fs::read_dir(format!("/proc/self/task/{thread}/fd")).ok()? {
        let number = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let fd = sys::lend(number).ok()?;
        let file = match sys::signal(fd) {
            Ok(0) => continue,
            Ok(_) => file_id(fd),
            Err(errno) => Err(errno),
        };
        match file {
            Ok(file) => _ = files.insert(file),
            // Closed meanwhile.
            Err(Errno::EBADF) => {}
            Err(_) => return None,
        }
    }
    Some(files)
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

/// An emulated flag that is set.
pub(super) struct Found {
    file: FileId,
    /// The recorded numbers of the description; empty if only the signal shows the flag.
    numbers: Vec<RawFd>,
}

/// Finds the flag of a description; `None` if it is not set. May wait for the server of
/// the file.
pub(super) fn find(fd: BorrowedFd<'_>) -> Option<Found> {
    if !ANY.load(Ordering::Acquire) {
        return None;
    }
    let (signal, file) = (sys::signal(fd).ok()?, file_id(fd).ok()?);
    if signal == 0 {
        // The file was closed and opened again, or F_SETSIG has cleared the
        // flag.
        emulated().remove(file, |number| number == fd.as_raw_fd());
        return None;
    }
    let recorded = emulated().numbers(file);
    let same = recorded
        .into_iter()
        .map(|number| match number == fd.as_raw_fd() {
            true => (number, Some(true)),
            false => (number, compare(number, file, fd)),
        });
    let same: Vec<(RawFd, Option<bool>)> = same.collect();
    let is_set = (same.iter()).any(|(_, same)| same.unwrap_or(signal == libc::SIGIO));
    is_set.then(|| Found {
        file,
        numbers: (same.into_iter())
            .filter(|(_, same)| *same == Some(true))
            .map(|(number, _)| number)
            .collect(),
    })
}

impl Found {
    /// Clears the flag of the description of `fd`. Queries no file.
    pub(super) fn clear(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        emulated().remove(self.file, |number| self.numbers.contains(&number));
        if sys::signal(fd)? == libc::SIGIO {
            sys::set_signal(fd, 0)?;
        }
        Ok(())
    }
}

pub(super) fn is_set(fd: BorrowedFd<'_>) -> bool {
    find(fd).is_some()
}

pub(super) fn set(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let file = file_id(fd)?;
    // 0 means SIGIO, so the program gets the same signal.
    if sys::signal(fd)? == 0 {
        sys::set_signal(fd, libc::SIGIO)?;
    }
    let (is_crowded, insertions) = {
        let mut emulated = emulated();
        emulated.insert(file, fd.as_raw_fd());
        (emulated.is_crowded(), emulated.insertions)
    };
    ANY.store(true, Ordering::Release);
    if is_crowded
        && let Some(alive) = with_signal()
        // Otherwise the list is that of another descriptor table.
        && alive.contains(&file)
    {
        emulated().sweep(&alive, insertions);
    }
    Ok(())
}

pub(super) fn clear(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    find(fd).map_or(Ok(()), |found| found.clear(fd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// The server of a file has failed.
    #[test]
    fn a_file_that_cannot_be_queried_is_not_taken_for_closed() {
        let file = tempfile::tempfile().unwrap();
        sys::set_signal(file.as_fd(), libc::SIGIO).unwrap();
        for held in 0.. {
            let mut alive = None;
            let body = || alive = with_signal();
            let refuses = |call| (call == held).then_some(libc::ESTALE);
            let stat = testkit::refuse::STAT.concat();
            match testkit::midst::refusing(&stat, body, refuses) {
                None => return testkit::skip::here("no seccomp_unotify(2) here"),
                Some(made) if held >= made => return assert!(made > 0, "no call was held"),
                Some(_) => assert_eq!(alive, None, "at call {held}"),
            }
        }
    }

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
        let left = emulated().files.len();
        assert!((2..=FIRST_SWEEP).contains(&left), "{left}");
        assert!(is_set(open_file.as_fd()) && is_set(copy.as_fd()));
        clear(copy.as_fd()).unwrap();
        assert!(!is_set(copy.as_fd()) && is_set(open_file.as_fd()));
    }
}
