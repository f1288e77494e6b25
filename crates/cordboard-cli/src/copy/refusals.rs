//! Errors that several rooms report in the same words.

use std::path::Path;

use cordboard::{Errno, Side};
use rustix::fs::FileType;

use crate::copy::place::Place;
use crate::problem::Problem;

/// Two sources go to one file.
pub fn just_copied(from: &Place<'_>, to: &Place<'_>) -> Problem {
    let text = format!("just copied: it is not overwritten by {from}");
    Problem::refused(to.shown(), Side::Sink, Errno::EEXIST, text)
        .help("two sources go to this file: copy them one by one, or elsewhere")
}

/// Refuses what exists already in a directory that this command has made: the
/// file system takes this name and an earlier one for the same, as a
/// case-insensitive one does, or another process has made it.
pub fn appeared_meanwhile(from: &Place<'_>, to: &Place<'_>) -> Problem {
    let text = format!("it appeared in the new directory: {from} does not overwrite it");
    Problem::refused(to.shown(), Side::Sink, Errno::EEXIST, text)
        .help("another process writes there, or two names of the source differ in case alone")
}

/// A source that has no contents of its own to copy.
pub fn special(path: &Path, kind: FileType, tree: bool) -> Problem {
    let what = match kind {
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::BlockDevice => "a block device",
        FileType::CharacterDevice => "a character device",
        _ => "no regular file",
    };
    let shown = path.to_string_lossy();
    let device = matches!(kind, FileType::BlockDevice | FileType::CharacterDevice);
    let text = match device {
        true => format!("it is {what}, which copy -r does not take"),
        false => format!("it is {what}, which copy does not take"),
    };
    let help = match kind {
        _ if device && tree => format!("to copy its contents: cordboard copy {shown} DST"),
        FileType::Socket => format!("to read from it: cordboard splice unix:{shown} DST"),
        _ => format!("to read from it: cordboard splice {shown} DST"),
    };
    Problem::refused(shown, Side::Source, Errno::EINVAL, text).help(help)
}
