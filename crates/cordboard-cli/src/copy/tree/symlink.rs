//! Symlinks are copied as symlinks.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use cordboard::Side;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::copy::attributes::{CopyResult, Names, Node, copy_extended, is_list, report_missing};
use crate::copy::attributes::{owner, owner_not_kept, refused, unread};
use crate::copy::job::Job;
use crate::copy::outcome::Outcome;
use crate::copy::place::Place;
use crate::copy::refusals::appeared_meanwhile;
use crate::copy::refusals::just_copied;
use crate::files::kind;
use crate::files::times;
use crate::files::{Removal, Replacement, id, remove, replace_symlink};
use crate::problem::Action;
use crate::problem::Problem;
use crate::signals::retry;

impl Job {
    /// Makes the same symlink. An existing one is replaced if its target
    /// differs, unless this command has made it. `release` waits for files under
    /// way, which release descriptors; `false`: there are none.
    pub fn link(
        &self,
        from: &Place<'_>,
        to: &Place<'_>,
        release: &mut dyn FnMut() -> bool,
        outcome: &mut Outcome,
    ) -> Result<(), Problem> {
        let reading = |e| Problem::call(from.shown(), Side::Source, e, Action::Open);
        let writing = |e| Problem::call(to.shown(), Side::Sink, e, Action::Open);
        let linking = |e| Problem::call(to.shown(), Side::Sink, e, Action::Symlink);
        let points_to = retry(|| rustix::fs::readlinkat(from.directory, from.name, Vec::new()))
            .map_err(reading)?;
        let stat = from.stat().map_err(reading)?;
        let mut made = retry(|| rustix::fs::symlinkat(&points_to, to.directory, to.name));
        if made == Err(Errno::EXIST) {
            if to.new {
                return Err(appeared_meanwhile(from, to));
            }
            // While it is open, no other file can get its inode number.
            let old = self.by_name(to, release).map_err(writing)?;
            let there = retry(|| cordboard::fstat(&old)).map_err(writing)?;
            if (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino) {
                let text = format!("is the same symlink as the source, {from}");
                return Err(Problem::refused(
                    to.shown(),
                    Side::Sink,
                    cordboard::Errno::EINVAL,
                    text,
                ));
            }
            if kind(&there) != FileType::Symlink {
                let text = format!("exists and is not a symlink, but {from} is one");
                return Err(Problem::refused(
                    to.shown(),
                    Side::Sink,
                    cordboard::Errno::EEXIST,
                    text,
                )
                .help("choose another DST, or remove it first"));
            }
            if self.written.has(&there) {
                return Err(just_copied(from, to));
            }
            // It may be an operand that is copied later.
            self.sources
                .check(from, to, (&there, false), &self.spares)?;
            // A replacement has a private name for a moment, which would stay
            // if the process is killed. With -p the owner may have to change.
            let same = || retry(|| rustix::fs::readlinkat(&old, c"", Vec::new()));
            if !self.preserve && same().is_ok_and(|target| target == points_to) {
                if self.written.has_new(to) {
                    self.written.add(&there);
                }
                return Ok(());
            }
            made = replace(to, &there, &points_to)?;
        }
        made.map_err(linking)?;
        if !self.written.has_new(to) && !self.preserve {
            return Ok(());
        }
        // The name may refer to another file from here on: all calls use the
        // descriptor.
        let link = self.by_name(to, release).map_err(writing)?;
        let there = retry(|| cordboard::fstat(&link)).map_err(writing)?;
        if kind(&there) != FileType::Symlink {
            return Err(replaced(to));
        }
        if self.written.has_new(to) {
            self.written.add(&there);
        }
        if self.preserve {
            let kept = self.keep_extended(from, (to, link.as_fd()), release, outcome);
            let kept = kept.map_err(|(side, errno)| match side {
                Side::Source => unread(from, to, ATTRIBUTES, errno),
                Side::Sink => refused(to, ATTRIBUTES, errno),
            });
            // As for files: the first problem is reported.
            return kept.and(preserve(link.as_fd(), &stat, to, outcome));
        }
        Ok(())
    }

    /// Opens an `O_PATH` descriptor. A symlink is not followed.
    fn by_name(&self, at: &Place<'_>, release: &mut dyn FnMut() -> bool) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(at.directory, at.name, flags, Mode::empty());
        match self.spares.retry_without_spares(|| retry(open)) {
            Err(Errno::MFILE | Errno::NFILE) if release() => retry(open),
            done => done,
        }
    }

    /// `-p`: copies the extended attributes. A symlink has none of `user`.
    fn keep_extended(
        &self,
        from: &Place<'_>,
        (to, link): (&Place<'_>, BorrowedFd<'_>),
        release: &mut dyn FnMut() -> bool,
        outcome: &mut Outcome,
    ) -> CopyResult {
        let source = self.by_name(from, release);
        let source = source.map_err(|e| (Side::Source, e))?;
        let both = (Node::Link(source.as_fd()), Node::Link(link));
        let names = Names::of(both.0, to, outcome);
        let copied = names.and_then(|names| {
            let names = names.only(|name| !is_list(name));
            copy_extended(names, both, to, outcome)
        });
        match copied {
            // No procfs.
            Err((_, errno @ Errno::NOENT)) => {
                report_missing(&from.path(), to, errno, outcome);
                Ok(())
            }
            copied => copied,
        }
    }
}

