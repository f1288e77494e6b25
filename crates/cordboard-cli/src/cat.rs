//! `cordboard cat FILE…`: writes files to standard output, one after the other.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::PathBuf;

use cordboard::{Ended, Errno, Request, Side, Size, Sparse};

use crate::endpoint::{self, Existing, Name, Opened};
use crate::flags::Cat;
use crate::problem::Problem;
use crate::request;
use crate::session::Session;
use crate::stages;

/// Runs the command.
pub fn run(flags: &Cat, session: &mut Session) {
    if let Err(problem) = cat(flags, session) {
        session.problem(&problem);
    }
}

fn cat(flags: &Cat, session: &mut Session) -> Result<(), Problem> {
    if flags.range.offset.is_some() && flags.files.len() > 1 {
        let many = Problem::usage("--offset", "needs a single FILE");
        return Err(many.help("use one command for each file"));
    }
    let request = Request {
        idle: flags.idle,
        // Holes in standard output matter only if it is an empty file.
        ..request::common(&flags.range, &flags.common.paths, Sparse::Auto)?
    };
    stages::check(&flags.common.stages, &request)?;
    let standard = [OsString::from("-")];
    let files = match flags.files.as_slice() {
        [] => &standard,
        files => files,
    };
    let sink = endpoint::sink(&Name::Standard, "-", Existing::Replace)?;
    if let Some(paths) = several(files) {
        session.count_operands(paths, false, flags.range.size);
    }
    for (ended, file) in (0..).zip(files) {
        session.files_ended(ended);
        if session.stopped() {
            break;
        }
        // A file is opened even if no bytes are left for it. Its hash or its
        // frame is that of no bytes.
        let left = flags.range.size.map(|n| n.saturating_sub(session.read()));
        let request = Request {
            size: left.map_or(Size::Eof, Size::Bytes),
            ..request.clone()
        };
        let is_last = ended + 1 == files.len() as u64;
        match one(session, file, &sink, request, is_last) {
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

/// Returns the paths of several files. `None`: there is only one, or one of them is
/// standard input, whose size would be that of its path.
fn several(files: &[OsString]) -> Option<Vec<PathBuf>> {
    if files.len() < 2 {
        return None;
    }
    let mut paths = Vec::with_capacity(files.len());
    for file in files {
        match endpoint::file(file, Side::Source) {
            Ok(Name::Path(path)) => paths.push(path),
            // What is wrong with it is reported when it is opened.
            _ => return None,
        }
    }
    Some(paths)
}

/// Writes one file, and returns its ending. With a problem, also returns
/// whether it ends the command: an error of standard output would occur again
/// for the next file. `is_last`: no other file follows it.
fn one(
    session: &mut Session,
    shown: &OsStr,
    sink: &Opened,
    request: Request,
    is_last: bool,
) -> Result<Ended, (Problem, bool)> {
    let is_read = request.size != Size::Bytes(0);
    let (source, named) =
        open(shown, is_read).map_err(|problem| (with_hint(problem, shown), false))?;
    let request = Request {
        source_unshared: source.is_owned(),
        ..request
    };
    session.warn_of_offset((source.as_fd(), &source.shown), &request);
    // The total of the command is unknown before the last file is open.
    let total = request::total(source.as_fd(), &request).filter(|_| is_last);
    let moved = session.transfer(
        &named,
        (source.as_fd(), &source.shown),
        (sink.as_fd(), &sink.shown),
        request,
        (total, None),
    );
    match moved {
        Ok(report) => Ok(report.ended),
        Err(problem) => {
            let over = problem.side == Some(Side::Sink);
            Err((problem, over))
        }
    }
}

/// Opens a file, and returns its name in hash lines. One that is not read is opened without
/// waiting for the writer of a FIFO.
fn open(operand: &OsStr, is_read: bool) -> Result<(Opened, OsString), Problem> {
    if operand.is_empty() {
        return Err(Problem::empty_name());
    }
    let name = endpoint::file(operand, Side::Source)?;
    let shown = operand.to_string_lossy();
    let opened = match is_read {
        true => endpoint::source(&name, &shown)?,
        false => endpoint::source_of_several(&name, &shown)?,
    };
    Ok((opened, name.in_hash_lines(operand)))
}

/// Adds the hint for an operand that names another endpoint, or a socket.
fn with_hint(problem: Problem, operand: &OsStr) -> Problem {
    let shown = operand.to_string_lossy();
    match problem.errno {
        Some(Errno::ENOENT) if endpoint::names_other_endpoint(operand) => {
            problem.help("cat takes only files and -: for other endpoints, use cordboard splice")
        }
        Some(Errno::ENXIO) => problem.help(format!(
            "for a socket, use cordboard splice unix:{shown} -; for a device, check that it is present"
        )),
        _ => problem,
    }
}
