//! The four endpoints of a film, and its list: opened and checked before
//! anything moves.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use cordboard::endpoint::same_description;
use cordboard::{Control, Failure, Request, Side, Transfer};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::report::Which;
use crate::endpoint::{self, Existing, Name, Opened, Shared};
use crate::flags::Play;
use crate::output;
use crate::problem::{Action, Problem, operand_of, request_refused};

/// A problem, and which stream it belongs to.
pub type PlayProblem = (Option<Which>, Problem);

/// The endpoints.
pub struct Ends {
    /// The source of the audio.
    pub audio: Opened,
    /// The source of the video.
    pub video: Opened,
    /// The sink of the audio.
    pub audio_to: Opened,
    /// The sink of the video.
    pub video_to: Opened,
    /// The sink of the list of frames.
    pub list: Option<Opened>,
}

impl Ends {
    /// Opens all of them. A file to be replaced keeps its contents for now.
    pub fn open(flags: &Play) -> Result<Ends, PlayProblem> {
        let parse = |operand: &OsString, side| endpoint::parse(operand, side);
        let audio = parse(&flags.audio, Side::Source).map_err(of(Which::Audio))?;
        let video = parse(&flags.video, Side::Source).map_err(of(Which::Video))?;
        let audio_to = parse(&flags.audio_to, Side::Sink).map_err(of(Which::Audio))?;
        let video_to = parse(&flags.video_to, Side::Sink).map_err(of(Which::Video))?;
        let list = flags.lateness.as_ref().map(|list| parse(list, Side::Sink));
        let list = list.transpose().map_err(|problem| (None, problem))?;
        let names: Vec<Name> = [audio_to, video_to].into_iter().chain(list).collect();
        let mut shared = Shared::by([&audio, &video].into_iter().chain(&names));
        let mut source = |name, shown: &OsString| {
            endpoint::source_sharing(name, &shown.to_string_lossy(), &mut shared)
        };
        let audio = source(&audio, &flags.audio).map_err(of(Which::Audio))?;
        let video = source(&video, &flags.video).map_err(of(Which::Video))?;
        let operands = [&flags.audio_to, &flags.video_to].into_iter();
        let shown: Vec<String> = (operands.chain(&flags.lateness))
            .map(|operand| operand.to_string_lossy().into_owned())
            .collect();
        let sinks = endpoint::sinks(&names, &shown, Existing::Replace, &mut shared);
        let sinks = sinks.map_err(|failed| {
            let which = [Which::Audio, Which::Video].get(failed.index).copied();
            (which, endpoint::leaving(failed.problem, failed.opened))
        })?;
        let mut sinks = sinks.into_iter();
        let (Some(audio_to), Some(video_to)) = (sinks.next(), sinks.next()) else {
            unreachable!("all sinks were opened");
        };
        Ok(Ends {
            audio,
            video,
            audio_to,
            video_to,
            list: sinks.next(),
        })
    }

    /// Checks whether both can be played, and then truncates the files to be
    /// replaced.
    pub fn ready(&self, audio: &Request, video: &Request) -> Result<(), PlayProblem> {
        if conflict(&self.audio, &self.video, Side::Source)? {
            return Err((None, twice(&self.video, "read from it")));
        }
        if conflict(&self.audio_to, &self.video_to, Side::Sink)? {
            return Err((None, twice(&self.video_to, "write to it")));
        }
        if let Some(list) = &self.list {
            let played = [&self.audio, &self.video, &self.audio_to, &self.video_to];
            for end in played {
                if conflict(end, list, Side::Sink)? {
                    return Err((None, listed_into(list, end)));
                }
            }
        }
        let mut replaced = Vec::new();
        for (which, sink) in self.sinks().filter(|(_, sink)| sink.replace) {
            for source in [&self.audio, &self.video] {
                let (from, to) = (source.as_fd(), sink.as_fd());
                let before = endpoint::check_alias(from, &source.shown, to, &sink.shown);
                let before = before.map_err(|problem| (which, problem))?;
                replaced.push((which, sink, source, before));
            }
        }
        check_pair(&self.audio, &self.audio_to, audio).map_err(of(Which::Audio))?;
        check_pair(&self.video, &self.video_to, video).map_err(of(Which::Video))?;
        if self.sinks().any(|(_, sink)| sink.replace) {
            check_start(&self.audio, &self.audio_to, audio).map_err(of(Which::Audio))?;
        }
        for (which, sink) in self.sinks() {
            sink.empty().map_err(|problem| (which, problem))?;
        }
        for (which, sink, source, before) in replaced {
            endpoint::check_not_emptied(source.as_fd(), &source.shown, &before, &sink.shown)
                .map_err(|problem| (which, problem))?;
        }
        Ok(())
    }

