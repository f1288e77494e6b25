//! Printing results to standard output.

use cordboard::Side;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::endpoint::{self, Existing, Name};
use crate::exit::Ending;
use crate::output::{errno_of, print_line, write_all};
use crate::problem::{Action, Problem};

/// Prints a text, and returns the exit status.
pub fn show(text: &[u8]) -> u8 {
    match print(text) {
        Ok(()) => 0,
        Err(problem) => failed(&problem),
    }
}

/// Returns the exit status after a failure to print. Reports it, unless the
/// reader of standard output has closed it.
pub fn failed(problem: &Problem) -> u8 {
    let reader_left = problem.is_closed_reader();
    if !reader_left {
        print_line(problem);
    }
    let ending = Ending {
        reader_left,
        usage: problem.usage,
        failed: true,
        ..Ending::default()
    };
    ending.status()
}

/// Standard output, unless it was closed or is open for reading only.
pub fn writable_stdout() -> Result<endpoint::Opened, Problem> {
    let sink = endpoint::sink(&Name::Standard, "-", Existing::Replace)?;
    match rustix::fs::fcntl_getfl(&sink) {
        Ok(flags) if flags & OFlags::RWMODE == OFlags::RDONLY => {
            Err(write_problem(&sink.shown, &Errno::BADF.into()))
        }
        _ => Ok(sink),
    }
}

/// Writes to standard output. It is an error if that was closed.
pub fn print(text: &[u8]) -> Result<(), Problem> {
    let sink = writable_stdout()?;
    write_all(rustix::stdio::stdout(), text).map_err(|error| write_problem(&sink.shown, &error))
}

/// Returns the problem of a result that could not be written to standard output.
pub fn write_problem(where_to: &str, error: &std::io::Error) -> Problem {
    Problem {
        at_standard_output: true,
        ..Problem::call(where_to, Side::Sink, errno_of(error), Action::Transfer)
    }
}
