//! The directories from the top of a tree to the current one of a walk, of
//! which only a few are open at any depth.
//!
//! Directories that were closed are opened again by `..` from the one below, as
//! `fts(3)` does; or, if that leads elsewhere because another process has moved
//! the directory, by their names from the top. The device and the inode must be
//! those of the directory that was left, and no symlink is followed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use rustix::fs::{CWD, OFlags};
use rustix::io::Errno;

use super::spares::{self, Spares};
use crate::directory::open_directory;
pub use crate::files::{Id, id};
use crate::signals::retry;

/// Directories that are open on one side: the current one, the spares, and the
/// top.
pub const MOST_OPEN: usize = spares::EACH + 2;

/// One side of a walk.
#[derive(Debug)]
pub struct Chain {
    links: Vec<Link>,
    /// How often each directory occurs: by bind mounts, a directory can be
    /// below itself.
    known: BTreeMap<Id, usize>,
    /// The last one, unless it could not be opened again.
    here: Option<Arc<OwnedFd>>,
    /// The others, as far as they are open.
    spares: Arc<Spares>,
}

#[derive(Debug)]
struct Link {
    /// The name in the directory above; of the first, its path.
    name: PathBuf,
    id: Id,
    fd: Weak<OwnedFd>,
}

impl Chain {
    /// An empty chain.
    pub fn new(spares: Arc<Spares>) -> Chain {
        Chain {
            links: Vec::new(),
            known: BTreeMap::new(),
            here: None,
            spares,
        }
    }

    /// Enters a directory, which was opened by this name in the current one.
    /// The first is the top.
    pub fn enter(&mut self, name: &Path, fd: OwnedFd, id: Id) {
        let fd = Arc::new(fd);
        self.links.push(Link {
            name: name.to_owned(),
            id,
            fd: Arc::downgrade(&fd),
        });
        *self.known.entry(id).or_default() += 1;
        if let Some(above) = self.here.replace(fd) {
            self.spares.keep(above, self.links.len() == 2);
        }
    }

    /// Whether this is the current directory or one above it.
    pub fn has(&self, id: Id) -> bool {
        self.known.contains_key(&id)
    }

    /// The current directory.
    ///
    /// # Errors
    ///
    /// `ESTALE`: it was closed, and could not be opened again.
    pub fn here(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.here.as_ref().map(|fd| fd.as_fd()).ok_or(Errno::STALE)
    }

    /// Shares the current directory with a caller that keeps it open.
    ///
    /// # Errors
    ///
    /// As [`Chain::here`].
    pub fn share(&self) -> Result<Arc<OwnedFd>, Errno> {
        self.here.clone().ok_or(Errno::STALE)
    }

    /// Goes up, and opens that directory again if necessary. Returns the
    /// directory that was left.
    pub fn leave(&mut self) -> Option<Arc<OwnedFd>> {
        let left = self.here.take();
        if let Some(Link { id, .. }) = self.links.pop()
            && let Entry::Occupied(mut times) = self.known.entry(id)
        {
            match times.get() {
                1 => drop(times.remove()),
                _ => *times.get_mut() -= 1,
            }
        }
        let Some(above) = self.links.last() else {
            return left;
        };
        self.here = self.spares.take(&above.fd);
        if let (None, Some(below)) = (&self.here, &left) {
            let up = || open(below.as_fd(), Path::new(".."), OFlags::NOFOLLOW, above.id);
            let up = self.spares.retry_without_spares(up).ok();
            self.is_here(up);
        }
        self.find();
        left
    }

    /// Sets the current directory, if it could be opened again.
    fn is_here(&mut self, fd: Option<OwnedFd>) {
        self.here = fd.map(Arc::new);
        if let (Some(fd), Some(link)) = (&self.here, self.links.last_mut()) {
            link.fd = Arc::downgrade(fd);
        }
    }

    /// Opens the current directory by its names from the top, if it is not open.
    /// Descriptors may have become free meanwhile.
    pub fn find(&mut self) {
        if self.here.is_some() || self.links.is_empty() {
            return;
        }
        let found = self.spares.retry_without_spares(|| self.by_names()).ok();
        self.is_here(found);
    }

    /// Opens the last directory from the nearest one that is open, or from the
    /// path of the top.
    fn by_names(&self) -> Result<OwnedFd, Errno> {
        let open_one = |(index, link): (usize, &Link)| Some((index, link.fd.upgrade()?));
        let nearest = self.links.iter().enumerate().rev().find_map(open_one);
        let (start, nearest) = match nearest {
            Some((index, fd)) => (index + 1, Some(fd)),
            None => (0, None),
        };
        let mut found: Option<OwnedFd> = None;
        for (index, link) in self.links.iter().enumerate().skip(start) {
            let above = match (&found, &nearest) {
                (Some(fd), _) => fd.as_fd(),
                (None, Some(fd)) => fd.as_fd(),
                (None, None) => CWD,
            };
            // An operand may be a symlink.
            let follow = match index {
                0 => OFlags::empty(),
                _ => OFlags::NOFOLLOW,
            };
            found = Some(open(above, &link.name, follow, link.id)?);
        }
        found.ok_or(Errno::STALE)
    }
}

