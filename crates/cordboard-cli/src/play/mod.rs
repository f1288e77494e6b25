//! `cordboard play`: the paper's player, for people. The engine splices the
//! audio; the video is passed on a frame at a time, each when it is due.

mod audio;
mod ends;
mod keys;
mod live;
mod pace;
mod report;
mod show;
mod tally;
mod video;

use std::io::{BufWriter, IsTerminal};
use std::os::fd::{AsFd, AsRawFd};

use cordboard::{Ended, Request, Side, Size, Sparse};

use self::audio::Audio;
use self::ends::{Ends, Lines, Trouble, all_left, of};
use self::keys::Keys;
use self::live::{Film, Live};
use self::pace::Pace;
use self::report::{Playbill, Which};
use self::show::{Close, Wake};
use self::tally::Tally;
use self::video::Video;
use crate::endpoint::Opened;
use crate::flags::{Play, Range, When};
use crate::hints::Doing;
use crate::problem::{Problem, errno, tell, tell_left};
use crate::progress::is_on;
use crate::report::Account;
use crate::{request, signals};

/// Runs it; returns the exit status.
pub fn run(flags: &Play) -> u8 {
    let json = flags.json;
    let mut bill = Playbill::new();
    let zero = if json {
        bill.json(flags.frame) + "\n"
    } else {
        "cordboard: interrupted: nothing was played\n".to_owned()
    };
    signals::install(zero.into_bytes());
    if let Err((which, problem)) = play(flags, &mut bill) {
        bill.problem(which, &problem);
    }
    let summary = match flags.progress {
        When::Auto => std::io::stderr().is_terminal(),
        When::Always => true,
        When::Never => false,
    };
    bill.finish(flags.frame, summary, json)
}

/// The JSON line of wrong usage.
pub fn misused() {
    let mut bill = Playbill::new();
    bill.note(None, &Problem::usage("", ""));
    tell(bill.json(1));
}

fn play(flags: &Play, bill: &mut Playbill) -> Result<(), Trouble> {
    let common = request::from(&Range::default(), &flags.paths, Sparse::Auto);
    let audio = common.map_err(|problem| (None, problem))?;
    let video = Request {
        size: Size::Bytes(flags.frame),
        ..audio.clone()
    };
    let ends = Ends::open(flags)?;
    if let Err((which, problem)) = ends.ready(&audio, &video) {
        return Err((which, problem.leaving(ends.unmake())));
    }

    let sinks = [
        (Which::Audio, &ends.audio_to),
        (Which::Video, &ends.video_to),
    ];
    let is_standard = |end: &Opened| end.as_fd().as_raw_fd() == libc::STDOUT_FILENO;
    let standard = sinks.into_iter().find(|(_, end)| is_standard(end));
    bill.standard = standard.map(|(which, _)| which);
    let draws = draws(flags, &ends);
    // What is typed is not for us where it is what is played.
    let played = [&ends.audio, &ends.video].map(rustix::termios::isatty);
    let keys = match played {
        [false, false] => Keys::listen(),
        _ => None,
    };
    let started = Audio::start(ends.audio, ends.audio_to, audio, signals::polled());
    let audio = started
        .map_err(|(problem, report)| {
            bill.audio = Account::of(&report);
            problem.leaving(all_left([&ends.video_to].into_iter().chain(&ends.list)))
        })
        .map_err(of(Which::Audio))?;
    let mut video = Video::new(ends.video, ends.video_to, video);
    let mut live = Live::new(audio, keys, draws);
    let start = live::now();
    let mut tally = Tally::new(start, flags.speed);
    if let Some(list) = ends.list {
        tally.list(Box::new(BufWriter::new(Lines(list))));
    }
    let pace = Pace::new(flags.fps, flags.speed, start);
    let mut film = Film {
        live: &mut live,
        video: &mut video,
    };
    let close = show::run(&mut film, pace, flags.drop, &mut tally);
    finish((live, video), close, tally, bill);
    Ok(())
}

/// Ends both, and closes the accounts.
fn finish((mut live, video): (Live, Video), close: Close, mut tally: Tally, bill: &mut Playbill) {
    let elapsed = live::now().saturating_sub(tally.start());
    // Whoever reads the video need not wait for the end of the audio.
    let (mut account, (problem, left), video_to) = video.end(close);
    let wake = match close {
        Close::End => live.wait_for_audio(&tally),
        Close::Quit | Close::Over => Wake::Over,
    };
    if wake != Wake::Due {
        live.cancel();
    }
    bill.quit = live.was_quit();
    let unwaitable = live.problem();
    let audio = live.end();
    if close != Close::End {
        account.end(Ended::Cancelled);
    }
    account.total.elapsed = elapsed;
    bill.video = account;
    let (audio, unlisted) = (audio.wait(), tally.close());
    bill.audio = Account::of(&audio.report);
    bill.tally = Some(tally);
    let problems = [
        (None, unwaitable, None),
        (Some(Which::Video), problem, left),
        (Some(Which::Audio), audio.problem, audio.stays),
    ];
    for (which, problem, left) in problems {
        match problem {
            Some(problem) => bill.problem(which, &problem.leaving(left)),
            None => left.iter().for_each(|left| tell_left(left)),
        }
    }
    if let Some(error) = unlisted {
        let problem = Problem::call("--lateness", Side::Sink, errno(&error), Doing::Moving);
        bill.problem(None, &problem);
    }
    for (which, sink) in [(Which::Video, video_to), (Which::Audio, audio.rest)] {
        if let Some(Err(problem)) = sink.map(|sink| sink.finish(Ended::Eof, None)) {
            bill.problem(Some(which), &problem);
        }
    }
}

/// Whether a line is drawn while it runs: not among what is played.
fn draws(flags: &Play, ends: &Ends) -> bool {
    match flags.progress {
        When::Always => true,
        When::Never => false,
        When::Auto => {
            std::io::stderr().is_terminal()
                && ![&ends.audio, &ends.video, &ends.audio_to, &ends.video_to]
                    .into_iter()
                    .any(is_on)
        }
    }
}
