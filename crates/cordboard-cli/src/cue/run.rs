//! Sends the command, and waits for its answer.

use std::time::Duration;

use cordboard::Errno;
use cordboard::cue::{Command, Cue, Limit, Record, Status};

use super::show::{ended, json, text};
use crate::endpoint;
use crate::flags::{CueAction, CueFlags, LimitAction};
use crate::print;
use crate::problem::Problem;

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the command, and returns the exit status.
pub fn run(flags: &CueFlags) -> u8 {
    match steer(flags) {
        Ok(()) => 0,
        Err(problem) => print::failed(&problem),
    }
}

fn steer(flags: &CueFlags) -> Result<(), Problem> {
    let mut cue = Cue::from(endpoint::control_connection(&flags.control)?);
    match answer(flags, &mut cue) {
        Ok(Answer::Status(status)) if flags.json => print::print(json(&status).as_bytes()),
        Ok(Answer::Status(status)) => print::print(text(&status).as_bytes()),
        // The command may end at any moment, also as a result of this action.
        Ok(Answer::Ended) | Err(Errno::EPIPE | Errno::ECONNRESET) => {
            print::print(ended(flags.json).as_bytes())
        }
        Ok(Answer::Refused { word, errno }) => Err(refused(flags, word, errno)),
        Err(errno) => Err(unanswered(flags, errno)),
    }
}

enum Answer {
    Status(Status),
    Ended,
    Refused { word: u32, errno: Errno },
}

/// Sends the command, and then requests the status: its arrival shows that the command was
/// carried out.
fn answer(flags: &CueFlags, cue: &mut Cue) -> Result<Answer, Errno> {
    if let Some(command) = command_of(&flags.action) {
        cue.send(command)?;
    }
    cue.send(Command::Status)?;
    loop {
        match cue.receive()? {
            Some(Record::Status(status)) => return Ok(Answer::Status(status)),
            Some(Record::Done(_)) | None => return Ok(Answer::Ended),
            Some(Record::Refused { word, errno }) => return Ok(Answer::Refused { word, errno }),
            Some(_) => {}
        }
    }
}

/// The command of the protocol; `None` for the status alone.
fn command_of(action: &CueAction) -> Option<Command> {
    Some(match *action {
        CueAction::Status => return None,
        CueAction::Pause => Command::Pause,
        CueAction::Resume => Command::Resume,
        CueAction::Auto { aim } => Command::Auto(aim),
        CueAction::Cancel => Command::Cancel,
        CueAction::Rate { bytes } => Command::Rate(bytes),
        CueAction::Schedule {
            schedule: (count, rest),
        } => Command::Schedule { count, rest },
        CueAction::Limit(LimitAction::Rate { bytes }) => Command::Limit(Limit::Rate(bytes)),
        CueAction::Limit(LimitAction::Schedule {
            schedule: (count, rest),
        }) => Command::Limit(Limit::Schedule { count, rest }),
    })
}

fn refused(flags: &CueFlags, word: u32, errno: Errno) -> Problem {
    let name = flags.control.to_string_lossy();
    let text = format!("{errno}: the command {word:#010x} was refused");
    let problem = Problem::unsided(name, errno, text);
    match errno {
        Errno::EPERM => problem.help("a limit of this control socket forbids it"),
        _ => problem,
    }
}

fn unanswered(flags: &CueFlags, errno: Errno) -> Problem {
    let name = flags.control.to_string_lossy();
    match errno {
        Errno::EAGAIN => {
            let text = format!("no answer for {} seconds", PATIENCE.as_secs());
            Problem::unsided(name, Errno::ETIMEDOUT, text)
                .help("check that the socket is one of --control")
        }
        errno => Problem::unsided(name, errno, format!("{errno} steering")),
    }
}
