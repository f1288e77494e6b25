//! The source and the sink are one file.

use std::fmt::Display;
use std::os::fd::BorrowedFd;

use cordboard::{Errno, Side};
use rustix::fs::Stat;

use crate::files::id;
use crate::problem::{Action, Problem};

/// Refuses a sink that is the source: replacing a file's contents by its own
/// would destroy them first. Returns the status of both.
pub fn check_same_file(
    source: BorrowedFd<'_>,
    source_shown: &str,
    sink: BorrowedFd<'_>,
    sink_shown: &str,
) -> Result<(Stat, Stat), Problem> {
    let stat = |fd, shown, side| {
        let failed = |errno| Problem::call(shown, side, errno, Action::Open);
        cordboard::fstat(fd).map_err(failed)
    };
    let a = stat(source, source_shown, Side::Source)?;
    let b = stat(sink, sink_shown, Side::Sink)?;
    match id(&a) == id(&b) {
        true => Err(same_file_problem(sink_shown, &source_shown)
            .help("nothing was written: choose another name")),
        false => Ok((a, b)),
    }
}

/// The sink is the source.
pub fn same_file_problem(sink: impl Into<String>, source: &dyn Display) -> Problem {
    let text = format!("is the same file as the source, {source}");
    Problem::refused(sink, Side::Sink, Errno::EINVAL, text)
}
