//! Directories and all that is in them.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cordboard::{Errno, Side};
use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, Stat};

use super::level::{Left, Level};
use super::name_collisions::NameCollisions;
use super::settle::settle_directory;
use crate::copy::directories::Chain;
use crate::copy::directories::list;
use crate::copy::job::Job;
use crate::copy::outcome::Outcome;
use crate::copy::overwrite::ONE_NAME;
use crate::copy::overwrite::check_not_into_itself;
use crate::copy::parallel::{Directory, Item, Pending};
use crate::copy::parallel::{Dispatch, LEFT};
use crate::copy::place::Place;
use crate::copy::refusals::appeared_meanwhile;
use crate::copy::refusals::{just_copied, not_copyable};
use crate::directory::{DIRECTORY, grant_owner_access, open_directory, sync_parent, without_slash};
use crate::files::kind;
use crate::files::{Id, id};
use crate::memory;
use crate::problem::Action;
use crate::problem::Problem;
use crate::signals::{check_stop, retry};

/// The state of a walk. What each level needs is kept here and not on the
/// stack, and few descriptors are open, so that a tree may have any depth.
struct Walk {
    from: PathBuf,
    to: PathBuf,
    source: Chain,
    sink: Chain,
    levels: Vec<Level>,
    /// Directories of the sink whose names may be one.
    colliding: BTreeSet<Id>,
    /// Permissions of group and others in a new directory, until it is settled.
    others: u32,
    /// Directories to settle when all files in them have ended, in their order.
    left: VecDeque<Left>,
    /// Each file ends before the next begins: by mounts they may be one file.
    /// The first is copied then, and not either of them.
    in_order: bool,
    buffer: Vec<MaybeUninit<u8>>,
}

/// How much of a target was given as an operand. A symlink in that part is
/// followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// All of it, and it is a directory.
    Directory,
    /// All of it, and it is not a directory, or does not exist.
    Name,
    /// Its directory.
    Above,
}

/// The sink's directory.
struct SinkDirectory {
    fd: OwnedFd,
    id: Id,
    /// See [`Level`].
    owner: Option<u32>,
}

/// Copies a directory.
pub fn copy(
    dispatch: &mut Dispatch<'_>,
    from: &Path,
    to: &Path,
    given: Given,
) -> Result<(), Problem> {
    // If two sources have the same target, the first is copied.
    dispatch.drain();
    // A symlink to a directory that is an operand is followed, unless it was
    // just copied.
    (dispatch.job().written).check(&Place::top(from), &Place::top(to))?;
    let shown_twice = dispatch.job().sources.meet(from, to);
    if shown_twice != Some(false) {
        dispatch.job().written.remember_all();
    }
    let mut walk = Walk {
        from: from.to_owned(),
        to: to.to_owned(),
        source: Chain::new(Arc::clone(&dispatch.job().spares)),
        sink: Chain::new(Arc::clone(&dispatch.job().spares)),
        levels: Vec::new(),
        colliding: BTreeSet::new(),
        // With -p the final owner and mode come last, as for files.
        others: match dispatch.job().preserve {
            true => 0,
            false => 0o077,
        },
        left: VecDeque::new(),
        in_order: shown_twice == Some(true),
        buffer: memory::buffer(MaybeUninit::uninit(), 1 << 15)
            .map_err(|e| Problem::call(from.to_string_lossy(), Side::Source, e, Action::Open))?,
    };
    let follow = match given {
        Given::Directory => OFlags::empty(),
        // A trailing slash would follow a symlink that was created since.
        Given::Name | Given::Above => OFlags::NOFOLLOW,
    };
    let created = walk.enter(dispatch, from, (without_slash(to), false), follow)?;
    while !dispatch.stopped(|job| walk.has_more(job)) {
        let Some(level) = walk.levels.last_mut() else {
            break;
        };
        let left = level.entries.as_slice().len();
        if left > 0 && dispatch.skips_rest() {
            // What was made is still settled.
            level.entries = Vec::new().into_iter();
        }
        let done = match level.entries.next() {
            Some((name, file_type)) => walk.entry(dispatch, &name, file_type),
            None => walk.leave(dispatch),
        };
        if let Err(problem) = done {
            dispatch.problem(problem);
        }
    }
    dispatch.drain();
    walk.settle_left(dispatch, 0);
    if created && dispatch.job().sync && !dispatch.stopped(|_| true) {
        sync_parent(to, None)?;
    }
    Ok(())
}

