//! Copying the bytes of one file, and what follows: verification, attributes,
//! the disk, the closing, and after a failure what the sink holds.

use std::os::fd::AsFd;

use cordboard::{Errno, Observer, Progress, Request, Side, Transfer};
use rustix::fs::FileType;

use super::appended::AppendedRanges;
use super::opened::{Opened, SinkFile};
use crate::copy::job::Job;
#[cfg(test)]
use crate::copy::job::Moment;
use crate::copy::outcome::{Message, Outcome};
use crate::copy::place::Place;
use crate::directory::sync_parent;
use crate::endpoint::path_in_hash_lines;
use crate::files::{is_pseudo, kind, leftover, remove_unused};
use crate::interruptible::interruptible;
use crate::problem::{Action, Problem, Refused, past_largest_offset, result_of};
use crate::session::Moved;
use crate::signals::{retry, stop};
use crate::sys::close;
use crate::units::number_of;

/// Observes the transfer of a file, and its verification.
pub trait CopyObserver: Observer + Send {
    /// More of the sink was read back and compared. `bytes`: of all sinks.
    fn read_back(&mut self, bytes: u64);
}

/// An observer that ignores progress. The walk's thread shows the total of the
/// threads that no signal reaches.
pub struct NoObserver;

impl Observer for NoObserver {
    fn progress(&mut self, _: &Progress) {}
}

impl CopyObserver for NoObserver {
    fn read_back(&mut self, _: u64) {}
}

impl Job {
    /// Copies the bytes on this thread. `watch` observes the progress.
    pub fn copy_bytes(
        &self,
        opened: &mut Opened,
        (from, to): (&Place<'_>, &Place<'_>),
        watch: &mut dyn CopyObserver,
    ) -> Moved {
        let extras = opened.extras();
        let (source, sink) = opened.ends();
        let transfer = Transfer::new(source, sink, opened.request.clone());
        match self.staging.onto(transfer, extras, from, to) {
            Ok(transfer) => {
                let report = transfer.control(self.control).observe(watch).run().report;
                let done = result_of(&report, (source, from), (sink, to));
                (Some(report), done)
            }
            Err(refused) => refused.into_moved(),
        }
    }

    /// With `-p`, the sink is synchronized after its attributes are set, and only a large one by
    /// the transfer too. A sink that cannot be synchronized is refused before any byte.
    pub fn refuse_sync(
        &self,
        opened: &Opened,
        (from, to): (&Place<'_>, &Place<'_>),
    ) -> Result<(), Refused> {
        if !self.sync || opened.request.sync {
            return Ok(());
        }
        let (source, sink) = opened.ends();
        let request = Request {
            sync: true,
            ..opened.request.clone()
        };
        let tried = Transfer::new(source, sink, request);
        tried
            .map(drop)
            .map_err(|failure| Refused::of(&failure, from, to))
    }

    /// What follows the bytes: verification, attributes, the disk, closing, and
    /// after a failure the state of the sink.
    pub fn settle(
        &self,
        opened: Opened,
        (from, to): (&Place<'_>, &Place<'_>),
        top: bool,
        (mut report, moved): Moved,
        (outcome, watch): (&mut Outcome, &mut dyn CopyObserver),
    ) {
        report.iter_mut().for_each(AppendedRanges::hide);
        #[cfg(test)]
        self.fault
            .iter()
            .for_each(|fault| fault(Moment::Settling, from.name));
        let sink = opened.sink.fd.as_fd();
        let written = report.as_ref().map_or(0, |report| report.written);
        let complete = moved.is_ok();
        let done = moved.and_then(|()| {
            let report = report.as_ref().expect("it was moved");
            let name = path_in_hash_lines(&from.path());
            for line in self.staging.hash_lines(report, &name) {
                let of_file = kind(&opened.stat) == FileType::RegularFile;
                outcome.messages.push(Message::Hash { line, of_file });
            }
            if self.staging.verify {
                if let Err(problem) = self.verified(&opened, (from, to), report, watch) {
                    // The copy is complete if only its verification was interrupted.
                    if problem.is_stop() {
                        let _ = self.preserve_attributes(&opened, (from, to), outcome);
                    }
                    return Err(problem);
                }
                outcome.verified = Some(report.written);
            }
            self.preserve_attributes(&opened, (from, to), outcome)
        });
        outcome.report = report;
        let mut again = false;
        let done = match done {
            Ok(()) if top && self.sync && opened.sink.created => {
                sync_parent(&to.path(), Some(sink)).map_err(|problem| {
                    let problem = self.of_one_part(problem, to);
                    again = self.is_repeated(&problem);
                    problem
                })
            }
            Ok(()) => Ok(()),
            Err(problem) => {
                let mut problem = problem.at(sink);
                let first = (opened.request.source_offset, Some(opened.sink.start));
                let report = outcome.report.as_ref();
                if let Some(hint) = report.and_then(|report| past_largest_offset(report, first)) {
                    problem = problem.help(hint);
                }
                let lacks_space = problem.side == Some(Side::Sink)
                    && matches!(problem.errno, Some(Errno::ENOSPC | Errno::EDQUOT));
                problem = self.of_one_part(problem, to);
                again = self.is_repeated(&problem);
                // The total is unknown if stages change the bytes.
                let total = opened.size.filter(|_| !self.staging.stages.transform());
                let state = FailedCopy {
                    complete,
                    written,
                    total,
                    // All bytes were accepted, and then the disk had no space for them.
                    is_unsynced: lacks_space && written > 0 && total == Some(written),
                    again,
                };
                Err(describe_sink(problem, to, &opened.sink, &state, outcome))
            }
        };
        let duplicate = opened.appended.and_then(AppendedRanges::into_duplicate);
        let mut closed = Ok(());
        for fd in duplicate.into_iter().chain([opened.sink.fd]) {
            let one = match close(fd) {
                // The contents are on the disk.
                Err(rustix::io::Errno::INTR) if self.sync => Ok(()),
                done => done.map_err(|errno| Problem::closing(to.shown(), errno)),
            };
            closed = closed.and(one);
        }
        outcome.messages.extend(match (done, closed) {
            (Ok(()), closed) => closed.err().map(|problem| self.failed_at(problem, to)),
            (Err(problem), _) if again => Some(Message::Repeated(problem)),
            (Err(problem), _) => Some(Message::Problem(problem)),
        });
    }

