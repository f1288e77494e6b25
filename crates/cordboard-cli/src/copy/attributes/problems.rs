//! Attributes that could not be read or set.

use cordboard::Side;
use rustix::io::Errno;

use crate::copy::outcome::Message;
use crate::copy::place::Place;
use crate::problem::Problem;

/// An attribute that could not be set. Lack of space for attributes, or the quota
/// of the new owner, concerns this file only.
pub fn refused(to: &Place<'_>, what: &str, errno: Errno) -> Problem {
    let errno = cordboard::Errno::from(errno);
    let text = format!("{errno} setting the {what}; the contents are complete");
    Problem {
        is_local: true,
        ..Problem::refused(to.shown(), Side::Sink, errno, text)
    }
}

/// An owner that was not kept. Users cannot set it. Root probably does not expect
/// that, for example on a file server that maps it to another user.
pub fn owner_not_kept(to: &Place<'_>, errno: Errno) -> Message {
    if errno == Errno::INVAL || !rustix::process::geteuid().is_root() {
        return Message::Unkept;
    }
    let errno = cordboard::Errno::from(errno);
    Message::AttributeLost {
        line: format!("cordboard: {to}: warning: the owner was not kept: {errno}"),
        reason: Some(format!("owner: {errno}")),
    }
}

/// An attribute that could not be read.
pub fn unread(from: &Place<'_>, to: &Place<'_>, what: &str, errno: Errno) -> Problem {
    let errno = cordboard::Errno::from(errno);
    let text = format!("{errno} reading the {what}, not set on {to}; the contents are complete");
    Problem::refused(from.shown(), Side::Source, errno, text)
}
