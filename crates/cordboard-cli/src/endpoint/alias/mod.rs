//! One file with two device numbers: in an overlay and in the directory below
//! it, in a file system that is mounted twice over a network, or through a FUSE
//! server that passes calls on; also a loop device and its backing file.
//! Truncating the sink truncates the source, and a copy that is appended to its
//! source has no end.

use std::collections::hash_map::RandomState;
use std::fmt::Display;
use std::hash::BuildHasher;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use cordboard::endpoint::Storage;
use cordboard::{Errno, Request, Side, fstat};
use rustix::fs::{
    AtFlags, FileType, OFlags, SealFlags, Stat, StatxFlags, StatxTimestamp, Timespec, Timestamps,
    UTIME_NOW, fcntl_get_seals, fcntl_getfl, ftruncate, futimens, statx, utimensat,
};

use super::same_file::{check_same_file, same_file_problem};
use crate::files::id;
use crate::files::{kind, times};
use crate::problem::Problem;
use crate::signals::{check_stop, retry};

/// How much earlier the probe sets the sink's time, at least, in seconds.
const EARLIER: i64 = 1 << 20;
/// More than the rounding of times by any file system, in seconds.
const ROUNDED: i64 = 4;
/// More than the resolution of file times: a tick (`current_time`, fs/inode.c).
const TICK: Duration = Duration::from_millis(11);
const SECOND: Duration = Duration::from_secs(1);
/// How often a probe is repeated that another process has disturbed.
const TRIES: usize = 16;

/// The state of a sink that is the source, for messages.
pub type SinkState = &'static str;
const UNCHANGED: SinkState = "nothing was written";
/// For a file of another user, whose time only its owner can restore.
const TOUCHED: SinkState = "nothing was written, but its modification time was set to the present";

/// An open file, and its status.
pub type OpenFile<'a> = (BorrowedFd<'a>, &'a Stat);

/// [`check_same_file`], for files with different device numbers too. Called for a
/// sink whose contents are discarded next. Returns the status of the source,
/// for [`check_not_emptied`].
pub fn check_alias(
    source: BorrowedFd<'_>,
    source_shown: &str,
    sink: BorrowedFd<'_>,
    sink_shown: &str,
) -> Result<Stat, Problem> {
    let (from, to) = check_same_file(source, source_shown, sink, sink_shown)?;
    let files = ((source, &from), (sink, &to));
    match is_alias(files.0, files.1, (&source_shown, &sink_shown))? {
        Some(left) => {
            let help = format!("it has two device numbers; {left}: choose another name");
            Err(same_file_problem(sink_shown, &source_shown).help(help))
        }
        None => Ok(from),
    }
}

