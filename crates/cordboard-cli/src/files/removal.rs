//! Removes a file that this process made, and no other file of the same name.
//!
//! No call removes a name only while it names a known inode: `unlinkat(2)`
//! takes a name, and another process may rename a file of its own to that name
//! after the last check. The file is therefore compared, renamed to a private
//! name, compared again and only then removed. A file that came between the two
//! checks gets its name back. `RENAME_NOREPLACE` keeps both renames from
//! replacing anything.
//!
//! If the file system has no such rename (NFS: `EINVAL`, renameat2(2)), or no
//! space for the private name, the file is compared and removed, which leaves a
//! race between those two calls.
//!
//! Another process may open a regular file as soon as it has a name. It is
//! removed only if it is empty and no other process has it open
//! ([`remove_unused`]). A process that opens it meanwhile waits, and then finds
//! it under its name. One race remains, inside one open(2) of another process
//! that looks the name up before the rename and opens the file after the lease
//! was checked.

use std::ffi::{CStr, CString, OsStr};
use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::sys::WriteLease;

/// Identifies a file as long as it exists: its device and its inode.
pub type Id = (u64, u64);

/// The device and the inode of a file.
#[allow(clippy::unnecessary_cast, reason = "their width is the architecture's")]
pub fn id(stat: &Stat) -> Id {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// The result of a removal.
#[derive(Debug, PartialEq, Eq)]
pub enum Removal {
    /// The name was removed.
    Removed,
    /// The name is that of another file, or of none.
    Another,
    /// The file was moved to the private name and is not to be removed: it is
    /// another file, or another process has opened it. A third file took the
    /// name before it could be restored, so the moved file keeps the private
    /// name.
    Displaced,
    /// The file was not removed: another process has used it meanwhile.
    Used,
    /// The file was not removed: another process may have it open, as the
    /// kernel grants no lease. `EAGAIN`: it is open elsewhere, in this process
    /// too, or the server has not delegated it (NFS, CIFS), or something else
    /// in the kernel refers to it. `EINVAL`: the file system has no leases
    /// (`F_SETLEASE`, fcntl(2); fs/locks.c).
    Unsure(Errno),
    /// The file could not be removed.
    Failed(Errno),
}

/// Returns the message about a new file that was not removed; `None`: it was.
pub fn leftover(
    file: &dyn Display,
    (removal, private): (Removal, Option<PathBuf>),
) -> Option<String> {
    Some(match removal {
        Removal::Removed => return None,
        Removal::Another => format!("{file} was moved or replaced, and is left as it is"),
        Removal::Displaced => {
            let private = private.unwrap_or_default();
            let now = private.display();
            format!("{file} was replaced meanwhile: the earlier file is now named {now}")
        }
        Removal::Used => format!("{file} was not removed, as another process uses it"),
        Removal::Unsure(errno) => {
            let errno = cordboard::Errno::from(errno);
            let why = "was not removed, as another process may have it open";
            format!("{file} {why}: {errno} taking a lease on it")
        }
        Removal::Failed(errno) => {
            let errno = cordboard::Errno::from(errno);
            format!("{file} was not removed, and is empty: {errno} removing it")
        }
    })
}

/// The result for one private name. `Taken`: that name exists.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Done(Removal),
    Taken,
}

/// The number of private names to try.
pub(super) const TRIES: usize = 16;

/// Removes a name in a directory, if it names this file. The caller holds the
/// file open, so that no other gets its inode. Returns the private path of a
/// [displaced](Removal::Displaced) file with it.
pub fn remove(directory: BorrowedFd<'_>, name: &Path, known: Id) -> (Removal, Option<PathBuf>) {
    remove_if(directory, name, known, &|| true)
}

/// Removes a regular file that this process has made, if it is empty and no
/// other process has it open. If that is unknown, it stays:
/// [`Removal::Unsure`]. `file` must be the only descriptor of this process.
pub fn remove_unused(
    directory: BorrowedFd<'_>,
    name: &Path,
    file: BorrowedFd<'_>,
) -> (Removal, Option<PathBuf>) {
    // With a lease, no other process writes to it from here on.
    let lease = WriteLease::take(file);
    match (cordboard::fstat(file), lease) {
        (Ok(stat), _) if stat.st_size > 0 => (Removal::Used, None),
        (Ok(stat), Ok(lease)) => remove_if(directory, name, id(&stat), &|| lease.is_whole()),
        (_, Err(errno)) => (Removal::Unsure(errno), None),
        (Err(errno), _) => (Removal::Failed(errno), None),
    }
}

