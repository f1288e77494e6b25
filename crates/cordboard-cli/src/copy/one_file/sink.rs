//! The sink of a copy: a new file, or an existing one whose contents are
//! replaced once it is certain that it is not the source.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use cordboard::{Errno, Side, Transfer};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use super::lease::{clear_nonblock, open_past_lease};
use super::mode::{OpenError, OpenMode};
use super::open::is_postponed;
use super::opened::SinkFile;
use super::verify::can_be_read_back;
use crate::copy::attributes::restrict_before_contents;
use crate::copy::job::Job;
use crate::copy::outcome::Outcome;
use crate::copy::place::Place;
use crate::copy::refusals::appeared_meanwhile;
use crate::copy::refusals::just_copied;
use crate::endpoint;
use crate::files::id;
use crate::files::kind;

use crate::files::directory_of;
use crate::files::if_exists;
use crate::interruptible::interruptible;
use crate::problem::Action;
use crate::problem::{Problem, Refused};
use crate::signals::{check_stop, retry};

/// How many times the file of the sink's name may change while it is opened.
const TRIES: usize = 16;

impl Job {
    /// Opens or creates the sink.
    pub fn open_sink(
        &self,
        to: &Place<'_>,
        from: &Stat,
        source: (&Place<'_>, BorrowedFd<'_>),
        open_mode: OpenMode,
        outcome: &mut Outcome,
    ) -> Result<SinkFile, OpenError> {
        let verify = self.staging.verify;
        let writing = |e| {
            let problem = endpoint::open_problem(&to.path(), to.shown(), Side::Sink, e);
            match e {
                rustix::io::Errno::ACCESS if verify => {
                    problem.help("--verify needs read permission too: grant it, or omit --verify")
                }
                rustix::io::Errno::NXIO => problem.help(format!(
                    "for a socket, use cordboard splice {} unix:{to}; \
                     for a device, check that it is present",
                    source.0
                )),
                _ => problem,
            }
        };
        // What is verified is read by the same descriptor: another is not
        // available for a file without read permission, or without /proc.
        let access = if verify { OFlags::RDWR } else { OFlags::WRONLY };
        let mut flags = access | OFlags::CLOEXEC | OFlags::NOCTTY;
        if self.append {
            flags |= OFlags::APPEND;
        }
        // With -p the final mode comes last. Other users have no access before.
        let bits = if self.preserve { 0o700 } else { 0o777 };
        let mode = Mode::from_raw_mode(from.st_mode & bits);
        let exclusive = flags | OFlags::CREATE | OFlags::EXCL;
        if to.collides && open_mode == OpenMode::Concurrent {
            return Err(OpenError::Postponed);
        }
        self.check_before_creation(to, flags, source, outcome)?;
        let create = || rustix::fs::openat(to.directory, to.name, exclusive, mode);
        for _ in 0..TRIES {
            match self.spares.retry_without_spares(|| retry(create)) {
                Ok(fd) => {
                    if self.written.has_new(to) {
                        let stat = retry(|| cordboard::fstat(&fd)).map_err(writing)?;
                        self.written.add(&stat);
                    }
                    return Ok(SinkFile {
                        fd,
                        created: true,
                        is_file: true,
                        before: 0,
                        start: self.request.sink_offset.unwrap_or(0),
                    });
                }
                Err(rustix::io::Errno::EXIST) => {}
                Err(rustix::io::Errno::ISDIR) => {
                    // Its name ends in a slash.
                    let stat = || rustix::fs::statat(to.directory, to.name, AtFlags::empty());
                    let found = retry(stat).err().unwrap_or(rustix::io::Errno::ISDIR);
                    let problem = Problem::no_directory(to.shown(), found);
                    return Err(problem.unwrap_or_else(|| writing(found)).into());
                }
                Err(errno) => return Err(OpenError::of(errno, open_mode, writing)),
            }
            if to.new {
                return Err(appeared_meanwhile(source.0, to).into());
            }
            let mut linked = false;
            let found = match (to.beneath, open_mode) {
                (true, _) => self.open_existing(source.0, to, flags, open_mode)?,
                (false, OpenMode::Concurrent) => Some(open_concurrently(to, flags)?),
                (false, OpenMode::Exclusive) => {
                    // A symlink is followed, unless it was just copied.
                    linked = self.written.check(source.0, to)?;
                    self.check_kind(to)?;
                    let open = || rustix::fs::openat(to.directory, to.name, flags, mode);
                    Some(interruptible(open)?.and_then(with_stat))
                }
            };
            let (fd, stat) = match found {
                // It was removed or replaced meanwhile.
                None => continue,
                Some(Err(rustix::io::Errno::NOENT)) if !to.beneath => {
                    if !is_symlink(to).map_err(writing)? {
                        continue;
                    }
                    let text = "is a dangling symlink, which is not followed";
                    return Err(
                        Problem::refused(to.shown(), Side::Sink, Errno::ENOENT, text)
                            .help("remove it, or create its target")
                            .into(),
                    );
                }
                Some(done) => done.map_err(|e| OpenError::of(e, open_mode, writing))?,
            };
            if kind(&stat) == FileType::RegularFile && id(&stat) != id(from) {
                let other = linked || stat.st_nlink > 1;
                let sink = (&stat, other);
                self.sources.check(source.0, to, sink, &self.spares)?;
            }
            let existing = (fd, stat);
            return self.use_existing(to, existing, from, source, open_mode, outcome);
        }
        let text = "was replaced by another process at each attempt to open it";
        Err(Problem::refused(to.shown(), Side::Sink, Errno::EBUSY, text).into())
    }