    fn sinks(&self) -> impl Iterator<Item = (Option<Which>, &Opened)> {
        let list = self.list.as_ref().map(|list| (None, list));
        let played = [
            (Some(Which::Audio), &self.audio_to),
            (Some(Which::Video), &self.video_to),
        ];
        played.into_iter().chain(list)
    }

    /// Removes sinks that did not exist before and are empty. A sink that is
    /// the same file as a new one is closed first: with two descriptors, the
    /// file would count as open elsewhere. Returns the messages about those
    /// that stay.
    pub fn remove_if_unused(self) -> Option<String> {
        let all = [self.audio_to, self.video_to].into_iter().chain(self.list);
        let (new, others): (Vec<_>, Vec<_>) = all.partition(Opened::is_new);
        drop(others);
        remove_all_unused(&new)
    }
}

/// Removes new sinks that are empty, and returns the messages about those that
/// stay.
pub fn remove_all_unused<'a>(sinks: impl IntoIterator<Item = &'a Opened>) -> Option<String> {
    let left: Vec<String> = sinks
        .into_iter()
        .filter_map(Opened::remove_if_unused)
        .collect();
    (!left.is_empty()).then(|| left.join("; "))
}

/// Marks a problem as one of this stream.
pub fn of(which: Which) -> impl Fn(Problem) -> PlayProblem {
    move |problem| (Some(which), problem)
}

/// Checks whether the engine and the descriptors of the audio are available, by a
/// transfer that is cancelled before it reads anything.
fn check_start(source: &Opened, sink: &Opened, request: &Request) -> Result<(), Problem> {
    let paused = Control::without_descriptor();
    paused.pause();
    let transfer = Transfer::duplicating(source.as_fd(), sink.as_fd(), request.clone());
    let started = transfer.and_then(|transfer| transfer.control(&paused).start());
    let running = started.map_err(|failure| refused(source, sink, &failure))?;
    let awaited = running.fd().map(drop);
    running.cancel();
    running.wait();
    awaited.map_err(|errno| {
        let text = format!("{errno} creating a descriptor to wait for the end of the audio");
        Problem::refused(source.shown.as_str(), Side::Source, errno, text)
    })
}

fn refused(source: &Opened, sink: &Opened, failure: &Failure) -> Problem {
    let operand = operand_of(failure.report.failed, &source.shown, &sink.shown);
    request_refused(operand, failure)
}

fn check_pair(source: &Opened, sink: &Opened, request: &Request) -> Result<(), Problem> {
    match Transfer::new(source.as_fd(), sink.as_fd(), request.clone()) {
        Ok(_) => Ok(()),
        Err(failure) => {
            let side = failure.report.failed;
            let who = operand_of(side, &source.shown, &sink.shown);
            Err(request_refused(who, &failure))
        }
    }
}

/// Whether audio and video would take each other's bytes, or mix them. Two open file
/// descriptions of a file that is read have their own positions; character
/// devices (`/dev/null`) store nothing.
fn conflict(a: &Opened, b: &Opened, side: Side) -> Result<bool, PlayProblem> {
    let stat = |end: &Opened| {
        let failed = |errno| Problem::call(end.shown.as_str(), side, errno, Action::Open);
        cordboard::fstat(end).map_err(|errno| (None, failed(errno)))
    };
    let (x, y) = (stat(a)?, stat(b)?);
    let apart = match FileType::from_raw_mode(x.st_mode) {
        FileType::CharacterDevice => true,
        FileType::RegularFile => side == Side::Source,
        _ => false,
    };
    let same = (x.st_dev, x.st_ino) == (y.st_dev, y.st_ino);
    // A filter may refuse the comparison.
    let one = a.as_fd().as_raw_fd() == b.as_fd().as_raw_fd() || same_description(a, b);
    let device = FileType::from_raw_mode(x.st_mode) == FileType::CharacterDevice;
    Ok(same && (!apart || (one && !device)))
}

fn twice(end: &Opened, what: &str) -> Problem {
    let text = format!("audio and video cannot both {what}");
    Problem::usage(end.shown.as_str(), text).help("use a separate endpoint for each")
}

fn listed_into(list: &Opened, end: &Opened) -> Problem {
    let text = format!(
        "the list of frames cannot go to {}, which the film uses",
        end.shown
    );
    Problem::usage(list.shown.as_str(), text).help("use a separate file for --lateness")
}

/// An endpoint to write lines to: results, which wait for their reader, but not
/// after a signal to stop.
pub struct Lines(pub Opened);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The caller would repeat a call that fails with EINTR.
        match output::write_all(self.0.as_fd(), bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(Errno::TIMEDOUT.into()),
            done => done.map(|()| bytes.len()),
        }
    }

    /// At the end of the list. The file system may have no space for it.
    fn flush(&mut self) -> io::Result<()> {
        Ok(self.0.close_duplicate()?)
    }
}
