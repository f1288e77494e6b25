//! One file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cordboard::{Errno, Request, Side};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::retry_on_intr;

use super::place::Place;
use super::{Job, just_copied, kind, special, verify};
use crate::hints::Doing;
use crate::problem::Problem;
use crate::signals::{interruptible, stop};

/// The sink of one copy.
struct Made {
    fd: OwnedFd,
    /// It did not exist before.
    fresh: bool,
    /// The bytes that were in it, and stay: `--append`.
    before: u64,
}

impl Job<'_> {
    /// Copies one file; returns whether a new file was made.
    pub fn file(
        &mut self,
        from: &Place<'_>,
        to: &Place<'_>,
        follow: bool,
    ) -> Result<bool, Problem> {
        let reading = |e| Problem::call(from.shown(), Side::Source, e, Doing::Opening);
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        if !follow {
            flags |= OFlags::NOFOLLOW;
        }
        // Should it have become a FIFO meanwhile, the open must not wait.
        let waitless = flags | OFlags::NONBLOCK;
        let open = |flags| rustix::fs::openat(from.directory, from.name, flags, Mode::empty());
        let source = match retry_on_intr(|| open(waitless)) {
            // Somebody has a lease on it, which only a blocking open breaks.
            Err(rustix::io::Errno::AGAIN) => interruptible(|| open(flags))?,
            done => done,
        }
        .map_err(reading)?;
        let stat = rustix::fs::fstat(&source).map_err(reading)?;
        if kind(&stat) != FileType::RegularFile {
            return Err(special(from.path, kind(&stat)));
        }
        let made = self.make(to, &stat, (from, source.as_fd()))?;
        if self.verify {
            verify::can_be_read_back(made.fd.as_fd(), to)?;
        }
        let mut request = Request {
            sync: self.sync && !self.preserve,
            ..self.request.clone()
        };
        let dense = stat.st_blocks.saturating_mul(512) >= stat.st_size;
        if made.fresh && dense && !self.append {
            // Where both begin is known, and need not be asked.
            request.source_offset.get_or_insert(0);
            request.sink_offset = Some(0);
        }
        let total = u64::try_from(stat.st_size).ok().filter(|n| *n > 0);
        let total = total.filter(|_| !self.session.transforms());
        let others = self.session.written();
        let moved = self
            .session
            .transfer(
                (source.as_fd(), from),
                (made.fd.as_fd(), to),
                request,
                total.filter(|_| self.alone),
            )
            .and_then(|report| {
                if self.verify {
                    self.verified((source.as_fd(), from), (made.fd.as_fd(), to), &report)?;
                }
                if self.preserve {
                    self.keep(source.as_fd(), made.fd.as_fd(), &stat, to)?;
                    if self.sync {
                        rustix::fs::fsync(&made.fd)
                            .map_err(|e| Problem::call(to.shown(), Side::Sink, e, Doing::Moving))?;
                    }
                }
                Ok(())
            });
        match moved {
            Ok(()) => Ok(made.fresh),
            Err(problem) => {
                let written = self.session.written() - others;
                Err(self.account(problem, to, &made, (written, total)))
            }
        }
    }

    /// Says what is in the sink after a failure; a new file that got nothing
    /// is removed again.
    fn account(
        &mut self,
        mut problem: Problem,
        to: &Place<'_>,
        made: &Made,
        (written, total): (u64, Option<u64>),
    ) -> Problem {
        let Ok(stat) = rustix::fs::fstat(&made.fd) else {
            return problem;
        };
        if kind(&stat) != FileType::RegularFile {
            return problem;
        }
        if made.fresh && stat.st_size == 0 {
            let _ = rustix::fs::unlinkat(to.directory, to.name, AtFlags::empty());
            problem.text += &format!("; {to} was not made");
            return problem;
        }
        let of = total.map_or(String::new(), |n| format!(" of {n}"));
        let holds = match made.before {
            0 => format!("{to} holds {}{of} bytes", stat.st_size),
            // Whoever else appends to it is in its size, and not in ours.
            before => format!("{to} got {written}{of} bytes, after the {before} it had"),
        };
        if stop().is_some() {
            self.session.say(&format_args!("cordboard: {holds}"));
        } else {
            problem.text += "; ";
            problem.text += &holds;
        }
        problem
    }

    /// Opens the sink: a new file, or one whose contents are then replaced,
    /// but only once it is clear that it is not the source.
    fn make(
        &mut self,
        to: &Place<'_>,
        from: &Stat,
        (source, source_fd): (&Place<'_>, BorrowedFd<'_>),
    ) -> Result<Made, Problem> {
        let writing = |e| Problem::call(to.shown(), Side::Sink, e, Doing::Opening);
        let mut flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        if self.append {
            flags |= OFlags::APPEND;
        }
        // With -p the final mode comes last; nobody else looks in before that.
        let bits = if self.preserve { 0o700 } else { 0o777 };
        let mode = Mode::from_raw_mode(from.st_mode & bits);
        let exclusive = flags | OFlags::CREATE | OFlags::EXCL;
        match retry_on_intr(|| rustix::fs::openat(to.directory, to.name, exclusive, mode)) {
            Ok(fd) => {
                if let Some(written) = &mut self.written {
                    let stat = rustix::fs::fstat(&fd).map_err(writing)?;
                    written.insert((stat.st_dev, stat.st_ino));
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
                        .help("make it first (mkdir), or leave the slash out"),
                );
            }
            Err(errno) => return Err(writing(errno)),
        }
        let fd = match interruptible(|| rustix::fs::openat(to.directory, to.name, flags, mode))? {
            Err(rustix::io::Errno::NOENT) => {
                let text = "it is a dangling symlink, which is not written through";
                return Err(
                    Problem::refused(to.shown(), Side::Sink, Errno::ENOENT, text)
                        .help("remove it, or make what it points to"),
                );
            }
            done => done.map_err(writing)?,
        };
        let stat = rustix::fs::fstat(&fd).map_err(writing)?;
        if (stat.st_dev, stat.st_ino) == (from.st_dev, from.st_ino) {
            let text = format!("it is the same file as the source, {source}");
            return Err(
                Problem::refused(to.shown(), Side::Sink, Errno::EINVAL, text)
                    .help("nothing was written: copy it to another name"),
            );
        }
        let file = kind(&stat) == FileType::RegularFile;
        if let Some(written) = self.written.as_mut().filter(|_| file)
            && !written.insert((stat.st_dev, stat.st_ino))
        {
            return Err(just_copied(source, to));
        }
        if file && stat.st_size > 0 && !self.append {
            if !std::mem::replace(&mut self.checked, true) {
                // What is refused of one file is refused of all.
                let request = &self.request;
                self.session
                    .check((source_fd, source), (fd.as_fd(), to), request)?;
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
