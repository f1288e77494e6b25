//! Symlinks stay symlinks.

use cordboard::{Errno, Side};
use rustix::fs::{AtFlags, FileType};

use super::attributes::{owner, times};
use super::place::Place;
use super::{Job, just_copied, kind};
use crate::hints::Doing;
use crate::problem::Problem;

impl Job {
    /// Makes the same symlink again; one that is there already is replaced, if
    /// it is not the work of this very command.
    pub fn link(&self, from: &Place<'_>, to: &Place<'_>) -> Result<(), Problem> {
        let reading = |e| Problem::call(from.shown(), Side::Source, e, Doing::Opening);
        let writing = |e| Problem::call(to.shown(), Side::Sink, e, Doing::Opening);
        let points_to =
            rustix::fs::readlinkat(from.directory, from.name, Vec::new()).map_err(reading)?;
        let stat = rustix::fs::statat(from.directory, from.name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(reading)?;
        let mut made = rustix::fs::symlinkat(&points_to, to.directory, to.name);
        if made == Err(rustix::io::Errno::EXIST) {
            let there = rustix::fs::statat(to.directory, to.name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(writing)?;
            if (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino) {
                let text = format!("it is the same symlink as the source, {from}");
                return Err(Problem::refused(
                    to.shown(),
                    Side::Sink,
                    Errno::EINVAL,
                    text,
                ));
            }
            if kind(&there) != FileType::Symlink {
                let text = format!("it is there and no symlink, and {from} is one");
                return Err(
                    Problem::refused(to.shown(), Side::Sink, Errno::EEXIST, text)
                        .help("remove it first"),
                );
            }
            if self.written.as_ref().is_some_and(|made| made.has(&there)) {
                return Err(just_copied(from, to));
            }
            rustix::fs::unlinkat(to.directory, to.name, AtFlags::empty()).map_err(writing)?;
            made = rustix::fs::symlinkat(&points_to, to.directory, to.name);
        }
        made.map_err(writing)?;
        if let Some(written) = &self.written {
            let made = rustix::fs::statat(to.directory, to.name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(writing)?;
            written.add(&made);
        }
        if self.preserve {
            let (uid, gid) = owner(&stat);
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            match rustix::fs::chownat(to.directory, to.name, uid, gid, flags) {
                Ok(()) => {}
                // As of files: `attributes.rs`.
                Err(rustix::io::Errno::PERM | rustix::io::Errno::INVAL) => {
                    let _ = rustix::fs::chownat(to.directory, to.name, None, gid, flags);
                }
                Err(errno) => return Err(writing(errno)),
            }
            rustix::fs::utimensat(
                to.directory,
                to.name,
                &times(&stat),
                AtFlags::SYMLINK_NOFOLLOW,
            )
            .map_err(writing)?;
        }
        Ok(())
    }
}