impl Walk {
    /// Enters a directory, by its name on either side. Returns whether it was
    /// made. `self.from` and `self.to` are its paths.
    fn enter(
        &mut self,
        dispatch: &mut Dispatch<'_>,
        name: &Path,
        (target_name, collides): (&Path, bool),
        follow: OFlags,
    ) -> Result<bool, Problem> {
        let top = self.levels.is_empty();
        let shown = self.from.to_string_lossy();
        let reading = |e| Problem::call(shown.clone(), Side::Source, e, Action::Open);
        let (above, _) = self.here().map_err(reading)?;
        // It was a directory: a symlink that was created since is not followed.
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let open = || rustix::fs::openat(above, name, flags, Mode::empty());
        let source = dispatch.retry_when_idle(|| retry(open)).map_err(reading)?;
        let stat = retry(|| cordboard::fstat(&source)).map_err(reading)?;
        // By bind mounts, a directory has several names.
        if top {
            let sources = &dispatch.job().sources;
            check_not_into_itself(&self.from, (source.as_fd(), &stat), &self.to, sources)?;
        } else if self.sink.has(id(&stat)) {
            let text = "is a directory that this copy writes to";
            return Err(Problem::refused(shown, Side::Source, Errno::ELOOP, text));
        }
        let entries = self.entries(source.as_fd())?;
        let (_, target) = self.here().map_err(|e| self.writing(e))?;
        let made = self.make(dispatch, (target, target_name), &stat, follow);
        let made = made.map_err(|problem| {
            let to = Place::below(target, &self.to, target_name);
            dispatch.job().of_one_part(problem, &to)
        });
        if let (Err(problem), false) = (&made, entries.is_empty()) {
            dispatch.not_made(problem);
        }
        let made = made?;
        let created = made.owner.is_some();
        if !created {
            let walked = made.id == id(&stat) || self.source.has(made.id);
            let Job {
                sources, spares, ..
            } = dispatch.job();
            sources.check_directory((&self.from, walked), &self.to, made.id, spares)?;
        }
        if collides && !self.colliding.insert(made.id) {
            let (from, to) = (Place::top(&self.from), Place::top(&self.to));
            return Err(just_copied(&from, &to).help(ONE_NAME));
        }
        self.source.enter(name, source, id(&stat));
        self.sink.enter(target_name, made.fd, made.id);
        let collisions = match created {
            true => NameCollisions::default(),
            false => NameCollisions::among(entries.iter().map(|(name, _)| name.as_c_str())),
        };
        self.levels.push(Level {
            entries: entries.into_iter(),
            collisions,
            stat,
            owner: made.owner,
            lost: false,
            pending: Pending::default(),
        });
        Ok(created)
    }

    /// Whether there is work besides what was handed over, and the directories
    /// that were left.
    fn has_more(&self, job: &Job) -> bool {
        let more = |level: &Level| level.entries.len() > 0 || job.settles(level);
        self.levels.iter().any(more)
    }

