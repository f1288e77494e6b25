//! The video: a transfer for each frame, on the player's thread.

use std::os::fd::AsFd;

use cordboard::{Control, Ended, Errno, Observer, Report, Request, Side, Size, Transfer};
use rustix::fs::{FileType, SeekFrom};

use super::show::{Close, Step, Then};
use crate::endpoint::{Opened, discard_sink};
use crate::problem::{Problem, action_at, operand_of, request_refused, transfer_failed};
use crate::report::Account;
use crate::units;

/// Frames that are read ahead, and their bytes at most: other processes need
/// the cache too.
const AHEAD: u64 = 2;
const AHEAD_BYTES: u64 = 64 << 20;

/// The video while it is played.
pub struct Video {
    source: Opened,
    sink: Opened,
    /// The request of one frame.
    request: Request,
    frame: u64,
    /// The offset up to which a file is read ahead.
    ahead: Option<u64>,
    /// All frames that were written, and parts of frames.
    account: Account,
    /// The problem, if it has failed.
    problem: Option<Problem>,
}

impl Video {
    /// With `request` as the request of one frame.
    pub fn new(source: Opened, sink: Opened, request: Request) -> Video {
        let frame = match request.size {
            Size::Bytes(bytes) => bytes,
            // All of the source is one frame.
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
    /// that none waits for the disk when it is due (`posix_fadvise(2)`).
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
        // A file system that refuses the advice is not asked again.
        self.ahead = done.is_ok().then_some(end);
    }

    /// Writes a frame to the sink.
    pub fn show(&mut self, control: &Control, observer: impl Observer + Send) -> Step {
        let (source, sink) = (self.source.as_fd(), self.sink.as_fd());
        let moved = Transfer::new(source, sink, self.request.clone())
            .map(|transfer| transfer.control(control).observe(observer).run().report);
        match moved {
            Ok(report) => {
                self.account.add(&report);
                self.evaluate(&report)
            }
            Err(failure) => {
                let who = self.operand(failure.report.failed);
                self.fail(0, request_refused(who, &failure))
            }
        }
    }

    /// Skips a frame: in a file by seeking, else by reading.
    pub fn skip(&mut self, control: &Control, observer: impl Observer + Send) -> Step {
        if self.seek() {
            return Step {
                bytes: self.frame,
                then: Then::Next,
            };
        }
        match self.discard(control, observer) {
            Ok(report) => self.evaluate(&report),
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
            let text = format!("{errno} creating a sink for dropped frames");
            Problem::refused(self.source.shown.as_str(), Side::Source, errno, text)
        })?;
        Transfer::new(self.source.as_fd(), nowhere.as_fd(), self.request.clone())
            .map(|transfer| transfer.control(control).observe(observer).run().report)
            .map_err(|failure| request_refused(self.source.shown.clone(), &failure))
    }

    /// Seeks over a frame, if the source is a file that contains it.
    fn seek(&self) -> bool {
        let there = cordboard::fstat(&self.source).map(|stat| stat.st_size as u64);
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

    /// Evaluates the report of a frame.
    fn evaluate(&mut self, report: &Report) -> Step {
        let bytes = report.written;
        let then = match report.ended {
            Ended::Error => {
                let who = self.operand(report.failed);
                let action = action_at(report.failed, &self.source, &self.sink);
                // The message has the bytes of all frames.
                let mut of_all = report.clone();
                of_all.written = self.account.total.written;
                return self.fail(bytes, transfer_failed(who, &of_all, action));
            }
            _ if bytes == self.frame => Then::Next,
            Ended::Eof => Then::End,
            Ended::Size if report.dropped.datagrams > 0 => {
                return self.fail(bytes, self.long_datagram());
            }
            Ended::Size => return self.fail(bytes, self.partial_datagrams(bytes)),
            _ => Then::Over,
        };
        Step { bytes, then }
    }

    fn operand(&self, side: Option<Side>) -> String {
        operand_of(side, &self.source.shown, &self.sink.shown)
    }

    /// A frame is not whole without the datagram that was dropped.
    fn long_datagram(&self) -> Problem {
        let text = "a datagram of the frame is too long for the sink (EMSGSIZE)";
        let shown = self.sink.shown.as_str();
        Problem::refused(shown, Side::Sink, Errno::EMSGSIZE, text)
    }

    /// Returns the name of its sink, for messages.
    pub fn sink_shown(&self) -> &str {
        &self.sink.shown
    }

    /// A datagram is written whole or not at all, and this one does not fit.
    fn partial_datagrams(&self, bytes: u64) -> Problem {
        let text = format!(
            "datagrams do not add up to frames of {}: after {bytes} the next is too long",
            units::number_of(self.frame, "byte")
        );
        let shown = self.source.shown.as_str();
        Problem::refused(shown, Side::Source, Errno::EMSGSIZE, text)
            .help("set --frame to the size of one or more whole datagrams")
    }

    fn fail(&mut self, bytes: u64, problem: Problem) -> Step {
        self.account.problem(&problem);
        self.problem = Some(problem);
        Step {
            bytes,
            then: Then::Over,
        }
    }

    /// Ends the video: the sink's reader sees the end. A new file that was
    /// empty when the loop ended, by `close`, is removed. Returns a connection
    /// that is still to be [finished](Opened::finish_all), and with a problem the
    /// message about a new file that stays.
    pub fn end(mut self, close: Close) -> (Account, EndProblem, Option<Opened>) {
        let left = match close {
            Close::End => None,
            Close::Quit | Close::Over => self.sink.remove_if_unused(),
        };
        match self.sink.shut_down() {
            Ok(rest) => (self.account, (self.problem, left), rest),
            Err(problem) => {
                self.account.problem(&problem);
                let problem = self.problem.or(Some(problem));
                (self.account, (problem, left), None)
            }
        }
    }
}

/// A problem, and the message about what is left behind.
type EndProblem = (Option<Problem>, Option<String>);

/// Whether it is a file with a size: generated files have none.
fn is_file(end: &Opened) -> bool {
    cordboard::fstat(end).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size > 0
    })
}
