//! One file that two file systems show: an overlay and the directory below it,
//! what is mounted twice over a network, a FUSE server that passes through. Its
//! device numbers differ. Or a loop device, and the file that it shows. Emptying the
//! sink empties the source, and a copy that is appended to its source has no end.

use std::fmt::Display;
use std::os::fd::BorrowedFd;

use cordboard::{Errno, Side};
use rustix::fs::{
    AtFlags, FileType, OFlags, SealFlags, Stat, StatxFlags, StatxTimestamp, Timespec, Timestamps,
    UTIME_NOW, fcntl_get_seals, fcntl_getfl, fstat, ftruncate, futimens, statx, utimensat,
};

use super::{one_file, same_file};
use crate::problem::Problem;
use crate::removal::id;
use crate::signals::{again, go_on};
use crate::stat::{kind, times};

/// How much earlier a sink's time is for a moment: more than what any file system
/// rounds off.
const EARLIER: i64 = 1 << 20;

/// A file that is open, and what it was when it was looked at.
pub type Looked<'a> = (BorrowedFd<'a>, &'a Stat);

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
    let files = ((source, &from), (sink, &to));
    match is_alias(files.0, files.1, (&source_shown, &sink_shown))? {
        true => Err(one_file(sink_shown, &source_shown)
            .help("it has two device numbers; nothing was written: take another name")),
        false => Ok(from),
    }
}