fn remove_if(
    directory: BorrowedFd<'_>,
    name: &Path,
    known: Id,
    unused: &dyn Fn() -> bool,
) -> (Removal, Option<PathBuf>) {
    // The path is looked up once: its directory may be replaced meanwhile.
    let (above, name) = match split(name) {
        Some((parent, last)) => match open_parent(directory, parent) {
            Ok(above) => (Some(above), last),
            Err(errno) => return (Removal::Failed(errno), None),
        },
        None => (None, name.as_os_str()),
    };
    let directory = above.as_ref().map_or(directory, AsFd::as_fd);
    let Ok(name) = CString::new(name.as_bytes()) else {
        return (Removal::Failed(Errno::INVAL), None);
    };
    for number in 0..TRIES {
        let private = private(OsStr::new(""), number);
        match step(directory, &name, &private, (known, unused)) {
            Step::Taken => {}
            Step::Done(Removal::Displaced) => {
                let private = OsStr::from_bytes(private.as_bytes());
                return (Removal::Displaced, Some(private.into()));
            }
            Step::Done(done) => return (done, None),
        }
    }
    (Removal::Failed(Errno::EXIST), None)
}

/// [`remove`] without allocations, for a signal handler: by the whole path, and
/// one private name beside it (see [`private_beside`]).
pub fn remove_by_path(path: &CStr, private: &CStr, known: Id) -> Removal {
    match step(CWD, path, private, (known, &|| true)) {
        Step::Done(done) => done,
        Step::Taken => Removal::Failed(Errno::EXIST),
    }
}

/// Returns a private name in the directory of this path; `None` if the path
/// contains a zero byte.
pub fn private_beside(path: &Path) -> Option<CString> {
    let parent = match split(path) {
        Some((parent, _)) => parent.join(""),
        None => PathBuf::new(),
    };
    let private = private(parent.as_os_str(), TRIES);
    (!private.is_empty()).then_some(private)
}

pub(super) fn private(parent: &OsStr, number: usize) -> CString {
    let mut name = parent.as_bytes().to_vec();
    name.extend(format!(".cordboard-{}-{number}", std::process::id()).bytes());
    CString::new(name).unwrap_or_default()
}

/// Returns the directory of a path and the name in it; `None` for a bare name.
pub(super) fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty())?;
    Some((parent, path.file_name()?))
}

pub(super) fn open_parent(directory: BorrowedFd<'_>, parent: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, parent, flags, Mode::empty())
}

