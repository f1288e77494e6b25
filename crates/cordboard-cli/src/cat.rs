//! `cordboard cat FILE…`: to standard output, one after the other.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;

use cordboard::{Ended, Errno, Request, Side, Size, Sparse};

use crate::endpoint::{self, Name, Opened};
use crate::flags::Cat;
use crate::problem::Problem;
use crate::request;
use crate::session::Session;
use crate::stages;

/// Runs it.
pub fn run(flags: &Cat, session: &mut Session) {
    if let Err(problem) = cat(flags, session) {
        session.problem(&problem);
    }
}

fn cat(flags: &Cat, session: &mut Session) -> Result<(), Problem> {
    if flags.range.offset.is_some() && flags.files.len() > 1 {
        let many = Problem::usage("--offset", "it takes one FILE, and there are several");
        return Err(many.help("give each its own command"));
    }
    let request = Request {
        idle: flags.idle,
        // Holes in standard output would show only where it is an empty file.
        ..request::from(&flags.range, &flags.common.paths, Sparse::Auto)?
    };
    stages::check(&flags.common.stages, &request)?;
    let standard = [OsString::from("-")];
    let files = match flags.files.as_slice() {
        [] => &standard,
        files => files,
    };
    let sink = endpoint::sink(&Name::Standard, "-", false)?;
    for file in files {
        if session.stopped() {
            break;
        }
        // Of a file for which none is left, no byte is read. It is opened all the
        // same, and its hash or its frame is that of no bytes.
        let left = flags.range.size.map(|n| n.saturating_sub(session.read()));
        let request = Request {
            size: left.map_or(Size::Eof, Size::Bytes),
            ..request.clone()
        };
        match one(session, file, &sink, request) {
            // The rest of this file is missing: no other file follows it.
            Ok(Ended::Idle) => break,
            Ok(_) => {}
            Err((problem, over)) => {
                session.problem(&problem);
                if over {
                    return Ok(());
                }
            }
        }
    }
    sink.close()
}

/// One file, and how it ended. With a problem comes whether it ends everything:
/// a standard output that failed fails for the next one too.
fn one(
    session: &mut Session,
    shown: &OsStr,
    sink: &Opened,
    request: Request,
) -> Result<Ended, (Problem, bool)> {
    let source = open(shown).map_err(|problem| (elsewhere(problem, shown), false))?;
    let request = Request {
        source_unshared: source.is_ours(),
        ..request
    };
    let total = request::total(source.as_fd(), &request);
    let moved = session.transfer(
        shown,
        (source.as_fd(), &source.shown),
        (sink.as_fd(), &sink.shown),
        request,
        total,
    );
    match moved {
        Ok(report) => Ok(report.ended),
        Err(problem) => {
            let over = problem.side == Some(Side::Sink);
            Err((problem, over))
        }
    }
}

fn open(operand: &OsStr) -> Result<Opened, Problem> {
    if operand.is_empty() {
        return Err(Problem::empty_name());
    }
    let name = endpoint::file(operand, Side::Source)?;
    endpoint::source(&name, &operand.to_string_lossy())
}

/// Adds the help for an operand of cat that names another endpoint, or a
/// socket.
fn elsewhere(problem: Problem, operand: &OsStr) -> Problem {
    let shown = operand.to_string_lossy();
    match problem.errno {
        Some(Errno::ENOENT) if endpoint::is_no_path(operand) => {
            problem.help("cat takes files and -; for other endpoints: cordboard splice")
        }
        Some(Errno::ENXIO) => {
            problem.help(format!("for a socket: cordboard splice unix:{shown} -"))
        }
        _ => problem,
    }
}
