//! The video: a transfer for each frame, on the player's own thread.

use std::os::fd::AsFd;

use cordboard::{Control, Ended, Errno, Observer, Report, Request, Side, Size, Transfer};
use rustix::fs::{FileType, SeekFrom};

use super::show::{Close, Step, Then};
use crate::endpoint::{Opened, discard_sink};
use crate::problem::{Problem, action_at, operand_of, request_refused, transfer_failed};
use crate::report::Account;

/// Frames that are read ahead, and bytes at most: the cache is others' too.
const AHEAD: u64 = 2;
const AHEAD_BYTES: u64 = 64 << 20;

/// The video on its way.
pub struct Video {
    source: Opened,
    sink: Opened,
    /// Of one frame.
    request: Request,
    frame: u64,
    /// Of a file, up to where it is being read ahead.
    ahead: Option<u64>,
    /// All frames that were passed on, and parts of frames.
    account: Account,
    /// What went wrong.
    problem: Option<Problem>,
}

impl Video {
    /// Frames as `request` asks for one.
    pub fn new(source: Opened, sink: Opened, request: Request) -> Video {
        let frame = match request.size {
            Size::Bytes(bytes) => bytes,
            // All there is, as one.
            _ => u64::MAX,
        };
        let file = is_file(&source);
        Video {
            source,
            sink,
            request,
            frame,
            ahead: file.then_some(0),
            account: Account::default(),
            problem: None,
        }
    }

    /// Has the kernel read the next frames of a file while there is time, so
    /// that none waits for its disk when it is due. `posix_fadvise(2)`.
    pub fn read_ahead(&mut self) {
        let (Some(ahead), Ok(here)) = (self.ahead, rustix::fs::tell(&self.source)) else {
            return;
        };
        let end = here.saturating_add(self.frame.saturating_mul(AHEAD).min(AHEAD_BYTES));
        let from = ahead.max(here);
        let length = std::num::NonZeroU64::new(end.saturating_sub(from));
        let Some(length) = length.filter(|_| i64::try_from(end).is_ok()) else {
            return;
        };
        let advice = rustix::fs::Advice::WillNeed;
        let done = rustix::fs::fadvise(&self.source, from, Some(length), advice);
        // A file system that takes no advice is asked no more.
        self.ahead = done.is_ok().then_some(end);
    }

    /// Passes a frame on.
    pub fn show(&mut self, control: &Control, observer: impl Observer + Send) -> Step {
        let (source, sink) = (self.source.as_fd(), self.sink.as_fd());
        let moved = Transfer::new(source, sink, self.request.clone())
            .map(|transfer| transfer.control(control).observe(observer).run().report);
        match moved {
            Ok(report) => {
                self.account.add(&report);
                self.judge(&report)
            }
            Err(failure) => {
                let who = self.operand(failure.report.failed);
                self.fail(0, request_refused(who, &failure))
            }
        }
    }

    /// Passes a frame over: a file is moved on, all else is read.
    pub fn skip(&mut self, control: &Control, observer: impl Observer + Send) -> Step {
        if self.seek() {
            return Step {
                bytes: self.frame,
                then: Then::Next,
            };
        }
        match self.discard(control, observer) {
            Ok(report) => self.judge(&report),
            Err(problem) => self.fail(0, problem),
        }
    }

    fn discard(
        &self,
        control: &Control,
        observer: impl Observer + Send,
    ) -> Result<Report, Problem> {
        let nowhere = discard_sink().map_err(|error| {
            let errno = Errno::from(error);
            let text = format!("{errno} making a sink for frames to drop");
            Problem::refused(self.source.shown.as_str(), Side::Source, errno, text)
        })?;
        Transfer::new(self.source.as_fd(), nowhere.as_fd(), self.request.clone())
            .map(|transfer| transfer.control(control).observe(observer).run().report)
            .map_err(|failure| request_refused(self.source.shown.clone(), &failure))
    }

    /// True if the source is a file that has another whole frame.
    fn seek(&self) -> bool {
        let there = rustix::fs::fstat(&self.source).map(|stat| stat.st_size as u64);
        let here = rustix::fs::tell(&self.source);
        let (true, Ok(there), Ok(here)) = (is_file(&self.source), there, here) else {
            return false;
        };
        let Ok(frame) = i64::try_from(self.frame) else {
            return false;
        };
        let whole = here.checked_add(self.frame).is_some_and(|end| end <= there);
        whole && rustix::fs::seek(&self.source, SeekFrom::Current(frame)).is_ok()
    }

    /// What a frame's report means for the next one.
    fn judge(&mut self, report: &Report) -> Step {
        let bytes = report.written;
        let then = match report.ended {
            Ended::Error => {
                let who = self.operand(report.failed);
                let action = action_at(report.failed, &self.source, &self.sink);
                return self.fail(bytes, transfer_failed(who, report, action));
            }
            _ if bytes == self.frame => Then::Next,
            Ended::Eof => Then::End,
            Ended::Size => return self.fail(bytes, self.uneven(bytes)),
            _ => Then::Over,
        };
        Step { bytes, then }
    }

    fn operand(&self, side: Option<Side>) -> String {
        operand_of(side, &self.source.shown, &self.sink.shown)
    }

    /// A datagram goes whole or not at all, and this one did not fit.
    fn uneven(&self, bytes: u64) -> Problem {
        let text = format!(
            "its datagrams do not add up to frames of {} bytes: after {bytes} the next is too long",
            self.frame
        );
        let shown = self.source.shown.as_str();
        Problem::refused(shown, Side::Source, Errno::EMSGSIZE, text)
            .help("give as --frame what so many whole datagrams hold")
    }

    fn fail(&mut self, bytes: u64, problem: Problem) -> Step {
        self.account.problem(&problem);
        self.problem = Some(problem);
        Step {
            bytes,
            then: Then::Over,
        }
    }

    /// Nothing more is shown: the sink's reader sees the end; a new file that
    /// got nothing before it came to that, by `close`, is removed. What of the
    /// sink is still to be [finished](Opened::finish). With a problem comes what
    /// is to be said of a new file that stays all the same.
    pub fn end(mut self, close: Close) -> (Account, Said, Option<Opened>) {
        let left = match close {
            Close::End => None,
            Close::Quit | Close::Over => self.sink.unmake(),
        };
        match self.sink.end() {
            Ok(rest) => (self.account, (self.problem, left), rest),
            Err(problem) => {
                self.account.problem(&problem);
                let problem = self.problem.or(Some(problem));
                (self.account, (problem, left), None)
            }
        }
    }
}

/// What went wrong, and what is left behind.
type Said = (Option<Problem>, Option<String>);

/// A file with a size: those that are made up as they are read have none.
fn is_file(end: &Opened) -> bool {
    rustix::fs::fstat(end).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size > 0
    })
}
