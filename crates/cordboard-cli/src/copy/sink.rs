//! The file that a copy goes to: a new one, or one whose contents are replaced
//! once it is clear that it is not the source.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use cordboard::{Errno, Side, Transfer};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::retry_on_intr;

use super::chain::id;
use super::one::{Hitch, Manner};
use super::place::Place;
use super::told::Told;
use super::{Job, just_copied, kind};
use crate::failure::Refused;
use crate::hints::Doing;
use crate::problem::Problem;
use crate::signals::interruptible;

/// The sink of one copy.
#[derive(Debug)]
pub struct Made {
    /// It.
    pub fd: OwnedFd,
    /// It did not exist before.
    pub fresh: bool,
    /// The bytes that were in it, and stay: `--append`.
    pub before: u64,
}

impl Job {
    /// Opens or makes it.
    pub fn make(
        &self,
        to: &Place<'_>,
        from: &Stat,
        source: (&Place<'_>, BorrowedFd<'_>),
        manner: Manner,
        told: &mut Told,
    ) -> Result<Made, Hitch> {
        let verify = self.staging.verify;
        let writing = |e| {
            let problem = Problem::call(to.shown(), Side::Sink, e, Doing::Opening);
            match e {
                rustix::io::Errno::ACCESS if verify => problem
                    .help("to be verified it must be readable too; give the permission, or leave --verify out"),
                _ => problem,
            }
        };
        // What is to be verified is read by the same descriptor: another is not
        // to be had of a file that may not be read, or without /proc.
        let access = if verify { OFlags::RDWR } else { OFlags::WRONLY };
        let mut flags = access | OFlags::CLOEXEC | OFlags::NOCTTY;
        if self.append {
            flags |= OFlags::APPEND;
        }
        // With -p the final mode comes last; nobody else looks in before that.
        let bits = if self.preserve { 0o700 } else { 0o777 };
        let mode = Mode::from_raw_mode(from.st_mode & bits);
        let exclusive = flags | OFlags::CREATE | OFlags::EXCL;
        match retry_on_intr(|| rustix::fs::openat(to.directory, to.name, exclusive, mode)) {
            Ok(fd) => {
                if let Some(written) = &self.written {
                    let stat = rustix::fs::fstat(&fd).map_err(writing)?;
                    written.add(&stat);
                }
                return Ok(Made {
                    fd,
                    fresh: true,
                    before: 0,
                });
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(rustix::io::Errno::ISDIR) => {
                // Its name ends in a slash.
                let text = "there is no such directory";
                return Err(
                    Problem::refused(to.shown(), Side::Sink, Errno::ENOTDIR, text)
                        .help("make it first (mkdir), or leave the slash out")
                        .into(),
                );
            }
            Err(errno) => return Err(Hitch::of(errno, manner, writing)),
        }
        let fd = match manner {
            Manner::Beside => beside(to, flags)?,
            Manner::Alone => {
                // A symlink is followed, but not one that was just copied.
                if let Some(written) = &self.written {
                    written.admit(source.0, to)?;
                }
                interruptible(|| rustix::fs::openat(to.directory, to.name, flags, mode))?
            }
        };
        let fd = match fd {
            Err(rustix::io::Errno::NOENT) => {
                let text = "it is a dangling symlink, which is not written through";
                return Err(
                    Problem::refused(to.shown(), Side::Sink, Errno::ENOENT, text)
                        .help("remove it, or make what it points to")
                        .into(),
                );
            }
            done => done.map_err(|e| Hitch::of(e, manner, writing))?,
        };
        self.replace(to, fd, from, source, told)
    }

    /// Takes what is there for the sink, if it may be.
    fn replace(
        &self,
        to: &Place<'_>,
        fd: OwnedFd,
        from: &Stat,
        (source, source_fd): (&Place<'_>, BorrowedFd<'_>),
        told: &mut Told,
    ) -> Result<Made, Hitch> {
        let writing = |e| Problem::call(to.shown(), Side::Sink, e, Doing::Opening);
        let stat = rustix::fs::fstat(&fd).map_err(writing)?;
        if id(&stat) == id(from) {
            let text = format!("it is the same file as the source, {source}");
            return Err(
                Problem::refused(to.shown(), Side::Sink, Errno::EINVAL, text)
                    .help("nothing was written: copy it to another name")
                    .into(),
            );
        }
        if self.append {
            crate::endpoint::has_end(&stat, &to.path().to_string_lossy())?;
        }
        let file = kind(&stat) == FileType::RegularFile;
        if let Some(written) = self.written.as_ref().filter(|_| file)
            && !written.add(&stat)
        {
            return Err(just_copied(source, to).into());
        }
        if file && stat.st_size > 0 && !self.append {
            // What is refused of one file is refused of all.
            if !self.checked.load(Ordering::Relaxed) {
                let request = self.request.clone();
                let transfer = Transfer::new(source_fd, fd.as_fd(), request);
                let refused = self.staging.onto(transfer, source, to).err();
                if let Some(Refused { report, problem }) = refused {
                    told.report = report.map(|r| *r);
                    return Err((*problem).into());
                }
                self.checked.store(true, Ordering::Relaxed);
            }
            rustix::fs::ftruncate(&fd, 0).map_err(writing)?;
        }
        let before = match self.append && file {
            true => u64::try_from(stat.st_size).unwrap_or(0),
            false => 0,
        };
        Ok(Made {
            fd,
            fresh: false,
            before,
        })
    }
}

/// Opens a sink that is there, while others are under way: a file that has but
/// this name. One of several names may be another's sink too, and which of the
/// two is last shall not be left to chance; a FIFO may have to be waited for,
/// and to look at one by opening it would be seen by its reader.
fn beside(to: &Place<'_>, flags: OFlags) -> Result<rustix::io::Result<OwnedFd>, Hitch> {
    let plain = |stat: &Stat| kind(stat) == FileType::RegularFile && stat.st_nlink == 1;
    let there = rustix::fs::statat(to.directory, to.name, AtFlags::SYMLINK_NOFOLLOW);
    if !there.is_ok_and(|stat| plain(&stat)) {
        return Err(Hitch::Later);
    }
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open = || rustix::fs::openat(to.directory, to.name, flags, Mode::empty());
    match retry_on_intr(open) {
        Ok(fd) if !rustix::fs::fstat(&fd).is_ok_and(|stat| plain(&stat)) => Err(Hitch::Later),
        // It changed between the two, or somebody has a lease on it.
        Err(
            rustix::io::Errno::LOOP
            | rustix::io::Errno::NOENT
            | rustix::io::Errno::NXIO
            | rustix::io::Errno::AGAIN,
        ) => Err(Hitch::Later),
        done => Ok(done),
    }
}
