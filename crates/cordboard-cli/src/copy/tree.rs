//! Directories and all that is in them.

use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cordboard::{Errno, Side};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::retry_on_intr;

use super::chain::{Chain, Id, id};
use super::parent::{DIRECTORY, not_into_itself, sync_parent};
use super::place::Place;
use super::{Job, kind, special};
use crate::hints::Doing;
use crate::problem::Problem;

/// Where the walk is. What it needs of each level is here and not on the
/// stack, and few descriptors are open, so that a tree may be of any depth.
struct Walk {
    from: PathBuf,
    to: PathBuf,
    source: Chain,
    sink: Chain,
    levels: Vec<Level>,
    /// The directory that all goes into, which may be reached again by a bind
    /// mount.
    root: Id,
    buffer: Vec<MaybeUninit<u8>>,
}

/// A directory that is being copied.
struct Level {
    /// What is left of it.
    entries: std::vec::IntoIter<(CString, FileType)>,
    /// As it was before.
    stat: Stat,
    /// It was made by us.
    fresh: bool,
    /// It was not to be found again, and this was told.
    lost: bool,
}

/// Copies a directory.
pub fn copy(job: &mut Job<'_>, from: &Path, to: &Path) -> Result<(), Problem> {
    not_into_itself(from, to)?;
    let mut walk = Walk {
        from: from.to_owned(),
        to: to.to_owned(),
        source: Chain::default(),
        sink: Chain::default(),
        levels: Vec::new(),
        root: (0, 0),
        buffer: vec![MaybeUninit::uninit(); 1 << 15],
    };
    let fresh = walk.enter(from, to)?;
    while let Some(level) = walk.levels.last_mut() {
        if job.session.stopped() {
            return Ok(());
        }
        let done = match level.entries.next() {
            Some((name, file_type)) => walk.entry(job, &name, file_type),
            None => walk.leave(job),
        };
        if let Err(problem) = done {
            job.session.problem(&problem);
        }
    }
    if fresh && job.sync {
        sync_parent(to)?;
    }
    Ok(())
}

impl Walk {
    /// Goes down into a directory, by its name on either side; returns whether
    /// it was made. `self.from` and `self.to` are its paths.
    fn enter(&mut self, name: &Path, target_name: &Path) -> Result<bool, Problem> {
        let top = self.levels.is_empty();
        let shown = self.from.to_string_lossy();
        let reading = |e| Problem::call(shown.clone(), Side::Source, e, Doing::Opening);
        let nofollow = if top {
            OFlags::empty()
        } else {
            OFlags::NOFOLLOW
        };
        let (above, _) = self.here().map_err(reading)?;
        let source =
            retry_on_intr(|| rustix::fs::openat(above, name, DIRECTORY | nofollow, Mode::empty()))
                .map_err(reading)?;
        let stat = rustix::fs::fstat(&source).map_err(reading)?;
        if !top && id(&stat) == self.root {
            let text = "it is the directory that is copied into";
            return Err(Problem::refused(shown, Side::Source, Errno::ELOOP, text));
        }
        let entries = self.entries(source.as_fd())?.into_iter();
        let (_, target) = self.here().map_err(|e| self.writing(e))?;
        let (sink, fresh) = self.make(target, target_name, &stat, nofollow)?;
        let made = id(&rustix::fs::fstat(&sink).map_err(|e| self.writing(e))?);
        if top {
            self.root = made;
        }
        self.source.enter(name, source, id(&stat));
        self.sink.enter(target_name, sink, made);
        self.levels.push(Level {
            entries,
            stat,
            fresh,
            lost: false,
        });
        Ok(fresh)
    }

    /// Goes up from a directory in which all is done.
    fn leave(&mut self, job: &mut Job<'_>) -> Result<(), Problem> {
        let lost = self.here().is_err().then(|| self.lost());
        let level = self.levels.pop();
        // First, because what is settled may be shut to us.
        let (source, sink) = (self.source.leave(), self.sink.leave());
        let settled = match (level, source, sink) {
            (Some(level), Some(source), Some(sink)) => self.settle(job, &source, &sink, &level),
            (Some(level), ..) if !level.lost => lost.map_or(Ok(()), Err),
            _ => Ok(()),
        };
        if !self.levels.is_empty() {
            self.from.pop();
            self.to.pop();
        }
        settled
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

    /// One of what is in the directory where the walk is.
    fn entry(
        &mut self,
        job: &mut Job<'_>,
        name: &CStr,
        file_type: FileType,
    ) -> Result<(), Problem> {
        if self.here().is_err()
            && let Some(level) = self.levels.last_mut()
        {
            // Of the rest there is no more to say than of this one.
            (level.entries, level.lost) = (Vec::new().into_iter(), true);
            return Err(self.lost());
        }
        let name = Path::new(OsStr::from_bytes(name.to_bytes()));
        let depth = self.levels.len();
        self.from.push(name);
        self.to.push(name);
        let done = self.copy_one(job, name, file_type);
        if self.levels.len() == depth {
            self.from.pop();
            self.to.pop();
        }
        done
    }

    fn copy_one(
        &mut self,
        job: &mut Job<'_>,
        name: &Path,
        mut file_type: FileType,
    ) -> Result<(), Problem> {
        let (source, sink) = self.here().map_err(|_| self.lost())?;
        if file_type == FileType::Unknown {
            let stat =
                rustix::fs::statat(source, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| {
                    Problem::call(self.from.to_string_lossy(), Side::Source, e, Doing::Opening)
                })?;
            file_type = kind(&stat);
        }
        let from = Place {
            directory: source,
            name,
            path: &self.from,
        };
        let to = Place {
            directory: sink,
            name,
            path: &self.to,
        };
        match file_type {
            FileType::RegularFile => job.file(&from, &to, false).map(drop),
            FileType::Symlink => job.link(&from, &to),
            FileType::Directory => self.enter(name, name).map(drop),
            other => Err(special(from.path, other)),
        }
    }

    /// Where the walk is, on both sides; at first, where we were started.
    fn here(&self) -> Result<(BorrowedFd<'_>, BorrowedFd<'_>), rustix::io::Errno> {
        if self.levels.is_empty() {
            return Ok((CWD, CWD));
        }
        Ok((self.source.here()?, self.sink.here()?))
    }

    /// The directory where the walk is was not to be found again.
    fn lost(&self) -> Problem {
        let (path, side) = match self.source.here() {
            Err(_) => (&self.from, Side::Source),
            Ok(_) => (&self.to, Side::Sink),
        };
        let text = "it was moved or replaced while it was copied: it is not complete";
        Problem::refused(path.to_string_lossy(), side, Errno::ESTALE, text)
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
        Level { stat, fresh, .. }: &Level,
    ) -> Result<(), Problem> {
        if job.preserve {
            job.keep(source.as_fd(), sink.as_fd(), stat, &Place::top(&self.to))?;
        } else if *fresh && stat.st_mode & 0o700 != 0o700 {
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