/// Refuses a sink that appends, and is the source under another device number.
/// The library refuses it if both numbers are the same.
pub fn check_append_to_itself(
    (source, source_shown): (BorrowedFd<'_>, &dyn Display),
    (sink, sink_shown): (BorrowedFd<'_>, &dyn Display),
) -> Result<(), Problem> {
    if !fcntl_getfl(sink).is_ok_and(|flags| flags.contains(OFlags::APPEND)) {
        return Ok(());
    }
    // The transfer reports any error of either.
    let (Ok(from), Ok(to)) = (fstat(source), fstat(sink)) else {
        return Ok(());
    };
    if is_kept_alias((source, &from), (sink, &to)).is_none() {
        return Ok(());
    }
    let text = format!("is also the source, {source_shown}, which would grow forever");
    let problem = Problem {
        side: None,
        ..Problem::refused(sink_shown.to_string(), Side::Sink, Errno::EINVAL, text)
    };
    Err(problem.help("it is visible in two file systems: specify a size, or write to another file"))
}

/// Refuses a sink that is written in place (a block device, or with a sink offset), and that is
/// the source under another device number: the library checks only ranges of a file that it
/// knows to be one.
pub fn check_kept_alias(
    (source, source_shown): (BorrowedFd<'_>, &dyn Display),
    (sink, sink_shown): (BorrowedFd<'_>, &dyn Display),
    request: &Request,
) -> Result<(), Problem> {
    // The transfer reports any error of either.
    let (Ok(from), Ok(to)) = (fstat(source), fstat(sink)) else {
        return Ok(());
    };
    if request.sink_offset.is_none() && kind(&to) != FileType::BlockDevice {
        return Ok(());
    }
    let files = ((source, &from), (sink, &to));
    let left = match is_loop_device_of(files.0, files.1) {
        true => Some(UNCHANGED),
        false => is_kept_alias(files.0, files.1),
    };
    match left {
        Some(left) => {
            let help = format!("it has two device numbers; {left}: choose another name");
            Err(same_file_problem(sink_shown.to_string(), source_shown).help(help))
        }
        None => Ok(()),
    }
}

/// Whether the source is the sink of a transfer that keeps its contents. The
/// probe does not change the length, because another process may append too: an
/// alias without a common time is not found.
pub fn is_kept_alias(source: OpenFile<'_>, sink: OpenFile<'_>) -> Option<SinkState> {
    probe_any_time(source, sink, &if_alike(source, sink)?).ok()?
}

/// Whether the source is the sink. Probes only files on two file systems that
/// are alike in size and time, and restores them.
pub fn is_alias(
    source: OpenFile<'_>,
    sink: OpenFile<'_>,
    (source_shown, sink_shown): (&dyn Display, &dyn Display),
) -> Result<Option<SinkState>, Problem> {
    if is_loop_device_of(source, sink) {
        return Ok(Some(UNCHANGED));
    }
    let Some(to) = if_alike(source, sink) else {
        return Ok(None);
    };
    let by_time = probe_any_time(source, sink, &to);
    if let Ok(Some(left)) = by_time {
        return Ok(Some(left));
    }
    let (source, sink) = (source.0, sink.0);
    if is_sealed(sink) {
        return Ok(None);
    }
    // A server may accept a time and not set it.
    probe_length(source, sink, &to).or_else(|errno| {
        check_stop()?;
        if by_time.is_ok() {
            return Ok(None);
        }
        let errno = Errno::from(errno);
        let text = format!("may be the same file as the source, {source_shown}: {errno} probing it");
        let help = match errno {
            Errno::EFBIG => {
                "nothing was written: raise the limit (ulimit -f), remove it first, or choose another name"
            }
            _ => "nothing was written: remove it first, or choose another name",
        };
        let problem = Problem::refused(sink_shown.to_string(), Side::Sink, Errno::EINVAL, text);
        Err(problem.help(help))
    })
}

/// Whether one of the two is a loop device, or a partition of one, and the other is its backing
/// file.
pub fn is_loop_device_of(source: OpenFile<'_>, sink: OpenFile<'_>) -> bool {
    let is_backed = |(device, its): OpenFile<'_>, (_, file): OpenFile<'_>| {
        kind(its) == FileType::BlockDevice
            && kind(file) == FileType::RegularFile
            && Storage::container(device, its.st_rdev)
                .is_some_and(|whole| (whole.device, whole.inode) == id(file))
    };
    is_backed(source, sink) || is_backed(sink, source)
}

/// Whether the length that a probe adds could not be removed again
/// (`F_SEAL_SHRINK`, since Linux 3.17).
fn is_sealed(sink: BorrowedFd<'_>) -> bool {
    fcntl_get_seals(sink).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

/// Returns the present status of the sink, if it may be the source: a file on
/// another file system, of the same size and time.
fn if_alike(source: OpenFile<'_>, sink: OpenFile<'_>) -> Option<Now> {
    let (from, to) = if_same_time(FileType::RegularFile, source, sink)?;
    (from.size == to.size && to.size > 0).then_some(to)
}

/// Returns the present status of both, if they are of this type, on two file
/// systems, and of the same time.
fn if_same_time(
    of: FileType,
    (source, from): OpenFile<'_>,
    (sink, to): OpenFile<'_>,
) -> Option<(Now, Now)> {
    if kind(from) != of || kind(to) != of || from.st_dev == to.st_dev {
        return None;
    }
    let (from, to) = (now(source).ok()?, now(sink).ok()?);
    // Some servers report whole seconds.
    (from.second() == to.second()).then_some((from, to))
}

/// Whether a directory, which may be open with `O_PATH`, is the source under
/// another device number, as far as that can be determined.
pub fn is_directory_alias(source: OpenFile<'_>, directory: OpenFile<'_>) -> bool {
    let (there, here) = (source.0, directory.0);
    let found = if_same_time(FileType::Directory, source, directory);
    found.is_some_and(|(_, to)| {
        let set = |times: &Timestamps| utimensat(here, c".", times, AtFlags::empty());
        probe_time((there, here), &to, set) == Ok(true)
    })
}

/// The result is unknown, because only its owner can set the sink's time, or
/// because the time is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unknown;

/// Probes by an earlier time, or else by the present one, which the next write
/// would set anyway.
fn probe_any_time(
    source: OpenFile<'_>,
    sink: OpenFile<'_>,
    to: &Now,
) -> Result<Option<SinkState>, Unknown> {
    let fds = (source.0, sink.0);
    match probe_time(fds, to, |times| futimens(sink.0, times)) {
        Ok(found) => Ok(found.then_some(UNCHANGED)),
        Err(Unknown) => {
            let found = probe_present_time(fds, to);
            // Succeeds only for the owner of the file (utimensat(2)).
            let kept = restore(fds.0, || futimens(sink.0, &to.times));
            Ok(found?.then_some(if kept { UNCHANGED } else { TOUCHED }))
        }
    }
}

/// Whether the source's time becomes earlier with the sink's. The difference is
/// random, so that no other process is likely to choose it: another command may
/// probe at the same time, with the source as its sink. Probes twice, since
/// another process may copy the time that it finds (`-p`).
fn probe_time(
    fds: (BorrowedFd<'_>, BorrowedFd<'_>),
    to: &Now,
    set: impl Fn(&Timestamps) -> rustix::io::Result<()>,
) -> Result<bool, Unknown> {
    let mut found = false;
    for _ in 0..TRIES {
        let mut earlier = to.times.clone();
        let second = &mut earlier.last_modification.tv_sec;
        *second = second.saturating_sub(EARLIER + random(1 << 20) * ROUNDED);
        retry(|| set(&earlier)).map_err(|_| Unknown)?;
        let (moved, here) = moved(fds, to);
        // A time that another process has set is not replaced.
        if here.is_some() && now(fds.1).ok().map(|now| now.second()) == here {
            restore(fds.0, || set(&to.times));
        }
        match moved {
            Moved::To { .. } if found => return Ok(true),
            Moved::To { .. } => found = true,
            Moved::Not => return Ok(false),
            Moved::Unknown => break,
            // If another process changes both meanwhile, they may still be one
            // file.
            Moved::Disturbed => {}
        }
    }
    Err(Unknown)
}

/// The same for a process that may write to the sink and does not own it: it
/// can set the present time (utimensat(2)), but not the time before. Another
/// process may set the source's time at the same moment, but is unlikely to do
/// so at each of several.
fn probe_present_time(fds: (BorrowedFd<'_>, BorrowedFd<'_>), to: &Now) -> Result<bool, Unknown> {
    const MOMENTS: usize = 3;
    let present = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let present = Timestamps {
        last_access: present,
        last_modification: present,
    };
    let mut moments = 0;
    for _ in 0..TRIES {
        retry(|| futimens(fds.1, &present)).map_err(|_| Unknown)?;
        let (moved, _) = moved(fds, to);
        moments += usize::from(matches!(moved, Moved::To { .. }));
        match moved {
            Moved::To { .. } if moments == MOMENTS => return Ok(true),
            Moved::To { exactly: true } | Moved::Disturbed => std::thread::sleep(TICK),
            // A server may round it.
            Moved::To { exactly: false } => std::thread::sleep(SECOND),
            Moved::Not => return Ok(false),
            Moved::Unknown => break,
        }
    }
    Err(Unknown)
}

/// Whether the source's time has become that of the sink.
#[derive(Debug, Clone, Copy)]
enum Moved {
    /// To the same second; `exactly`: to the same nanosecond.
    To {
        exactly: bool,
    },
    Not,
    /// The sink's time is in the same second as before.
    Unknown,
    /// Another process has changed the sink's time meanwhile.
    Disturbed,
}

/// Returns whether the source's time has become that of the sink, and the
/// second of the sink's time.
fn moved((source, sink): (BorrowedFd<'_>, BorrowedFd<'_>), to: &Now) -> (Moved, Option<i64>) {
    let (Ok(here), Ok(there), Ok(after)) = (now(sink), now(source), now(sink)) else {
        return (Moved::Unknown, None);
    };
    let part = |now: &Now| now.times.last_modification.tv_nsec;
    let moved = match here.second() {
        second if second == to.second() => Moved::Unknown,
        second if second != after.second() => Moved::Disturbed,
        second if second != there.second() => Moved::Not,
        _ => Moved::To {
            exactly: part(&here) == part(&there),
        },
    };
    (moved, Some(here.second()))
}

/// Whether the source grows with the sink: by a byte, and then by a random
/// number of bytes, which no other process is likely to choose. Bytes that
/// another process writes behind the end between two of these calls are lost.
fn probe_length(
    source: BorrowedFd<'_>,
    sink: BorrowedFd<'_>,
    to: &Now,
) -> rustix::io::Result<Option<SinkState>> {
    const MOST: i64 = 1 << 12;
    let mut kept = true;
    let mut found = false;
    for more in [1, 2 + random(MOST) as u64] {
        let size = to.size + more;
        let is_long = |fd| now(fd).is_ok_and(|now| now.size == size);
        match retry(|| ftruncate(sink, size)) {
            Ok(()) => found = is_long(source),
            // Only the first byte was allowed, for example by a file size
            // limit.
            Err(_) if found => break,
            Err(errno) => return Err(errno),
        }
        if is_long(sink) {
            restore(source, || ftruncate(sink, to.size));
            // Succeeds only for the owner of the file (utimensat(2)).
            kept = restore(source, || futimens(sink, &to.times));
        }
        if !found {
            return Ok(None);
        }
    }
    Ok(Some(if kept { UNCHANGED } else { TOUCHED }))
}

/// A random number below this one.
fn random(below: i64) -> i64 {
    (RandomState::new().hash_one(()) % below as u64) as i64
}

/// The size and the times of a file.
struct Now {
    size: u64,
    times: Timestamps,
}

impl Now {
    fn second(&self) -> i64 {
        self.times.last_modification.tv_sec
    }
}

/// Returns the present values of a file's server, not those that the kernel has
/// cached: `statx(2)`, since Linux 4.11.
fn now(fd: BorrowedFd<'_>) -> rustix::io::Result<Now> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let asked = StatxFlags::SIZE | StatxFlags::ATIME | StatxFlags::MTIME;
    let time = |of: StatxTimestamp| Timespec {
        tv_sec: of.tv_sec,
        tv_nsec: of.tv_nsec.into(),
    };
    match retry(|| statx(fd, c"", flags, asked)) {
        Ok(now) => Ok(Now {
            size: now.stx_size,
            times: Timestamps {
                last_access: time(now.stx_atime),
                last_modification: time(now.stx_mtime),
            },
        }),
        Err(rustix::io::Errno::INTR) => Err(rustix::io::Errno::INTR),
        // A kernel without statx(2), or a filter.
        Err(_) => retry(|| fstat(fd)).map(|now| Now {
            size: now.st_size as u64,
            times: times(&now),
        }),
    }
}

/// Restores a value, also after a signal to stop and its timer signals. Returns
/// whether that was possible. The kernel must not cache the temporary value of
/// the source.
fn restore(source: BorrowedFd<'_>, mut call: impl FnMut() -> rustix::io::Result<()>) -> bool {
    let mut done = (0..TRIES).map(|_| call());
    let done = done.find(|done| *done != Err(rustix::io::Errno::INTR));
    let _ = now(source);
    done == Some(Ok(()))
}

/// Reports a source that had bytes, and has none after the sink was emptied.
pub fn check_not_emptied(
    source: BorrowedFd<'_>,
    source_shown: &dyn Display,
    before: &Stat,
    sink_shown: &dyn Display,
) -> Result<(), Problem> {
    let file = kind(before) == FileType::RegularFile;
    if !file || before.st_size == 0 || now(source).is_ok_and(|now| now.size > 0) {
        return Ok(());
    }
    let text = format!("its contents were lost when {sink_shown} was emptied");
    Err(
        Problem::refused(source_shown.to_string(), Side::Source, Errno::ENODATA, text)
            .help("both are one file, or another process has emptied it"),
    )
}

#[cfg(test)]
mod tests;
