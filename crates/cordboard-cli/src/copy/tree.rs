//! Directories and all that is in them.

use std::ffi::{CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cordboard::{Errno, Side};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::retry_on_intr;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::parent::{DIRECTORY, not_into_itself, sync_parent};
use super::place::Place;
use super::{Job, kind, special};
use crate::hints::Doing;
use crate::problem::Problem;

/// Two descriptors are open at every level.
const DEEPEST: usize = 2000;

/// Where the walk is.
struct Walk {
    from: PathBuf,
    to: PathBuf,
    /// The directory that all goes into, which may be reached again by a bind
    /// mount.
    root: (u64, u64),
    buffer: Vec<MaybeUninit<u8>>,
}

/// Copies a directory.
pub fn copy(job: &mut Job<'_>, from: &Path, to: &Path) -> Result<(), Problem> {
    not_into_itself(from, to)?;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Only very deep trees need it.
    let _ = setrlimit(Resource::Nofile, limit);
    let mut walk = Walk {
        from: from.to_owned(),
        to: to.to_owned(),
        root: (0, 0),
        buffer: vec![MaybeUninit::uninit(); 1 << 15],
    };
    let fresh = walk.directory(job, CWD, from, CWD, to, 0)?;
    if fresh && job.sync {
        sync_parent(to)?;
    }
    Ok(())
}

impl Walk {
    /// One directory; returns whether it was made. `self.from` and `self.to`
    /// are its paths.
    fn directory(
        &mut self,
        job: &mut Job<'_>,
        above: BorrowedFd<'_>,
        name: &Path,
        target: BorrowedFd<'_>,
        target_name: &Path,
        depth: usize,
    ) -> Result<bool, Problem> {
        let shown = self.from.to_string_lossy();
        if depth > DEEPEST {
            let text = format!("directories are nested more than {DEEPEST} deep");
            return Err(Problem::refused(shown, Side::Source, Errno::ELOOP, text));
        }
        let reading = |e| Problem::call(shown.clone(), Side::Source, e, Doing::Opening);
        let nofollow = if depth == 0 {
            OFlags::empty()
        } else {
            OFlags::NOFOLLOW
        };
        let source =
            retry_on_intr(|| rustix::fs::openat(above, name, DIRECTORY | nofollow, Mode::empty()))
                .map_err(reading)?;
        let stat = rustix::fs::fstat(&source).map_err(reading)?;
        if depth > 0 && (stat.st_dev, stat.st_ino) == self.root {
            let text = "it is the directory that is copied into";
            return Err(Problem::refused(shown, Side::Source, Errno::ELOOP, text));
        }
        let entries = self.entries(source.as_fd())?;
        let (sink, fresh) = self.make(target, target_name, &stat, nofollow)?;
        if depth == 0 {
            let root = rustix::fs::fstat(&sink).map_err(|e| self.writing(e))?;
            self.root = (root.st_dev, root.st_ino);
        }
        for (name, file_type) in entries {
            if job.session.stopped() {
                return Ok(fresh);
            }
            let name = Path::new(OsStr::from_bytes(name.as_bytes()));
            self.from.push(name);
            self.to.push(name);
            let done = self.entry(job, &source, &sink, name, file_type, depth);
            self.from.pop();
            self.to.pop();
            if let Err(problem) = done {
                job.session.problem(&problem);
            }
        }
        self.settle(job, &source, &sink, &stat, fresh)?;
        Ok(fresh)
    }

    /// What is in a directory.
    fn entries(&mut self, fd: BorrowedFd<'_>) -> Result<Vec<(CString, FileType)>, Problem> {
        let mut entries = Vec::new();
        let mut listing = RawDir::new(fd, &mut self.buffer);
        while let Some(entry) = listing.next() {
            let entry = entry.map_err(|e| {
                Problem::call(self.from.to_string_lossy(), Side::Source, e, Doing::Opening)
            })?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                entries.push((name.to_owned(), entry.file_type()));
            }
        }
        Ok(entries)
    }

    fn entry(
        &mut self,
        job: &mut Job<'_>,
        source: &OwnedFd,
        sink: &OwnedFd,
        name: &Path,
        mut file_type: FileType,
        depth: usize,
    ) -> Result<(), Problem> {
        if file_type == FileType::Unknown {
            let stat =
                rustix::fs::statat(source, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| {
                    Problem::call(self.from.to_string_lossy(), Side::Source, e, Doing::Opening)
                })?;
            file_type = kind(&stat);
        }
        let from = Place {
            directory: source.as_fd(),
            name,
            path: &self.from,
        };
        let to = Place {
            directory: sink.as_fd(),
            name,
            path: &self.to,
        };
        match file_type {
            FileType::RegularFile => job.file(&from, &to, false).map(drop),
            FileType::Symlink => job.link(&from, &to),
            FileType::Directory => self
                .directory(job, source.as_fd(), name, sink.as_fd(), name, depth + 1)
                .map(drop),
            other => Err(special(from.path, other)),
        }
    }

    fn writing(&self, errno: rustix::io::Errno) -> Problem {
        Problem::call(self.to.to_string_lossy(), Side::Sink, errno, Doing::Opening)
    }

    /// Makes the directory, or opens the one that is there. Below the top, a
    /// symlink to one is no directory: it may lead out of the tree.
    fn make(
        &self,
        target: BorrowedFd<'_>,
        name: &Path,
        stat: &Stat,
        nofollow: OFlags,
    ) -> Result<(OwnedFd, bool), Problem> {
        // We must be able to write into it until it is full.
        let mode = Mode::from_raw_mode(stat.st_mode & 0o777 | 0o700);
        let fresh = match retry_on_intr(|| rustix::fs::mkdirat(target, name, mode)) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(errno) => return Err(self.writing(errno)),
        };
        let flags = DIRECTORY | nofollow;
        match retry_on_intr(|| rustix::fs::openat(target, name, flags, Mode::empty())) {
            Ok(fd) => Ok((fd, fresh)),
            Err(rustix::io::Errno::NOTDIR) => {
                let text = "it is there and no directory, and its source is one";
                let shown = self.to.to_string_lossy();
                Err(Problem::refused(shown, Side::Sink, Errno::ENOTDIR, text)
                    .help("remove it first"))
            }
            Err(errno) => Err(self.writing(errno)),
        }
    }

    /// When all is in it: its mode, with -p its other attributes, and the disk.
    fn settle(
        &self,
        job: &mut Job<'_>,
        source: &OwnedFd,
        sink: &OwnedFd,
        stat: &Stat,
        fresh: bool,
    ) -> Result<(), Problem> {
        if job.preserve {
            job.keep(source.as_fd(), sink.as_fd(), stat, &Place::top(&self.to))?;
        } else if fresh && stat.st_mode & 0o700 != 0o700 {
            let now = rustix::fs::fstat(sink).map_err(|e| self.writing(e))?;
            let mode = now.st_mode & 0o7777 & !(!stat.st_mode & 0o700);
            rustix::fs::fchmod(sink, Mode::from_raw_mode(mode)).map_err(|e| self.writing(e))?;
        }
        if job.sync {
            rustix::fs::fsync(sink).map_err(|e| self.writing(e))?;
        }
        Ok(())
    }
}
