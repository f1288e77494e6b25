//! Errors that several modules report in the same words.

use std::path::Path;

use cordboard::{Errno, Side};
use rustix::fs::FileType;

use crate::copy::place::Place;
use crate::problem::Problem;

/// Two sources have the same target.
pub fn just_copied(from: &Place<'_>, to: &Place<'_>) -> Problem {
    let text = format!("was just copied, and is not overwritten by {from}");
    Problem::refused(to.shown(), Side::Sink, Errno::EEXIST, text)
        .help("two sources have this target: copy them one by one, or elsewhere")
}

/// Refuses what exists in a directory that this command has made: the file
/// system treats this name and an earlier one as the same, as a
/// case-insensitive one does, or another process has made it.
pub fn appeared_meanwhile(from: &Place<'_>, to: &Place<'_>) -> Problem {
    let text = format!("appeared in the new directory, and is not overwritten by {from}");
    Problem::refused(to.shown(), Side::Sink, Errno::EEXIST, text)
        .help("another process writes there, or it treats two names of the source as one")
}

/// A source without contents that can be copied.
pub fn not_copyable(path: &Path, kind: FileType, tree: bool) -> Problem {
    let what = match kind {
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::BlockDevice => "a block device",
        FileType::CharacterDevice => "a character device",
        _ => "not a regular file",
    };
    let shown = path.to_string_lossy();
    let device = matches!(kind, FileType::BlockDevice | FileType::CharacterDevice);
    let text = match device {
        true => format!("is {what}, which copy -r does not copy"),
        false => format!("is {what}, which copy does not copy"),
    };
    let help = match kind {
        _ if device && tree => format!("to copy its contents, use cordboard copy {shown} DST"),
        FileType::Socket => format!("to read from it, use cordboard splice unix:{shown} DST"),
        _ => format!("to read from it, use cordboard splice {shown} DST"),
    };
    Problem::refused(shown, Side::Source, Errno::EINVAL, text).help(help)
}
