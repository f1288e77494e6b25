//! Errors that affect all files: no space at the sink, or a read-only file
//! system. The first is reported, and the rest of the files are left out. An
//! error of another file system below the destination affects only that one.

use std::sync::atomic::Ordering;

use cordboard::{Errno, Side};
use rustix::fs::{AtFlags, CWD, FileType, statat};

use crate::copy::job::Job;
use crate::copy::outcome::Message;
use crate::copy::place::Place;
use crate::directory::parent;
use crate::files::kind;
use crate::problem::Problem;
use crate::signals;

impl Job {
    /// Checked before each file: returns the message of a file that is left
    /// out.
    pub fn reason_to_skip(&self) -> Option<Message> {
        let stopped = signals::check_stop()
            .err()
            .map(|stop| Message::Problem(stop.into()));
        stopped.or_else(|| self.is_aborted().then_some(Message::LeftOut))
    }

    /// Whether no more files are started.
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    /// Records an error of creating or writing a file. `true`: another file has
    /// failed for such a reason before, which was reported.
    pub fn is_repeated(&self, problem: &Problem) -> bool {
        affects_all_files(problem) && self.aborted.swap(true, Ordering::Relaxed)
    }

    /// Marks an error of this file, or of this directory, as one that does not
    /// affect all files, if the file is a device or on another file system than
    /// the destination, also by a symlink.
    pub fn of_one_device(&self, mut problem: Problem, to: &Place<'_>) -> Problem {
        problem.is_local = affects_all_files(&problem) && self.is_elsewhere(to);
        problem
    }

    fn is_elsewhere(&self, to: &Place<'_>) -> bool {
        let itself = statat(to.directory, to.name, AtFlags::empty());
        let is_plain = |stat| matches!(kind(stat), FileType::RegularFile | FileType::Directory);
        if itself.as_ref().is_ok_and(|stat| !is_plain(stat)) {
            return true;
        }
        let destination = match statat(CWD, &self.destination, AtFlags::empty()) {
            Ok(stat) if kind(&stat) == FileType::Directory => Ok(stat),
            _ => statat(CWD, parent(&self.destination), AtFlags::empty()),
        };
        let above = match to.name.parent().filter(|path| !path.as_os_str().is_empty()) {
            Some(path) => statat(to.directory, path, AtFlags::empty()),
            None => statat(to.directory, c"", AtFlags::EMPTY_PATH),
        };
        let there = match to.stat().is_ok_and(|stat| kind(&stat) == FileType::Symlink) {
            true => itself,
            // Some file systems have other numbers for files than for directories.
            false => above,
        };
        matches!((destination, there), (Ok(one), Ok(other)) if one.st_dev != other.st_dev)
    }

    /// Records an error, and returns its message.
    pub fn failed(&self, problem: Problem) -> Message {
        match self.is_repeated(&problem) {
            true => Message::Repeated(problem),
            false => Message::Problem(problem),
        }
    }

    /// As [`Job::failed`], for an error of this file.
    pub fn failed_at(&self, problem: Problem, to: &Place<'_>) -> Message {
        self.failed(self.of_one_device(problem, to))
    }
}

/// Whether an error affects all files of the destination.
///
/// `EIO` does not: it may be one bad block, or one file of a server.
pub fn affects_all_files(problem: &Problem) -> bool {
    let full = [Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS];
    !problem.is_local
        && problem.side == Some(Side::Sink)
        && problem.errno.is_some_and(|e| full.contains(&e))
}