const ATTRIBUTES: &str = "extended attributes";

/// `-p`: sets the owner and the times of a symlink, which has no mode. Neither
/// affects the other.
fn preserve(
    link: BorrowedFd<'_>,
    stat: &Stat,
    to: &Place<'_>,
    outcome: &mut Outcome,
) -> Result<(), Problem> {
    let (uid, gid) = owner(stat);
    // Since Linux 2.6.39 (openat(2), `O_PATH`).
    let own = |uid| retry(|| rustix::fs::chownat(link, c"", uid, gid, AtFlags::EMPTY_PATH));
    let mut owned = Ok(());
    if let Err(errno) = own(uid) {
        let _ = own(None);
        match errno {
            // As for files: `preserve.rs`.
            Errno::PERM | Errno::ACCESS | Errno::INVAL => outcome.add(owner_not_kept(to, errno)),
            errno => owned = Err(refused(to, "owner", errno)),
        }
    }
    let times = times(stat);
    let touched = match retry(|| rustix::fs::utimensat(link, c"", &times, AtFlags::EMPTY_PATH)) {
        // Since Linux 5.8 (`do_utimes_path`, fs/utimes.c). Before, a file that
        // has replaced the symlink gets these times, and nothing else.
        Err(Errno::INVAL) => {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            retry(|| rustix::fs::utimensat(to.directory, to.name, &times, flags))
        }
        done => done,
    };
    owned.and(touched.map_err(|errno| refused(to, "times", errno)))
}

/// Replaces an existing symlink, which the caller holds open. The inner error is
/// that of making the new one.
fn replace(to: &Place<'_>, there: &Stat, points_to: &CStr) -> Result<Result<(), Errno>, Problem> {
    match replace_symlink(to.directory, to.name, id(there), points_to) {
        Replacement::Replaced => Ok(Ok(())),
        Replacement::Another => Err(replaced(to)),
        Replacement::Displaced(private) => Err(displaced(to, &private)),
        Replacement::Failed(errno) => Ok(Err(errno)),
        Replacement::Unsupported => remove_and_make(to, there, points_to),
    }
}

/// As [`replace`], for a file system that cannot exchange names: if the new
/// symlink cannot be made, neither exists.
fn remove_and_make(
    to: &Place<'_>,
    there: &Stat,
    points_to: &CStr,
) -> Result<Result<(), Errno>, Problem> {
    match remove(to.directory, to.name, id(there)) {
        (Removal::Removed, _) => Ok(retry(|| {
            rustix::fs::symlinkat(points_to, to.directory, to.name)
        })),
        (Removal::Failed(errno), _) => Ok(Err(errno)),
        (Removal::Another | Removal::Used | Removal::Unsure(_), _) => Err(replaced(to)),
        (Removal::Displaced, private) => Err(displaced(to, &private.unwrap_or_default())),
    }
}

/// Another process uses the same name, and its first file has a private name.
fn displaced(to: &Place<'_>, private: &Path) -> Problem {
    let now = format!("the first replacement is now named {}", private.display());
    replaced(to).help(now)
}

/// Another process uses the same name.
fn replaced(to: &Place<'_>) -> Problem {
    let text = "was replaced by another process during the copy";
    Problem::refused(to.shown(), Side::Sink, cordboard::Errno::ESTALE, text)
}

#[cfg(test)]
mod tests {
    use rustix::fs::CWD;

    use super::*;

    #[test]
    fn attributes_go_to_the_symlink_that_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let [link, other] = ["link", "other"].map(|name| dir.path().join(name));
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        std::fs::write(&other, b"").unwrap();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::open(&link, flags, Mode::empty()).unwrap();
        let mut stat = cordboard::fstat(&made).unwrap();
        stat.st_mtime = 1_000_000_000;
        let there = rustix::fs::lstat(&other).unwrap();
        // Another file gets its name.
        std::fs::rename(&link, dir.path().join("moved")).unwrap();
        std::fs::rename(&other, &link).unwrap();
        match rustix::fs::utimensat(&made, c"", &times(&stat), AtFlags::EMPTY_PATH) {
            Err(Errno::INVAL) => testkit::skip::here("no times of a descriptor of a symlink"),
            _ => {
                preserve(
                    made.as_fd(),
                    &stat,
                    &Place::top(&link),
                    &mut Outcome::default(),
                )
                .unwrap();
                let now = |name: &str| {
                    rustix::fs::statat(CWD, dir.path().join(name), AtFlags::SYMLINK_NOFOLLOW)
                        .unwrap()
                };
                assert_eq!(now("moved").st_mtime, 1_000_000_000);
                assert_eq!(now("link").st_mtime, there.st_mtime);
            }
        }
    }
}
