//! Attributes that could not be read or set.

use cordboard::Side;
use rustix::io::Errno;

use crate::copy::place::Place;
use crate::problem::Problem;

/// The failure to set one of them.
pub fn refused(to: &Place<'_>, what: &str, errno: Errno) -> Problem {
    let errno = cordboard::Errno::from(errno);
    let text = format!("{errno} setting the {what}; its contents are complete");
    Problem::refused(to.shown(), Side::Sink, errno, text)
}

/// The failure to read one of them.
pub fn unread(from: &Place<'_>, to: &Place<'_>, what: &str, errno: Errno) -> Problem {
    let errno = cordboard::Errno::from(errno);
    let text = format!("{errno} reading the {what}, which {to} lacks; its contents are complete");
    Problem::refused(from.shown(), Side::Source, errno, text)
}