    fn preserve_attributes(
        &self,
        opened: &Opened,
        (from, to): (&Place<'_>, &Place<'_>),
        outcome: &mut Outcome,
    ) -> Result<(), Problem> {
        if !self.preserve {
            return Ok(());
        }
        let (source, sink) = opened.ends();
        // Those of a device or a FIFO belong to the system, and not to the bytes.
        let kept = match opened.sink.is_file {
            true => {
                let sink = (to, sink, opened.sink.created);
                self.preserve((from, source), sink, &opened.stat, outcome)
            }
            false => Ok(()),
        };
        // Whatever happened to the attributes, the contents go to the disk.
        if self.sync {
            interruptible(|| rustix::fs::fsync(sink))?
                .map_err(|e| Problem::call(to.shown(), Side::Sink, e, Action::Sync))?;
        }
        kept
    }
}

/// The state of a copy that has failed.
struct FailedCopy {
    /// All bytes were written.
    complete: bool,
    written: u64,
    /// The number of bytes to copy, if known.
    total: Option<u64>,
    /// All bytes were written, but not all of them are on the disk.
    is_unsynced: bool,
    /// The same cause was reported for another file.
    again: bool,
}

/// Adds to a failure what the sink holds. Removes a new file that is empty.
fn describe_sink(
    mut problem: Problem,
    to: &Place<'_>,
    sink_file: &SinkFile,
    state: &FailedCopy,
    outcome: &mut Outcome,
) -> Problem {
    let Ok(stat) = retry(|| cordboard::fstat(&sink_file.fd)) else {
        return problem;
    };
    let is_file = kind(&stat) == FileType::RegularFile;
    if !is_file || is_pseudo(sink_file.fd.as_fd()) {
        return problem;
    }
    if sink_file.created && stat.st_size == 0 && !state.complete {
        let removed = remove_unused(to.directory, to.name, sink_file.fd.as_fd());
        match leftover(to, removed) {
            None => problem.text += &format!("; {to} was not created"),
            Some(left) if state.again || stop().is_some() => {
                outcome.add(format_args!("cordboard: {left}"));
            }
            Some(left) => problem.text += &format!("; {left}"),
        }
        return problem;
    }
    let of_all = |n: u64| match state.total {
        Some(total) => format!("{n} of {}", number_of(total, "byte")),
        None => number_of(n, "byte"),
    };
    let mut holds = match sink_file.before {
        // It has the bytes of others too.
        before if sink_file.start != before => {
            let (written, start) = (of_all(state.written), sink_file.start);
            format!("{to} got {written} at byte {start}")
        }
        // The preallocated rest could not be truncated.
        0 if stat.st_size as u64 > state.written => {
            let copied = match state.written {
                0 => "no bytes were copied".to_owned(),
                1 => "1 was copied".to_owned(),
                written => format!("{written} were copied"),
            };
            let size = number_of(stat.st_size as u64, "byte");
            format!("{to} is {size} long, of which {copied}")
        }
        0 => format!("{to} holds {}", of_all(stat.st_size as u64)),
        // Other processes may append to it too: the size says nothing about
        // this copy.
        before => {
            let written = of_all(state.written);
            format!("{to} got {written} after the {before} it had")
        }
    };
    if state.is_unsynced {
        holds += ", not all of them on the disk";
    }
    if state.again || stop().is_some() {
        outcome.add(format_args!("cordboard: {holds}"));
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
    use crate::copy::one_file::mode::OpenMode;

    /// Returns the message of a copy to `sink` that fails before its first
    /// byte, after `meanwhile`.
    fn failing(dir: &Path, meanwhile: impl FnOnce()) -> String {
        let [from, to] = ["from", "sink"].map(|name| dir.join(name));
        std::fs::write(&from, b"contents").unwrap();
        let job = Job::plain(Box::leak(Box::new(Control::new().unwrap())));
        let places = (Place::top(&from), Place::top(&to));
        let places = (&places.0, &places.1);
        let mut outcome = Outcome::default();
        let opened = job
            .open(places, true, OpenMode::Exclusive, &mut outcome)
            .unwrap();
        meanwhile();
        let failed = Problem::call("from", Side::Source, Errno::EIO, Action::Transfer);
        let ended = (&mut outcome, &mut NoObserver as &mut dyn CopyObserver);
        job.settle(opened, places, true, (None, Err(failed)), ended);
        match outcome.messages.pop() {
            Some(Message::Problem(problem)) => problem.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// The preallocated rest could not be truncated.
    #[test]
    fn a_sink_longer_than_what_was_copied_does_not_hold_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("sink");
        for (length, written, total, says) in [
            (8, 8, Some(8), "sink holds 8 of 8 bytes"),
            (3, 3, Some(8), "sink holds 3 of 8 bytes"),
            (1, 1, None, "sink holds 1 byte"),
            (1, 1, Some(1), "sink holds 1 of 1 byte"),
            (
                8,
                3,
                Some(8),
                "sink is 8 bytes long, of which 3 were copied",
            ),
            (2, 1, Some(8), "sink is 2 bytes long, of which 1 was copied"),
            (
                1,
                0,
                Some(8),
                "sink is 1 byte long, of which no bytes were copied",
            ),
        ] {
            let file = std::fs::File::create(&at).unwrap();
            file.set_len(length).unwrap();
            let sink_file = SinkFile {
                fd: file.into(),
                created: false,
                is_file: true,
                before: 0,
                start: 0,
            };
            let state = FailedCopy {
                complete: total.is_none_or(|total| total == written),
                written,
                total,
                is_unsynced: false,
                again: false,
            };
            let failed = Problem::call("sink", Side::Sink, Errno::EIO, Action::Transfer);
            let (to, outcome) = (Place::top(&at), &mut Outcome::default());
            let message = describe_sink(failed, &to, &sink_file, &state, outcome).to_string();
            let mut found = message.split("; ");
            assert!(found.any(|part| part.ends_with(says)), "{message}");
        }
    }

    #[test]
    fn a_range_that_was_written_in_part_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("sink");
        for (before, start, says) in [
            (100, 7, "sink got 3 of 8 bytes at byte 7"),
            (100, 0, "sink got 3 of 8 bytes at byte 0"),
            (0, 7, "sink got 3 of 8 bytes at byte 7"),
            (100, 100, "sink got 3 of 8 bytes after the 100 it had"),
        ] {
            let file = std::fs::File::create(&at).unwrap();
            file.set_len(before.max(start + 3)).unwrap();
            let sink_file = SinkFile {
                fd: file.into(),
                created: false,
                is_file: true,
                before,
                start,
            };
            let state = FailedCopy {
                complete: false,
                written: 3,
                total: Some(8),
                is_unsynced: false,
                again: false,
            };
            let failed = Problem::call("sink", Side::Sink, Errno::EIO, Action::Transfer);
            let (to, outcome) = (Place::top(&at), &mut Outcome::default());
            let message = describe_sink(failed, &to, &sink_file, &state, outcome).to_string();
            assert!(message.contains(&format!("{says}; ")), "{message}");
        }
    }

    #[test]
    fn what_has_the_name_of_a_failed_copy_is_removed_if_it_is_that_copy() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let message = failing(dir.path(), || {});
        assert!(message.contains("sink was not created"), "{message}");
        assert!(!at("sink").exists());
        // Another process has it open, or has written to it.
        let opened = std::cell::RefCell::new(None);
        let append = || std::fs::OpenOptions::new().append(true).open(at("sink"));
        let message = failing(dir.path(), || *opened.borrow_mut() = append().ok());
        assert!(
            message.contains("sink was not removed, as another process may"),
            "{message}"
        );
        assert!(message.contains("(EAGAIN)"), "{message}");
        assert!(at("sink").exists());
        drop(opened);
        std::fs::remove_file(at("sink")).unwrap();
        // Another process puts a file of its own there.
        std::fs::write(at("theirs"), b"precious").unwrap();
        let message = failing(dir.path(), || {
            std::fs::rename(at("theirs"), at("sink")).unwrap();
        });
        assert!(message.contains("sink was moved or replaced"), "{message}");
        assert_eq!(std::fs::read(at("sink")).unwrap(), b"precious");
        // Or moves this file, and creates another.
        std::fs::remove_file(at("sink")).unwrap();
        let message = failing(dir.path(), || {
            std::fs::rename(at("sink"), at("moved")).unwrap();
            std::os::unix::fs::symlink("moved", at("sink")).unwrap();
        });
        assert!(message.contains("sink was moved or replaced"), "{message}");
        assert!(at("sink").is_symlink() && at("moved").exists());
    }
}