/// Refuses a sink that appends, and is the source under another device number.
/// With one number for both, the library refuses it.
pub fn not_onto_itself(
    (source, source_shown): (BorrowedFd<'_>, &dyn Display),
    (sink, sink_shown): (BorrowedFd<'_>, &dyn Display),
) -> Result<(), Problem> {
    if !fcntl_getfl(sink).is_ok_and(|flags| flags.contains(OFlags::APPEND)) {
        return Ok(());
    }
    // What is wrong with either is told by the transfer.
    let (Ok(from), Ok(to)) = (fstat(source), fstat(sink)) else {
        return Ok(());
    };
    if !is_kept_alias((source, &from), (sink, &to)) {
        return Ok(());
    }
    let text = format!("it is the source too, {source_shown}, which would grow for ever");
    let problem = Problem {
        side: None,
        ..Problem::refused(sink_shown.to_string(), Side::Sink, Errno::EINVAL, text)
    };
    Err(problem.help("two file systems show it: give a size, or write to another file"))
}

/// Whether the source changes as the sink does, which keeps its contents, since
/// they are appended to. It gets no other length, because another process may append
/// to it too: what no time shows is not found.
pub fn is_kept_alias(source: Looked<'_>, sink: Looked<'_>) -> bool {
    alike(source, sink).is_some_and(|to| by_some_time(source, sink, &to) == Some(true))
}

/// Whether the source changes as the sink does. Asked only of files on two file
/// systems that are alike in size and time, and put back.
pub fn is_alias(
    source: Looked<'_>,
    sink: Looked<'_>,
    (source_shown, sink_shown): (&dyn Display, &dyn Display),
) -> Result<bool, Problem> {
    if is_behind(source, sink) {
        return Ok(true);
    }
    let Some(to) = alike(source, sink) else {
        return Ok(false);
    };
    let by_time = by_some_time(source, sink, &to);
    if by_time == Some(true) {
        return Ok(true);
    }
    let (source, sink) = (source.0, sink.0);
    if is_sealed(sink) {
        return Ok(false);
    }
    // A server may agree to a time and leave it as it was.
    by_length(source, sink, &to).or_else(|errno| {
        go_on()?;
        if by_time.is_some() {
            return Ok(false);
        }
        let errno = Errno::from(errno);
        let text = format!("it may be the same file as the source, {source_shown}: {errno} asking");
        let help = match errno {
            Errno::EFBIG => {
                "nothing was written: raise the limit (ulimit -f), remove it first, or take another name"
            }
            _ => "nothing was written: remove it first, or take another name",
        };
        let problem = Problem::refused(sink_shown.to_string(), Side::Sink, Errno::EINVAL, text);
        Err(problem.help(help))
    })
}

/// Whether the source is a loop device that shows the sink.
fn is_behind((source, from): Looked<'_>, (_, to): Looked<'_>) -> bool {
    if kind(from) != FileType::BlockDevice || kind(to) != FileType::RegularFile {
        return false;
    }
    crate::sys::behind(source) == Some(id(to))
}

/// It could not be made shorter again (`F_SEAL_SHRINK`, since Linux 3.17).
fn is_sealed(sink: BorrowedFd<'_>) -> bool {
    fcntl_get_seals(sink).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

/// What the sink is by now, if it may be the source: a file on another file
/// system, of the same size and time.
fn alike(source: Looked<'_>, sink: Looked<'_>) -> Option<Now> {
    let (from, to) = of_one_time(FileType::RegularFile, source, sink)?;
    (from.size == to.size && to.size > 0).then_some(to)
}

/// Both by now, if they are of this kind, on two file systems, and of the same
/// time.
fn of_one_time(
    of: FileType,
    (source, from): Looked<'_>,
    (sink, to): Looked<'_>,
) -> Option<(Now, Now)> {
    if kind(from) != of || kind(to) != of || from.st_dev == to.st_dev {
        return None;
    }
    let (from, to) = (now(source).ok()?, now(sink).ok()?);
    // Some servers tell whole seconds.
    (from.second() == to.second()).then_some((from, to))
}

/// Whether a directory, which may be open as a base only, is the source under
/// another device number, as far as that can be told.
pub fn is_directory_alias(source: Looked<'_>, directory: Looked<'_>) -> bool {
    let (there, here) = (source.0, directory.0);
    let found = of_one_time(FileType::Directory, source, directory);
    found.is_some_and(|(_, to)| {
        let set = |times: &Timestamps| utimensat(here, c".", times, AtFlags::empty());
        by_time((there, here), &to, set) == Some(true)
    })
}

/// By an earlier time, or by the present one, which what is written next sets too.
fn by_some_time(source: Looked<'_>, sink: Looked<'_>, to: &Now) -> Option<bool> {
    by_own_time(source, sink, to).or_else(|| by_present_time(source, sink, to))
}

fn by_own_time(source: Looked<'_>, (sink, _): Looked<'_>, to: &Now) -> Option<bool> {
    by_time((source.0, sink), to, |times| futimens(sink, times))
}

/// Whether the source's time is earlier as the sink's is. `None`: that is unknown,
/// because the sink's time can be set by its owner only, or is not kept.
fn by_time(
    (source, sink): (BorrowedFd<'_>, BorrowedFd<'_>),
    to: &Now,
    set: impl Fn(&Timestamps) -> rustix::io::Result<()>,
) -> Option<bool> {
    let mut earlier = to.times.clone();
    let second = &mut earlier.last_modification.tv_sec;
    *second = second.saturating_sub(EARLIER);
    again(|| set(&earlier)).ok()?;
    let moved = moved((source, sink), to);
    put_back(source, || set(&to.times));
    moved
}

/// The same for whoever may write to the sink, and does not own it: the present time
/// can be set (utimensat(2)), and not the one before.
fn by_present_time((source, _): Looked<'_>, (sink, _): Looked<'_>, to: &Now) -> Option<bool> {
    let present = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let present = Timestamps {
        last_access: present,
        last_modification: present,
    };
    again(|| futimens(sink, &present)).ok()?;
    moved((source, sink), to)
}

/// Whether the source's time has become what the sink's has. `None`: that is the same
/// second as before.
fn moved((source, sink): (BorrowedFd<'_>, BorrowedFd<'_>), to: &Now) -> Option<bool> {
    let (there, here) = (now(source), now(sink));
    let (there, here) = (there.ok()?.second(), here.ok()?.second());
    (here != to.second()).then_some(there == here)
}

/// Whether the source is a byte longer as the sink is. What is written past their
/// end between two of these calls would be lost.
fn by_length(source: BorrowedFd<'_>, sink: BorrowedFd<'_>, to: &Now) -> rustix::io::Result<bool> {
    let is_long = |fd| now(fd).is_ok_and(|now| now.size == to.size + 1);
    again(|| ftruncate(sink, to.size + 1))?;
    let found = is_long(source);
    if is_long(sink) {
        put_back(source, || ftruncate(sink, to.size));
    }
    // Its owner may.
    put_back(source, || futimens(sink, &to.times));
    Ok(found)
}

/// Size and times of a file.
struct Now {
    size: u64,
    times: Timestamps,
}

impl Now {
    fn second(&self) -> i64 {
        self.times.last_modification.tv_sec
    }
}

/// As a file's server has it by now, and not as the kernel has kept it:
/// `statx(2)`, since Linux 4.11.
fn now(fd: BorrowedFd<'_>) -> rustix::io::Result<Now> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let asked = StatxFlags::SIZE | StatxFlags::ATIME | StatxFlags::MTIME;
    let time = |of: StatxTimestamp| Timespec {
        tv_sec: of.tv_sec,
        tv_nsec: of.tv_nsec.into(),
    };
    match again(|| statx(fd, c"", flags, asked)) {
        Ok(now) => Ok(Now {
            size: now.stx_size,
            times: Timestamps {
                last_access: time(now.stx_atime),
                last_modification: time(now.stx_mtime),
            },
        }),
        Err(rustix::io::Errno::INTR) => Err(rustix::io::Errno::INTR),
        // A kernel without it, or a filter.
        Err(_) => again(|| fstat(fd)).map(|now| Now {
            size: now.st_size as u64,
            times: times(&now),
        }),
    }
}

/// Also once a signal to stop has come, and the timer's signals after it. The
/// kernel shall keep nothing of the source that was so for a moment.
fn put_back(source: BorrowedFd<'_>, mut call: impl FnMut() -> rustix::io::Result<()>) {
    const TRIES: usize = 16;
    let _ = (0..TRIES).find(|_| call() != Err(rustix::io::Errno::INTR));
    let _ = now(source);
}

/// A source that had bytes has none, now that the sink was emptied.
pub fn not_emptied(
    source: BorrowedFd<'_>,
    source_shown: &dyn Display,
    before: &Stat,
    sink_shown: &dyn Display,
) -> Result<(), Problem> {
    let file = kind(before) == FileType::RegularFile;
    if !file || before.st_size == 0 || now(source).is_ok_and(|now| now.size > 0) {
        return Ok(());
    }
    let text = format!("its contents were lost as {sink_shown} was emptied");
    Err(
        Problem::refused(source_shown.to_string(), Side::Source, Errno::ENODATA, text)
            .help("the two are one file, or another process has emptied it"),
    )
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use testkit::refuse::FTRUNCATE;

    use super::*;

    #[test]
    fn a_source_that_was_emptied_with_the_sink_is_told_of() {
        let file = tempfile::tempfile().unwrap();
        let emptied = |before: &Stat| not_emptied(file.as_fd(), &"from", before, &"to");
        let empty = fstat(&file).unwrap();
        file.set_len(5).unwrap();
        let before = fstat(&file).unwrap();
        assert!(emptied(&before).is_ok() && emptied(&empty).is_ok());
        file.set_len(0).unwrap();
        let problem = emptied(&before).unwrap_err();
        assert_eq!(problem.errno, Some(Errno::ENODATA));
        assert!(
            problem
                .text
                .contains("its contents were lost as to was emptied")
        );
        assert!(emptied(&empty).is_ok());
    }

    /// What another process appends meanwhile would be cut off with a byte that was
    /// added.
    #[test]
    fn a_sink_that_keeps_its_contents_gets_no_other_length() {
        let dirs = [std::env::temp_dir(), "/dev/shm".into()];
        let files = dirs.map(|dir| tempfile::tempfile_in(dir).unwrap());
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        for file in &files {
            file.set_len(5).unwrap();
            file.set_modified(time).unwrap();
        }
        let looked = |file: &File| fstat(file).unwrap();
        let [from, to] = [&files[0], &files[1]].map(looked);
        if from.st_dev == to.st_dev {
            return testkit::skip::here("there is one file system only");
        }
        for (keeps, owner, calls) in [(true, true, 0), (true, false, 0), (false, true, 2)] {
            let mut found = None;
            let ask = || {
                if !owner {
                    testkit::refuse::refuse(&[libc::SYS_utimensat], libc::EPERM);
                }
                let [source, sink] = [(files[0].as_fd(), &from), (files[1].as_fd(), &to)];
                found = match keeps {
                    true => Some(is_kept_alias(source, sink)),
                    false => is_alias(source, sink, (&"from", &"to")).ok(),
                };
            };
            let Some(made) = testkit::midst::at_each(&[FTRUNCATE], ask, || {}) else {
                return testkit::skip::here("no seccomp_unotify(2) here");
            };
            assert_eq!((found, made), (Some(false), calls));
            let now = looked(&files[1]);
            assert_eq!((now.st_size, now.st_mtime), (5, 1_000_000_000));
        }
    }
}