    /// Opens an existing file that is not an operand: a regular file, whatever
    /// its name refers to by now. `None`: it has changed between the two
    /// checks.
    fn open_existing(
        &self,
        from: &Place<'_>,
        to: &Place<'_>,
        flags: OFlags,
        open_mode: OpenMode,
    ) -> Result<Option<rustix::io::Result<(OwnedFd, Stat)>>, OpenError> {
        use rustix::io::Errno;
        // Checked first: an open can have side effects on a device, and wakes
        // the reader of a FIFO.
        let there = match to.stat() {
            Ok(there) => there,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Ok(Some(Err(errno))),
        };
        if kind(&there) != FileType::RegularFile {
            return Err(match self.written.has(&there) {
                true => just_copied(from, to).into(),
                false => occupied(from, to, kind(&there)).into(),
            });
        }
        let others = |stat: &Stat| open_mode == OpenMode::Concurrent && stat.st_nlink > 1;
        if others(&there) {
            return Err(OpenError::Postponed);
        }
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = || rustix::fs::openat(to.directory, to.name, flags, Mode::empty());
        let opened = match open_mode {
            OpenMode::Exclusive => open_past_lease(to, flags)?,
            OpenMode::Concurrent => match retry(open) {
                Err(Errno::AGAIN) => return Err(OpenError::Postponed),
                opened => opened,
            },
        };
        match opened.and_then(with_stat) {
            Ok((_, stat)) if kind(&stat) != FileType::RegularFile => Ok(None),
            Ok((_, stat)) if others(&stat) => Err(OpenError::Postponed),
            Ok((fd, stat)) => {
                clear_nonblock(&fd, flags);
                Ok(Some(Ok((fd, stat))))
            }
            // open(2): it is a symlink by now, was removed, or is a directory,
            // a FIFO or a device.
            Err(Errno::LOOP | Errno::NOENT | Errno::ISDIR | Errno::NXIO | Errno::NODEV) => Ok(None),
            Err(errno) => Ok(Some(Err(errno))),
        }
    }