/// Opens a directory, and checks that it is the known one.
fn open(above: BorrowedFd<'_>, name: &Path, follow: OFlags, known: Id) -> Result<OwnedFd, Errno> {
    let fd = open_directory(above, name, follow)?;
    if id(&retry(|| cordboard::fstat(&fd))?) == known {
        Ok(fd)
    } else {
        Err(Errno::STALE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::DIRECTORY;
    use rustix::fs::{CWD, Mode};

    /// Open on the one side of these tests, with the top and the last.
    const OPEN: usize = 2 * spares::EACH + 2;
    const DEPTH: usize = 2 * OPEN;

    /// Enters a tree of directories that are all named `d`.
    fn down(top: &Path) -> Chain {
        std::fs::create_dir_all((0..DEPTH).fold(top.to_owned(), |path, _| path.join("d"))).unwrap();
        let mut chain = Chain::new(Arc::default());
        for level in 0..=DEPTH {
            let name = if level == 0 { top } else { Path::new("d") };
            let above = if level == 0 {
                CWD
            } else {
                chain.here().unwrap()
            };
            let fd = rustix::fs::openat(above, name, DIRECTORY, Mode::empty()).unwrap();
            let id = id(&cordboard::fstat(&fd).unwrap());
            chain.enter(name, fd, id);
        }
        chain
    }

    fn open_ones(chain: &Chain) -> usize {
        let is_open = |link: &&Link| link.fd.strong_count() > 0;
        chain.links.iter().filter(is_open).count()
    }

    fn here(chain: &Chain) -> Option<Id> {
        chain
            .here()
            .ok()
            .map(|fd| id(&cordboard::fstat(fd).unwrap()))
    }

    #[test]
    fn up_again_with_few_open() {
        let dir = tempfile::tempdir().unwrap();
        let mut chain = down(dir.path());
        assert_eq!(open_ones(&chain), OPEN);
        for level in (0..=DEPTH).rev() {
            assert_eq!(here(&chain), Some(chain.links[level].id), "{level}");
            assert!(chain.leave().is_some());
            assert!(open_ones(&chain) <= OPEN);
        }
        assert_eq!(here(&chain), None);
    }

    /// Closes all spares.
    fn close_all(chain: &Chain) {
        let open = || Err::<(), _>(Errno::MFILE);
        assert_eq!(chain.spares.retry_without_spares(open), Err(Errno::MFILE));
    }

    #[test]
    fn up_again_with_none_kept() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        let mut chain = down(&top);
        for level in (0..=DEPTH).rev() {
            close_all(&chain);
            assert_eq!(open_ones(&chain), 1);
            assert_eq!(here(&chain), Some(chain.links[level].id), "{level}");
            assert!(chain.leave().is_some());
        }
        // By names from the path of the top, also if that is a symlink now.
        let mut chain = down(&top);
        let there = dir.path().join("there");
        std::fs::rename(&top, &there).unwrap();
        std::os::unix::fs::symlink("there", &top).unwrap();
        close_all(&chain);
        chain.here = None;
        chain.find();
        assert_eq!(here(&chain), Some(chain.links[DEPTH].id));
        // Another directory of that name is not it.
        std::fs::remove_file(&top).unwrap();
        std::fs::create_dir_all(top.join("d")).unwrap();
        chain.here = None;
        chain.find();
        assert_eq!(here(&chain), None);
    }

    #[test]
    fn what_was_moved_is_not_taken_for_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (top, elsewhere) = (dir.path().join("top"), dir.path().join("elsewhere"));
        std::fs::create_dir(&elsewhere).unwrap();
        let mut chain = down(&top);
        // `..` of the first directory that is left with its parent closed is
        // another directory now: the parent is found by its name.
        let moved = chain.links.len() - (OPEN - 1);
        let at = |level: usize| (0..level).fold(top.clone(), |path, _| path.join("d"));
        std::fs::rename(at(moved), elsewhere.join("d")).unwrap();
        for _ in moved..=DEPTH {
            chain.leave().unwrap();
        }
        assert_eq!(here(&chain), Some(chain.links[moved - 1].id));
        // The next one has moved, and a symlink to it is not it.
        let next = moved - 2;
        std::fs::rename(at(next), elsewhere.join("e")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("e"), at(next)).unwrap();
        chain.here = None;
        chain.leave();
        assert_eq!(here(&chain), None);
        // Those above have not moved.
        chain.leave();
        assert_eq!(here(&chain), Some(chain.links[next - 1].id));
    }
}
