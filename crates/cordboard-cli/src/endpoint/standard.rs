//! Paths that lead to a standard descriptor.

use std::path::Path;

use cordboard::Side;
use rustix::io::Errno;

use crate::files::id;
use crate::inherited::{was_any_closed, was_closed};
use crate::problem::{Action, Problem};
use crate::signals::retry;

/// Returns the problem of a path that could not be opened. It may lead to a
/// standard descriptor that was closed, as `/dev/stdout` does.
pub fn open_problem(path: &Path, shown: impl Into<String>, side: Side, errno: Errno) -> Problem {
    if errno != Errno::LOOP || !leads_to_closed(path) {
        return Problem::call(shown, side, errno, Action::Open);
    }
    let closed = Problem::call(shown, side, Errno::BADF, Action::Open);
    closed.help("it is a standard descriptor, closed by the program that started this command")
}

fn leads_to_closed(path: &Path) -> bool {
    if !was_any_closed() {
        return false;
    }
    let Ok(there) = retry(|| rustix::fs::stat(path)) else {
        return false;
    };
    let standard = [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ];
    (0u8..).zip(standard).any(|(number, held)| {
        let is_it = |held| cordboard::fstat(held).is_ok_and(|held| id(&held) == id(&there));
        was_closed(number) && is_it(held)
    })
}
