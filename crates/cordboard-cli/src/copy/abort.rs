//! Errors that affect all files: no space at the sink, or a read-only file
//! system. The first is reported, and the rest of the files are left out. An
//! error of a part of the destination affects only that part: of another mount
//! below it, or of a directory with a quota.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use cordboard::{Errno, Side};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, StatVfs, StatVfsMountFlags, statat, statvfs,
};

use crate::copy::job::Job;
use crate::copy::outcome::Message;
use crate::copy::place::Place;
use crate::directory::parent;
use crate::files::kind;
use crate::problem::Problem;
use crate::signals::{self, retry};

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
    /// affect all files: the file is a device or on another file system than the
    /// destination, also by a symlink, or the destination takes other files.
    pub fn of_one_part(&self, mut problem: Problem, to: &Place<'_>) -> Problem {
        if affects_all_files(&problem) {
            let destination = self.destination_directory();
            let syncs = self.sync || self.staging.verify;
            problem.is_local =
                is_elsewhere(to, &destination) || takes_files(&destination, &problem, syncs);
        }
        problem
    }

    /// The last operand, or its directory.
    fn destination_directory(&self) -> PathBuf {
        match statat(CWD, &self.destination, AtFlags::empty()) {
            Ok(stat) if kind(&stat) == FileType::Directory => self.destination.clone(),
            _ => parent(&self.destination),
        }
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
        self.failed(self.of_one_part(problem, to))
    }
}

fn is_elsewhere(to: &Place<'_>, destination: &Path) -> bool {
    let itself = statat(to.directory, to.name, AtFlags::empty());
    let is_plain = |stat| matches!(kind(stat), FileType::RegularFile | FileType::Directory);
    if itself.as_ref().is_ok_and(|stat| !is_plain(stat)) {
        return true;
    }
    let above = match to.name.parent().filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => statat(to.directory, path, AtFlags::empty()),
        None => statat(to.directory, c"", AtFlags::EMPTY_PATH),
    };
    let there = match to.stat().is_ok_and(|stat| kind(&stat) == FileType::Symlink) {
        true => itself,
        // Some file systems have other numbers for files than for directories.
        false => above,
    };
    let destination = statat(CWD, destination, AtFlags::empty());
    matches!((destination, there), (Ok(one), Ok(other)) if one.st_dev != other.st_dev)
}

/// Whether the destination takes files in spite of this problem, which is then
/// one of another mount of the same file system, of one file, or of the quota of
/// a directory. Their device numbers are equal. `syncs`: a synchronization may have
/// failed.
fn takes_files(destination: &Path, problem: &Problem, syncs: bool) -> bool {
    let now = retry(|| statvfs(destination));
    let read_only = problem.errno == Some(Errno::EROFS);
    if !read_only && now.as_ref().is_ok_and(is_full) {
        return false;
    }
    match write_unnamed(destination, syncs) {
        Ok(()) => true,
        Err(errno) if LACK.contains(&errno.into()) => false,
        // The file system has no unnamed files (`EOPNOTSUPP`, open(2)), or the
        // process may not create one there. The flag is that of the mount
        // (`calculate_f_flags`, fs/statfs.c).
        Err(_) => {
            !(read_only && now.is_ok_and(|now| now.f_flag.contains(StatVfsMountFlags::RDONLY)))
        }
    }
}

/// Whether hardly anything can be created there. On xfs, a new name needs up to
/// some dozen blocks, also where a page can still be written.
fn is_full(now: &StatVfs) -> bool {
    const LEAST: u64 = 1 << 20;
    // Some file systems do not report their size, or do not count files.
    let little = now.f_bavail.saturating_mul(now.f_frsize) < LEAST;
    now.f_blocks > 0 && little || now.f_files > 0 && now.f_favail == 0
}

/// Writes a page to a file without a name, which vanishes with its descriptor. `syncs`: also
/// to the disk. A full thin pool, or a full file system below a loop device, takes no more
/// blocks, although the file system above it has space.
fn write_unnamed(directory: &Path, syncs: bool) -> Result<(), rustix::io::Errno> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(CWD, directory, flags, Mode::from_raw_mode(0o600));
    let unnamed = retry(open)?;
    // Some file systems store no blocks for zeros.
    let page = [1; 4096];
    match retry(|| rustix::io::write(&unnamed, &page))? {
        4096 if syncs => retry(|| rustix::fs::fdatasync(&unnamed)),
        4096 => Ok(()),
        // Less is written if no more fits (write(2)).
        _ => Err(rustix::io::Errno::NOSPC),
    }
}

/// The errnos of a file system without space, and of one that is read-only.
const LACK: [Errno; 3] = [Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS];

/// Whether an error affects all files of the destination.
///
/// `EIO` does not: it may be one bad block, or one file of a server.
pub fn affects_all_files(problem: &Problem) -> bool {
    !problem.is_local
        && problem.side == Some(Side::Sink)
        && problem.errno.is_some_and(|e| LACK.contains(&e))
}
