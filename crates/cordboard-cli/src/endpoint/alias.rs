//! One file that two file systems show: an overlay and the directory below it,
//! what is mounted twice over a network, a FUSE server that passes through. Its
//! device numbers differ, and emptying the sink empties the source.

use std::os::fd::BorrowedFd;

use cordboard::{Errno, Side};
use rustix::fs::{FileType, Stat, fstat, ftruncate, futimens};

use super::{one_file, same_file};
use crate::problem::Problem;
use crate::signals::again;
use crate::stat::{kind, times};

/// [`same_file`], and whatever its device number is; to be asked of a sink whose
/// contents are thrown away next. What the source was before, for
/// [`not_emptied`].
pub fn same_contents(
    source: BorrowedFd<'_>,
    source_shown: &str,
    sink: BorrowedFd<'_>,
    sink_shown: &str,
) -> Result<Stat, Problem> {
    let (from, to) = same_file(source, source_shown, sink, sink_shown)?;
    match is_alias((source, &from), (sink, &to)) {
        true => Err(one_file(sink_shown, &source_shown)
            .help("two file systems show it; nothing was written: take another name")),
        false => Ok(from),
    }
}

/// Whether the source gets a byte longer as the sink does. Asked only of files on
/// two file systems that are alike in size and time, and put back: what is written
/// past their end between two of these calls would be lost.
pub fn is_alias(source: (BorrowedFd<'_>, &Stat), sink: (BorrowedFd<'_>, &Stat)) -> bool {
    let ((source, from), (sink, to)) = (source, sink);
    let file = |stat: &Stat| kind(stat) == FileType::RegularFile;
    // Some servers tell whole seconds.
    let alike = (from.st_size, from.st_mtime) == (to.st_size, to.st_mtime);
    let Ok(size) = u64::try_from(to.st_size) else {
        return false;
    };
    if !file(from) || !file(to) || from.st_dev == to.st_dev || !alike || size == 0 {
        return false;
    }
    let is_long = |fd| again(|| fstat(fd)).is_ok_and(|now| now.st_size as u64 == size + 1);
    if again(|| ftruncate(sink, size + 1)).is_err() {
        return false;
    }
    let found = is_long(source);
    if is_long(sink) {
        let _ = again(|| ftruncate(sink, size));
    }
    // Its owner may.
    let _ = futimens(sink, &times(to));
    found
}

/// A source that had bytes has none, now that the sink was emptied.
pub fn not_emptied(
    source: BorrowedFd<'_>,
    source_shown: &str,
    before: &Stat,
    sink_shown: &str,
) -> Result<(), Problem> {
    let file = kind(before) == FileType::RegularFile;
    if !file || before.st_size == 0 || again(|| fstat(source)).is_ok_and(|now| now.st_size > 0) {
        return Ok(());
    }
    let text = format!("its contents were lost as {sink_shown} was emptied");
    Err(
        Problem::refused(source_shown, Side::Source, Errno::ENODATA, text)
            .help("the two are one file, or another process has emptied it"),
    )
}
