//! One file, from its opening to what is to be done after its bytes are there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cordboard::{DataPath, Observer, Request, Side, Switches, Transfer};
use rustix::fs::{FileType, Mode, OFlags, Stat};

#[cfg(test)]
use super::Moment;
use super::landing::Landing;
use super::lease::{let_wait, patiently};
use super::messages::{Said, Told};
use super::parent::sync_parent;
use super::place::Place;
use super::sink::Made;
use super::{Job, kind, special, verify};
use crate::endpoint::not_opened;
use crate::failure::{Refused, ended};
use crate::hints::Doing;
use crate::problem::Problem;
use crate::removal::{id, left, remove_unused};
use crate::request;
use crate::session::Moved;
use crate::signals::{again, interruptible, stop};
use crate::stages::Besides;
use crate::sys::close;

/// How a file is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// While others are under way, on a thread that must not wait.
    Beside,
    /// With nothing else under way: it may wait, and may be what others are.
    Alone,
}

/// Why a file was not opened.
#[derive(Debug)]
pub enum Hitch {
    /// It cannot be copied.
    Problem(Problem),
    /// Not [beside](Manner::Beside) others: the order matters, it would be
    /// waited for, or too many descriptors are open.
    Later,
}

impl From<Problem> for Hitch {
    fn from(problem: Problem) -> Hitch {
        Hitch::Problem(problem)
    }
}

impl Hitch {
    /// What a call's failure means.
    pub fn of(
        errno: rustix::io::Errno,
        manner: Manner,
        problem: impl Fn(rustix::io::Errno) -> Problem,
    ) -> Hitch {
        use rustix::io::Errno;
        match errno {
            Errno::MFILE | Errno::NFILE if manner == Manner::Beside => Hitch::Later,
            errno => Hitch::Problem(problem(errno)),
        }
    }
}

/// A file that is about to be copied.
#[derive(Debug)]
pub struct Opened {
    /// It.
    pub source: OwnedFd,
    /// As it was before it was read.
    stat: Stat,
    /// Where it goes.
    pub made: Made,
    /// What is asked for.
    pub request: Request,
    /// How much of the source there is to copy, if that is known.
    pub size: Option<u64>,
    /// Where its bytes come to be, where others may append meanwhile.
    pub landing: Option<Landing>,
    /// It is to be verified, and its source can be read once.
    pub once: bool,
}

impl Opened {
    /// Both descriptors.
    pub fn ends(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.source.as_fd(), self.made.fd.as_fd())
    }

    /// What sees its bytes, if they are asked about later: what notes where they
    /// come to be.
    pub fn besides(&self) -> Besides {
        let landing = self.landing.as_ref();
        Besides {
            once: self.once,
            stage: landing.and_then(|landing| landing.stage(self.made.fd.as_fd())),
        }
    }
}

