//! The audio: spliced by the library's engine while the video is shown.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use cordboard::{Control, Ended, Report, Request, Running, Side};

use crate::endpoint::Opened;
use crate::problem::{Action, Problem, operand_of, request_refused, transfer_failed};
use crate::units;

/// What remains of the sink, or why it could not be closed; and the message
/// about a new file that stays.
type Rest = (Result<Option<Opened>, Problem>, Option<String>);

/// The audio while it runs.
pub struct Audio {
    running: Running,
    /// The names of source and sink, for messages.
    shown: [String; 2],
    /// The actions on both, for messages.
    kinds: [Action; 2],
    rest: Arc<Mutex<Rest>>,
}

/// The audio after its end.
pub struct FinishedAudio {
    /// The report of its transfer.
    pub report: Report,
    /// The problem, if it has failed.
    pub problem: Option<Problem>,
    /// The name of its sink, for messages.
    pub sink: String,
    /// The message about a new sink that stays although it is empty.
    pub stays: Option<String>,
    /// The connection that is still to be [finished](Opened::finish_all).
    pub rest: Option<Opened>,
}

impl Audio {
    /// Starts it. If it fails, `control` is cancelled. If no descriptor to wait
    /// for its end is available, the audio is cancelled, and the report says
    /// what it had moved by then.
    pub fn start(
        source: Opened,
        sink: Opened,
        request: Request,
        control: &Control,
    ) -> Result<Audio, (Problem, Box<Report>)> {
        let shown = [source.shown.clone(), sink.shown.clone()];
        let kinds = [Action::transfer(&source), Action::transfer(&sink)];
        let started = cordboard::start(&source, &sink, request);
        let running = started.map_err(|failure| {
            let side = failure.report.failed;
            let problem = request_refused(operand_of(side, &shown[0], &shown[1]), &failure);
            (problem.leaving(sink.remove_if_unused()), failure.report)
        })?;
        // Made now, so that it is available later.
        if let Err(errno) = running.fd() {
            running.cancel();
            let report = Box::new(running.wait().report);
            let text = format!("{errno} creating a descriptor to wait for the end of the audio");
            let text = match report.written {
                0 => text,
                bytes => format!("{text}, after {}", units::number_of(bytes, "byte")),
            };
            let problem = Problem::refused(shown[0].as_str(), Side::Source, errno, text);
            return Err((problem.leaving(sink.remove_if_unused()), report));
        }
        let rest = Arc::new(Mutex::new((Ok(None), None)));
        let (slot, control) = (Arc::clone(&rest), control.clone());
        // On the engine's thread, and not on the player's between two frames: a
        // process that waits for the end of the audio may also be the reader of
        // the video.
        running.on_end(move |report| {
            drop(source);
            let stays = match report.ended {
                Ended::Eof => None,
                _ => sink.remove_if_unused(),
            };
            if report.ended == Ended::Error {
                control.cancel();
            }
            let left = sink.shut_down();
            if left.is_err() {
                control.cancel();
            }
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = (left, stays);
        });
        Ok(Audio {
            running,
            shown,
            kinds,
            rest,
        })
    }

    /// Returns the bytes that its sink has taken so far.
    pub fn written(&self) -> u64 {
        self.running.status().written
    }

    /// Whether it has ended, and its sink is closed.
    pub fn is_over(&self) -> bool {
        self.running.status().ended
    }

    /// A descriptor that is readable once it has ended.
    pub fn fd(&self) -> Result<BorrowedFd<'_>, cordboard::Errno> {
        self.running.fd()
    }

    /// Cancels it.
    pub fn cancel(&self) {
        self.running.cancel();
    }

    /// Waits for its end.
    pub fn wait(self) -> FinishedAudio {
        let report = self.running.wait().report;
        let [source, sink] = &self.shown;
        let [of_source, of_sink] = self.kinds;
        let action = match report.failed {
            Some(Side::Source) => of_source,
            _ => of_sink,
        };
        let problem = (report.ended == Ended::Error)
            .then(|| transfer_failed(operand_of(report.failed, source, sink), &report, action));
        let mut slot = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, stays) = std::mem::replace(&mut *slot, (Ok(None), None));
        let (rest, unclosed) = match left {
            Ok(rest) => (rest, None),
            Err(problem) => (None, Some(problem)),
        };
        FinishedAudio {
            sink: sink.clone(),
            rest,
            report,
            problem: problem.or(unclosed),
            stays,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{Existing, Name, sink, source};

    /// If no descriptor to wait for its end is available, its report counts the
    /// bytes that it has moved by then.
    #[test]
    fn what_cannot_be_waited_for_is_accounted_for() {
        let _hangs = testkit::watchdog::watch("what_cannot_be_waited_for_is_accounted_for");
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
        std::fs::write(&from, vec![7; 8 << 20]).unwrap();
        let opened = || {
            (
                source(&Name::Path(from.clone()), "from").unwrap(),
                sink(&Name::Path(to.clone()), "to", Existing::Replace).unwrap(),
            )
        };
        let control = Control::new().unwrap();
        // The engine has its descriptors from now on.
        let (a, b) = opened();
        let first = Audio::start(a, b, Request::default(), &control);
        assert!(first.is_ok_and(|audio| audio.wait().report.written == 8 << 20));
        // Repeated until it has moved something by then.
        loop {
            let _ = std::fs::remove_file(&to);
            let (a, b) = opened();
            let started = testkit::refuse::apart(|| {
                let calls = [libc::SYS_eventfd2, libc::SYS_pipe2];
                testkit::refuse::refuse(&calls, libc::EMFILE);
                Audio::start(a, b, Request::default(), &control).map(|_| ())
            });
            let (problem, report) = started.expect_err("no descriptor to wait for its end");
            // A new sink that is empty is removed.
            let there = std::fs::metadata(&to).map_or(0, |found| found.len());
            assert_eq!((report.read, report.written), (there, there), "{problem:?}");
            if there > 0 {
                break;
            }
        }
    }
}