    /// Uses an existing file as the sink, if that is allowed.
    fn use_existing(
        &self,
        to: &Place<'_>,
        (fd, stat): (OwnedFd, Stat),
        from: &Stat,
        (source, source_fd): (&Place<'_>, BorrowedFd<'_>),
        open_mode: OpenMode,
        outcome: &mut Outcome,
    ) -> Result<SinkFile, OpenError> {
        let files = ((source_fd, from), (fd.as_fd(), &stat));
        let in_place = self.request.sink_offset.is_some();
        let left = match id(&stat) == id(from) {
            // The library checks the ranges.
            true if in_place => None,
            true => Some("nothing was written"),
            false if in_place && endpoint::is_loop_device_of(files.0, files.1) => {
                Some("nothing was written")
            }
            false if in_place || self.append => endpoint::is_kept_alias(files.0, files.1),
            false => endpoint::is_alias(files.0, files.1, (source, to))?,
        };
        if let Some(left) = left {
            return Err(endpoint::same_file_problem(to.shown(), source)
                .help(format!("{left}: choose another name"))
                .into());
        }
        if self.append {
            endpoint::check_appendable(&stat, &to.path().to_string_lossy())?;
        }
        if self.staging.verify {
            can_be_read_back(fd.as_fd(), to)?;
        }
        let file = kind(&stat) == FileType::RegularFile;
        // Before the sink counts as written: a copy that is postponed is tried again.
        if file && !self.append && !in_place {
            let (request, extras) = (&self.request, self.source_extras(source_fd));
            let ends = (
                (source_fd, source as &dyn Display),
                (fd.as_fd(), to as &dyn Display),
            );
            if let Err(refused) = self.staging.rehearse(ends.0, ends.1, request, extras) {
                return Err(match is_postponed(&refused, open_mode) {
                    true => OpenError::Postponed,
                    false => (*refused.problem).into(),
                });
            }
        }
        if file {
            self.written.replace(source, to, &stat)?;
        }
        if file && !self.append {
            // A request that is refused for one regular file is refused for
            // all, if the path read/write is allowed.
            let alike = kind(from) == FileType::RegularFile && self.reads_and_writes();
            if !(alike && self.checked.load(Ordering::Relaxed)) {
                let request = self.request.clone();
                let transfer = Transfer::new(source_fd, fd.as_fd(), request);
                let extras = self.source_extras(source_fd);
                let refused = self.staging.check(transfer, extras, source, to).err();
                if let Some(Refused { report, problem }) = refused {
                    outcome.report = report.map(|r| *r);
                    return Err((*problem).into());
                }
                self.checked.store(true, Ordering::Relaxed);
            }
            // After a signal to stop no new contents would follow, and the
            // search for files of the source is incomplete.
            check_stop()?;
        }
        if file && self.preserve {
            restrict_before_contents((fd.as_fd(), &stat), (source_fd, from));
        }
        if file && !self.append && !in_place {
            endpoint::truncate(fd.as_fd(), stat.st_size == 0)
                .map_err(|e| Problem::call(to.shown(), Side::Sink, e, Action::Truncate))?;
            endpoint::check_not_emptied(source_fd, source, from, to)?;
        }
        let before = match (self.append || in_place) && file {
            true => u64::try_from(stat.st_size).unwrap_or(0),
            false => 0,
        };
        Ok(SinkFile {
            fd,
            created: false,
            is_file: file,
            before,
            start: self.request.sink_offset.unwrap_or(before),
        })
    }

    /// Refuses a new sink before it is created, if no path takes the pair. The
    /// check uses an unnamed file (`O_TMPFILE`, since Linux 3.11) in the same
    /// directory. If the file system has none, the check uses the sink itself.
    fn check_before_creation(
        &self,
        to: &Place<'_>,
        flags: OFlags,
        (source, source_fd): (&Place<'_>, BorrowedFd<'_>),
        outcome: &mut Outcome,
    ) -> Result<(), OpenError> {
        if self.reads_and_writes() || to.stat().err() != Some(rustix::io::Errno::NOENT) {
            return Ok(());
        }
        let (parent, mode) = (directory_of(to.name), Mode::from_raw_mode(0o600));
        let open = || rustix::fs::openat(to.directory, parent, flags | OFlags::TMPFILE, mode);
        let Ok(unnamed) = retry(open) else {
            return Ok(());
        };
        let transfer = Transfer::new(source_fd, unnamed.as_fd(), self.request.clone());
        let extras = self.source_extras(source_fd);
        let refused = self.staging.check(transfer, extras, source, to).err();
        refused.map_or(
            Ok(()),
            |Refused {
                 report,
                 mut problem,
             }| {
                outcome.report = report.map(|r| *r);
                problem.text += &format!("; {to} was not created");
                Err((*problem).into())
            },
        )
    }
}

/// A descriptor, and its status.
fn with_stat(fd: OwnedFd) -> rustix::io::Result<(OwnedFd, Stat)> {
    let stat = retry(|| cordboard::fstat(&fd))?;
    Ok((fd, stat))
}

fn is_symlink(to: &Place<'_>) -> rustix::io::Result<bool> {
    Ok(if_exists(to.stat())?.is_some_and(|stat| kind(&stat) == FileType::Symlink))
}

/// Refuses what exists and is not a regular file.
fn occupied(from: &Place<'_>, to: &Place<'_>, there: FileType) -> Problem {
    let (errno, what) = match there {
        FileType::Symlink => {
            let text = "is a symlink, and copy -r does not write through symlinks below DST";
            return Problem::refused(to.shown(), Side::Sink, Errno::ELOOP, text)
                .help("remove it, or copy this file to the symlink's target without -r");
        }
        FileType::Directory => (Errno::EISDIR, "a directory"),
        FileType::Fifo => (Errno::EEXIST, "a FIFO"),
        FileType::Socket => (Errno::EEXIST, "a socket"),
        FileType::BlockDevice | FileType::CharacterDevice => (Errno::EEXIST, "a device"),
        _ => (Errno::EEXIST, "not a regular file"),
    };
    let text = format!("exists and is {what}, but {from} is a file");
    Problem::refused(to.shown(), Side::Sink, errno, text)
        .help("choose another DST, or remove it first")
}