impl Job {
    /// Opens both sides.
    pub fn open(
        &self,
        (from, to): (&Place<'_>, &Place<'_>),
        follow: bool,
        manner: Manner,
        told: &mut Told,
    ) -> Result<Opened, Hitch> {
        #[cfg(test)]
        self.fault
            .iter()
            .for_each(|fault| fault(Moment::Opening, from.name));
        let reading = |e| not_opened(&from.path(), from.shown(), Side::Source, e);
        // Should it have become a FIFO meanwhile, the open must not wait.
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        // With -r a symlink is copied as one, and this was found to be none.
        if !follow || self.recursive {
            flags |= OFlags::NOFOLLOW;
        }
        let open = || rustix::fs::openat(from.directory, from.name, flags, Mode::empty());
        let mut source = match self.spares.relieve(|| again(open)) {
            // Another process has a lease on it.
            Err(rustix::io::Errno::AGAIN) if manner == Manner::Beside => return Err(Hitch::Later),
            Err(rustix::io::Errno::AGAIN) => patiently(from, flags)?,
            done => done,
        }
        .map_err(|e| Hitch::of(e, manner, reading))?;
        let stat = again(|| rustix::fs::fstat(&source)).map_err(reading)?;
        let file = kind(&stat) == FileType::RegularFile;
        if file {
            let_wait(&source, flags);
        } else if !follow {
            return Err(special(&from.path(), kind(&stat), self.recursive).into());
        } else {
            self.takes(&from.path(), &stat)?;
            if kind(&stat) == FileType::BlockDevice {
                source = in_earnest(from, flags, &stat)?;
            }
        }
        let made = self.make(to, &stat, (from, source.as_fd()), manner, told)?;
        if self.staging.verify {
            verify::can_be_read_back(made.fd.as_fd(), to)?;
        }
        let mut request = Request {
            sync: self.sync && !self.preserve,
            source_unshared: true,
            sink_unshared: true,
            ..self.request.clone()
        };
        // Both are unsigned on some architectures and signed on others.
        let dense = i128::from(stat.st_blocks) * 512 >= i128::from(stat.st_size);
        let switches = request.switches.or_else(|| Switches::from_env().ok());
        // It writes at the sink's own position only.
        let sendfile = switches.and_then(Switches::forced) == Some(DataPath::Sendfile);
        if file && made.fresh && dense && !self.append && !sendfile {
            // Where both begin is known: no call moves a position, or asks for
            // one. What has none has no offsets either.
            if request.source_offset.is_none() && seeks(source.as_fd()) {
                request.source_offset = Some(0);
            }
            request.sink_offset = seeks(made.fd.as_fd()).then_some(0);
        }
        let seen = self.append && self.staging.verify && seeks(made.fd.as_fd());
        Ok(Opened {
            landing: seen.then(Landing::new),
            size: match file {
                true => {
                    let size = u64::try_from(stat.st_size).ok().filter(|n| *n > 0);
                    let offset = request.source_offset.unwrap_or(0);
                    let there = size.map(|size| size.saturating_sub(offset));
                    request::at_most(there, &request)
                }
                false => request::total(source.as_fd(), &request),
            },
            once: self.besides(source.as_fd()).once,
            source,
            stat,
            made,
            request,
        })
    }

    /// Copies the bytes on this thread, which `watch` hears of.
    pub fn carry(
        &self,
        opened: &Opened,
        (from, to): (&Place<'_>, &Place<'_>),
        watch: &mut (dyn Observer + Send),
    ) -> Moved {
        let (source, sink) = opened.ends();
        let transfer = Transfer::new(source, sink, opened.request.clone());
        match self.staging.onto(transfer, opened.besides(), from, to) {
            Ok(transfer) => {
                let report = transfer.control(self.control).observe(watch).run().report;
                let done = ended(&report, (source, from), (sink, to));
                (Some(report), done)
            }
            Err(Refused { report, problem }) => (report.map(|r| *r), Err(*problem)),
        }
    }

    /// What comes after the bytes: attributes, the disk, the end of the
    /// descriptors, and after a failure the account of what is there.
    pub fn settle(
        &self,
        opened: Opened,
        (from, to): (&Place<'_>, &Place<'_>),
        top: bool,
        (mut report, moved): Moved,
        told: &mut Told,
    ) {
        report.iter_mut().for_each(Landing::hide);
        #[cfg(test)]
        self.fault
            .iter()
            .for_each(|fault| fault(Moment::Settling, from.name));
        let sink = opened.made.fd.as_fd();
        let written = report.as_ref().map_or(0, |report| report.written);
        let complete = moved.is_ok();
        let done = moved.and_then(|()| {
            let report = report.as_ref().expect("it was moved");
            for line in self.staging.sums(report, &from.shown()) {
                told.line(line);
            }
            if self.staging.verify {
                self.verified(&opened, (from, to), report)?;
                told.verified = Some(report.written);
            }
            self.keep_all(&opened, (from, to), told)
        });
        told.report = report;
        let mut again = false;
        let done = match done {
            Ok(()) if top && self.sync && opened.made.fresh => sync_parent(&to.path(), Some(sink)),
            Ok(()) => Ok(()),
            Err(problem) => {
                // What is full for attributes alone is one file's matter.
                again = !complete && self.is_told(&problem);
                // Of other bytes than its own, nobody knows how many there are.
                let total = opened.size.filter(|_| !self.staging.stages.transform());
                let state = State {
                    complete,
                    written,
                    total,
                    again,
                };
                Err(account(problem, to, &opened.made, &state, told))
            }
        };
        let closed = match close(opened.made.fd) {
            // All of it is on the disk.
            Err(rustix::io::Errno::INTR) if self.sync => Ok(()),
            closed => closed.map_err(|errno| Problem::closing(to.shown(), errno)),
        };
        told.said.extend(match (done, closed) {
            (Ok(()), closed) => closed.err().map(|problem| self.failed(problem)),
            (Err(problem), _) if again => Some(Said::Again(problem)),
            (Err(problem), _) => Some(Said::Problem(problem)),
        });
    }

