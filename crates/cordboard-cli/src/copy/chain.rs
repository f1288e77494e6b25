//! The directories from the top of a tree to where a walk is, of which only
//! some are open, however deep it goes.
//!
//! Those that were closed are found again by `..` from the one below, as
//! `fts(3)` does it; or, where that leads elsewhere because somebody moved it
//! meanwhile, by their names from the top. Either way it must be the very
//! directory that was left: the device and the inode are compared, and no
//! symlink is followed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;

use super::parent::open_base;

/// Directories that are open at a time, besides the top: trees that are no
/// deeper are walked without opening any twice.
const OPEN: usize = 16;

/// The same with the top.
pub const MOST_OPEN: usize = OPEN + 1;

/// The device and the inode of a directory.
pub type Id = (u64, u64);

/// What tells one directory from another.
pub fn id(stat: &Stat) -> Id {
    (stat.st_dev, stat.st_ino)
}

/// One side of a walk.
#[derive(Debug, Default)]
pub struct Chain {
    links: Vec<Link>,
}

#[derive(Debug)]
struct Link {
    /// In the one above.
    name: PathBuf,
    id: Id,
    fd: Option<Arc<OwnedFd>>,
}

impl Chain {
    /// Goes down into a directory, which the one before was asked for by this
    /// name. The first is the top, and stays open.
    pub fn enter(&mut self, name: &Path, fd: OwnedFd, id: Id) {
        self.links.push(Link {
            name: name.to_owned(),
            id,
            fd: Some(Arc::new(fd)),
        });
        let above = self.links.len().saturating_sub(OPEN + 1);
        if above > 0 {
            self.links[above].fd = None;
        }
    }

    /// The directory where the walk is.
    ///
    /// # Errors
    ///
    /// `ESTALE`: it was closed, and was not to be found again.
    pub fn here(&self) -> Result<BorrowedFd<'_>, Errno> {
        let fd = self.links.last().and_then(|link| link.fd.as_ref());
        fd.map(|fd| fd.as_fd()).ok_or(Errno::STALE)
    }

    /// The same, to be kept open by whoever has something to do there.
    ///
    /// # Errors
    ///
    /// As [`Chain::here`].
    pub fn share(&self) -> Result<Arc<OwnedFd>, Errno> {
        let fd = self.links.last().and_then(|link| link.fd.clone());
        fd.ok_or(Errno::STALE)
    }

    /// Goes up, and opens the directory there again if need be. Returns the
    /// one that was left, with which there may be something to do yet.
    pub fn leave(&mut self) -> Option<Arc<OwnedFd>> {
        let left = self.links.pop()?.fd;
        if let Some(above) = self.links.last()
            && above.fd.is_none()
        {
            let found = (left.as_ref())
                .and_then(|below| open(below.as_fd(), Path::new(".."), above.id).ok())
                .or_else(|| self.by_names());
            if let Some(above) = self.links.last_mut() {
                above.fd = found.map(Arc::new);
            }
        }
        left
    }

    /// Looks the last directory up from the nearest one that is open.
    fn by_names(&self) -> Option<OwnedFd> {
        let start = self.links.iter().rposition(|link| link.fd.is_some())?;
        let mut found: Option<OwnedFd> = None;
        for link in &self.links[start + 1..] {
            let above = match &found {
                Some(fd) => fd.as_fd(),
                None => self.links[start].fd.as_ref()?.as_fd(),
            };
            found = Some(open(above, &link.name, link.id).ok()?);
        }
        found
    }
}

/// Opens a directory that is known.
fn open(above: BorrowedFd<'_>, name: &Path, known: Id) -> Result<OwnedFd, Errno> {
    let fd = open_base(above, name, OFlags::NOFOLLOW)?;
    if id(&rustix::fs::fstat(&fd)?) == known {
        Ok(fd)
    } else {
        Err(Errno::STALE)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parent::DIRECTORY;
    use super::*;
    use rustix::fs::{CWD, Mode};

    const DEPTH: usize = 3 * OPEN;

    /// Goes down a tree of directories that are all named `d`.
    fn down(top: &Path) -> Chain {
        std::fs::create_dir_all((0..DEPTH).fold(top.to_owned(), |path, _| path.join("d"))).unwrap();
        let mut chain = Chain::default();
        for level in 0..=DEPTH {
            let name = if level == 0 { top } else { Path::new("d") };
            let above = if level == 0 {
                CWD
            } else {
                chain.here().unwrap()
            };
            let fd = rustix::fs::openat(above, name, DIRECTORY, Mode::empty()).unwrap();
            let id = id(&rustix::fs::fstat(&fd).unwrap());
            chain.enter(name, fd, id);
        }
        chain
    }

    fn open_ones(chain: &Chain) -> usize {
        chain.links.iter().filter(|link| link.fd.is_some()).count()
    }

    fn here(chain: &Chain) -> Option<Id> {
        chain
            .here()
            .ok()
            .map(|fd| id(&rustix::fs::fstat(fd).unwrap()))
    }

    #[test]
    fn up_again_with_few_open() {
        let dir = tempfile::tempdir().unwrap();
        let mut chain = down(dir.path());
        assert_eq!(open_ones(&chain), OPEN + 1);
        for level in (0..=DEPTH).rev() {
            assert_eq!(here(&chain), Some(chain.links[level].id), "{level}");
            assert!(chain.leave().is_some());
            assert!(open_ones(&chain) <= OPEN + 1);
        }
        assert_eq!(here(&chain), None);
    }

    #[test]
    fn what_was_moved_is_not_taken_for_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (top, elsewhere) = (dir.path().join("top"), dir.path().join("elsewhere"));
        std::fs::create_dir(&elsewhere).unwrap();
        let mut chain = down(&top);
        // `..` of the first that is left with its parent closed is another
        // directory now: the parent is found by its name.
        let moved = chain.links.len() - OPEN;
        let at = |level: usize| (0..level).fold(top.clone(), |path, _| path.join("d"));
        std::fs::rename(at(moved), elsewhere.join("d")).unwrap();
        for _ in moved..=DEPTH {
            chain.leave().unwrap();
        }
        assert_eq!(here(&chain), Some(chain.links[moved - 1].id));
        // The next is gone from its place, and a symlink to it is not it.
        let next = moved - 2;
        std::fs::rename(at(next), elsewhere.join("e")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("e"), at(next)).unwrap();
        chain.links[moved - 1].fd = None;
        chain.leave();
        assert_eq!(here(&chain), None);
        // Those above are where they were.
        chain.leave();
        assert_eq!(here(&chain), Some(chain.links[next - 1].id));
    }
}
