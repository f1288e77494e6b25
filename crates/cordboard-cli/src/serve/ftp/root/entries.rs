//! The entries of directories, as listings show them.

use std::io;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

use super::{About, Place, Root};

impl Root {
    /// Returns the metadata of a file for a listing: that of the target of a symlink, or that
    /// of the symlink itself, if it leads out of the root or nowhere.
    pub fn listed_metadata(&self, place: &Place) -> io::Result<About> {
        match self.metadata(place) {
            Err(error) if leads_nowhere(&error) => self.own_metadata(place),
            about => about,
        }
    }

    /// Calls `each` with each name in a directory and its metadata for a listing, until `each`
    /// fails. A symlink to a directory has its own metadata and its target: a client that deletes
    /// or copies a tree would otherwise follow it.
    pub fn list(
        &self,
        place: &Place,
        mut each: impl FnMut(&[u8], &About) -> io::Result<()>,
    ) -> io::Result<()> {
        let folder = self.dir.open_dir(place.path())?;
        for entry in folder.entries()? {
            let name = entry?.file_name();
            let about = match About::entry(&folder, &name) {
                // Resolved from the root: the target may be outside of this directory.
                Ok(link) if link.is_symlink() => {
                    let about = self.listed_metadata(&place.join(name.as_bytes()));
                    match about {
                        Ok(about) if about.is_dir() => link.leading_to(&folder, &name),
                        about => about,
                    }
                }
                about => about,
            };
            match about {
                Ok(about) => each(name.as_bytes(), &about)?,
                Err(error) if is_removed(&error) => {}
                Err(error) if is_mount_without_access(&error) => {
                    each(name.as_bytes(), &About::UNKNOWN)?;
                }
                // A client that mirrors the directory deletes what is not listed.
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the metadata of a file, or of a symlink to a directory. Fails if a symlink leads out
    /// of the root or nowhere.
    pub fn metadata_or_link(&self, place: &Place) -> io::Result<About> {
        let about = self.metadata(place)?;
        let Some((name, folder)) = place.0.split_last().filter(|_| about.is_dir()) else {
            return Ok(about);
        };
        let folder = self.dir.open_dir(Place(folder.to_vec()).path())?;
        match About::entry(&folder, name)? {
            link if link.is_symlink() => link.leading_to(&folder, name),
            _ => Ok(about),
        }
    }
}

/// Returns whether a symlink may have caused the error, because its target does not exist, may
/// not be looked up, cannot exist, or is outside of the root. `cap-std` reports the latter without
/// an errno.
///
/// `ENAMETOOLONG`: a component is longer than the file system permits (path_resolution(7)).
/// `EINVAL`: the file system does not permit its bytes (`generic_ci_validate_strict_name()`,
/// include/linux/fs.h).
pub(super) fn leads_nowhere(error: &io::Error) -> bool {
    match Errno::from_io_error(error) {
        Some(errno) => matches!(
            errno,
            Errno::NOENT
                | Errno::NOTDIR
                | Errno::LOOP
                | Errno::ACCESS
                | Errno::NAMETOOLONG
                | Errno::INVAL
        ),
        None => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// Returns whether the file may be the mount of a FUSE server: one of another user, which not
/// even root may access, or one that has ended.
fn is_mount_without_access(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::ACCESS | Errno::NOTCONN)
    )
}

/// Returns whether the file was removed since its name was read. Network file systems report
/// `ESTALE`.
pub(super) fn is_removed(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOENT | Errno::STALE)
    )
}