    fn keep_all(
        &self,
        opened: &Opened,
        (from, to): (&Place<'_>, &Place<'_>),
        told: &mut Told,
    ) -> Result<(), Problem> {
        if !self.preserve {
            return Ok(());
        }
        let (source, sink) = opened.ends();
        let kept = self.keep((from, source), (to, sink), &opened.stat, told);
        // Whatever it has of them: its contents are to be on the disk.
        if self.sync {
            interruptible(|| rustix::fs::fsync(sink))?
                .map_err(|e| Problem::call(to.shown(), Side::Sink, e, Doing::Syncing))?;
        }
        kept
    }
}

/// A FUSE file may have no positions (`FOPEN_NONSEEKABLE`).
pub fn seeks(file: BorrowedFd<'_>) -> bool {
    rustix::fs::tell(file).is_ok()
}

/// Opens a block device that is there: with `O_NONBLOCK` one without a medium
/// opens too, and is empty (`BLK_OPEN_NDELAY`, block/bdev.c).
fn in_earnest(from: &Place<'_>, flags: OFlags, known: &Stat) -> Result<OwnedFd, Problem> {
    let reading = |e| Problem::call(from.shown(), Side::Source, e, Doing::Opening);
    let flags = flags - OFlags::NONBLOCK;
    let open = || rustix::fs::openat(from.directory, from.name, flags, Mode::empty());
    let source = interruptible(open)?.map_err(reading)?;
    let stat = again(|| rustix::fs::fstat(&source)).map_err(reading)?;
    match id(&stat) == id(known) {
        true => Ok(source),
        false => Err(reading(rustix::io::Errno::STALE)),
    }
}

/// How far a copy came that has failed.
struct State {
    /// All bytes are there.
    complete: bool,
    written: u64,
    /// Bytes that there were to be, where that is known.
    total: Option<u64>,
    /// It was told of another that failed for the same.
    again: bool,
}

