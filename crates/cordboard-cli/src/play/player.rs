//! A film from its start to its end.

use std::io::BufWriter;
use std::os::fd::AsFd;

use cordboard::{Ended, Request, Side, Size, Sparse};

use super::audio::Audio;
use super::ends::{Ends, Lines, PlayProblem, of, remove_all_unused};
use super::keys::Keys;
use super::live::{Film, Live, now};
use super::pace::Pace;
use super::report::{PlayReport, Which};
use super::show::{Close, Wake, show_frames};
use super::tally::Tally;
use super::video::Video;
use crate::endpoint::Opened;
use crate::files::is_standard_output;
use crate::flags::{Play, ProgressMode, Range};
use crate::output::{errno_of, one_line, print_line};
use crate::problem::{Action, Problem, dropped_line, print_leftover, unacknowledged_line};
use crate::progress::{Style, is_on};
use crate::report::Account;
use crate::{request, signals};

/// Runs the command, and returns the exit status.
pub fn run(flags: &Play) -> u8 {
    let json = flags.json;
    let mut play_report = PlayReport::new();
    let zero = if json {
        play_report.json(flags.frame) + "\n"
    } else {
        "cordboard: interrupted: nothing was played\n".to_owned()
    };
    signals::install(zero.into_bytes());
    if let Err((which, problem)) = play(flags, &mut play_report) {
        play_report.problem(which, problem);
    }
    let summary = Style::of(flags.progress).is_shown();
    play_report.finish(flags.frame, summary, json)
}

/// Prints the JSON line of wrong usage.
pub fn misused() {
    let mut play_report = PlayReport::new();
    play_report.note(None, &Problem::usage("", ""));
    print_line(play_report.json(1));
}

fn play(flags: &Play, play_report: &mut PlayReport) -> Result<(), PlayProblem> {
    let common = request::common(&Range::default(), &flags.paths, Sparse::Auto);
    let audio = common.map_err(|problem| (None, problem))?;
    let video = Request {
        size: Size::Bytes(flags.frame),
        ..audio.clone()
    };
    let ends = Ends::open(flags)?;
    if let Err((which, problem)) = ends.ready(&audio, &video) {
        return Err((which, problem.leaving(ends.remove_if_unused())));
    }

    let sinks = [
        (Which::Audio, &ends.audio_to),
        (Which::Video, &ends.video_to),
    ];
    let is_standard = |end: &Opened| is_standard_output(end.as_fd());
    let standard = sinks.into_iter().find(|(_, end)| is_standard(end));
    play_report.standard = standard.map(|(which, _)| which);
    play_report.lists_to_standard = ends.list.as_ref().is_some_and(is_standard);
    let style = style(flags, &ends);
    // A terminal that is a source of the film is not read for keys.
    let played = [&ends.audio, &ends.video].map(rustix::termios::isatty);
    let keys = match played {
        [false, false] => Keys::listen(),
        _ => None,
    };
    let started = Audio::start(ends.audio, ends.audio_to, audio, signals::polled());
    let audio = started
        .map_err(|(problem, report)| {
            play_report.audio = Account::of(&report);
            problem.leaving(remove_all_unused(
                [&ends.video_to].into_iter().chain(&ends.list),
            ))
        })
        .map_err(of(Which::Audio))?;
    let mut video = Video::new(ends.video, ends.video_to, video);
    let mut live = Live::new(audio, keys, style);
    let start = now();
    let mut tally = Tally::new(start, flags.speed);
    if let Some(list) = ends.list {
        tally.list(Box::new(BufWriter::new(Lines(list))));
    }
    let pace = Pace::new(flags.fps, flags.speed, start);
    let mut film = Film {
        live: &mut live,
        video: &mut video,
    };
    let close = show_frames(&mut film, pace, flags.drop, &mut tally);
    finish((live, video), close, tally, play_report);
    Ok(())
}

/// Ends both streams, and completes the report.
fn finish(
    (mut live, video): (Live, Video),
    close: Close,
    mut tally: Tally,
    play_report: &mut PlayReport,
) {
    let elapsed = now().saturating_sub(tally.start());
    let video_shown = video.sink_shown().to_owned();
    // The reader of the video need not wait for the end of the audio.
    let (mut account, (problem, left), video_to) = video.end(close);
    let wake = match close {
        Close::End => live.wait_for_audio(&tally),
        Close::Quit | Close::Over => Wake::Over,
    };
    if wake != Wake::Due {
        live.cancel();
    }
    play_report.quit = live.has_quit();
    let unwaitable = live.problem();
    let audio = live.end();
    if close != Close::End {
        account.end(Ended::Cancelled);
    }
    account.total.elapsed = elapsed;
    play_report.video = account;
    let (audio, unlisted) = (audio.wait(), tally.close());
    let dropped = [
        dropped_line(&play_report.video.total, &video_shown),
        dropped_line(&audio.report, &audio.sink),
    ];
    dropped.iter().flatten().for_each(|line| print(line));
    // The peer of a transfer that has failed acknowledges nothing more.
    let video_to = video_to.filter(|_| problem.is_none());
    let audio_to = audio.rest.filter(|_| audio.problem.is_none());
    play_report.audio = Account::of(&audio.report);
    play_report.tally = Some(tally);
    let problems = [
        (None, unwaitable, None),
        (Some(Which::Video), problem, left),
        (Some(Which::Audio), audio.problem, audio.stays),
    ];
    for (which, problem, left) in problems {
        match problem {
            Some(problem) => play_report.problem(which, problem.leaving(left)),
            None => left.iter().for_each(|left| print_leftover(left)),
        }
    }
    if let Some(error) = unlisted {
        let problem = Problem {
            at_standard_output: play_report.lists_to_standard,
            ..Problem::call("--lateness", Side::Sink, errno_of(&error), Action::Transfer)
        };
        play_report.problem(None, problem);
    }
    let sinks = [(Which::Video, video_to), (Which::Audio, audio_to)];
    let sinks = sinks
        .iter()
        .filter_map(|(which, sink)| Some((*which, sink.as_ref()?)));
    let sinks: Vec<(Which, &Opened)> = sinks.collect();
    let all: Vec<&Opened> = sinks.iter().map(|(_, sink)| *sink).collect();
    let waited = Opened::finish_all(&all, Ended::Eof, None);
    for ((which, sink), waited) in sinks.into_iter().zip(waited) {
        match waited {
            Ok(0) => {}
            Ok(bytes) => print(&unacknowledged_line(bytes, &sink.shown)),
            Err(problem) => play_report.problem(Some(which), problem),
        }
    }
}

/// Prints a line that contains names.
fn print(line: &str) {
    print_line(one_line(line));
}

/// How progress is shown while it runs: by itself not on a terminal that is played from or
/// to.
fn style(flags: &Play, ends: &Ends) -> Style {
    let ends = [&ends.audio, &ends.video, &ends.audio_to, &ends.video_to];
    match flags.progress {
        ProgressMode::Auto if ends.into_iter().any(is_on) => Style::Nothing,
        mode => Style::of(mode),
    }
}
