//! Sends the command, and waits for its answer.

use std::time::{Duration, Instant};

use cordboard::Errno;
use cordboard::cue::{Command, Cue, Limit, Record, Records, Status};
use rustix::io::read;
use rustix::net::sockopt;
use rustix::process::geteuid;

use super::show::{ended, is_status, json, name_of, text};
use crate::endpoint;
use crate::flags::{Blocks, CueAction, CueFlags, LimitAction};
use crate::print;
use crate::problem::Problem;
use crate::{sys, units, user};

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The JSON after a command whose status is forbidden.
const UNKNOWN: &str = "{\"state\":\"unknown\"}\n";

/// Runs the command, and returns the exit status.
pub fn run(flags: &CueFlags) -> u8 {
    match steer(flags) {
        Ok(()) => 0,
        Err(problem) => print::failed(&problem),
    }
}

fn steer(flags: &CueFlags) -> Result<(), Problem> {
    let command = command_of(&flags.action)?;
    let cue = Cue::from(endpoint::control_connection(&flags.control)?);
    match answer(command, &cue, PATIENCE) {
        Ok(Answer::Status(status)) if flags.json => print::print(json(&status).as_bytes()),
        Ok(Answer::Status(status)) => print::print(text(&status).as_bytes()),
        Ok(Answer::Ended) => print::print(ended(flags.json).as_bytes()),
        Ok(Answer::CarriedOut) if flags.json => print::print(UNKNOWN.as_bytes()),
        Ok(Answer::CarriedOut) => Ok(()),
        Ok(Answer::Refused { word, errno }) => Err(refused(flags, word, errno)),
        Err(Errno::ECONNRESET) => Err(closed(flags, &cue)),
        Err(errno) => Err(unanswered(flags, errno)),
    }
}

enum Answer {
    Status(Status),
    Ended,
    /// A limit forbids the status after the command.
    CarriedOut,
    Refused {
        word: u32,
        errno: Errno,
    },
}

/// Sends the command, if there is one, and then requests the status: its arrival shows that the
/// command was carried out.
///
/// # Errors
///
/// `ECONNRESET`: the connection was closed without an answer. `EAGAIN`: there is none within this
/// time, whatever else arrives.
fn answer(command: Option<Command>, cue: &Cue, patience: Duration) -> Result<Answer, Errno> {
    for command in command.into_iter().chain([Command::Status]) {
        match cue.send(command) {
            // The record of an end may have arrived before the connection was closed.
            Err(Errno::EPIPE | Errno::ECONNRESET) => break,
            sent => sent?,
        }
    }
    let (mut records, until) = (Records::default(), Instant::now() + patience);
    loop {
        match receive(cue, &mut records, until)? {
            Some(Record::Status(status)) => return Ok(Answer::Status(status)),
            Some(Record::Done(_)) => return Ok(Answer::Ended),
            Some(Record::Refused { word, .. }) if command.is_some() && is_status(word) => {
                return Ok(Answer::CarriedOut);
            }
            Some(Record::Refused { word, errno }) => return Ok(Answer::Refused { word, errno }),
            Some(_) => {}
            None => return Err(Errno::ECONNRESET),
        }
    }
}

/// Waits for a record until this time. `None`: there are no more. [`Cue::receive`] would wait
/// without end for a peer that sends words which are no record.
fn receive(cue: &Cue, records: &mut Records, until: Instant) -> Result<Option<Record>, Errno> {
    loop {
        if let Some(record) = records.next() {
            return Ok(Some(record));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::EAGAIN);
        }
        sockopt::set_socket_timeout(cue, sockopt::Timeout::Recv, Some(left))?;
        let mut bytes = [0; 1024];
        // A filter may refuse recvfrom(2).
        match read(cue, &mut bytes) {
            // ECONNRESET: the command has ended with commands unread.
            Ok(0) | Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            Ok(n) => records.push(&bytes[..n]),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The command of the protocol; `None` for the status alone.
///
/// # Errors
///
/// Wrong usage: a schedule of one number, or of three.
fn command_of(action: &CueAction) -> Result<Option<Command>, Problem> {
    let numbers = |blocks: &Blocks| {
        let numbers = blocks.numbers();
        numbers.ok_or_else(|| Problem::usage("", units::BLOCKS))
    };
    Ok(Some(match action {
        CueAction::Status => return Ok(None),
        CueAction::Pause => Command::Pause,
        CueAction::Resume => Command::Resume,
        CueAction::Auto { aim } => Command::Auto(*aim),
        CueAction::Cancel => Command::Cancel,
        CueAction::Rate { bytes } => Command::Rate(*bytes),
        CueAction::Schedule(blocks) => {
            let (count, rest) = numbers(blocks)?;
            Command::Schedule { count, rest }
        }
        CueAction::Limit(LimitAction::Rate { bytes }) => Command::Limit(Limit::Rate(*bytes)),
        CueAction::Limit(LimitAction::Schedule(blocks)) => {
            let (count, rest) = numbers(blocks)?;
            Command::Limit(Limit::Schedule { count, rest })
        }
    }))
}

fn refused(flags: &CueFlags, word: u32, errno: Errno) -> Problem {
    let name = flags.control.to_string_lossy();
    let text = format!("{errno}: the command {} was refused", name_of(word));
    let problem = Problem::unsided(name, errno, text);
    match errno {
        Errno::EPERM => problem.help("a limit of this control socket forbids it"),
        _ => problem,
    }
}

/// Returns the error for a connection that was closed without a record.
fn closed(flags: &CueFlags, cue: &Cue) -> Problem {
    let name = flags.control.to_string_lossy();
    let errno = Errno::ECONNRESET;
    let text = format!("{errno}: the connection was closed without an answer");
    let problem = Problem::unsided(name.clone(), errno, text);
    let number = geteuid().as_raw();
    match sys::peer(cue) {
        Ok(sys::Peer { uid: owner, .. }) if number != 0 && owner != number => {
            problem.help(format!(
                "the socket is one of user {owner}: only that user and root can steer the command"
            ))
        }
        Ok(_) if name.starts_with('@') && !user::is_certain(number) => problem.help(format!(
            "in this user namespace, other users have the number {number} too: use a path"
        )),
        _ => problem.help(
            "the command has just ended, or has 16 connections already, or the socket is not \
             one of --control",
        ),
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// As a log of another program that is written to the socket without end.
    #[test]
    fn words_that_are_no_answer_do_not_extend_the_wait() {
        let _hangs = testkit::watchdog::watch("words_that_are_no_answer_do_not_extend_the_wait");
        let (ours, mut other) = UnixStream::pair().unwrap();
        let mut started = Vec::new();
        Record::Started(1).encode(&mut started);
        let sends = std::thread::spawn(move || {
            for n in 0u32.. {
                let words = if n % 2 == 0 { &[0; 64][..] } else { &started };
                if other.write_all(words).is_err() {
                    break;
                }
            }
        });
        let cue = Cue::from(OwnedFd::from(ours));
        let none = answer(None, &cue, Duration::from_millis(50));
        assert_eq!(none.err(), Some(Errno::EAGAIN));
        drop(cue);
        sends.join().unwrap();
    }
}