    /// Leaves a directory whose entries were all started.
    fn leave(&mut self, dispatch: &mut Dispatch<'_>) -> Result<(), Problem> {
        dispatch.flush();
        let lost = self.here().is_err().then(|| self.lost());
        let level = self.levels.pop();
        // Before settling, which may remove this process's own permissions.
        let (source, sink) = (self.source.leave(), self.sink.leave());
        if self.here().is_err() && (dispatch.is_busy() || !self.left.is_empty()) {
            // Files under way will release descriptors, and so will directories.
            dispatch.drain();
            self.settle_left(dispatch, 0);
            self.source.find();
            self.sink.find();
        }
        let names = [self.from.clone(), self.to.clone()];
        if !self.levels.is_empty() {
            self.from.pop();
            self.to.pop();
        }
        match (level, source, sink) {
            (Some(level), Some(source), Some(sink)) => {
                if dispatch.job().settles(&level) {
                    self.left.push_back(Left {
                        source,
                        sink,
                        names,
                        level,
                    });
                    self.settle_left(dispatch, LEFT);
                }
                Ok(())
            }
            (Some(level), ..) if !level.lost => lost.map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }

    /// Settles directories in which all files have ended, and waits for the
    /// others until no more than `most` are left. After a signal to stop, those
    /// that the signal has left incomplete are not settled.
    fn settle_left(&mut self, dispatch: &mut Dispatch<'_>, most: usize) {
        while let Some(left) = self.left.front() {
            if !left.level.pending.is_none() {
                if self.left.len() <= most {
                    return;
                }
                dispatch.until(|| left.level.pending.is_none());
            }
            let is_cut = left.level.pending.is_cut();
            if !(dispatch.stopped(|_| is_cut) && is_cut) {
                let mut outcome = Outcome::default();
                let done = settle_directory(dispatch, left, &mut outcome);
                let to = Place::top(&left.names[1]);
                let failed = done.err();
                let failed = failed.map(|problem| dispatch.job().failed_at(problem, &to));
                outcome.messages.extend(failed);
                dispatch.report_messages(outcome.messages);
            }
            self.left.pop_front();
        }
    }

    /// Lists a directory.
    fn entries(&mut self, fd: BorrowedFd<'_>) -> Result<Vec<(CString, FileType)>, Problem> {
        let mut entries = Vec::new();
        let shown = self.from.to_string_lossy();
        let failed = |e| Problem::call(shown.as_ref(), Side::Source, e, Action::List);
        let unlisted = |e: rustix::io::Errno| failed(e.into());
        list(fd, &mut self.buffer, unlisted, |name, file_type| {
            check_stop()?;
            entries.try_reserve(1).map_err(|_| failed(Errno::ENOMEM))?;
            // On a damaged file system, such a name could lead out of the tree.
            // Since Linux 5.4 the listing itself fails (`verify_dirent_name`,
            // fs/readdir.c).
            if name.to_bytes().contains(&b'/') {
                let text = "contains a name with a slash: the file system is damaged";
                return Err(Problem::refused(
                    shown.as_ref(),
                    Side::Source,
                    Errno::EIO,
                    text,
                ));
            }
            entries.push((name.to_owned(), file_type));
            Ok(())
        })?;
        Ok(entries)
    }

    /// Copies one entry of the current directory.
    fn entry(
        &mut self,
        dispatch: &mut Dispatch<'_>,
        name: &CStr,
        mut file_type: FileType,
    ) -> Result<(), Problem> {
        let collides = (self.levels.last()).is_some_and(|level| level.collisions.has(name));
        let name = Path::new(OsStr::from_bytes(name.to_bytes()));
        let Ok((source, sink)) = self.here() else {
            let lost = self.lost();
            if let Some(level) = self.levels.last_mut() {
                // The same message would apply to the rest.
                (level.entries, level.lost) = (Vec::new().into_iter(), true);
            }
            return Err(lost);
        };
        let from = Place::below(source, &self.from, name);
        let to = Place::below(sink, &self.to, name).in_new(self.is_new());
        let to = to.with_collision(collides);
        if file_type == FileType::Unknown {
            let stat = from
                .stat()
                .map_err(|e| Problem::call(from.shown(), Side::Source, e, Action::Open))?;
            file_type = kind(&stat);
        }
        match file_type {
            FileType::RegularFile => {
                let item = Item {
                    name: name.into(),
                    target: None,
                    beneath: true,
                    collides,
                };
                dispatch.file(item, || self.directory());
                if self.in_order {
                    dispatch.drain();
                }
                Ok(())
            }
            FileType::Symlink => {
                dispatch.symlink((&from, &to), || Ok(()));
                Ok(())
            }
            FileType::Directory => self.down(dispatch, name, collides),
            FileType::Socket if dispatch.job().is_own_socket(&from) => Ok(()),
            other => Err(not_copyable(&from.path(), other, true)),
        }
    }

    /// The current directory, for the files of a batch.
    fn directory(&self) -> Option<Directory> {
        Some(Directory {
            source: self.source.share().ok()?,
            sink: self.sink.share().ok()?,
            from: self.from.clone(),
            to: self.to.clone(),
            new: self.is_new(),
            pending: self.levels.last()?.pending.clone(),
        })
    }

    /// Whether this command has made the current directory of the sink.
    fn is_new(&self) -> bool {
        let level = self.levels.last();
        level.is_some_and(|level| level.owner.is_some())
    }

    /// Enters a subdirectory.
    fn down(
        &mut self,
        dispatch: &mut Dispatch<'_>,
        name: &Path,
        collides: bool,
    ) -> Result<(), Problem> {
        dispatch.flush();
        self.from.push(name);
        self.to.push(name);
        let done = self.enter(dispatch, name, (name, collides), OFlags::NOFOLLOW);
        if done.is_err() {
            self.from.pop();
            self.to.pop();
        }
        done.map(drop)
    }

    /// The current directories of both sides; at first, the working directory.
    fn here(&self) -> Result<(BorrowedFd<'_>, BorrowedFd<'_>), rustix::io::Errno> {
        if self.levels.is_empty() {
            return Ok((CWD, CWD));
        }
        Ok((self.source.here()?, self.sink.here()?))
    }

    /// The problem of a directory that could not be opened again.
    fn lost(&self) -> Problem {
        if let Err(stopped) = check_stop() {
            return stopped.into();
        }
        let (path, side) = match self.source.here() {
            Err(_) => (&self.from, Side::Source),
            Ok(_) => (&self.to, Side::Sink),
        };
        let text = "was moved or replaced during the copy, which is incomplete";
        Problem::refused(path.to_string_lossy(), side, Errno::ESTALE, text)
    }

    fn writing(&self, errno: rustix::io::Errno) -> Problem {
        Problem::call(self.to.to_string_lossy(), Side::Sink, errno, Action::Open)
    }

    /// Makes the directory, or opens the existing one. A symlink to a directory
    /// that is not an operand is refused: it may lead out of the tree.
    fn make(
        &self,
        dispatch: &mut Dispatch<'_>,
        (target, name): (BorrowedFd<'_>, &Path),
        stat: &Stat,
        follow: OFlags,
    ) -> Result<SinkDirectory, Problem> {
        // The process must be able to write into it until it is complete. The
        // sticky bit restricts who may remove entries (mkdir(2)).
        let mode = Mode::from_raw_mode(stat.st_mode & (self.others | 0o1000) | 0o700);
        let created = match retry(|| rustix::fs::mkdirat(target, name, mode)) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) if self.is_new() => {
                return Err(appeared_meanwhile(
                    &Place::top(&self.from),
                    &Place::top(&self.to),
                ));
            }
            Err(rustix::io::Errno::EXIST) => false,
            Err(errno) => return Err(self.writing(errno)),
        };
        let nofollow = match created {
            true => OFlags::NOFOLLOW,
            false => follow,
        };
        let mut fd = match dispatch.retry_when_idle(|| open_directory(target, name, nofollow)) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOTDIR) => {
                let text = "exists and is not a directory, but its source is one";
                let shown = self.to.to_string_lossy();
                return Err(Problem::refused(shown, Side::Sink, Errno::ENOTDIR, text)
                    .help("choose another DST, or remove it first"));
            }
            Err(errno) => return Err(self.writing(errno)),
        };
        let there = retry(|| cordboard::fstat(&fd)).map_err(|e| self.writing(e))?;
        // Another process may have put another directory there since. The owner differs, too,
        // where the file system assigns it.
        let is_own = there.st_uid == rustix::process::geteuid().as_raw();
        if created && !is_own && !is_empty(fd.as_fd()) {
            let text = "was replaced by another directory just after it was made";
            let shown = self.to.to_string_lossy();
            return Err(Problem::refused(shown, Side::Sink, Errno::ESTALE, text));
        }
        let owner = created.then_some(there.st_mode & stat.st_mode & 0o700);
        if created && there.st_mode & 0o700 != 0o700 {
            // The umask denies access to the owner too. The process has to fill
            // the directory first.
            let open = dispatch.retry_when_idle(|| grant_owner_access(fd.as_fd()));
            let open = open.map_err(|e| self.writing(e))?;
            fd = open.unwrap_or(fd);
        }
        Ok(SinkDirectory {
            fd,
            id: id(&there),
            owner,
        })
    }
}

/// Whether a directory has no entries. One that cannot be read counts as empty.
fn is_empty(directory: BorrowedFd<'_>) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 512];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_entries_is_not_empty() {
        let dir = tempfile::tempdir().unwrap();
        let open = || rustix::fs::open(dir.path(), DIRECTORY, Mode::empty()).unwrap();
        assert!(is_empty(open().as_fd()));
        std::fs::write(dir.path().join("a"), b"").unwrap();
        assert!(!is_empty(open().as_fd()));
    }
}