/// Says what is in the sink after a failure; a new file that got nothing of
/// what it should have is removed again.
fn account(
    mut problem: Problem,
    to: &Place<'_>,
    made: &Made,
    state: &State,
    told: &mut Told,
) -> Problem {
    let Ok(stat) = again(|| rustix::fs::fstat(&made.fd)) else {
        return problem;
    };
    if kind(&stat) != FileType::RegularFile {
        return problem;
    }
    if made.fresh && stat.st_size == 0 && !state.complete {
        let removed = remove_unused(to.directory, to.name, made.fd.as_fd());
        match left(to, removed) {
            None => problem.text += &format!("; {to} was not made"),
            Some(left) if state.again || stop().is_some() => {
                told.line(format_args!("cordboard: {left}"));
            }
            Some(left) => problem.text += &format!("; {left}"),
        }
        return problem;
    }
    let of = state.total.map_or(String::new(), |n| format!(" of {n}"));
    let holds = match made.before {
        // What was made for the rest could not be cut off again.
        0 if stat.st_size as u64 > state.written => {
            let copied = match state.written {
                0 => "none were copied".to_owned(),
                written => format!("{written} were copied"),
            };
            format!("{to} is {} bytes long, of which {copied}", stat.st_size)
        }
        0 => format!("{to} holds {}{of} bytes", stat.st_size),
        // Whoever else appends to it is in its size, and not in ours.
        before => {
            let written = state.written;
            format!("{to} got {written}{of} bytes, after the {before} it had")
        }
    };
    if state.again || stop().is_some() {
        told.line(format_args!("cordboard: {holds}"));
    } else {
        problem.text += "; ";
        problem.text += &holds;
    }
    problem
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cordboard::{Control, Errno};

    use super::*;

    /// A copy to `sink` that fails before its first byte, after `meanwhile`;
    /// returns what it says.
    fn failing(dir: &Path, meanwhile: impl FnOnce()) -> String {
        let [from, to] = ["from", "sink"].map(|name| dir.join(name));
        std::fs::write(&from, b"contents").unwrap();
        let job = Job::plain(Box::leak(Box::new(Control::new().unwrap())));
        let places = (Place::top(&from), Place::top(&to));
        let places = (&places.0, &places.1);
        let mut told = Told::default();
        let opened = job.open(places, true, Manner::Alone, &mut told).unwrap();
        meanwhile();
        let failed = Problem::call("from", Side::Source, Errno::EIO, Doing::Moving);
        job.settle(opened, places, true, (None, Err(failed)), &mut told);
        match told.said.pop() {
            Some(Said::Problem(problem)) => problem.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// Bytes were made and never written, and cannot be cut off again.
    #[test]
    fn a_sink_longer_than_what_was_copied_does_not_hold_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("sink");
        for (length, written, says) in [
            (8, 8, "sink holds 8 of 8 bytes"),
            (3, 3, "sink holds 3 of 8 bytes"),
            (8, 3, "sink is 8 bytes long, of which 3 were copied"),
            (8, 0, "sink is 8 bytes long, of which none were copied"),
        ] {
            let file = std::fs::File::create(&at).unwrap();
            file.set_len(length).unwrap();
            let made = Made {
                fd: file.into(),
                fresh: false,
                before: 0,
            };
            let state = State {
                complete: written == 8,
                written,
                total: Some(8),
                again: false,
            };
            let failed = Problem::call("sink", Side::Sink, Errno::EIO, Doing::Moving);
            let (to, told) = (Place::top(&at), &mut Told::default());
            let said = account(failed, &to, &made, &state, told).to_string();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn what_has_the_name_of_a_failed_copy_is_removed_if_it_is_that_copy() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let said = failing(dir.path(), || {});
        assert!(said.contains("sink was not made"), "{said}");
        assert!(!at("sink").exists());
        // Another process has it open, or has written to it.
        let opened = std::cell::RefCell::new(None);
        let append = || std::fs::OpenOptions::new().append(true).open(at("sink"));
        let said = failing(dir.path(), || *opened.borrow_mut() = append().ok());
        assert!(
            said.contains("sink is left, as another process may"),
            "{said}"
        );
        assert!(said.contains("(EAGAIN)"), "{said}");
        assert!(at("sink").exists());
        drop(opened);
        std::fs::remove_file(at("sink")).unwrap();
        // Another process puts a file of its own there.
        std::fs::write(at("theirs"), b"precious").unwrap();
        let said = failing(dir.path(), || {
            std::fs::rename(at("theirs"), at("sink")).unwrap();
        });
        assert!(said.contains("sink was moved or replaced"), "{said}");
        assert_eq!(std::fs::read(at("sink")).unwrap(), b"precious");
        // Or has moved ours, and made another.
        std::fs::remove_file(at("sink")).unwrap();
        let said = failing(dir.path(), || {
            std::fs::rename(at("sink"), at("moved")).unwrap();
            std::os::unix::fs::symlink("moved", at("sink")).unwrap();
        });
        assert!(said.contains("sink was moved or replaced"), "{said}");
        assert!(at("sink").is_symlink() && at("moved").exists());
    }
}
