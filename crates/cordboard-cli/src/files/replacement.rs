//! Replaces a symlink by a new one.
//!
//! The new symlink is made under a private name first, and the two are then
//! exchanged: if it cannot be made (`ENOSPC`), the existing one stays. As for a
//! [removal](super::remove), the file that had the name is compared after the
//! exchange, and gets its name back if it is another one.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use super::removal::{Id, TRIES, id, open_parent, private, split};

/// The result of a replacement.
#[derive(Debug, PartialEq, Eq)]
pub enum Replacement {
    /// The name is that of the new symlink.
    Replaced,
    /// The name is that of another file, or of none.
    Another,
    /// The name was that of another file, which could not get it back and keeps
    /// this private name.
    Displaced(PathBuf),
    /// The file system or the kernel cannot exchange two names, or a filter refuses the call.
    /// Nothing changed.
    Unsupported,
    /// The existing symlink stays.
    Failed(Errno),
}

/// Replaces a symlink in a directory by a new one, if the name is still that of
/// the known one. The caller holds the known one open, so that no other gets its
/// inode.
pub fn replace_symlink(
    directory: BorrowedFd<'_>,
    name: &Path,
    known: Id,
    points_to: &CStr,
) -> Replacement {
    // The path is looked up once: its directory may be replaced meanwhile.
    let (above, name) = match split(name) {
        Some((parent, last)) => match open_parent(directory, parent) {
            Ok(above) => (Some(above), last),
            Err(errno) => return Replacement::Failed(errno),
        },
        None => (None, name.as_os_str()),
    };
    let directory = above.as_ref().map_or(directory, AsFd::as_fd);
    let Ok(name) = CString::new(name.as_bytes()) else {
        return Replacement::Failed(Errno::INVAL);
    };
    for number in 0..TRIES {
        let private = private(OsStr::new(""), number);
        match rustix::fs::symlinkat(points_to, directory, &private) {
            Ok(()) => return exchange(directory, &name, &private, known),
            Err(Errno::EXIST) => {}
            Err(errno) => return Replacement::Failed(errno),
        }
    }
    Replacement::Failed(Errno::EXIST)
}

fn exchange(directory: BorrowedFd<'_>, name: &CStr, private: &CStr, known: Id) -> Replacement {
    let identity = |name: &CStr| {
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(id(&stat))
    };
    let rename = |from: &CStr, to: &CStr, flags| {
        rustix::fs::renameat_with(directory, from, directory, to, flags)
    };
    // A filter refuses the call for every name. The kernel looks both up before it checks the
    // permissions: `ENOENT` (`do_renameat2`, fs/namei.c).
    let is_refused = |errno| {
        let missing = super::removal::private(OsStr::new(""), TRIES);
        rename(private, &missing, RenameFlags::EXCHANGE) == Err(errno)
    };
    let unlink = || rustix::fs::unlinkat(directory, private, AtFlags::empty());
    let made: Result<Id, Errno> = identity(private);
    if let Err(errno) = rename(private, name, RenameFlags::EXCHANGE) {
        let _ = unlink();
        return match errno {
            Errno::NOENT => Replacement::Another,
            // The file system cannot (renameat2(2)); the kernel cannot, before
            // Linux 3.15.
            Errno::INVAL | Errno::NOSYS => Replacement::Unsupported,
            Errno::PERM | Errno::ACCESS if is_refused(errno) => Replacement::Unsupported,
            errno => Replacement::Failed(errno),
        };
    }
    if identity(private) == Ok(known) {
        return match unlink() {
            Ok(()) | Err(Errno::NOENT) => Replacement::Replaced,
            Err(errno) => {
                // A file that may not be removed keeps its name.
                let back = rename(private, name, RenameFlags::EXCHANGE);
                let _ = back.and_then(|()| unlink());
                Replacement::Failed(errno)
            }
        };
    }
    let back = match rename(private, name, RenameFlags::EXCHANGE) {
        // A third file may have had the name.
        Ok(()) if made.is_ok() && identity(private) == made => unlink(),
        Ok(()) => Err(Errno::EXIST),
        // Another process has removed the new symlink.
        Err(_) => rename(private, name, RenameFlags::NOREPLACE),
    };
    match back {
        Ok(()) => Replacement::Another,
        Err(_) => Replacement::Displaced(OsStr::from_bytes(private.to_bytes()).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::CWD;

    use super::super::names;
    use super::*;

    #[test]
    fn the_known_symlink_and_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        symlink("old", &path).unwrap();
        let old = id(&rustix::fs::lstat(&path).unwrap());
        let replace = || replace_symlink(CWD, &path, old, c"new");
        match replace() {
            Replacement::Unsupported => return testkit::skip::here("no RENAME_EXCHANGE"),
            done => assert_eq!(done, Replacement::Replaced),
        }
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("new"));
        assert_eq!(names(dir.path()), ["l"]);
        fs::remove_file(&path).unwrap();
        assert_eq!(replace(), Replacement::Another);
        assert!(names(dir.path()).is_empty());
        // The new file must not get the inode of the old symlink.
        fs::create_dir(&path).unwrap();
        let other = replace_symlink(CWD, &path, (0, 0), c"new");
        assert_eq!(other, Replacement::Another);
        assert!(path.is_dir());
        assert_eq!(names(dir.path()), ["l"]);
    }
}