fn step(
    directory: BorrowedFd<'_>,
    name: &CStr,
    private: &CStr,
    (known, unused): (Id, &dyn Fn() -> bool),
) -> Step {
    let names = |name: &CStr| {
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(id(&stat) == known)
    };
    let unlink = |name: &CStr| match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) => Removal::Removed,
        Err(Errno::NOENT) => Removal::Another,
        Err(errno) => Removal::Failed(errno),
    };
    let rename = |from: &CStr, to: &CStr| {
        let flags = RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(directory, from, directory, to, flags)
    };
    Step::Done(match names(name) {
        Ok(true) => match rename(name, private) {
            Ok(()) => {
                let it_is = names(private) == Ok(true);
                match it_is && unused() {
                    true => unlink(private),
                    false => match rename(private, name) {
                        Ok(()) if it_is => Removal::Used,
                        Ok(()) => Removal::Another,
                        Err(_) => Removal::Displaced,
                    },
                }
            }
            Err(Errno::EXIST) => return Step::Taken,
            Err(Errno::NOENT) => Removal::Another,
            // See the head of this file.
            Err(_) => match names(name) {
                Ok(true) if !unused() => Removal::Used,
                Ok(true) => unlink(name),
                Ok(false) | Err(Errno::NOENT) => Removal::Another,
                Err(errno) => Removal::Failed(errno),
            },
        },
        Ok(false) | Err(Errno::NOENT) => Removal::Another,
        Err(errno) => Removal::Failed(errno),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::names;
    use super::*;

    fn id_of(path: &Path) -> Id {
        id(&rustix::fs::lstat(path).unwrap())
    }

    #[test]
    fn the_file_that_was_made_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"").unwrap();
        let ours = id_of(&path);
        assert_eq!(remove(CWD, &path, ours), (Removal::Removed, None));
        assert_eq!(remove(CWD, &path, ours), (Removal::Another, None));
        let [other, moved] = ["other", "moved"].map(|name| dir.path().join(name));
        fs::write(&path, b"").unwrap();
        fs::write(&other, b"theirs").unwrap();
        let ours = id_of(&path);
        fs::rename(&path, &moved).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(remove(CWD, &path, ours), (Removal::Another, None));
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        // A symlink is not its target.
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("moved", &path).unwrap();
        assert_eq!(remove(CWD, &path, ours), (Removal::Another, None));
        let (path, private) = (&path, private_beside(&path).unwrap());
        let c = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap();
        assert_eq!(remove_by_path(&c(path), &private, ours), Removal::Another);
        assert_eq!(
            remove_by_path(&c(path), &private, id_of(path)),
            Removal::Removed
        );
        assert_eq!(names(dir.path()), ["moved"]);
    }

    #[test]
    fn private_names_that_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"").unwrap();
        for number in 0..3 {
            let name = private(OsStr::new(""), number);
            fs::write(dir.path().join(OsStr::from_bytes(name.as_bytes())), b"x").unwrap();
        }
        assert_eq!(remove(CWD, &path, id_of(&path)), (Removal::Removed, None));
        assert_eq!(names(dir.path()).len(), 3);
    }

    /// Another descriptor of the same process counts like another process.
    #[test]
    fn a_file_in_use_by_another_process_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = fs::File::create(&path).unwrap();
        let theirs = fs::OpenOptions::new().append(true).open(&path).unwrap();
        let by = |file: &fs::File| remove_unused(CWD, &path, file.as_fd());
        let unsure = || (Removal::Unsure(Errno::AGAIN), None);
        assert_eq!(by(&file), unsure());
        drop(theirs);
        let reads = fs::File::open(&path).unwrap();
        assert_eq!(by(&file), unsure());
        drop(reads);
        fs::write(&path, b"theirs").unwrap();
        assert_eq!(by(&file), (Removal::Used, None));
        file.set_len(0).unwrap();
        // Between the two renames.
        let known = id_of(&path);
        assert_eq!(
            remove_if(CWD, &path, known, &|| false),
            (Removal::Used, None)
        );
        assert_eq!(names(dir.path()), ["f"]);
        let comes = || {
            fs::write(&path, b"third").unwrap();
            false
        };
        let (displaced, private) = remove_if(CWD, &path, known, &comes);
        assert_eq!(displaced, Removal::Displaced);
        let private = dir.path().join(private.unwrap());
        assert_eq!(id_of(&private), known);
        fs::rename(private, &path).unwrap();
        // No process waits for the file afterwards.
        fs::write(&path, b"").unwrap();
        assert_eq!(by(&file), (Removal::Removed, None));
        assert_eq!(names(dir.path()), [""; 0]);
    }

    /// Another process renames its files to the name all the time: none is
    /// lost, whenever it comes.
    #[test]
    fn no_file_is_lost_that_comes_at_any_moment() {
        const ROUNDS: usize = 3000;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"").unwrap();
        let moved = rustix::fs::renameat_with(CWD, &path, CWD, &path, RenameFlags::NOREPLACE);
        if moved != Err(Errno::EXIST) {
            testkit::skip::here(format!(
                "no RENAME_NOREPLACE on this file system: {moved:?}"
            ));
            return;
        }
        let end = AtomicBool::new(false);
        let theirs = std::thread::scope(|scope| {
            let ends = testkit::ends::Ends(&end);
            let other = scope.spawn(|| {
                let mut made = 0;
                while !end.load(Ordering::Relaxed) {
                    let own = dir.path().join("own");
                    fs::write(&own, b"").unwrap();
                    fs::hard_link(&own, dir.path().join(format!("keep{made}"))).unwrap();
                    fs::rename(&own, &path).unwrap();
                    made += 1;
                    // Moves it away, or the next one would replace it.
                    let away = dir.path().join(format!("done{made}"));
                    while !end.load(Ordering::Relaxed) && fs::rename(&path, &away).is_err() {
                        std::hint::spin_loop();
                    }
                }
                made
            });
            for _ in 0..ROUNDS {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
                let ours = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)).unwrap();
                let known = id(&cordboard::fstat(&ours).unwrap());
                // Opened without O_EXCL, it may be the other process's, which
                // has two names.
                if cordboard::fstat(&ours).unwrap().st_nlink == 1 {
                    remove(CWD, &path, known);
                }
            }
            drop(ends);
            other.join().unwrap()
        });
        for made in 0..theirs {
            let links = fs::metadata(dir.path().join(format!("keep{made}"))).unwrap();
            let links = std::os::unix::fs::MetadataExt::nlink(&links);
            assert_eq!(links, 2, "{made} of {theirs}");
        }
    }
}
