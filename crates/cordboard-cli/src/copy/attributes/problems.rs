//! Attributes that could not be read or set.

use cordboard::Side;
use rustix::io::Errno;

use crate::copy::place::Place;
use crate::problem::Problem;

/// An attribute that could not be set.
pub fn refused(to: &Place<'_>, what: &str, errno: Errno) -> Problem {
    let errno = cordboard::Errno::from(errno);
    let text = format!("{errno} setting the {what}; the contents are complete");
    Problem::refused(to.shown(), Side::Sink, errno, text)
}

/// An attribute that could not be read.
pub fn unread(from: &Place<'_>, to: &Place<'_>, what: &str, errno: Errno) -> Problem {
    let errno = cordboard::Errno::from(errno);
    let text = format!("{errno} reading the {what}, not set on {to}; the contents are complete");
    Problem::refused(from.shown(), Side::Source, errno, text)
}