/// Opens an existing sink while other files are under way: a file with one
/// name. A file with several names may be another copy's sink too, and their
/// order must not be left to chance. A FIFO may make the open wait, and its
/// reader would notice the open.
fn open_concurrently(
    to: &Place<'_>,
    flags: OFlags,
) -> Result<rustix::io::Result<(OwnedFd, Stat)>, OpenError> {
    let plain = |stat: &Stat| kind(stat) == FileType::RegularFile && stat.st_nlink == 1;
    if !to.stat().is_ok_and(|stat| plain(&stat)) {
        return Err(OpenError::Postponed);
    }
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open = || rustix::fs::openat(to.directory, to.name, flags, Mode::empty());
    match retry(open).and_then(with_stat) {
        Ok((_, stat)) if !plain(&stat) => Err(OpenError::Postponed),
        Ok((fd, stat)) => {
            clear_nonblock(&fd, flags);
            Ok(Ok((fd, stat)))
        }
        // It changed between the two, or another process holds a lease on it.
        Err(
            rustix::io::Errno::LOOP
            | rustix::io::Errno::NOENT
            | rustix::io::Errno::NXIO
            | rustix::io::Errno::AGAIN,
        ) => Err(OpenError::Postponed),
        done => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cordboard::Control;
    use rustix::fs::CWD;

    use super::*;

    /// Such a file system is rarely available: one name stands for both.
    #[test]
    fn of_two_names_that_differ_in_case_only_the_first_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let [from, a] = ["from", "A"].map(|name| dir.path().join(name));
        std::fs::write(&from, b"").unwrap();
        let sink = |collides| Place::below(CWD, dir.path(), &a).with_collision(collides);
        for (collides, there) in [(true, false), (false, false), (true, true), (false, true)] {
            let _ = std::fs::remove_file(&a);
            let job = Job::plain(Box::leak(Box::new(Control::new().unwrap())));
            if there {
                std::fs::write(&a, b"").unwrap();
            }
            let open = |to: &Place<'_>, open_mode| {
                let places = (&Place::top(&from), to);
                let opened = job.open(places, true, open_mode, &mut Outcome::default());
                opened.map(|opened| opened.sink.created)
            };
            let later = open(&sink(collides), OpenMode::Concurrent);
            assert_eq!(
                matches!(later, Err(OpenError::Postponed)),
                collides,
                "{later:?}"
            );
            if collides {
                assert_eq!(open(&sink(true), OpenMode::Exclusive).unwrap(), !there);
            }
            std::fs::write(&a, b"first").unwrap();
            let second = open(&sink(collides), OpenMode::Exclusive);
            match second {
                Err(OpenError::Problem(problem)) if collides => {
                    let problem = problem.to_string();
                    assert!(problem.contains("A: was just copied"), "{problem}");
                    assert_eq!(std::fs::read(&a).unwrap(), b"first");
                }
                Ok(false) if !collides => assert_eq!(std::fs::read(&a).unwrap(), b""),
                other => panic!("{other:?}"),
            }
        }
    }

    /// A file system that treats two names as one is rarely available.
    #[test]
    fn a_file_that_appeared_in_a_new_directory_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let [from, link, to] = ["from", "link", "to"].map(|name| dir.path().join(name));
        std::fs::write(&from, b"second").unwrap();
        std::os::unix::fs::symlink("second", &link).unwrap();
        let job = Job::plain(Box::leak(Box::new(Control::new().unwrap())));
        let refused = |problem: Problem| {
            let problem = problem.to_string();
            assert!(
                problem.contains("to: appeared in the new directory"),
                "{problem}"
            );
        };
        let sink = |new| Place::below(CWD, dir.path(), &to).in_new(new);
        std::fs::write(&to, b"first").unwrap();
        for open_mode in [OpenMode::Exclusive, OpenMode::Concurrent] {
            let places = (&Place::top(&from), &sink(true));
            match job.open(places, true, open_mode, &mut Outcome::default()) {
                Err(OpenError::Problem(problem)) => refused(problem),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(std::fs::read(&to).unwrap(), b"first");
        let places = (&Place::top(&from), &sink(false));
        job.open(places, true, OpenMode::Exclusive, &mut Outcome::default())
            .unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"");
        std::fs::remove_file(&to).unwrap();
        std::os::unix::fs::symlink("first", &to).unwrap();
        let from = Place::top(&link);
        let make = |to: &Place<'_>| job.link(&from, to, &mut || false, &mut Outcome::default());
        refused(make(&sink(true)).unwrap_err());
        assert_eq!(std::fs::read_link(&to).unwrap(), Path::new("first"));
        make(&sink(false)).unwrap();
        assert_eq!(std::fs::read_link(&to).unwrap(), Path::new("second"));
    }
}
