//! The report of the player.

use cordboard::{Ended, Errno, Report};
use serde::Serialize;

use super::tally::{Lateness, Tally};
use crate::exit::Ending;
use crate::output::{print_line, print_result};
use crate::problem::Problem;
use crate::report::Account;
use crate::{signals, units};

/// One of the two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// The audio.
    Audio,
    /// The video.
    Video,
}

/// The report of a whole film.
#[derive(Default)]
pub struct PlayReport {
    /// The audio's transfer.
    pub audio: Account,
    /// The transfers of all frames.
    pub video: Account,
    /// The frames; none if nothing was started.
    pub tally: Option<Tally>,
    /// The first problem, and its stream.
    failed: Option<(Option<Which>, Option<Errno>)>,
    /// The signal that arrived before the report was made.
    stopped: Option<i32>,
    /// Which stream goes to standard output.
    pub standard: Option<Which>,
    /// The list of frames goes to standard output.
    pub lists_to_standard: bool,
    /// The reader of standard output has closed it.
    reader_left: bool,
    usage: bool,
    /// A key has quit the player.
    pub quit: bool,
}

/// The JSON line. `partial` is the size of an incomplete last frame.
#[derive(Serialize)]
struct Line<'a> {
    frames: u64,
    partial: u64,
    late: u64,
    dropped: u64,
    dropped_bytes: u64,
    lateness_ms: Option<Lateness>,
    speed: f64,
    ended: &'static str,
    failed: Option<Which>,
    errno: Option<String>,
    video: &'a Report,
    audio: &'a Report,
}

impl PlayReport {
    /// A report of a film that was cancelled before its start.
    pub fn new() -> PlayReport {
        let mut play_report = PlayReport::default();
        play_report.audio.end(Ended::Cancelled);
        play_report.video.end(Ended::Cancelled);
        play_report
    }

    /// Reports a problem, and records the first.
    pub fn problem(&mut self, which: Option<Which>, mut problem: Problem) {
        if problem.is_stop() {
            return;
        }
        problem.at_standard_output |= which.is_some() && which == self.standard;
        if problem.is_closed_reader() {
            self.reader_left = true;
        } else {
            print_line(&problem);
        }
        self.note(which, &problem);
    }

    /// Records the first problem.
    pub fn note(&mut self, which: Option<Which>, problem: &Problem) {
        self.usage |= problem.usage;
        self.failed.get_or_insert((which, problem.errno));
        let account = match which {
            Some(Which::Audio) => &mut self.audio,
            Some(Which::Video) => &mut self.video,
            None => return,
        };
        if account.total.ended == Ended::Cancelled {
            account.total.ended = Ended::Error;
        }
        account.problem(problem);
    }

    /// The size of an incomplete last frame.
    fn partial(&self, frame: u64) -> u64 {
        let whole = self.tally.as_ref().map_or(0, |tally| tally.frames);
        self.video.total.written - whole * frame
    }

    fn ended(&self) -> Ended {
        let accounts = [&self.audio, &self.video];
        if self.stopped.is_some() {
            Ended::Cancelled
        } else if self.failed.is_some() {
            Ended::Error
        } else if accounts.iter().any(|a| a.total.ended == Ended::Cancelled) {
            Ended::Cancelled
        } else {
            Ended::Eof
        }
    }

    /// The JSON line, without its line feed.
    pub fn json(&self, frame: u64) -> String {
        let tally = self.tally.as_ref();
        let errno = self.failed.and_then(|(_, errno)| errno);
        let line = Line {
            frames: tally.map_or(0, |tally| tally.frames),
            partial: self.partial(frame),
            late: tally.map_or(0, |tally| tally.late),
            dropped: tally.map_or(0, |tally| tally.dropped),
            dropped_bytes: tally.map_or(0, |tally| tally.dropped_bytes),
            lateness_ms: tally.and_then(Tally::lateness),
            speed: tally.map_or(1.0, |tally| (tally.speed * 1000.0).round() / 1000.0),
            ended: self.ended().name(),
            failed: self.failed.and_then(|(which, _)| which),
            errno: errno.map(|e| e.name().map_or_else(|| e.raw().to_string(), str::to_owned)),
            video: &self.video.total,
            audio: &self.audio.total,
        };
        serde_json::to_string(&line).expect("plain data")
    }

    /// Prints the last lines, and returns the exit status. As for other
    /// commands, a signal that arrived before makes the ending a cancelled one.
    pub fn finish(mut self, frame: u64, summary: bool, json: bool) -> u8 {
        self.stopped = signals::stop_so_far();
        let ended = self.ended();
        let stopped = self.stopped;
        let summary_text = self.tally.as_ref().map(Tally::summary);
        let summary_text = summary_text.unwrap_or_else(|| "nothing was played".to_owned());
        let cut = ended == Ended::Cancelled && stopped.is_none() && !self.quit;
        if cut {
            print_line("cordboard: the film was cut short for an unknown reason");
        }
        if let Some(signal) = stopped {
            print_line(format_args!(
                "cordboard: interrupted by {}: {summary_text}; video: {}; audio: {}",
                signals::name(signal),
                counts(&self.video.total),
                counts(&self.audio.total),
            ));
        } else if ended != Ended::Error {
            if ended == Ended::Eof && self.partial(frame) > 0 {
                print_line(format_args!(
                    "cordboard: the video's last frame is short: {} of {frame} bytes",
                    self.partial(frame)
                ));
            }
            if summary {
                let elapsed = units::time(self.video.total.elapsed);
                print_line(format_args!("played {summary_text}, in {elapsed}"));
            }
        }
        let unwritten = json && print_result(format!("{}\n", self.json(frame)).as_bytes()).is_err();
        let ending = Ending {
            stopped,
            reader_left: self.reader_left,
            usage: self.usage,
            // `cut`: nothing has requested the end.
            failed: unwritten || ended == Ended::Error || cut,
        };
        ending.status()
    }
}

fn counts(report: &Report) -> String {
    let stranded = match report.stranded {
        0 => String::new(),
        n => format!(", {} read and not passed on", units::number_of(n, "byte")),
    };
    format!(
        "{} read, {} written{stranded}",
        units::number_of(report.read, "byte"),
        report.written
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_was_not_requested_is_no_success() {
        for (quit, status) in [(true, 0), (false, 1)] {
            let mut play_report = PlayReport::new();
            play_report.quit = quit;
            assert_eq!(play_report.ended(), Ended::Cancelled);
            assert_eq!(play_report.finish(1, false, false), status);
        }
    }
}
